"""The shipped rules: their own cases pass, their cases notice every mutation, and every class has a rule."""

import pytest

from sentinel.core.facts import NAMES
from sentinel.core.rules import Rule
from sentinel.model.verdict import CLASSES
from sentinel.rulebook import load_rules
from sentinel.rulecheck import check, survivors

RULES = load_rules(NAMES)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_every_case_of_a_rule_passes(rule: Rule) -> None:
    """If false, a rule says something else than its author wrote beside it."""
    assert [str(failure) for failure in check(rule, NAMES)] == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_flipping_a_comparison_or_shifting_a_threshold_fails_a_case(rule: Rule) -> None:
    """If false, a rule could be changed by accident and nobody would notice."""
    assert [str(survivor) for survivor in survivors(rule, NAMES)] == []


def test_every_class_of_the_taxonomy_has_a_rule() -> None:
    """If false, a class exists on paper that no evidence can ever reach."""
    assert {rule.kind for rule in RULES} == set(CLASSES)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_never_suggests_what_it_forbids(rule: Rule) -> None:
    """If false, the operator would read an order and its opposite."""
    unconditional = {advice.action for advice in rule.forbid if advice.when is None}

    assert not unconditional & {advice.action for advice in rule.suggest}
