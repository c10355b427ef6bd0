"""Real leaders: one that answers orders, and one over a bus in memory whose hosts say what a test lets them say."""

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from sentinel.bus.bus import BusDown, Slot
from sentinel.bus.embedded import EmbeddedBus
from sentinel.bus.memory import MemoryBus
from sentinel.coordinator.figures import ClusterFigures
from sentinel.coordinator.leader import Leader
from sentinel.coordinator.names import ACKS, ORDERS, command_slot
from sentinel.coordinator.notices import Notifier
from sentinel.groups import Coordinator
from sentinel.metrics.exposition import encode
from sentinel.model.cluster import Limits, Order, OrderVerb
from sentinel.model.group import Ack, AckOutcome, Command, EngineReport, GroupSpec, HostReport, StoreReport
from sentinel.model.stamp import Stamp
from sentinel.model.verdict import Verdict
from sentinel.plumbing.clock import SystemClock
from tests.coordination.cluster_world import CALLBACK, RULES
from tests.metrics.scrapes import OPENMETRICS, Sample, samples, value

WITHIN_S = 30.0


@contextlib.contextmanager
def answering(bus: EmbeddedBus) -> Iterator[None]:
    """A coordinator in real time that answers orders while the block runs."""
    over, leads, clock = threading.Event(), threading.Event(), SystemClock()
    leader = Leader("me", bus, (), (GroupSpec(name="chat", hosts=("one",), acts=True),))

    def lead() -> None:
        while not over.wait(0.05):
            leader.turn(clock.now())
            if leader.core is not None:
                leads.set()

    thread = threading.Thread(target=lead, daemon=True)
    thread.start()
    assert leads.wait(WITHIN_S)
    try:
        yield
    finally:
        over.set()
        thread.join(timeout=WITHIN_S)


class FlakyBus(MemoryBus):
    """A bus that can be away."""

    away = False

    def read(self, slot: str) -> Slot | None:
        """A slot, unless the bus is away."""
        if self.away:
            raise BusDown("away")
        return super().read(slot)


@dataclass(slots=True)
class Led:
    """Groups of one name each on the given hosts; every turn is one second."""

    groups: dict[str, tuple[str, ...]] = field(default_factory=lambda: {"chat": ("one",)})
    limits: Limits = field(default_factory=lambda: Limits(mode="auto", hold_s=10.0, young_s=0.0))
    acts: bool = True
    bus: FlakyBus = field(default_factory=FlakyBus)
    now_s: float = 1000.0
    me: str = "here"
    silent: set[str] = field(default_factory=set)
    engines: dict[tuple[str, str], EngineReport] = field(default_factory=dict)
    leader: Leader = field(init=False)
    figures: ClusterFigures = field(init=False)

    def __post_init__(self) -> None:
        specs = tuple(
            GroupSpec(name=name, hosts=hosts, acts=self.acts, stores=True) for name, hosts in self.groups.items()
        )
        self.leader = Leader(self.me, self.bus, RULES, specs, self.limits)
        self.figures = ClusterFigures(self.leader, Notifier(self.bus, Coordinator()))
        for name, hosts in self.groups.items():
            for host in hosts:
                self.engines[name, host] = EngineReport(
                    group=name, incarnation=f"{host}-a", phase="watching", moved_s=self.now_s, outstanding=True,
                    store=StoreReport(mode="nvme", live=True),
                )  # fmt: skip

    def turn(self, seconds: int = 1) -> None:
        """Hosts report, the leader turns, the figures look."""
        for _ in range(seconds):
            self.now_s += 1.0
            for host in {host for _, host in self.engines} - self.silent:
                engines = tuple(self._shown(each) for (_, at), each in self.engines.items() if at == host)
                report = HostReport(host=host, at=self.at, agent="a", age_s=1e4, engines=engines)
                self.bus.announce(host, msgspec.json.encode(report))
            self.leader.turn(self.at)
            self.figures.look(self.at)

    def change(self, group: str = "chat", **fields: object) -> None:
        """Let every host of a group say something else."""
        for (name, host), engine in self.engines.items():
            if name == group:
                self.engines[name, host] = msgspec.structs.replace(engine, **fields)

    def stall(self, verdict: Verdict = CALLBACK) -> None:
        """The group stands still and its host has judged it."""
        self.change(phase="judged", verdict=verdict, moved_s=self.now_s - 100.0)
        self.turn(3)
        self.ack("capture", took_s=4.0)
        self.turn(4)

    def command(self, host: str = "one", group: str = "chat") -> Command:
        """What a host is told to do now."""
        slot = self.bus.read(command_slot(host, group))
        assert slot is not None
        return msgspec.json.decode(slot.data, type=Command)

    def ack(self, verb: str, outcome: AckOutcome = "done", **fields: object) -> None:
        """The host answers the command that it has."""
        command = self.command()
        assert command.verb == verb, command
        ack = msgspec.structs.replace(Ack(id=command.id, host=command.host, outcome=outcome), **fields)
        self.bus.append(ACKS, msgspec.json.encode(ack), ack.id)
        self.turn(2)

    def order(self, verb: OrderVerb, **fields: object) -> None:
        """A person asks, and is answered."""
        asked = Order(id=f"{self.now_s}", verb=verb, by="somebody", reason="test", group="chat")
        order = msgspec.structs.replace(asked, **fields)
        self.bus.append(ORDERS, msgspec.json.encode(order), order.id)
        self.turn(2)

    def page(self) -> list[Sample]:
        """What a scrape shows."""
        self.turn(3)
        assert self.figures.measured is not None
        return list(samples(encode(self.figures.measured, OPENMETRICS)[0].decode()))

    def value(self, name: str, **labels: str) -> float | None:
        """One value of the page."""
        return value(self.page(), name, **labels)

    @property
    def at(self) -> Stamp:
        """Now."""
        return Stamp(mono_ns=round(self.now_s * 1e9), wall_ns=round((self.now_s + 1e6) * 1e9), boot_id="b")

    def _shown(self, engine: EngineReport) -> EngineReport:
        silence_s = None if engine.moved_s is None else max(0.0, self.now_s - engine.moved_s)
        return msgspec.structs.replace(engine, silence_s=silence_s)
