"""Runs the cases inside rules, and mutates rules to prove that the cases would notice.

A mutation flips one comparison or shifts one threshold by ten per cent (a count by one). A mutant that passes every
case of its rule has survived: the rule says something that no case holds it to.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

import msgspec

from sentinel.core.fact import Fact, Value
from sentinel.core.rules import Case, Rule, When, advised, evaluate
from sentinel.rulebook import UNITS

WORLD_MIN = 4
SHIFTS = (0.9, 1.1)


@dataclass(frozen=True, slots=True)
class CaseFailure:
    """A case whose outcome differs from what it states."""

    rule: str
    case: str
    wanted: str
    got: str

    def __str__(self) -> str:
        return f"{self.rule}: case «{self.case}»: wanted {self.wanted}, got {self.got}"


@dataclass(frozen=True, slots=True)
class Survivor:
    """A mutation that no case noticed."""

    rule: str
    mutation: str

    def __str__(self) -> str:
        return f"{self.rule}: no case notices when {self.mutation}"


def check(rule: Rule, known_facts: Collection[str]) -> Iterator[CaseFailure]:
    """Failures of the rule's own cases; facts that a case does not give are unknown."""
    for case in rule.cases:
        yield from _failures(rule, case, known_facts)


def survivors(rule: Rule, known_facts: Collection[str]) -> Iterator[Survivor]:
    """Mutations of the rule's conditions that all its cases let pass."""
    for mutant, mutation in mutants(rule):
        if not any(True for _ in check(mutant, known_facts)):
            yield Survivor(rule.id, mutation)


def mutants(rule: Rule) -> Iterator[tuple[Rule, str]]:
    """The rule with one test changed, and the change in words; `when`, supports and contradictions alike."""
    for when, words in _mutate(rule.when):
        yield msgspec.structs.replace(rule, when=when), words
    for name in ("supports", "contradicts"):
        parts = getattr(rule, name)
        for index, part in enumerate(parts):
            for when, words in _mutate(part.when):
                changed = (*parts[:index], msgspec.structs.replace(part, when=when), *parts[index + 1 :])
                yield msgspec.structs.replace(rule, **{name: changed}), f"{words} ({name})"


def _failures(rule: Rule, case: Case, known_facts: Collection[str]) -> Iterator[CaseFailure]:
    given = {**rule.base, **case.but}
    facts = {name: Fact(value=_value(given.get(name))) for name in known_facts}
    outcome = evaluate(rule, facts, _world(given.values()))
    fires: object = "unknown" if outcome.fires is None else outcome.fires
    if fires != case.fires:
        yield CaseFailure(rule.id, case.name, f"fires: {case.fires}", f"fires: {fires}")
        return
    stated: tuple[tuple[str, object, Callable[[], object]], ...] = (
        ("culprits", case.culprits, lambda: outcome.culprits),
        ("hosts", case.hosts, lambda: outcome.hosts),
        ("victims", case.victims, lambda: outcome.victims),
        ("points", case.points, lambda: outcome.points),
        ("confidence", case.confidence, lambda: outcome.confidence),
        ("actions", case.actions, lambda: tuple(piece.action for piece in advised(rule.suggest, facts))),
    )
    for word, wanted, got in stated:
        if wanted is not None and wanted != got():
            yield CaseFailure(rule.id, case.name, f"{word}: {wanted}", f"{word}: {got()}")


def _value(given: object) -> Value:
    return tuple(given) if isinstance(given, list | tuple) else given  # type: ignore[return-value]


def _world(given: Collection[object]) -> tuple[int, ...]:
    ranks = [one for value in given if isinstance(value, list | tuple) for one in value if isinstance(one, int)]
    return tuple(range(max([WORLD_MIN - 1, *ranks]) + 1))


def _mutate(when: When) -> Iterator[tuple[When, str]]:
    if when.fact is not None:
        yield from _mutate_test(when)
        return
    for name in ("every", "some", "none", "unless"):
        parts = getattr(when, name)
        for index, part in enumerate(parts):
            for changed, words in _mutate(part):
                branches = (*parts[:index], changed, *parts[index + 1 :])
                yield msgspec.structs.replace(when, **{name: branches}), words


def _mutate_test(test: When) -> Iterator[tuple[When, str]]:
    """Flip a comparison, or shift a threshold both ways."""
    replace = msgspec.structs.replace
    if isinstance(test.eq, bool):
        yield replace(test, eq=not test.eq), f"{test.fact} is asked for {str(not test.eq).lower()}"
    for mine, other in (("at_least", "at_most"), ("count_at_least", "count_at_most")):
        yield from _shift(test, mine, other)
        yield from _shift(test, other, mine)
    for name, opposite in (("meets", "apart_from"), ("apart_from", "meets"), ("within", "apart_from")):
        if (against := getattr(test, name)) is not None:
            yield replace(test, **{name: None, opposite: against}), f"{test.fact} {name} becomes {opposite}"
    for word in test.one_of or ():
        left = tuple(other for other in test.one_of or () if other != word)
        yield replace(test, one_of=left), f"{test.fact} no longer accepts {word}"


def _shift(test: When, mine: str, other: str) -> Iterator[tuple[When, str]]:
    """One bound turned round, and moved by one where whole things are counted, else by ten per cent."""
    bound = getattr(test, mine)
    if bound is None:
        return
    if getattr(test, other) is None:
        turned = msgspec.structs.replace(test, **{mine: None, other: bound})
        yield turned, f"{test.fact} {mine} {bound} becomes {other}"
    counted = mine.startswith("count") or UNITS.get(test.fact or "") == "count"
    for moved in (bound - 1, bound + 1) if counted else [bound * shift for shift in SHIFTS]:
        if moved >= 0:
            yield msgspec.structs.replace(test, **{mine: moved}), f"{test.fact} {mine} {bound} becomes {moved:g}"
