"""Compares one verdict with one label."""

import msgspec

from sentinel.model.verdict import Confidence, Verdict
from sentinel.scoring.expected import Expected

LEVEL: dict[Confidence, int] = {"low": 0, "medium": 1, "high": 2}


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """What of a verdict agrees with the label. `ranks`, `hosts` are None when the label does not score them.

    `first` says whether the class is the best accepted one; `kind` whether it is accepted at all.
    """

    kind: bool
    first: bool
    stalled: bool
    ranks: bool | None
    hosts: bool | None
    recommended: bool
    forbidden: tuple[str, ...]
    confident: bool

    @property
    def right(self) -> bool:
        """Everything that the label scores agrees."""
        return (
            self.kind and self.stalled and self.ranks is not False and self.hosts is not False
            and self.recommended and not self.forbidden and self.confident
        )  # fmt: skip

    @property
    def culprits(self) -> bool | None:
        """Ranks and hosts agree; None when the label scores neither."""
        scored = [part for part in (self.ranks, self.hosts) if part is not None]
        return all(scored) if scored else None

    @property
    def misses(self) -> tuple[str, ...]:
        """Names of the parts that disagree, for a result line."""
        parts = {
            "class": self.kind, "stalled": self.stalled, "ranks": self.ranks is not False,
            "hosts": self.hosts is not False, "actions": self.recommended, "confidence": self.confident,
        }  # fmt: skip
        missed = [name for name, agrees in parts.items() if not agrees]
        return (*missed, *(f"forbidden:{action}" for action in self.forbidden))


def mark(verdict: Verdict, expected: Expected) -> Mark:
    """Compare. Named culprits must be exactly those of the label: accusing one more is as wrong as missing one."""
    actions = {entry.action for entry in verdict.actions}
    sure_enough = (
        expected.max_confidence is None
        or verdict.kind == "unknown"
        or LEVEL[verdict.confidence] <= LEVEL[expected.max_confidence]
    )
    return Mark(
        kind=verdict.kind in expected.classes,
        first=verdict.kind == expected.classes[0],
        stalled=verdict.stalled in expected.stalled,
        ranks=None if expected.ranks is None else set(verdict.culprits.ranks) == set(expected.ranks),
        hosts=None if expected.hosts is None else set(verdict.culprits.hosts) == set(expected.hosts),
        recommended=all(actions.intersection(choice) for choice in expected.must_recommend),
        forbidden=tuple(action for action in expected.must_not_recommend if action in actions),
        confident=sure_enough,
    )
