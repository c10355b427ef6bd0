"""The same incident as another operator, machine or version would have left it gets the same verdict."""

import pytest

from sentinel.scoring.cases import Case
from sentinel.scoring.run import analyse
from sentinel.testing.metamorphic import TRANSFORMS, judge_transformed, read_case

SAMPLE_EVERY = 11
"""`python -m sentinel.testing.metamorphic` runs every transform on every case; a test run takes a sample of pairs."""

Corpora = dict[str, dict[str, Case]]


@pytest.mark.parametrize(("corpus", "shift"), [("recordings", 3), ("casebook", 0)])
@pytest.mark.timeout(600)
def test_a_verdict_does_not_depend_on_names_frames_dates_or_numbering(
    corpora: Corpora, corpus: str, shift: int
) -> None:
    """Otherwise it would fit the committed evidence only: the same incident elsewhere would be judged differently."""
    outcomes = []
    for at, case in enumerate(corpora[corpus].values()):
        names = [name for index, name in enumerate(TRANSFORMS) if (index + at + shift) % SAMPLE_EVERY == 0]
        original, whole = read_case(case), analyse(case.evidence).verdict
        outcomes += [judge_transformed(case, original, name, whole) for name in names]
    judged = [found for found in outcomes if found is not None]
    assert judged
    assert [str(found) for found in judged if found.outcome == "wrong"] == []
