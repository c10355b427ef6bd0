"""Fixtures of the tests with hostile evidence."""

from pathlib import Path

import pytest

from tests.hostile.evidence_cases import ENGINE


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that holds one good log beside whatever a test adds."""
    (tmp_path / "engine.log").write_text(ENGINE)
    return tmp_path
