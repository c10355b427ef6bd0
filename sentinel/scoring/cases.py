"""Finds cases below a folder or in packed corpora, and hands out their evidence under a neutral path."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sentinel.scoring.expected import Expected, read_expected
from sentinel.testing.corpus import SUFFIX, is_packed, unpack
from sentinel.testing.generator import write_cases

GENERATED = "generated"
"""Name of the corpus of generated cases."""


@dataclass(frozen=True, slots=True)
class Case:
    """One labelled evidence folder. `name` and `corpus` are for people, never for the analyser."""

    name: str
    corpus: str
    evidence: Path
    expected: Expected


@contextmanager
def opened(paths: tuple[Path, ...], *, generate: int | None = None, seed: int = 0) -> Iterator[tuple[Case, ...]]:
    """All cases below `paths` in order of name, then `generate` generated ones.

    Packed corpora among or below the paths, and generated cases, live in a temporary folder meanwhile.
    """
    with tempfile.TemporaryDirectory(prefix="sentinel-score-") as temporary:
        roots: list[tuple[str, Path]] = []
        for index, path in enumerate(paths):
            packed = [path] if is_packed(path) else sorted(found for found in path.rglob("*") if is_packed(found))
            for number, archive in enumerate(packed):
                target = Path(temporary) / f"{index}-{number}"
                unpack(archive, target)
                roots.append((archive.name.removesuffix(SUFFIX), target))
            if path.is_dir():
                roots.append((path.resolve().name, path))
        if generate is not None:
            target = Path(temporary) / "generated"
            write_cases(target, count=generate, seed=seed)
            roots.append((GENERATED, target))
        yield tuple(case for corpus, root in roots for case in found_in(root, corpus))


def found_in(root: Path, corpus: str = "") -> Iterator[Case]:
    """Cases below a folder (or the folder itself). Raises LabelError on a label that cannot be read."""
    for label in sorted(root.rglob("expected.yaml")):
        evidence = label.parent / "evidence"
        if evidence.is_dir():
            yield Case(label.parent.name, corpus, evidence, read_expected(label))


@contextmanager
def neutral(evidence: Path) -> Iterator[Path]:
    """A copy of the evidence at a path that tells nothing about the case."""
    with tempfile.TemporaryDirectory(prefix="evidence-") as temporary:
        target = Path(temporary) / "evidence"
        shutil.copytree(evidence, target, symlinks=True)
        yield target
