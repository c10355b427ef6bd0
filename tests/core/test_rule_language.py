"""The rule language: what a condition, a selector and a score mean."""

import pytest

from sentinel.core.fact import Fact, Value
from sentinel.core.rules import Rule, evaluate
from sentinel.rulebook import RuleError, parse_rule

KNOWN = ("a", "b", "culprit", "victim", "number")
HEAD = """
id: test
title: a rule for tests
status: stable
class: hang.python
order: 1
stalled: true
says: "{culprits}"
needs: a look
cases:
  - {name: fires, fires: true, but: {a: true}}
  - {name: silent, fires: false, but: {a: false}}
  - {name: unknown, fires: unknown, but: {a: null}}
"""


def rule(body: str) -> Rule:
    return parse_rule(HEAD + body, "test.yaml", KNOWN)


def facts(**values: Value) -> dict[str, Fact]:
    return {name: Fact(value=values.get(name)) for name in KNOWN}


def test_a_rule_is_undecided_while_a_needed_fact_is_unknown() -> None:
    """If false, a missing source would make rules fire or stay silent at random."""
    asks = rule("when: {all: [{fact: a, is: true}, {fact: b, is: true}]}")

    assert evaluate(asks, facts(a=True, b=True)).fires is True
    assert evaluate(asks, facts(a=True)).fires is None
    assert evaluate(asks, facts(a=True, b=False)).fires is False
    assert evaluate(asks, facts(b=False)).fires is False


def test_unless_excludes_only_on_a_certain_answer() -> None:
    """If false, a source nobody collected would mute a rule that has all it needs."""
    asks = rule("when: {all: [{fact: a, is: true}], unless: [{fact: b, is: true}]}")

    assert evaluate(asks, facts(a=True)).fires is True
    assert evaluate(asks, facts(a=True, b=False)).fires is True
    assert evaluate(asks, facts(a=True, b=True)).fires is False


def test_a_victim_is_never_also_a_culprit() -> None:
    """If false, the report would send the operator to a rank that only waits."""
    asks = rule("when: {fact: a, is: true}\nculprits: [{fact: culprit}]\nvictims: [{fact: victim}]")

    outcome = evaluate(asks, facts(a=True, culprit=(1,), victim=(0, 1, 2)))

    assert (outcome.culprits, outcome.victims) == ((1,), (0, 2))


def test_most_ranks_are_never_all_to_blame_when_a_minority_is_asked_for() -> None:
    """If false, a dump in which every rank waits in a lock would accuse the whole engine."""
    asks = rule("when: {fact: a, is: true}\nculprits: [{fact: culprit, minority: true}, {fact: victim}]")

    assert evaluate(asks, facts(a=True, culprit=(1,)), (0, 1, 2)).culprits == (1,)
    assert evaluate(asks, facts(a=True, culprit=(0, 1)), (0, 1, 2)).culprits == ()
    assert evaluate(asks, facts(a=True, culprit=(0, 1), victim=(2,)), (0, 1, 2)).culprits == (2,)


def test_confidence_grows_with_support_and_falls_with_contradiction() -> None:
    """If false, a verdict would sound as sure with evidence against it as without."""
    asks = rule(
        """
when: {fact: a, is: true}
points: 3
supports: [{when: {fact: b, is: true}, weight: strong}]
contradicts: [{when: {fact: number, at_least: 5}, weight: strong}]
"""
    )

    assert evaluate(asks, facts(a=True)).confidence == "medium"
    assert evaluate(asks, facts(a=True, b=True)).confidence == "high"
    assert evaluate(asks, facts(a=True, b=True, number=5.0)).confidence == "medium"
    assert evaluate(asks, facts(a=True, number=5.0)).confidence == "low"


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ("when: {fact: aa, is: true}", "aa is not a fact; did you mean a?"),
        ("when: {fact: a}", "needs one comparison, it has 0"),
        ("when: {fact: a, is: true, at_least: 1}", "needs one comparison, it has 2"),
        ("when: {fact: a, is: true}\nculprit: []", "culprit"),
        ("when: {all: [{}]}", "needs a fact or branches"),
        ("when: [", "expected"),
    ],
)
def test_a_rule_with_a_mistake_is_refused_with_its_reason(body: str, complaint: str) -> None:
    """If false, a typing error in a site rule would silently never fire at 03:00."""
    with pytest.raises(RuleError, match=r"test\.yaml") as refused:
        rule(body)

    assert complaint in str(refused.value)


def test_a_rule_without_a_silent_case_is_refused() -> None:
    """If false, a rule that always fires could be shipped."""
    text = HEAD.replace("  - {name: silent, fires: false, but: {a: false}}\n", "") + "when: {fact: a, is: true}"

    with pytest.raises(RuleError, match="add a case in which the rule stays silent"):
        parse_rule(text, "test.yaml", KNOWN)
