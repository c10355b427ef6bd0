"""Damaged messages on the bus: coordinator and hand go on, and nothing is done that was not commanded whole."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from sentinel.bus.bus import BusError
from sentinel.bus.memory import MemoryBus
from sentinel.coordinator import asking
from sentinel.coordinator.hand import Hand
from sentinel.coordinator.leader import Leader
from sentinel.coordinator.ledger import DiskLedger, MemoryLedger
from sentinel.coordinator.names import ACKS, LEASE, NOTICES, ORDERS, STATE, command_slot
from sentinel.coordinator.notices import SLOT as SLOT_OF_NOTICES
from sentinel.coordinator.notices import Notifier
from sentinel.coordinator.wire import read
from sentinel.core.fence import malformed
from sentinel.groups import Coordinator, Notify
from sentinel.model.cluster import Answered, ClusterState, Order, Told
from sentinel.model.group import Ack, Command, GroupSpec, HostReport
from sentinel.model.group import Lease as LeaseRecord
from sentinel.model.stamp import Stamp
from sentinel.scoring.run import shipped_rules
from tests.fuzz import messages
from tests.fuzz.fuzzing import bounded, damaged, examples

KINDS = (Command, Ack, HostReport, LeaseRecord, Order, Told, ClusterState, Answered)
DAMAGED = damaged(messages.EVERY)
RULES = shipped_rules()
SLOT = command_slot("one", "chat")


@dataclass
class Deeds:
    """An actor that only notes what it is asked to do."""

    done: list[Command] = field(default_factory=list)

    def running(self, group: str) -> str | None:
        return "one-a"

    def resolve(self, command: Command, running: str | None) -> Ack | None:
        return None

    def perform(self, command: Command, hand: Hand) -> None:
        self.done.append(command)
        hand.done(Ack(id=command.id, host=command.host, outcome="done"))


def put(bus: MemoryBus, slot: str, data: bytes) -> None:
    known = bus.read(slot)
    bus.write(slot, data, 0 if known is None else known.revision)


@given(DAMAGED)
@examples(300)
def test_bytes_are_a_value_of_the_kind_or_nothing(data: bytes) -> None:
    """False: an exception in a decoder ends the loop that reads the bus."""
    for kind in KINDS:
        value = read(data, kind)
        if value is not None:
            assert read(msgspec.json.encode(value), kind) == value


@pytest.mark.parametrize("data", [b"[" * 200_000, b'{"id":' * 50_000, b'{"x":' + b"[" * 90_000, b"", b"\xff", b"null"])
def test_what_is_nested_without_end_is_nothing(data: bytes) -> None:
    """False: a record of brackets is a RecursionError in every agent."""
    assert [read(data, kind) for kind in KINDS] == [None] * len(KINDS)


@given(st.lists(st.tuples(st.sampled_from(("command", "lease")), DAMAGED), min_size=1, max_size=4))
@examples(120)
def test_a_hand_does_only_what_was_commanded_whole(damage: list[tuple[str, bytes]]) -> None:
    """False: half a command stops an engine, or one bad record leaves a host deaf."""
    bus, deeds = MemoryBus(), Deeds()
    hand = Hand("one", ("chat",), bus, MemoryLedger(), deeds)
    given_: list[Command] = []
    for number, (kind, data) in enumerate([("lease", messages.encoded(messages.LEASE)[0]), *damage]):
        put(bus, LEASE if kind == "lease" else SLOT, data)
        given_ += [command for command in [read(data, Command)] if command is not None]
        with bounded():
            hand.turn(float(number))
    # A live coordinator whose command is whole is obeyed after all that.
    for beat in (4, 5):
        put(bus, LEASE, msgspec.json.encode(msgspec.structs.replace(messages.LEASE, epoch=1 << 60, beat=beat)))
        hand.turn(float(10 + beat))
    last = msgspec.structs.replace(messages.COMMAND, id="last", epoch=1 << 60, beat=5)
    put(bus, SLOT, msgspec.json.encode(last))
    hand.turn(16.0)

    assert deeds.done[-1:] == [last]
    assert all(done in given_ for done in deeds.done[:-1])
    assert all(done.host == "one" and done.group == "chat" and malformed(done) is None for done in deeds.done)


@given(
    st.lists(st.tuples(st.sampled_from(("report", "ack", "order", "state", "lease", "command")), DAMAGED), max_size=6)
)
@examples(120)
def test_a_coordinator_survives_every_record_and_answers_the_next_order(damage: list[tuple[str, bytes]]) -> None:
    """False: whoever may write one record keeps the whole cluster from being coordinated."""
    bus, clock = MemoryBus(), instants()
    leader = Leader("me", bus, RULES, (GroupSpec(name="chat", hosts=("one",), acts=True, stores=True),))
    for kind, data in damage:
        if kind in ("state", "lease") and leader.leading:
            continue  # from a record of its own that somebody else wrote it stands down
        match kind:
            case "report":
                bus.announce("one", data)
            case "ack" | "order":
                bus.append(ACKS if kind == "ack" else ORDERS, data, str(len(data)))
            case "state" | "lease":
                put(bus, STATE if kind == "state" else LEASE, data)
            case _:
                put(bus, SLOT, data)
        with bounded():
            leader.turn(next(clock))
    for _ in range(60):
        leader.turn(next(clock))
        if leader.leading:
            break
    order = msgspec.structs.replace(messages.ORDER, id="last", verb="resume")
    bus.append(ORDERS, msgspec.json.encode(order), order.id)
    for _ in range(3):
        leader.turn(next(clock))

    answers = [read(record.data, Answered) for record in bus.follow("answer", 0)]
    assert [answer.order.id for answer in answers if answer is not None][-1:] == ["last"]


def instants() -> Iterator[Stamp]:
    """One instant every second."""
    second = 2000
    while True:
        second += 1
        yield Stamp(mono_ns=second * 10**9, wall_ns=1_795_946_440 * 10**9 + second * 10**9, boot_id="b")


@given(DAMAGED)
@examples(60)
def test_a_display_shows_what_can_be_read(data: bytes) -> None:
    """False: one bad notice hides all others from the person on call."""
    bus = MemoryBus()
    good = messages.encoded(messages.TOLD)[0]
    for number, record in enumerate((good, data, good)):
        bus.append(NOTICES, record, str(number))
    put(bus, STATE, data)
    try:
        state = asking.state_of(bus)
    except BusError as error:
        assert "cannot be read" in str(error)
    else:
        assert isinstance(state, ClusterState)

    assert [told for told in asking.notices(bus) if told == messages.TOLD][1:]


@given(DAMAGED, DAMAGED)
@examples(60)
def test_people_are_told_what_stands_behind_a_record_that_nobody_can_read(record: bytes, place: bytes) -> None:
    """False: one bad record, and nobody is told of any incident any more."""
    bus = MemoryBus()
    put(bus, SLOT_OF_NOTICES, place)
    for number, data in enumerate((record, messages.encoded(messages.TOLD)[0])):
        bus.append(NOTICES, data, str(number))
    notifier = Notifier(bus, Coordinator(notify=(Notify(kind="webhook", url_file="/nowhere"),)), tries=1)
    with capture_logs() as logs:
        notifier.turn(1.0)
    notifier.close()

    assert [log["words"] for log in logs if log["event"] == "notice"][-1:] == [messages.TOLD.words]


@pytest.mark.parametrize(
    "args",
    [{"within_s": "soon"}, {"within_s": "1e9"}, {"within_s": "-1"}, {"within_s": "nan"}, {"mode": "ram\nX=1"},
     {"mode": "--help"}, {"mode": "../x"}, {"within_s": ""}],
    ids=str,
)  # fmt: skip
def test_a_command_with_arguments_of_another_kind_is_refused_in_words(args: dict[str, str]) -> None:
    """False: an act ends with a traceback on a thread, and the coordinator waits for its answer until the limit."""
    assert malformed(messages.COMMAND) is None
    refused = malformed(msgspec.structs.replace(messages.COMMAND, args=args))

    assert refused is not None and refused.outcome == "refused" and refused.why


def test_what_a_ledger_cannot_read_is_never_done_again() -> None:
    """False: after a change of versions a host carries out once more what it had answered."""
    with TemporaryDirectory() as name:
        ledger = DiskLedger(Path(name) / "ledger.db")
        for command_id in ("answered", "begun", "whole"):
            ledger.begin(msgspec.structs.replace(messages.COMMAND, id=command_id))
        ledger._do("UPDATE commands SET ack=? WHERE id=?", b'{"outcome":"later"}', "answered")
        ledger._do("UPDATE commands SET command=? WHERE id=?", b'{"verb":"later"}', "begun")

        assert {name: ack.outcome for name, ack in ledger.answers().items()} == {
            "answered": "abandoned", "begun": "abandoned",
        }  # fmt: skip
        assert [command.id for command in ledger.unfinished()] == ["whole"]


def test_a_lease_that_cannot_be_read_is_left_alone_for_as_long_as_it_changes() -> None:
    """False: a coordinator takes over from a living one whose records it is too old to read."""
    bus, clock = MemoryBus(), instants()
    leader = Leader("me", bus, RULES, (GroupSpec(name="chat", hosts=("one",)),))
    for beat in range(120):
        if beat % 5 == 0:
            put(bus, LEASE, b'{"of a later version":%d}' % beat)
        leader.turn(next(clock))
        assert not leader.leading
    for _ in range(40):
        leader.turn(next(clock))

    assert leader.leading
