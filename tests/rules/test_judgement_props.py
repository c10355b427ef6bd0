"""What holds for every judgement: order does not matter, blindness accuses nobody, less evidence nobody else."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sentinel.core.facts import NAMES
from sentinel.core.judge import judge
from sentinel.evidence.load import load
from sentinel.model.observation import Observation, Origin, Unavailable
from sentinel.model.verdict import Verdict
from sentinel.rulebook import load_rules
from sentinel.testing.corpus import unpack
from tests.tidy import sources

RULES = load_rules(NAMES)
TAKE_EVERY = {"recordings": 4, "casebook": 6}
"""Enough cases for every kind of source; one judgement takes tens of milliseconds."""
EXAMPLES = 40


@dataclass(frozen=True, slots=True)
class Seen:
    """The observations of one case and what they were judged to mean."""

    name: str
    observations: tuple[Observation, ...]
    clock_error_s: float
    verdict: Verdict

    def judged(self, observations: Sequence[Observation]) -> Verdict:
        """The verdict on other observations of the same incident."""
        return judge(observations, RULES, clock_error_s=self.clock_error_s).verdict


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> list[Seen]:
    """A sample of the packed corpora."""
    root = tmp_path_factory.mktemp("corpora")
    return [seen for corpus, every in TAKE_EVERY.items() for seen in _sample(root / corpus, corpus, every)]


def _sample(root: Path, corpus: str, every: int) -> Iterator[Seen]:
    unpack(sources.ROOT / "tests" / "corpus" / f"{corpus}.tar.zst", root)
    for folder in sorted(root.iterdir())[::every]:
        loaded = load(folder / "evidence")
        observations = tuple(loaded.observations)
        verdict = judge(observations, RULES, clock_error_s=loaded.clock_error_s).verdict
        yield Seen(folder.name, observations, loaded.clock_error_s, verdict)


def accused(verdict: Verdict) -> set[int | str]:
    """Ranks, hosts and requests that a verdict names as the cause."""
    return {*verdict.culprits.ranks, *verdict.culprits.hosts, *verdict.culprits.requests}


@settings(max_examples=EXAMPLES, deadline=None, derandomize=True)
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_the_order_in_which_evidence_is_read_does_not_matter(cases: list[Seen], data: st.DataObject, seed: int) -> None:
    """False: the names of files, or which host answers first, decide who is to blame."""
    case = data.draw(st.sampled_from(cases))
    shuffled = list(case.observations)
    Random(seed).shuffle(shuffled)

    verdict = case.judged(shuffled)

    for field in ("kind", "stalled", "confidence", "culprits", "victims", "t0", "actions", "do_not", "rule"):
        assert getattr(verdict, field) == getattr(case.verdict, field), (case.name, field)


unreadable = st.builds(
    Unavailable,
    origin=st.builds(Origin, st.sampled_from(["nvml", "kernel log", "/proc/1/stack"])),
    host=st.sampled_from([None, "node1", "elsewhere"]),
    rank=st.none() | st.integers(0, 7),
    source=st.text(max_size=12),
    reason=st.text(max_size=12),
)


@settings(max_examples=EXAMPLES, deadline=None, derandomize=True)
@given(data=st.data(), blind=st.lists(unreadable, min_size=1, max_size=4), late_s=st.floats(0, 86400))
def test_a_source_that_cannot_be_read_accuses_nobody(
    cases: list[Seen], data: st.DataObject, blind: list[Unavailable], late_s: float
) -> None:
    """False: a missing permission turns "cannot tell" into an order to restart."""
    case = data.draw(st.sampled_from(cases))
    newest_s = max((seen.at_s for seen in case.observations if seen.at_s is not None), default=0.0)

    verdict = case.judged([*case.observations, *(_at(seen, newest_s + late_s) for seen in blind)])

    assert verdict.kind == case.verdict.kind and verdict.stalled == case.verdict.stalled, case.name
    assert accused(verdict) <= accused(case.verdict), case.name


def _at(seen: Unavailable, at_s: float) -> Unavailable:
    return Unavailable(
        origin=seen.origin, host=seen.host, rank=seen.rank, source=seen.source, reason=seen.reason, at_s=at_s
    )


def test_nothing_read_at_all_accuses_nobody_and_calls_nothing_healthy() -> None:
    """False: a watcher without any access reports that all is well."""
    verdict = judge([Unavailable(origin=Origin("log"), source="log", reason="denied")], RULES).verdict

    assert verdict.kind == "unknown" and verdict.stalled is None
    assert not accused(verdict)


def test_less_evidence_never_accuses_somebody_else_for_sure(cases: list[Seen]) -> None:
    """False: who cannot collect one kind of source is sent to the wrong rank, with high confidence."""
    turned = []
    for case in cases:
        for kind in {type(seen) for seen in case.observations}:
            verdict = case.judged([seen for seen in case.observations if type(seen) is not kind])
            new = accused(verdict) - accused(case.verdict)
            if new and verdict.confidence == "high":
                turned.append((case.name, kind.__name__, verdict.kind, sorted(map(str, new))))

    assert turned == []
