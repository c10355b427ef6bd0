"""Verdicts on generated evidence: other engines, sizes, hosts, GPUs and dialects than the committed corpora have."""

from collections.abc import Iterator

import pytest

from sentinel.scoring.cases import GENERATED, found_in
from sentinel.scoring.run import Result, score_case
from sentinel.scoring.summary import line, summarise
from sentinel.testing.generator import write_case
from sentinel.testing.generator.scenarios import ALL

SEED = 2026
RIGHT_MIN = 0.9
"""The accuracy report measures 500 cases; this sample of one a scenario only guards against a large drop."""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[Result]:
    """One case of every scenario, scored."""
    return list(_scored(tmp_path_factory))


def _scored(factory: pytest.TempPathFactory) -> Iterator[Result]:
    for number in range(len(ALL)):
        folder = write_case(factory.mktemp("case"), number=number, seed=SEED)
        for case in found_in(folder, GENERATED):
            yield score_case(case)


def test_nine_of_ten_generated_cases_are_right_in_everything(results: list[Result]) -> None:
    """Otherwise the rules would fit the committed corpora only."""
    found = summarise(results)
    assert found.right >= RIGHT_MIN * found.cases, "\n".join(line(row) for row in results if not row.mark.right)


def test_no_generated_case_gets_a_forbidden_action(results: list[Result]) -> None:
    """Otherwise following the advice would do harm on engines unlike the recorded ones."""
    assert {row.name: row.mark.forbidden for row in results if row.mark.forbidden} == {}


def test_no_generated_healthy_engine_counts_as_stalled(results: list[Result]) -> None:
    """Otherwise a busy or idle engine would be restarted."""
    calm = [row for row in results if row.expected.stalled == (False,)]
    assert [line(row) for row in calm if row.verdict.stalled] == []
