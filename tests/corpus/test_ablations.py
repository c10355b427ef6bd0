"""With part of the evidence gone, a verdict may soften but must not turn against somebody else."""

import pytest

from sentinel.scoring.ablate import ablate_case
from sentinel.scoring.cases import Case
from sentinel.scoring.run import analyse

SAMPLE_EVERY = 4
"""The accuracy report runs all of them; a test run takes every fourth case, shifted per corpus."""

Corpora = dict[str, dict[str, Case]]


@pytest.mark.parametrize(("corpus", "shift"), [("recordings", 1), ("casebook", 2)])
@pytest.mark.timeout(600)
def test_a_missing_source_or_rank_never_turns_a_verdict(corpora: Corpora, corpus: str, shift: int) -> None:
    """Otherwise an operator who could not collect everything would be told to restart or drain the wrong machine."""
    sample = list(corpora[corpus].values())[shift::SAMPLE_EVERY]
    outcomes = [outcome for case in sample for outcome in ablate_case(case, "all", analyse)]
    assert outcomes
    wrong = [f"{row.case} without {row.without}: {row.says}" for row in outcomes if row.outcome == "wrong"]
    assert wrong == []
