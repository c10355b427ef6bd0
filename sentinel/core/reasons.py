"""The reasons of a verdict: evidence for and against, what was ruled out, what is missing, what else it may be."""

from collections.abc import Iterator, Mapping, Sequence

from sentinel.core.fact import Cite, Fact
from sentinel.core.rules import Outcome, Rule, When
from sentinel.model.observation import Origin
from sentinel.model.verdict import Alternative, Evidence, RuledOut, Weight

CITES_PER_FACT = 2
RULED_OUT_MAX = 8
MISSING_MAX = 6
ALTERNATIVES_MAX = 3

_GATES = frozenset({"progress.stopped", "progress.advancing", "work.outstanding", "phase.booting"})
"""Facts that most rules ask first; sharing one of these does not make two rules neighbours."""


def evidence(rule: Rule, facts: Mapping[str, Fact]) -> tuple[Evidence, ...]:
    """What the fired rule rests on (strong), what supports it, and what speaks against it; each fact once."""
    found: dict[tuple[str, str], Evidence] = {}
    for test in _held(rule.when, facts):
        _cite(found, test, facts, "strong", supports=True, wording="")
    for supports, parts in ((True, rule.supports), (False, rule.contradicts)):
        for part in parts:
            if part.when.holds(facts) is True:
                for test in _held(part.when, facts):
                    _cite(found, test, facts, part.weight, supports=supports, wording=part.says)
    return tuple(found.values())


def ruled_out(winner: Outcome | None, outcomes: Sequence[Outcome], facts: Mapping[str, Fact]) -> tuple[RuledOut, ...]:
    """Classes whose rules are silent for a reason that can be shown; those nearest to the verdict first."""
    mine = set() if winner is None else set(winner.rule.fact_names()) - _GATES
    fired = {outcome.rule.kind for outcome in outcomes if outcome.fires is not False}
    found: dict[str, tuple[int, str]] = {}
    for outcome in outcomes:
        rule = outcome.rule
        if outcome.fires is False and rule.kind not in fired and (reason := _why_silent(rule.when, facts)):
            nearness = len(mine & set(rule.fact_names()))
            found[rule.kind] = max((nearness, reason), found.get(rule.kind, (-1, "")))
    nearest = sorted(found.items(), key=lambda item: (-item[1][0], item[0]))[:RULED_OUT_MAX]
    return tuple(RuledOut(kind=kind, because=reason) for kind, (_, reason) in nearest)


def missing(winner: Outcome | None, outcomes: Sequence[Outcome], facts: Mapping[str, Fact]) -> tuple[str, ...]:
    """Sources whose absence left rules undecided, most wanted first."""
    wanted: dict[str, int] = {}
    for outcome in outcomes:
        if outcome.fires is None or outcome is winner:
            for name in dict.fromkeys(outcome.rule.fact_names()):
                if facts[name].value is None:
                    for source in facts[name].missing:
                        wanted[source] = wanted.get(source, 0) + 1
    return tuple(sorted(wanted, key=lambda source: (-wanted[source], source))[:MISSING_MAX])


def what_decides(winner: Outcome | None, outcomes: Sequence[Outcome], facts: Mapping[str, Fact]) -> str | None:
    """The single observation that would decide: what the likeliest undecided rule needs; None for a sure verdict."""
    if winner is not None and winner.confidence == "high":
        return None
    undecided = [outcome for outcome in outcomes if outcome.fires is None and outcome is not winner]
    best = max(undecided, key=lambda outcome: _promise(outcome, facts), default=None)
    if best is not None and _promise(best, facts) > 0:
        return best.rule.needs
    return None if winner is None else winner.rule.needs


def alternatives(winner: Outcome | None, outcomes: Sequence[Outcome]) -> tuple[Alternative, ...]:
    """Other classes that fire too, or that are undecided and have support."""
    kinds: dict[str, Alternative] = {}
    chosen = None if winner is None else winner.rule.kind
    firing = [o for o in outcomes if o.fires is True and o.points > 0]
    open_ones = sorted((o for o in outcomes if o.fires is None and o.points > 0), key=lambda o: -o.points)
    for outcome in (*firing, *open_ones):
        kind = outcome.rule.kind
        if kind not in (chosen, "unknown") and kind not in kinds:
            confidence = outcome.confidence if outcome.fires is True else "low"
            kinds[kind] = Alternative(kind=kind, confidence=confidence)
    return tuple(kinds.values())[:ALTERNATIVES_MAX]


def phrase(name: str, fact: Fact) -> str:
    """A fact in words when no source line says it better."""
    value = fact.value
    if isinstance(value, tuple):
        shown = ", ".join(map(str, value[:8])) + ("…" if len(value) > 8 else "")
        return f"{name}: {shown or 'none'}"
    if isinstance(value, float):
        return f"{name} is {value:.3g}"
    return f"{name} is {'unknown' if value is None else str(value).lower()}"


def _held(condition: When, facts: Mapping[str, Fact]) -> Iterator[When]:
    """Leaves that hold and carry the condition (not those under `none` or `unless`)."""
    if condition.fact is not None:
        if condition.holds(facts) is True:
            yield condition
        return
    for part in (*condition.every, *condition.some):
        yield from _held(part, facts)


def _cite(
    found: dict[tuple[str, str], Evidence],
    test: When,
    facts: Mapping[str, Fact],
    weight: Weight,
    *,
    supports: bool,
    wording: str,
) -> None:
    assert test.fact is not None
    fact = facts[test.fact]
    cites = fact.cites[:CITES_PER_FACT] or (Cite(wording or phrase(test.fact, fact), Origin("derived")),)
    for cite in cites:
        key = (test.fact, str(cite.origin))
        if not any(known[0] == test.fact and value.supports == supports for known, value in found.items()) or (
            key not in found and sum(known[0] == test.fact for known in found) < CITES_PER_FACT
        ):
            found.setdefault(
                key,
                Evidence(fact=test.fact, says=cite.says, source=str(cite.origin), weight=weight, supports=supports),
            )


def _why_silent(condition: When, facts: Mapping[str, Fact]) -> str:
    """The first test that settles the rule's silence, in words; empty when it is only the absence of a find."""
    for part in condition.unless:
        if part.holds(facts) is True:
            return _because(part, facts)
    for part in condition.none:
        if part.holds(facts) is True:
            return _because(part, facts)
    for part in condition.every:
        if part.holds(facts) is False:
            return _because(part, facts) if part.fact is not None else _why_silent(part, facts)
    settled = [part for part in condition.some if part.holds(facts) is False]
    return _because(settled[0], facts) if settled and len(settled) == len(condition.some) else ""


def _because(condition: When, facts: Mapping[str, Fact]) -> str:
    for test in condition.tests():
        assert test.fact is not None
        fact = facts[test.fact]
        if fact.value is not None:
            return fact.cites[0].says if fact.cites else phrase(test.fact, fact)
    return ""


def _promise(outcome: Outcome, facts: Mapping[str, Fact]) -> int:
    """How much already speaks for an undecided rule."""
    return outcome.points + sum(test.fact not in _GATES for test in _held(outcome.rule.when, facts))
