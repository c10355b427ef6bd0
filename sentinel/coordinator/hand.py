"""The hand: carries out on one host what the coordinator commands, at most once each, and only behind the fence.

The order is the promise: raise the epoch durably, note the intent durably, act, note the outcome durably, say it.
After a crash every intent without an outcome is resolved by looking at the world, never by doing it again blindly.
"""

import queue
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from sentinel.bus.bus import Bus, BusDown
from sentinel.coordinator.ledger import Ledger, LedgerError
from sentinel.coordinator.names import ACKS, LEASE, command_slot
from sentinel.coordinator.wire import COMMAND_BYTES_MAX, read
from sentinel.core.fence import LIVE_S, Answer, Fence, Ignore, Obey, malformed, wrong_incarnation
from sentinel.model.group import Ack, Command, Lease

TOLD_MAX = 4_096


class Actor(Protocol):
    """Touches the world. `perform` returns at once and later gives its acknowledgement to `Hand.done`."""

    def running(self, group: str) -> str | None:
        """The incarnation that runs now; empty for none, None when that cannot be told."""

    def resolve(self, command: Command, running: str | None) -> Ack | None:
        """What came of a command whose agent ended in the middle; None when it may simply be carried on."""

    def perform(self, command: Command, hand: "Hand") -> None: ...


@dataclass(frozen=True, slots=True)
class Look:
    """A slot as last read. `stale`: what is in it was written when this host knew of a higher epoch already."""

    revision: int
    epoch_known: int
    stale: bool = False


@dataclass(slots=True)
class Hand:
    """Call `turn` every tick with this host's monotonic seconds.

    `received` counts new commands by verb, `rejected` those that were not obeyed by reason; each once for a reason.
    A command that a coordinator of a lower epoch left in its slot is not rejected: nobody tries anything.
    """

    host: str
    groups: tuple[str, ...]
    bus: Bus
    ledger: Ledger
    actor: Actor
    live_s: float = LIVE_S
    trouble: str = ""
    received: Counter[str] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)
    fence: Fence = field(init=False)
    _done: "queue.SimpleQueue[Ack]" = field(default_factory=queue.SimpleQueue)
    _told: dict[str, None] = field(default_factory=dict)
    _noted: dict[tuple[str, str], None] = field(default_factory=dict)
    _left: dict[str, Command] = field(default_factory=dict)
    _looks: dict[str, Look] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.fence = Fence(self.host, self.ledger.epoch(), self.ledger.answers(), live_s=self.live_s)
        self._left = {command.id: command for command in self.ledger.unfinished()}
        self.fence.begun = set(self._left)

    def turn(self, now_s: float) -> None:
        """Hear from what is under way, resolve what a predecessor left, read the slots."""
        try:
            while not self._done.empty():
                self._finish(self._done.get())
            self._resolve()
            lease = self.bus.read(LEASE)
            self.fence.watch_lease(now_s, None if lease is None else read(lease.data, Lease))
            for command in self._commands():
                self._consider(now_s, command)
            self.trouble = ""
        except (BusDown, LedgerError) as error:
            self.trouble = str(error)

    def done(self, ack: Ack) -> None:
        """An act has ended; may be called from any thread."""
        self._done.put(ack)

    def _resolve(self) -> None:
        for command in list(self._left.values()):
            running = self.actor.running(command.group)
            ack = self.actor.resolve(command, running)
            del self._left[command.id]
            if ack is None:
                # It may be carried on, if it is still commanded by a coordinator that is alive.
                self.fence.begun.discard(command.id)
            else:
                self._finish(ack)

    def _commands(self) -> Iterable[Command]:
        for group in self.groups:
            slot = self.bus.read(command_slot(self.host, group))
            fits = slot is not None and len(slot.data) <= COMMAND_BYTES_MAX
            command = read(slot.data, Command) if slot is not None and fits else None
            self._look(group, 0 if slot is None else slot.revision, command)
            # What cannot be read, or is meant for another group, is not obeyed.
            if command is not None and command.group == group:
                yield command

    def _look(self, group: str, revision: int, command: Command | None) -> None:
        before = self._looks.get(group)
        stale = False
        if before is not None and before.revision == revision:
            stale = before.stale
        elif before is not None and command is not None:
            stale = command.epoch < before.epoch_known
        self._looks[group] = Look(revision, self.fence.epoch_known, stale)

    def _consider(self, now_s: float, command: Command) -> None:
        match self.fence.judge(now_s, command):
            case Answer(ack):
                self._say(ack)
            case Ignore(guard="stale_epoch") if not self._looks[command.group].stale:
                self._note(command)
            case Ignore(guard=guard):
                if guard:
                    self._note(command, guard)
            case Obey():
                self._note(command)
                self._obey(command)

    def _note(self, command: Command, guard: str = "") -> None:
        """Count a command when it is new, and when something new stands against it."""
        for kind in dict.fromkeys(("", guard)):
            if (command.id, kind) not in self._noted:
                self._noted[command.id, kind] = None
                if kind:
                    self.rejected[kind] += 1
                else:
                    self.received[command.verb] += 1
        while len(self._noted) > TOLD_MAX:
            del self._noted[next(iter(self._noted))]

    def _obey(self, command: Command) -> None:
        if self.fence.raises_epoch(command):
            self.ledger.raise_epoch(command.epoch)
            self.fence.epoch_max = command.epoch
        wrong = malformed(command)
        refused = wrong or wrong_incarnation(command, self.actor.running(command.group))
        self.ledger.begin(command)
        self.fence.begun.add(command.id)
        if refused is not None:
            self._note(command, "malformed" if wrong is not None else "incarnation")
            self._finish(refused)
        else:
            self.actor.perform(command, self)

    def _finish(self, ack: Ack) -> None:
        """Note what came of a command and say it; what cannot be noted now is kept for the next turn."""
        try:
            self.ledger.finish(ack)
            self.fence.answers[ack.id] = ack
            self.fence.begun.discard(ack.id)
            self._say(ack)
        except (BusDown, LedgerError):
            self._done.put(ack)
            raise

    def _say(self, ack: Ack) -> None:
        if ack.id not in self._told:
            self.bus.append(ACKS, msgspec.json.encode(ack), ack.id)
            self._told[ack.id] = None
            while len(self._told) > TOLD_MAX:
                del self._told[next(iter(self._told))]
