"""Every test file has a name of its own: the test runner imports them all under their last names."""

from collections import Counter
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]


def test_no_two_test_files_are_called_alike() -> None:
    """False: one of the two is not collected, and its tests never run."""
    counted = Counter(path.name for path in TESTS.rglob("test_*.py"))

    assert [name for name, count in counted.items() if count > 1] == []
