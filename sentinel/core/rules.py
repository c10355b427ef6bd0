"""What a rule is and how it is evaluated: facts in, an outcome out. Rules hold no code; see `docs/rules.md`.

A rule's `when` is a tree of `all`, `any`, `none` and `unless` over tests of single facts. Evaluation is three-valued:
a rule *fires* (True), stays *silent* (False) or is *undecided* (None) because a fact is unknown. `unless` is the one
two-valued place: it excludes only on a certain True, so that a source nobody collected does not mute a rule.
`supports` and `contradicts` weigh a rule that fires; they never make one fire.
"""

from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec

from sentinel.core.fact import Fact, Value
from sentinel.core.logic import Truth, all_of, any_of, negate
from sentinel.model.verdict import ActionName, Confidence, Weight

POINTS: Mapping[Weight, int] = {"strong": 3, "medium": 2, "weak": 1}
HIGH_POINTS, MEDIUM_POINTS = 6, 3
MOST_OF_ONE = 2
"""A world of one rank has nobody else to blame: its rank counts as a minority of two."""
SUMMARY_WORDS = ("culprits", "victims", "hosts", "requests", "since")
"""What `says` may contain in braces; the judge fills all of them in, also when nobody can be named."""
_ORDER: tuple[Confidence, ...] = ("low", "medium", "high")


class When(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True,
           rename={"every": "all", "some": "any", "eq": "is"}):  # fmt: skip
    """A node of the condition tree: either a test of one fact or branches.

    A test has `fact` and exactly one comparison (a range counts as one); sets compare by size, or with the set of
    another fact (`within`, `meets`, `apart_from`). Of branches all that are given must hold; `unless` excludes only on
    a certain True.
    """

    fact: str | None = None
    eq: bool | str | None = None
    at_least: float | None = None
    at_most: float | None = None
    count_at_least: int | None = None
    count_at_most: int | None = None
    one_of: tuple[str, ...] | None = None
    within: str | None = None
    meets: str | None = None
    apart_from: str | None = None
    every: tuple["When", ...] = ()
    some: tuple["When", ...] = ()
    none: tuple["When", ...] = ()
    unless: tuple["When", ...] = ()

    def holds(self, facts: Mapping[str, Fact]) -> Truth:
        """Three-valued answer; unknown facts give None unless another part settles it."""
        if self.fact is not None:
            return self._test(facts[self.fact].value, facts)
        if any(part.holds(facts) is True for part in self.unless):
            return False
        return all_of(
            (
                all_of(part.holds(facts) for part in self.every),
                any_of(part.holds(facts) for part in self.some) if self.some else True,
                negate(any_of(part.holds(facts) for part in self.none)),
            )
        )

    def tests(self) -> Iterator["When"]:
        """All leaves, in order."""
        if self.fact is not None:
            yield self
        for part in (*self.every, *self.some, *self.none, *self.unless):
            yield from part.tests()

    def names(self) -> Iterator[str]:
        """Facts that a leaf reads."""
        yield from (name for name in (self.fact, self.within, self.meets, self.apart_from) if name)

    def fault(self) -> str | None:
        """What is malformed about this node alone, in words; None when it is well formed."""
        single = (self.eq, self.one_of, self.within, self.meets, self.apart_from)
        ranges = ((self.at_least, self.at_most), (self.count_at_least, self.count_at_most))
        comparisons = sum(part is not None for part in single)
        comparisons += sum(any(bound is not None for bound in pair) for pair in ranges)
        branches = bool(self.every or self.some or self.none or self.unless)
        if self.fact is None:
            return None if branches and not comparisons else "a condition needs a fact or branches"
        if branches:
            return f"the test of {self.fact} cannot have branches"
        return None if comparisons == 1 else f"the test of {self.fact} needs one comparison, it has {comparisons}"

    def nodes(self) -> Iterator["When"]:
        """This node and all below it."""
        yield self
        for part in (*self.every, *self.some, *self.none, *self.unless):
            yield from part.nodes()

    def _test(self, value: Value, facts: Mapping[str, Fact]) -> Truth:
        other = self.within or self.meets or self.apart_from
        if value is None:
            return None
        if other is not None:
            against = facts[other].value
            return None if against is None else self._against(value, against)
        if self.eq is not None:
            return value == self.eq
        if self.one_of is not None:
            return value in self.one_of
        if self.count_at_least is not None or self.count_at_most is not None:
            assert isinstance(value, tuple), f"{self.fact} is not a set"
            return _between(len(value), self.count_at_least, self.count_at_most)
        assert isinstance(value, int | float), f"{self.fact} is not a number"
        return _between(value, self.at_least, self.at_most)

    def _against(self, value: Value, other: Value) -> bool:
        assert isinstance(value, tuple) and isinstance(other, tuple), f"{self.fact} is not a set"
        mine: set[int | str] = set(value)
        if self.within is not None:
            return bool(mine) and mine <= set(other)
        common = mine & set(other)
        return bool(common) if self.meets is not None else not common


def _between(value: float, low: float | None, high: float | None) -> bool:
    return (low is None or value >= low) and (high is None or value <= high)


class Weighed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A condition that speaks for or against the class of a rule that fires, with its weight and its wording."""

    when: When
    weight: Weight
    says: str = ""


class Selector(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Ranks, hosts, pids or requests: members of `fact`, kept if also in all of `also`, without those in `minus`.

    `covering` takes the set only if it holds all members (at least one) of another fact; `facing` only if another fact
    has members outside it: somebody has to wait for a culprit.
    `minority` keeps the set only when it is at most half of the known world: most ranks are never all to blame, but
    the only one there is may be.
    """

    fact: str
    also: tuple[str, ...] = ()
    minus: tuple[str, ...] = ()
    covering: str | None = None
    facing: str | None = None
    minority: bool = False

    def names(self) -> Iterator[str]:
        """Facts that the selector reads."""
        yield from (self.fact, *self.also, *self.minus)
        yield from (name for name in (self.covering, self.facing) if name)


class Advice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An action that the rule suggests or forbids, and why. `when` limits it to certain facts."""

    action: ActionName
    why: str
    to: str | None = None
    when: When | None = None


Given = bool | float | str | tuple[int | str, ...] | None


class Case(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An embedded test: the rule's `base` facts with `but` laid over (null makes a fact unknown), and the outcome."""

    name: str
    fires: bool | Literal["unknown"]
    but: Mapping[str, Given] = {}
    culprits: tuple[int, ...] | None = None
    hosts: tuple[str, ...] | None = None
    victims: tuple[int, ...] | None = None
    points: int | None = None
    confidence: Confidence | None = None
    actions: tuple[ActionName, ...] | None = None


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"kind": "class"}):
    """One stall signature. `order` is its place on the ladder of `docs/rules.md`: lower is asked first."""

    id: str
    title: str
    status: Literal["stable", "experimental", "retired"]
    kind: str
    order: int
    stalled: bool | None
    when: When
    says: str
    needs: str
    points: int = 0
    supports: tuple[Weighed, ...] = ()
    contradicts: tuple[Weighed, ...] = ()
    culprits: tuple[Selector, ...] = ()
    culprit_hosts: tuple[Selector, ...] = ()
    culprit_pids: tuple[Selector, ...] = ()
    culprit_requests: tuple[Selector, ...] = ()
    victims: tuple[Selector, ...] = ()
    max_confidence: Confidence = "high"
    rests_on_enqueues: bool = False
    suggest: tuple[Advice, ...] = ()
    forbid: tuple[Advice, ...] = ()
    false_positives: tuple[str, ...] = ()
    base: Mapping[str, Given] = {}
    cases: tuple[Case, ...] = ()

    def conditions(self) -> Iterator[When]:
        """All condition trees of the rule."""
        yield self.when
        yield from (part.when for part in (*self.supports, *self.contradicts))
        yield from (advice.when for advice in (*self.suggest, *self.forbid) if advice.when is not None)

    def fact_names(self) -> Iterator[str]:
        """Every fact that the rule reads, for validation against the catalogue."""
        for condition in self.conditions():
            for test in condition.tests():
                yield from test.names()
        named = (*self.culprits, *self.culprit_hosts, *self.culprit_pids, *self.culprit_requests, *self.victims)
        for selector in named:
            yield from selector.names()


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """A rule applied to facts. `points` is support minus contradiction, for a rule that fires."""

    rule: Rule
    fires: Truth
    points: int
    culprits: tuple[int, ...]
    hosts: tuple[str, ...]
    pids: tuple[int, ...]
    requests: tuple[str, ...]
    victims: tuple[int, ...]

    @property
    def confidence(self) -> Confidence:
        """High, medium or low by points, never above what the rule allows."""
        earned: Confidence = (
            "high" if self.points >= HIGH_POINTS else "medium" if self.points >= MEDIUM_POINTS else "low"
        )
        return min(earned, self.rule.max_confidence, key=_ORDER.index)


def evaluate(rule: Rule, facts: Mapping[str, Fact], world: tuple[int, ...] = ()) -> Outcome:
    """Apply one rule. `world` is all known ranks, for selectors that accept minorities only."""
    gained = sum(POINTS[part.weight] for part in rule.supports if part.when.holds(facts) is True)
    lost = sum(POINTS[part.weight] for part in rule.contradicts if part.when.holds(facts) is True)
    culprits = tuple(int(rank) for rank in _select(rule.culprits, facts, world))
    blamed = set(culprits)
    victims = tuple(int(rank) for rank in _select(rule.victims, facts, world) if rank not in blamed)
    return Outcome(
        rule=rule,
        fires=rule.when.holds(facts),
        points=rule.points + gained - lost,
        culprits=culprits,
        hosts=tuple(str(host) for host in _select(rule.culprit_hosts, facts, world)),
        pids=tuple(int(pid) for pid in _select(rule.culprit_pids, facts, world)),
        requests=tuple(str(request) for request in _select(rule.culprit_requests, facts, world)),
        victims=victims,
    )


def advised(advice: tuple[Advice, ...], facts: Mapping[str, Fact]) -> tuple[Advice, ...]:
    """Pieces of advice whose condition holds for certain."""
    return tuple(piece for piece in advice if piece.when is None or piece.when.holds(facts) is True)


def _select(
    selectors: tuple[Selector, ...], facts: Mapping[str, Fact], world: tuple[int, ...]
) -> tuple[int | str, ...]:
    """Members chosen by the first selector that yields any."""
    for selector in selectors:
        members = _members(facts, selector.fact)
        for name in selector.also:
            members &= _members(facts, name)
        for name in selector.minus:
            members -= _members(facts, name)
        if selector.covering is not None and not _covers(members, _members(facts, selector.covering)):
            continue
        if selector.facing is not None and not _members(facts, selector.facing) - members:
            continue
        if members and not (selector.minority and 2 * len(members) > max(len(world), MOST_OF_ONE)):
            return tuple(sorted(members, key=lambda member: (isinstance(member, str), member)))
    return ()


def _covers(members: set[int | str], part: set[int | str]) -> bool:
    return bool(part) and part <= members


def _members(facts: Mapping[str, Fact], name: str) -> set[int | str]:
    value = facts[name].value
    return set(value) if isinstance(value, tuple) else set()
