"""Loads rules from YAML and refuses what would surprise at 03:00: unknown facts, keys, duplicate ids, missing cases,
comparisons that do not fit their fact, summaries with words that nobody fills in.

A site's own folder of rules overrides shipped ones by id.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from string import Formatter

import msgspec
import yaml

from sentinel.core.facts import CATALOGUE
from sentinel.core.rules import SUMMARY_WORDS, Rule, When
from sentinel.model.verdict import CLASSES

RULE_BYTES_MAX = 256 * 1024
UNITS: Mapping[str, str] = {spec.name: spec.unit for spec in CATALOGUE}
SETS = ("ranks", "hosts", "pids", "requests")
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class RuleError(Exception):
    """A rule file that cannot be used; the message names the file and what to change."""


def load_rules(known_facts: Collection[str], site: Path | None = None) -> tuple[Rule, ...]:
    """Shipped rules, overridden by id from `site`, in ladder order.

    Raises RuleError naming the file for malformed YAML, unknown keys, unknown facts, unknown classes or missing cases.
    """
    rules: dict[str, Rule] = {}
    for source in (files("sentinel.rules"), site):
        seen: dict[str, str] = {}
        for name, text in _documents(source):
            rule = parse_rule(text, name, known_facts)
            if rule.id in seen:
                raise RuleError(f"{name}: id {rule.id} is already used by {seen[rule.id]}; give it another id")
            seen[rule.id] = name
            rules[rule.id] = rule
    return tuple(sorted(rules.values(), key=lambda rule: (rule.order, rule.id)))


def parse_rule(text: str, name: str, known_facts: Collection[str]) -> Rule:
    """One rule from YAML text; `name` is used in messages. Raises RuleError."""
    if len(text) > RULE_BYTES_MAX:
        raise RuleError(f"{name}: larger than {RULE_BYTES_MAX} bytes; split it")
    try:
        rule = msgspec.convert(yaml.load(text, _Loader), Rule, strict=True)
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise RuleError(f"{name}: {error}") from error
    _check(rule, name, known_facts)
    return rule


def _check(rule: Rule, name: str, known_facts: Collection[str]) -> None:
    if rule.kind not in CLASSES:
        raise RuleError(f"{name}: class {rule.kind} is not in the taxonomy{_hint(rule.kind, CLASSES)}")
    given = (fact for case in rule.cases for fact in (*rule.base, *case.but))
    for fact in (*rule.fact_names(), *given):
        if fact not in known_facts:
            raise RuleError(f"{name}: {fact} is not a fact{_hint(fact, known_facts)}")
    for condition in rule.conditions():
        for node in condition.nodes():
            if (fault := node.fault() or _misfit(node)) is not None:
                raise RuleError(f"{name}: {fault}")
    for fault in (*_wrong_selectors(rule), *_wrong_words(rule.says)):
        raise RuleError(f"{name}: {fault}")
    outcomes = {case.fires for case in rule.cases}
    for wanted, word in ((True, "fires"), (False, "stays silent"), ("unknown", "says unknown")):
        if wanted not in outcomes:
            raise RuleError(f"{name}: add a case in which the rule {word}")


def _misfit(test: When) -> str | None:
    """Why a fact of this unit cannot be compared like this; None where it can."""
    unit = UNITS.get(test.fact or "")
    if unit is None:
        return None
    if unit in SETS:
        other = test.within or test.meets or test.apart_from
        if other is not None and UNITS.get(other) != unit:
            return f"{test.fact} holds {unit} and {other} does not"
        counted = test.count_at_least is not None or test.count_at_most is not None
        return None if counted or other else f"{test.fact} is a set: use count_at_least, within, meets or apart_from"
    if unit == "bool":
        return None if isinstance(test.eq, bool) else f"{test.fact} is true or false: use `is: true` or `is: false`"
    if unit == "word":
        is_word = isinstance(test.eq, str) or test.one_of is not None
        return None if is_word else f"{test.fact} is a word: use `is` or `one_of`"
    is_number = test.at_least is not None or test.at_most is not None
    return None if is_number else f"{test.fact} is a number: use at_least or at_most"


def _wrong_selectors(rule: Rule) -> Iterator[str]:
    """Facts that are no ranks where ranks are accused, and so on; such a selector would never name anybody."""
    for unit, selectors in (
        ("ranks", (*rule.culprits, *rule.victims)),
        ("hosts", rule.culprit_hosts),
        ("pids", rule.culprit_pids),
        ("requests", rule.culprit_requests),
    ):
        for name in (name for selector in selectors for name in selector.names()):
            if UNITS.get(name, unit) != unit:
                yield f"{name} holds no {unit}"


def _wrong_words(says: str) -> Iterator[str]:
    """What the summary asks for and nobody fills in."""
    try:
        fields = [(name, spec, change) for _, name, spec, change in Formatter().parse(says) if name is not None]
    except ValueError as error:
        yield f"says: {error}; write a brace as {{{{ or }}}}"
        return
    for name, spec, change in fields:
        if name not in SUMMARY_WORDS or spec or change:
            yield f"says: {{{name}}} is not filled in; use " + ", ".join(f"{{{word}}}" for word in SUMMARY_WORDS)


def _hint(word: str, known: Iterable[str]) -> str:
    close = get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _documents(source: Traversable | Path | None) -> Iterable[tuple[str, str]]:
    """(name, text) of each .yaml below a folder, sorted, one level of sub-folders."""
    if source is None:
        return
    if not source.is_dir():
        raise RuleError(f"{source} is not a folder of rules")
    for entry in sorted(source.iterdir(), key=lambda item: item.name):
        if entry.is_dir() and not entry.name.startswith((".", "_")):
            yield from ((f"{entry.name}/{name}", text) for name, text in _documents(entry))
        elif entry.name.endswith(".yaml"):
            yield entry.name, entry.read_text(encoding="utf-8")
