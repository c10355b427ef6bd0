"""The loader refuses rules that could only surprise later: comparisons, selectors and summaries that cannot work."""

import pytest

from sentinel.core.facts import NAMES
from sentinel.core.judge import judge
from sentinel.core.rules import SUMMARY_WORDS, Rule
from sentinel.rulebook import RuleError, load_rules, parse_rule

BODY = """
id: site.one
title: A rule of a site
status: experimental
class: hang.python
order: 500
stalled: true
when: {fact: work.outstanding, is: true}
says: "somebody waits"
needs: a look
base: {work.outstanding: true}
cases:
  - {name: fires, fires: true}
  - {name: silent, fires: false, but: {work.outstanding: false}}
  - {name: unknown, fires: unknown, but: {work.outstanding: null}}
"""


def with_support(condition: str) -> Rule:
    return parse_rule(f"{BODY}supports: [{{when: {condition}, weight: weak}}]", "one.yaml", NAMES)


@pytest.mark.parametrize(
    ("condition", "complaint"),
    [
        ("{fact: work.outstanding, at_least: 1}", "work.outstanding is true or false"),
        ("{fact: work.outstanding, is: yes_please}", "work.outstanding is true or false"),
        ("{fact: gpu.idle_ranks, at_least: 1}", "gpu.idle_ranks is a set"),
        ("{fact: gpu.idle_ranks, is: true}", "gpu.idle_ranks is a set"),
        ("{fact: gpu.idle_ranks, within: network.hosts}", "gpu.idle_ranks holds ranks and network.hosts does not"),
        ("{fact: progress.silence_s, count_at_least: 1}", "progress.silence_s is a number"),
        ("{fact: progress.slowdown, is: true}", "progress.slowdown is a number"),
        ("{fact: phase.current, is: true}", "phase.current is a word"),
        ("{fact: phase.current, count_at_most: 3}", "phase.current is a word"),
    ],
)
def test_a_comparison_that_does_not_fit_its_fact_is_refused(condition: str, complaint: str) -> None:
    """False: such a rule stays silent for ever, or stops the judge in the middle of an incident."""
    with pytest.raises(RuleError, match=r"one\.yaml") as refused:
        with_support(condition)

    assert complaint in str(refused.value)


@pytest.mark.parametrize(
    "condition",
    [
        "{fact: work.outstanding, is: false}",
        "{fact: gpu.idle_ranks, count_at_least: 2, count_at_most: 3}",
        "{fact: gpu.idle_ranks, meets: stack.waiting_ranks}",
        "{fact: work.waiting, at_least: 3}",
        "{fact: progress.silence_s, at_least: 10, at_most: 20}",
        "{fact: phase.current, one_of: [load, memory]}",
        "{fact: phase.current, is: load}",
        "{none: [{fact: gpu.all_idle, is: true}]}",
    ],
)
def test_a_comparison_that_fits_is_accepted(condition: str) -> None:
    """False: a site cannot say what the shipped rules say."""
    assert with_support(condition).supports


@pytest.mark.parametrize(
    ("selector", "complaint"),
    [
        ("culprits: [{fact: network.hosts}]", "network.hosts holds no ranks"),
        ("culprits: [{fact: gpu.idle_ranks, minus: [network.hosts]}]", "network.hosts holds no ranks"),
        ("victims: [{fact: gpu.all_idle}]", "gpu.all_idle holds no ranks"),
        ("culprit_hosts: [{fact: gpu.idle_ranks}]", "gpu.idle_ranks holds no hosts"),
        ("culprit_requests: [{fact: gpu.idle_ranks}]", "gpu.idle_ranks holds no requests"),
    ],
)
def test_a_selector_of_the_wrong_kind_is_refused(selector: str, complaint: str) -> None:
    """False: the rule accuses nobody, or hosts where ranks are meant."""
    with pytest.raises(RuleError, match=complaint):
        parse_rule(f"{BODY}{selector}", "one.yaml", NAMES)


@pytest.mark.parametrize("says", ["{culprit} waits", "{culprits:d}", "{culprits!r}", "{culprits.real}", "{", "{}"])
def test_a_summary_with_a_word_that_nobody_fills_in_is_refused(says: str) -> None:
    """False: the judge fails with a traceback when this rule decides."""
    with pytest.raises(RuleError, match=r"one\.yaml: says"):
        parse_rule(BODY.replace("somebody waits", says), "one.yaml", NAMES)


def test_the_judge_fills_in_every_word_that_a_summary_may_contain() -> None:
    """False: the loader accepts a word that the judge does not know."""
    says = ", ".join(f"{{{word}}}" for word in SUMMARY_WORDS)
    text = BODY.replace("somebody waits", says).replace(
        "when: {fact: work.outstanding, is: true}", "when: {unless: [{fact: work.outstanding, is: true}]}"
    )
    always = parse_rule(text, "one.yaml", NAMES)

    verdict = judge((), [always]).verdict

    assert verdict.rule == "site.one"
    assert "{" not in verdict.summary


def test_every_shipped_summary_reads_well_when_nobody_can_be_named() -> None:
    """False: the first sentence of an answer has a hole in it."""
    unnamed = {"culprits": "a rank that cannot be named", "victims": "its peers", "hosts": "a host", "since": "",
               "requests": "a request"}  # fmt: skip
    for rule in load_rules(NAMES):
        said = rule.says.format_map(unnamed)
        assert "  " not in said and " ;" not in said and " ," not in said, rule.id
        assert not said.endswith((" ", ".", ";", ":")), rule.id
