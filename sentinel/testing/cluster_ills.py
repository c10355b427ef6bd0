"""How messages, disks and processes fail in a simulated cluster: between any two writes, and in doubt."""

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from sentinel.bus.bus import Bus, BusDown, Presence, Record, Slot
from sentinel.coordinator.ledger import MemoryLedger
from sentinel.model.group import Ack, Command
from sentinel.testing.virtual import VirtualClock

LOSS = 0.04
CRASH = 0.002


class Crash(Exception):
    """The simulated process ends here, between two writes."""


@dataclass(slots=True)
class Ills:
    """What fails, until when."""

    clock: VirtualClock
    dice: Random
    until_s: float = 0.0
    crashes: int = 0

    @property
    def on(self) -> bool:
        """Whether faults are on."""
        return self.clock.mono_s < self.until_s

    def loses(self) -> bool:
        """Whether a message is lost now."""
        return self.on and self.dice.random() < LOSS

    def may_crash(self) -> None:
        """End the calling process here, now and then. Raises Crash."""
        if self.on and self.dice.random() < CRASH:
            self.crashes += 1
            raise Crash


@dataclass(slots=True)
class Line:
    """One process's way to the bus, with everything that can go wrong on it."""

    bus: Bus
    ills: Ills
    cut: bool = False

    def announce(self, host: str, data: bytes) -> None:
        """See `Bus`."""
        self._before()
        self.bus.announce(host, data)

    def present(self) -> Mapping[str, Presence]:
        """See `Bus`."""
        self._before()
        return self.bus.present()

    def read(self, slot: str) -> Slot | None:
        """See `Bus`."""
        self._before()
        return self.bus.read(slot)

    def write(self, slot: str, data: bytes, expected: int) -> int:
        """See `Bus`."""
        self._before()
        revision = self.bus.write(slot, data, expected)
        self._after()
        return revision

    def append(self, log: str, data: bytes, key: str) -> int:
        """See `Bus`."""
        self._before()
        number = self.bus.append(log, data, key)
        self._after()
        return number

    def follow(self, log: str, after: int, limit: int = 256) -> tuple[Record, ...]:
        """See `Bus`."""
        self._before()
        return self.bus.follow(log, after, limit)

    def put(self, data: bytes) -> str:
        """See `Bus`."""
        self._before()
        return self.bus.put(data)

    def get(self, digest: str) -> bytes | None:
        """See `Bus`."""
        self._before()
        return self.bus.get(digest)

    def close(self) -> None:
        """See `Bus`."""

    def _before(self) -> None:
        if self.cut:
            raise BusDown("cut off")
        self.ills.may_crash()
        if self.ills.loses():
            raise BusDown("lost on the way")

    def _after(self) -> None:
        self.ills.may_crash()
        if self.ills.loses():
            raise BusDown("done, but the answer was lost")


@dataclass(slots=True)
class Shaky(MemoryLedger):
    """A durable ledger whose process may end right before or after a write."""

    ills: Ills | None = None

    def begin(self, command: Command) -> None:
        """Remember a beginning."""
        assert self.ills is not None
        self.ills.may_crash()
        MemoryLedger.begin(self, command)
        self.ills.may_crash()

    def finish(self, ack: Ack) -> None:
        """Remember an answer."""
        assert self.ills is not None
        self.ills.may_crash()
        MemoryLedger.finish(self, ack)
        self.ills.may_crash()
