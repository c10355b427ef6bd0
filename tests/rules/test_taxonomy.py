"""`docs/taxonomy.md` is what the rules and facts say today, and says it completely."""

import msgspec
import pytest

from sentinel.core.facts import CATALOGUE, NAMES
from sentinel.core.rules import Advice, When
from sentinel.model.taxonomy import MEANINGS
from sentinel.model.verdict import CLASSES, Verdict
from sentinel.report import rule_page, taxonomy
from sentinel.rulebook import load_rules
from tests.tidy import sources

PAGE = taxonomy.render(load_rules(NAMES), CATALOGUE)


def test_the_page_in_the_repository_is_the_one_that_the_rules_write() -> None:
    """False: operators read about rules that no longer judge like this; `make docs` writes the page anew."""
    assert (sources.ROOT / "docs" / "taxonomy.md").read_text() == PAGE, "stale: run `make docs`"


def test_every_class_has_a_meaning_and_a_chapter() -> None:
    """False: a verdict carries a word that nothing explains."""
    assert tuple(MEANINGS) == CLASSES
    chapters = [line.removeprefix("### ") for line in PAGE.splitlines() if line.startswith("### ")]
    assert tuple(chapters) == CLASSES


def test_every_chapter_says_who_judges_what_to_do_what_is_forbidden_and_what_deceives() -> None:
    """False: the page is no help to the person who has to act."""
    for chapter in PAGE.split("\n### ")[1:]:
        for label in ("fires when", "First action:", "Forbidden:", "May be mistaken", "Would decide:", "Asks for:"):
            assert label in chapter, (chapter.partition("\n")[0], label)


def test_every_fact_is_in_the_table_with_its_unit() -> None:
    """False: the author of a rule cannot find what may be asked."""
    for spec in CATALOGUE:
        assert f"| `{spec.name}` | {spec.unit} | " in PAGE


def test_every_field_of_the_verdict_is_described() -> None:
    """False: a program that reads verdicts meets a field that no page names."""
    assert set(taxonomy.FIELDS) == {field.encode_name for field in msgspec.structs.fields(Verdict)}


@pytest.mark.parametrize(
    ("test", "words"),
    [
        (When(fact="a", eq=True), "a is true"),
        (When(fact="a", eq="load"), "a is load"),
        (When(fact="a", one_of=("x", "y")), "a is one of x, y"),
        (When(fact="a", at_least=2.0), "a is at least 2"),
        (When(fact="a", at_least=2.0, at_most=3.5), "a is at least 2 and at most 3.5"),
        (When(fact="a", count_at_least=1), "a names somebody"),
        (When(fact="a", count_at_least=2), "a has at least 2 members"),
        (When(fact="a", count_at_most=0), "a is empty"),
        (When(fact="a", within="b"), "a lies within b"),
        (When(fact="a", meets="b"), "a and b have a member in common"),
        (When(fact="a", apart_from="b"), "a and b have no member in common"),
    ],
)
def test_a_comparison_is_told_in_words(test: When, words: str) -> None:
    """False: the page says something else than the rule asks."""
    assert rule_page.leaf(test) == words


def test_a_nested_condition_keeps_what_belongs_together() -> None:
    """False: an exception of one alternative reads like an exception of the whole rule."""
    a, b, c, d = (When(fact=name, eq=True) for name in "abcd")
    condition = When(some=(When(every=(a,), unless=(b,)), c), unless=(When(every=(c, d)),))

    assert list(rule_page.tree(condition)) == [
        "any of", "  all of", "    a is true", "    unless", "      b is true", "  c is true",
        "unless", "  all of", "    c is true", "    d is true",
    ]  # fmt: skip
    assert rule_page.sentence(condition) == (
        "(a is true and not (b is true) or c is true) and not (c is true and d is true)"
    )


def test_advice_shows_its_target_and_its_limit() -> None:
    """False: advice for one situation is read as advice for all."""
    piece = Advice(action="rowstore_mode", to="ram", why="no disk", when=When(fact="a", eq=True))

    assert rule_page.advice(piece) == "rowstore_mode (ram) [only if a is true]: no disk"
