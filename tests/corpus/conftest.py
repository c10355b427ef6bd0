"""Unpacks the corpora once a session and scores each case at most once."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sentinel.scoring.cases import Case, found_in
from sentinel.scoring.run import Result, score_case
from sentinel.testing.corpus import unpack

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Case]]:
    """Corpus -> case name -> case."""
    root = tmp_path_factory.mktemp("corpora")
    return {
        archive.name.partition(".")[0]: {
            case.name: case for case in found_in(unpack(archive, root / archive.name), archive.name.partition(".")[0])
        }
        for archive in sorted(HERE.glob("*.tar.zst"))
    }


@pytest.fixture(scope="session")
def scored() -> Callable[[Case], Result]:
    """Scores a case once, however many tests ask."""
    known: dict[tuple[str, str], Result] = {}

    def score(case: Case) -> Result:
        key = (case.corpus, case.name)
        if key not in known:
            known[key] = score_case(case)
        return known[key]

    return score
