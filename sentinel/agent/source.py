"""What a live source is: something that is asked now and then and answers with observations, never with a wait.

A source that may block (drivers, dead disks, sockets) does its work in a child process or with a socket deadline and
answers from what has arrived.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from sentinel.model.observation import AnyObservation
from sentinel.model.stamp import Stamp


@dataclass(frozen=True, slots=True)
class Said:
    """An observation and the engine it belongs to; None for the host."""

    engine: str | None
    seen: AnyObservation


class Source(Protocol):
    """`every_s` is how often `poll` is called; `name` labels its metrics."""

    name: str
    every_s: float

    def poll(self, now: Stamp) -> Iterable[Said]: ...

    def close(self) -> None: ...


@dataclass(slots=True)
class Health:
    """Self-measurement of one source; `answered_s` is wall-clock time, 0 before the first answer."""

    polls: int = 0
    failures: int = 0
    seconds: float = 0.0
    said: int = 0
    down_until_s: float = 0.0
    why: str = ""
    due_s: float = 0.0
    answered_s: float = 0.0
    back_off_s: float = field(default=0.0)
