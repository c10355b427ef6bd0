"""Labelled evidence folders, composed by mechanism: a fault is simulated, each source shows what it would have seen.

Deterministic: the same seed and number give the same bytes.
"""

# ruff: noqa: E501 - printed lines stay whole, so that they can be searched for

from pathlib import Path
from random import Random

import yaml

from sentinel.testing.generator.assemble import files_of
from sentinel.testing.generator.scenarios import ALL
from sentinel.testing.generator.story import Label


def write_cases(target: Path, *, count: int, seed: int) -> None:
    """Write `count` cases below `target`; every scenario comes in turn, so that any prefix covers all classes evenly."""
    for number in range(count):
        write_case(target, number=number, seed=seed)


def write_case(target: Path, *, number: int, seed: int) -> Path:
    """Write one case and return its folder."""
    scenario = ALL[number % len(ALL)]
    rng = Random(f"{seed}/{number}")
    story = scenario(rng)
    folder = target / f"{number:04d}-{scenario.__module__.rpartition('.')[2]}-{scenario.__name__}"
    for name, content in files_of(story).items():
        path = folder / "evidence" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    fleet = story.fleet
    machine = f"{fleet.engine} {fleet.version}, {fleet.world} ranks, {len(fleet.hosts)} hosts, {fleet.gpu.name}"
    (folder / "expected.yaml").write_text(
        yaml.safe_dump(_document(story.label, machine), sort_keys=False), encoding="utf-8"
    )
    return folder


def _document(label: Label, machine: str) -> dict[str, object]:
    document: dict[str, object] = {
        "situation": label.situation,
        "classes": list(label.classes),
        "stalled": label.stalled,
        "culprit_ranks": None if label.ranks is None else list(label.ranks),
        "culprit_hosts": None if label.hosts is None else list(label.hosts),
        "must_recommend": list(label.must),
        "must_not_recommend": list(label.must_not),
        "machine": machine,
    }
    if label.max_confidence is not None:
        document["max_confidence"] = label.max_confidence
    return document
