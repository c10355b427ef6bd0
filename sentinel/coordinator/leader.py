"""The coordinator's shell: holds the lease, feeds the core, and carries its effects out in a fixed order.

Notices go to a log under a key that makes them unique, then the state is saved with compare-and-set, then commands are
written. A coordinator that lost the lease finds out at the save and stands down before anybody hears of it.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from sentinel.bus.bus import RECORD_BYTES_MAX, SLOT_BYTES_MAX, Bus, BusDown, Conflict, Presence, Slot, TooLarge
from sentinel.coordinator.names import ACKS, ANSWERS, LEASE, NOTICES, ORDERS, STATE, command_slot
from sentinel.coordinator.wire import ORDER_BYTES_MAX, read
from sentinel.core.cluster import ClusterCore
from sentinel.core.fitting import fitted
from sentinel.core.lease import LeaseWatch, next_epoch
from sentinel.core.rules import Rule
from sentinel.model.cluster import (
    Acked,
    Answered,
    AnyClusterEffect,
    AnyClusterEvent,
    Beat,
    ClusterState,
    Delays,
    EvidenceRead,
    Leading,
    Limits,
    Order,
    Ordered,
    ReadEvidence,
    Reported,
    Send,
    Told,
)
from sentinel.model.group import Ack, Command, GroupSpec, HostReport, Lease
from sentinel.model.observation import AnyObservation
from sentinel.model.stamp import Stamp

PENDING_MAX = 1_000
IDLE_SAVE_S = 60.0
WORDS_MAX = 8_000
"""Characters of a notice that would not fit into a record."""
HolderGone = Callable[[str], bool]
Listener = Callable[[Stamp, AnyClusterEffect], None]


class StoodDown(Exception):
    """Somebody else leads, or may lead by now."""


class Unsaved(Exception):
    """The state fits into no record: this process goes on leading, and does nothing that a successor would not know."""


@dataclass(slots=True)
class Leader:
    """Call `turn` every tick. `holder_gone` tells whether the process that holds the lease has certainly ended.

    Listeners hear every effect once it was carried out.
    """

    me: str
    bus: Bus
    rules: Sequence[Rule]
    groups: tuple[GroupSpec, ...]
    limits: Limits = field(default_factory=Limits)
    delays: Delays = field(default_factory=Delays)
    watch: LeaseWatch = field(init=False)
    holder_gone: HolderGone = lambda _holder: False
    jitter_s: float = 0.0
    time_scale: float = 1.0
    core: ClusterCore | None = None
    trouble: str = ""
    listeners: list[Listener] = field(default_factory=list)
    renewed: Stamp | None = None
    transitions: int = 0
    renew_failures: int = 0
    _beat: int = 0
    _state_revision: int = 0
    _saved: bytes = b""
    _saved_s: float = 0.0
    _counts: dict[str, int] = field(default_factory=dict)
    _after: dict[str, int] = field(default_factory=dict)
    _orders_before: int = 0
    _pending: deque[AnyClusterEffect] = field(default_factory=lambda: deque(maxlen=PENDING_MAX))

    def __post_init__(self) -> None:
        self.watch = LeaseWatch(self.me, jitter_s=self.jitter_s)
        for name in ("ttl_s", "renew_s", "give_up_s"):
            setattr(self.watch, name, getattr(self.watch, name) / self.time_scale)

    @property
    def leading(self) -> bool:
        """Whether this process coordinates now."""
        return self.core is not None

    def turn(self, now: Stamp) -> None:
        """Look after the lease, then hear and act."""
        try:
            self._look_after_lease(now)
            if self.core is not None:
                self._hear(now, self.core)
            self.trouble = ""
        except BusDown as error:
            self.trouble = str(error)
            self.renew_failures += self.leading
            if self.watch.blind(now.mono_s) == "stand_down":
                self._stand_down()
        except Unsaved as why:
            self.trouble = str(why)
        except StoodDown as why:
            self.fall(str(why))

    def fall(self, why: str) -> None:
        """Lead no longer. The lease runs out unrenewed, and whoever takes it goes on from the saved state."""
        self.trouble = why
        self._stand_down()

    def _look_after_lease(self, now: Stamp) -> None:
        slot = self.bus.read(LEASE)
        lease = None if slot is None else _lease(slot)
        gone = lease is not None and lease.holder != self.me and self.holder_gone(lease.holder)
        match self.watch.look(now.mono_s, lease, holder_gone=gone):
            case "stand_down":
                theirs = lease is None or lease.holder != self.me
                late = "the lease was not renewed in time: this process was not run, or the bus did not answer"
                raise StoodDown("somebody else holds the lease" if theirs else late)
            case "renew":
                assert lease is not None and slot is not None
                self._write_lease(now, Lease(holder=self.me, epoch=lease.epoch, beat=lease.beat + 1), slot.revision)
            case "take":
                reports = _reports(self.bus.present()).values()
                epoch = next_epoch(lease, max((report.epoch_max for report in reports), default=0))
                self._write_lease(now, Lease(holder=self.me, epoch=epoch), 0 if slot is None else slot.revision)
        if self.watch.leading and self.core is None:
            assert self.watch.seen is not None
            self._lead(now, self.watch.seen.epoch)

    def _write_lease(self, now: Stamp, lease: Lease, revision: int) -> None:
        try:
            self.bus.write(LEASE, msgspec.json.encode(lease), revision)
        except Conflict as error:
            if self.watch.leading:
                self.renew_failures += 1
                raise StoodDown("somebody else changed the lease") from error
            return
        self.watch.took(now.mono_s, lease)
        self.renewed = now
        self._beat = lease.beat

    def _lead(self, now: Stamp, epoch: int) -> None:
        slot = self.bus.read(STATE)
        state = None
        if slot is not None:
            # A state that cannot be read must stop what it would have stopped: nothing acts until a person looks.
            unreadable = ClusterState(saved=now, breaker="the saved state cannot be read")
            state = read(slot.data, ClusterState) or unreadable
        self._state_revision = 0 if slot is None else slot.revision
        self._saved = b""
        self._counts, self._after = {}, {ACKS: 0, ORDERS: 0 if state is None else state.orders_after}
        self._orders_before = self._newest_order()
        self._pending.clear()
        self.transitions += 1
        self.core = ClusterCore(self.rules)
        self.core.step(Leading(
            at=now, epoch=epoch, limits=self.limits, delays=self.delays, groups=self.groups, state=state
        ))  # fmt: skip

    def _newest_order(self) -> int:
        newest = self._after[ORDERS]
        while records := self.bus.follow(ORDERS, newest):
            newest = records[-1].number
        return newest

    def _stand_down(self) -> None:
        self.watch.stood_down()
        self.transitions += self.core is not None
        self.core = None

    def _hear(self, now: Stamp, core: ClusterCore) -> None:
        present = self.bus.present()
        fresh = {host: presence for host, presence in present.items() if self._counts.get(host) != presence.count}
        for host, report in _reports(fresh).items():
            if report.epoch_max > core.epoch:
                raise StoodDown(f"{host} has obeyed epoch {report.epoch_max}; the lease is taken anew above it")
            first = host not in self._counts
            self._counts[host] = fresh[host].count
            # What lay on the bus when this coordinator began may be of any age.
            if not first:
                self._give(core, Reported(at=now, report=report))
        for record in self.bus.follow(ACKS, self._after[ACKS]):
            if (ack := read(record.data, Ack)) is not None:
                self._give(core, Acked(at=now, ack=ack))
            self._after[ACKS] = record.number
        for record in self.bus.follow(ORDERS, self._after[ORDERS]):
            if len(record.data) <= ORDER_BYTES_MAX and (order := read(record.data, Order)) is not None:
                stale = record.number <= self._orders_before
                self._give(core, Ordered(at=now, order=order, number=record.number, stale=stale))
            self._after[ORDERS] = record.number
        self._give(core, Beat(at=now, beat=self._beat))

    def _give(self, core: ClusterCore, event: AnyClusterEvent) -> None:
        self._pending.extend(core.step(event))
        self._carry_out(event.at, core)

    def _carry_out(self, now: Stamp, core: ClusterCore) -> None:
        """Notices, the state, then everything that reaches others. What fails with the bus is tried again in order."""
        for effect in self._pending:
            if isinstance(effect, Told):
                self.bus.append(NOTICES, _notice(effect), effect.key)
        self._save(now, core)
        while self._pending:
            effect = self._pending[0]
            match effect:
                case Send(command=command):
                    self._command(command)
                case Answered():
                    self.bus.append(ANSWERS, msgspec.json.encode(effect), effect.order.id)
            self._pending.popleft()
            for listener in self.listeners:
                listener(now, effect)
            if isinstance(effect, ReadEvidence):
                by_host = self._evidence(effect.digests)
                answer = EvidenceRead(at=now, group=effect.group, incident=effect.incident, by_host=by_host)
                self._pending.extend(core.step(answer))
                self._carry_out(now, core)

    def _save(self, now: Stamp, core: ClusterCore) -> None:
        if not self._pending and now.mono_s - self._saved_s < IDLE_SAVE_S:
            return
        encoded = fitted(core.state, SLOT_BYTES_MAX)
        try:
            slot = self.bus.read(STATE)
            if slot is not None and slot.data == self._saved and slot.revision != self._state_revision:
                self._state_revision = slot.revision  # our own write, whose answer was lost
            self._saved = encoded
            self._state_revision = self.bus.write(STATE, encoded, self._state_revision)
        except Conflict as error:
            raise StoodDown("somebody else saved the state") from error
        except TooLarge as error:
            raise Unsaved(
                f"nothing is done, because the state cannot be saved: {error}; configure fewer groups"
            ) from error
        self._saved_s = now.mono_s

    def _command(self, command: Command) -> None:
        name = command_slot(command.host, command.group)
        slot = self.bus.read(name)
        if slot is not None:
            known = read(slot.data, Command)  # a record that nobody can read is replaced
            if known is not None and known.epoch > command.epoch:
                raise StoodDown(f"slot {name} holds a command of a higher epoch")
        try:
            self.bus.write(name, msgspec.json.encode(command), 0 if slot is None else slot.revision)
        except Conflict:
            return  # it is written again with the next renewal of the command

    def _evidence(self, digests: dict[str, str]) -> dict[str, tuple[AnyObservation, ...]]:
        found = {}
        for host, digest in digests.items():
            data = self.bus.get(digest)
            if data is not None and (seen := read(data, tuple[AnyObservation, ...])) is not None:
                found[host] = seen
        return found


def _reports(present: Mapping[str, Presence]) -> dict[str, HostReport]:
    """What hosts say in their presence; what cannot be read, or speaks for another host, is left out."""
    found = {}
    for host, presence in present.items():
        report = read(presence.data, HostReport)
        if report is not None and report.host == host:
            found[host] = report
    return found


def _notice(told: Told) -> bytes:
    """The record of a notice; a verdict that does not fit into one is left out, and its summary is in the words."""
    data = msgspec.json.encode(told)
    if len(data) > RECORD_BYTES_MAX:
        data = msgspec.json.encode(msgspec.structs.replace(told, verdict=None, words=told.words[:WORDS_MAX]))
    return data


def _lease(slot: Slot) -> Lease:
    """The lease; one that cannot be read is somebody's, for as long as it changes."""
    return read(slot.data, Lease) or Lease(holder="", epoch=0, beat=slot.revision)
