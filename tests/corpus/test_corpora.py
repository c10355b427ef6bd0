"""Verdicts on the committed evidence: every recording, every healthy file, and the casebook."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sentinel.scoring.cases import Case
from sentinel.scoring.markdown import read_explanations
from sentinel.scoring.run import Result
from sentinel.scoring.summary import line
from sentinel.testing.corpus import case_names

HERE = Path(__file__).parent
EXPLAINED = read_explanations(HERE.parent.parent / "docs" / "accuracy.yaml")
CASEBOOK_RIGHT_MIN = 40

Corpora = dict[str, dict[str, Case]]
Score = Callable[[Case], Result]


def names(corpus: str) -> list[object]:
    """Cases of a corpus; those whose miss is explained in the accuracy report are expected to fail."""
    found: list[object] = []
    for name in case_names(HERE / f"{corpus}.tar.zst"):
        marks = [pytest.mark.xfail(reason=EXPLAINED[name], strict=True)] if name in EXPLAINED else []
        found.append(pytest.param(name, marks=marks))
    return found


@pytest.mark.parametrize("name", names("recordings"))
def test_a_recorded_run_is_judged_as_what_was_done_to_it(corpora: Corpora, scored: Score, name: str) -> None:
    """Otherwise an engine that fails like this one would be diagnosed wrongly."""
    result = scored(corpora["recordings"][name])
    assert result.mark.right, line(result)


@pytest.mark.parametrize("name", names("gpus"))
def test_a_run_on_other_gpus_is_judged_as_what_was_done_to_it(corpora: Corpora, scored: Score, name: str) -> None:
    """Otherwise the rules fit one recording session and its culprit, not the faults."""
    result = scored(corpora["gpus"][name])
    assert result.mark.right, line(result)


@pytest.mark.parametrize("name", names("healthy"))
def test_a_healthy_engine_raises_no_alarm(corpora: Corpora, scored: Score, name: str) -> None:
    """Otherwise somebody would be woken, or a healthy engine restarted."""
    result = scored(corpora["healthy"][name])
    assert result.mark.right, line(result)


@pytest.mark.parametrize("name", names("casebook"))
def test_a_case_modelled_on_a_report_is_judged_as_an_expert_would(corpora: Corpora, scored: Score, name: str) -> None:
    """Otherwise a kind of incident that others have had would be diagnosed wrongly."""
    result = scored(corpora["casebook"][name])
    assert result.mark.right, line(result)


def test_at_least_forty_casebook_cases_are_right(corpora: Corpora, scored: Score) -> None:
    """Otherwise explaining misses could replace avoiding them."""
    right = [scored(case).mark.right for case in corpora["casebook"].values()]
    assert sum(right) >= CASEBOOK_RIGHT_MIN


def test_no_forbidden_action_is_recommended_anywhere(corpora: Corpora, scored: Score) -> None:
    """Otherwise following the advice would do harm, whatever the diagnosis."""
    results = [scored(case) for cases in corpora.values() for case in cases.values()]
    assert {result.name: result.mark.forbidden for result in results if result.mark.forbidden} == {}
