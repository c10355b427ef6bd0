"""The hand of a host over its own disk: what came of a command reaches the coordinator, also after a bad moment."""

import contextlib
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from sentinel.bus.bus import RECORD_BYTES_MAX
from sentinel.bus.memory import MemoryBus
from sentinel.coordinator.hand import Hand
from sentinel.coordinator.ledger import DiskLedger, MemoryLedger
from sentinel.coordinator.names import ACKS, LEASE, command_slot
from sentinel.model.group import Ack, Command, Lease

STOP = Command(id="i/restart1/stop/one", epoch=1, beat=1, verb="stop", group="chat", host="one", incarnation="a",
               incident="i")  # fmt: skip


@dataclass
class Deeds:
    """An actor that notes what it is asked to do."""

    asked: list[Command] = field(default_factory=list)

    def running(self, group: str) -> str:
        del group
        return "a"

    def resolve(self, command: Command, running: str | None) -> Ack | None:
        del command, running
        return None

    def perform(self, command: Command, hand: Hand) -> None:
        del hand
        self.asked.append(command)


def test_a_command_whose_answer_would_fit_into_no_record_leaves_the_host_listening() -> None:
    """False: one record in one slot ends the thread that coordinates, and no group of the host is brought back."""
    bus, deeds = MemoryBus(), Deeds()
    hand = Hand("one", ("other", "chat"), bus, MemoryLedger(), deeds)
    absurd = msgspec.structs.replace(STOP, id="x" * RECORD_BYTES_MAX, group="other", incarnation="b")
    for command in (absurd, STOP):
        bus.write(command_slot("one", command.group), msgspec.json.encode(command), 0)
    for beat in (1, 2):
        known = bus.read(LEASE)
        lease = msgspec.json.encode(Lease(holder="x", epoch=1, beat=beat))
        bus.write(LEASE, lease, 0 if known is None else known.revision)
        hand.turn(float(beat))

    assert deeds.asked == [STOP]


def test_what_cannot_be_noted_now_is_noted_and_said_later(tmp_path: Path) -> None:
    """False: a disk that is full for a second loses the word of a stop, and the engine stays down."""
    bus, deeds = MemoryBus(), Deeds()
    hand = Hand("one", ("chat",), bus, DiskLedger(tmp_path / "ledger.db"), deeds)

    def turn(second: int) -> None:
        known = bus.read(LEASE)
        lease = Lease(holder="x", epoch=1, beat=second)
        bus.write(LEASE, msgspec.json.encode(lease), 0 if known is None else known.revision)
        hand.turn(float(second))

    bus.write(command_slot("one", "chat"), msgspec.json.encode(STOP), 0)
    turn(1)
    turn(2)
    assert deeds.asked == [STOP]
    with contextlib.closing(sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        hand.done(Ack(id=STOP.id, host="one", outcome="done"))
        turn(3)
        assert "the ledger cannot be written" in hand.trouble and bus.follow(ACKS, 0) == ()
        other.execute("ROLLBACK")
    turn(4)

    (said,) = bus.follow(ACKS, 0)
    assert hand.trouble == "" and msgspec.json.decode(said.data, type=Ack).outcome == "done"
    assert deeds.asked == [STOP]
