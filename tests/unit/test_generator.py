"""The evidence generator: reproducible, labelled by mechanism, and readable by the same loader as real evidence."""

import re
from collections import Counter
from pathlib import Path
from random import Random
from typing import get_args

import pytest

from sentinel.core.picture import Picture
from sentinel.evidence.load import load
from sentinel.model.observation import NcclComm
from sentinel.model.verdict import CLASSES, ActionName
from sentinel.scoring.cases import Case, found_in
from sentinel.testing.generator import write_case, write_cases
from sentinel.testing.generator.fleet import make_fleet
from sentinel.testing.generator.scenarios import ALL, Scenario, device, divergence, host
from sentinel.testing.generator.story import Story

SEED = 11


def contents(folder: Path) -> dict[str, bytes]:
    """All files below a folder by relative path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    """Otherwise a failure in a generated case could not be looked at again."""
    for number in range(0, len(ALL), 7):
        first, second = (
            write_case(tmp_path / "a", number=number, seed=SEED),
            write_case(tmp_path / "b", number=number, seed=SEED),
        )
        assert contents(first) == contents(second)
        assert contents(first) != contents(write_case(tmp_path / "c", number=number, seed=SEED + 1))


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> tuple[Case, ...]:
    """One case of every scenario."""
    root = tmp_path_factory.mktemp("generated")
    write_cases(root, count=len(ALL), seed=SEED)
    return tuple(found_in(root))


def test_every_class_of_the_taxonomy_has_a_scenario(cases: tuple[Case, ...]) -> None:
    """Otherwise a class would be published without having been measured."""
    assert {case.expected.classes[0] for case in cases} == set(CLASSES)


def test_labels_use_the_words_of_the_contract(cases: tuple[Case, ...]) -> None:
    """Otherwise a label could never be met."""
    actions = set(get_args(ActionName))
    for case in cases:
        wanted = {action for choice in case.expected.must_recommend for action in choice}
        assert wanted | set(case.expected.must_not_recommend) <= actions
        assert set(case.expected.classes) <= set(CLASSES)


def test_fleets_cover_sizes_hosts_engines_and_parallelism() -> None:
    """Otherwise rules could fit two ranks on one host and nothing else."""
    fleets = [make_fleet(Random(seed)) for seed in range(300)]
    assert {fleet.engine for fleet in fleets} == {"sglang", "vllm", "trtllm", "packaged"}
    assert {2, 4, 8, 16, 32, 64} <= {fleet.world for fleet in fleets}
    assert {1, 2, 3, 4, 8} <= {len(fleet.hosts) for fleet in fleets}
    assert any(fleet.pp > 1 for fleet in fleets)
    assert any(fleet.dp > 1 for fleet in fleets)
    for fleet in fleets:
        assert [rank.rank for rank in fleet.ranks] == list(range(fleet.world))
        assert len({(rank.host.name, rank.pid) for rank in fleet.ranks}) == fleet.world


def lengths(story: Story) -> Counter[int]:
    """How many ranks enqueued how many operations."""
    return Counter(len(calls) for calls in story.calls.values())


@pytest.mark.parametrize("scenario", [host.callback, device.collective, device.one_kernel, device.network])
def test_a_device_side_fault_leaves_enqueue_counts_equal(scenario: Scenario) -> None:
    """Otherwise the label would not follow from what NCCL can log."""
    for seed in range(10):
        story = scenario(Random(seed))
        assert len(lengths(story)) == 1
        assert len({tuple(calls) for calls in story.calls.values()}) == 1


@pytest.mark.parametrize("scenario", [host.interpreter, host.stopped, divergence.skipped])
def test_a_rank_stopped_on_the_host_has_fewer_enqueues_than_all_others(scenario: Scenario) -> None:
    """Otherwise "behind" would not point to the labelled rank."""
    for seed in range(10):
        story = scenario(Random(seed))
        assert story.label.ranks is not None
        (culprit,) = story.label.ranks
        others = [len(calls) for rank, calls in story.calls.items() if rank != culprit]
        assert len(story.calls[culprit]) < min(others)
        assert len(set(others)) == 1


def test_another_order_keeps_counts_and_changes_the_sequence() -> None:
    """Otherwise the case could be solved by counting."""
    for seed in range(10):
        story = divergence.other_order(Random(seed))
        assert len(lengths(story)) == 1
        assert len({Counter(calls).total() for calls in story.calls.values()}) == 1
        assert len({tuple(calls) for calls in story.calls.values()}) == 2


@pytest.mark.parametrize("number", range(0, len(ALL), 3))
def test_the_loader_reads_generated_evidence_and_joins_it_to_existing_ranks(tmp_path: Path, number: int) -> None:
    """Otherwise generated accuracy would measure unread files or invented ranks."""
    folder = write_case(tmp_path, number=number, seed=SEED)
    loaded = load(folder / "evidence")
    world = int(re.search(r"(\d+) ranks", (folder / "expected.yaml").read_text()).group(1))  # type: ignore[union-attr]
    picture = Picture()
    for seen in loaded.observations:
        picture.note(seen)
    ranks = {picture.rank_of(seen) for kind in picture.kinds for seen in picture.all(kind)} - {None}
    assert ranks
    assert all(rank is not None and rank < world for rank in ranks)
    wanted = [path for path in (folder / "evidence").rglob("*nccl*") if path.is_file() and "ras" not in path.name]
    assert bool(wanted) <= picture.has(NcclComm)
