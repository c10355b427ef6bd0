"""The same incident as another operator, machine or version would have left it gets the same verdict."""

from collections.abc import Sequence

import pytest

from sentinel.scoring.cases import Case
from sentinel.scoring.run import analyse
from sentinel.testing.metamorphic import TRANSFORMS, Transformed, judge_transformed, read_case

STRIDE = 7
"""`python -m sentinel.testing.metamorphic` runs every transform on every case; a test run gives each transform one case
of each corpus, this many further on than the one before it, so that all cases get their turn."""

Corpora = dict[str, dict[str, Case]]


@pytest.mark.parametrize("corpus", ["recordings", "gpus", "casebook"])
@pytest.mark.timeout(1800)
def test_a_verdict_does_not_depend_on_names_frames_dates_or_numbering(corpora: Corpora, corpus: str) -> None:
    """Otherwise it would fit the committed evidence only: the same incident elsewhere would be judged differently."""
    cases = list(corpora[corpus].values())
    judged = [
        found
        for number, name in enumerate(TRANSFORMS)
        if (found := first_judged(turned(cases, number * STRIDE), name)) is not None
    ]
    assert len(judged) > len(TRANSFORMS) // 2
    assert [str(found) for found in judged if found.outcome == "wrong"] == []


def turned(cases: Sequence[Case], by: int) -> list[Case]:
    """The same cases, beginning with another one."""
    at = by % len(cases)
    return [*cases[at:], *cases[:at]]


def first_judged(cases: Sequence[Case], name: str) -> Transformed | None:
    """The first case to which a transform applies, judged; None when it applies to none of them."""
    for case in cases:
        original = read_case(case)
        if TRANSFORMS[name](original) is not None:
            return judge_transformed(case, original, name, analyse(case.evidence).verdict)
    return None
