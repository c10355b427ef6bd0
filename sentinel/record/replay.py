"""Re-judges a journal: the same events through the same core must give the same effects, byte for byte."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from sentinel.core.agent import AgentCore
from sentinel.core.rules import Rule
from sentinel.model.effect import AnyEffect
from sentinel.model.event import Started
from sentinel.model.stamp import Stamp
from sentinel.record.journal import entries


@dataclass(frozen=True, slots=True)
class Replayed:
    """Effects as journalled and as computed again, in order, and how many events there were."""

    recorded: tuple[AnyEffect, ...]
    computed: tuple[AnyEffect, ...]
    events: int

    @property
    def same(self) -> bool:
        """Whether both sequences are byte-identical."""
        encode = msgspec.json.encode
        return [encode(effect) for effect in self.recorded] == [encode(effect) for effect in self.computed]


def replay(source: Path, rules: Sequence[Rule]) -> Replayed:
    """Replay a journal folder or file. Each agent start in it begins with a fresh core, as it did live.

    An event is journalled before it is judged. An agent that was killed in between did nothing of what follows from
    its last event, so what is missing there is left off, and nowhere else.
    """
    recorded: list[AnyEffect] = []
    computed: list[AnyEffect] = []
    events = missing = 0
    core = AgentCore(rules)
    for entry in entries(source):
        if entry.f is not None:
            recorded.append(entry.f)
            missing -= 1
        if entry.e is not None:
            events += 1
            if isinstance(entry.e, Started):
                core = AgentCore(rules)
                _leave_off(computed, missing)
            effects = core.step(entry.e)
            computed.extend(effects)
            missing = len(effects)
    _leave_off(computed, missing)
    return Replayed(tuple(recorded), tuple(computed), events)


def _leave_off(computed: list[AnyEffect], missing: int) -> None:
    """The effects of a life's last event that were never journalled, and so never carried out."""
    if missing > 0:
        del computed[-missing:]


def verdict_lines(source: Path, rules: Sequence[Rule]) -> Iterator[tuple[Stamp, AnyEffect]]:
    """Each computed effect with the time of the event that caused it."""
    core = AgentCore(rules)
    for entry in entries(source):
        if entry.e is not None:
            if isinstance(entry.e, Started):
                core = AgentCore(rules)
            for effect in core.step(entry.e):
                yield entry.e.at, effect
