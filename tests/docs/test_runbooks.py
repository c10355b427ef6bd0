"""Every class of verdict and every alert has a page, and no page is about something that does not exist."""

import re
from pathlib import Path

import pytest

from sentinel.model.taxonomy import MEANINGS
from sentinel.model.verdict import CLASSES
from tests.dashboards.test_rules import ALERTS
from tests.tidy.sources import ROOT

FOLDER = ROOT / "docs" / "runbooks"
PAGES = sorted(FOLDER.glob("*/*.md"))


def test_every_verdict_and_every_alert_has_its_page() -> None:
    """False: somebody at three in the morning has a name and nothing to read."""
    assert {path.stem for path in (FOLDER / "verdicts").iterdir()} == set(CLASSES)
    assert {path.stem for path in (FOLDER / "alerts").iterdir()} == set(ALERTS)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_a_page_says_what_to_look_at_and_what_to_do(page: Path) -> None:
    """False: the page explains and does not help."""
    text = page.read_text()
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)

    assert text.startswith(f"# {page.stem}\n")
    assert headings[0] in ("Look", "Confirm") and headings[1] == "Do" and set(headings[2:]) <= {"Do not"}
    assert "\n1. " in text and "\n- " in text
    if page.parent.name == "verdicts":
        assert MEANINGS[page.stem] in text


def test_the_index_lists_every_page() -> None:
    """False: a page exists and nobody finds it."""
    index = (FOLDER / "README.md").read_text()

    assert [page for page in PAGES if f"({page.parent.name}/{page.name})" not in index] == []
