"""A coordinator's core with hosts that say what a test lets them say; every event is one second."""

from dataclasses import dataclass, field

import msgspec

from sentinel.core.cluster import ClusterCore
from sentinel.core.facts import NAMES
from sentinel.model.cluster import (
    Acked,
    Answered,
    AnyClusterEffect,
    AnyClusterEvent,
    Beat,
    Delays,
    Leading,
    Limits,
    Order,
    Ordered,
    OrderVerb,
    Reported,
    Send,
    Told,
)
from sentinel.model.group import Ack, AckOutcome, Command, EngineReport, GroupSpec, HostReport, StoreReport
from sentinel.model.stamp import Stamp
from sentinel.model.verdict import Action, Verdict
from sentinel.rulebook import load_rules

RULES = load_rules(NAMES)
CALLBACK = Verdict(
    kind="hang.host_callback",
    stalled=True,
    confidence="high",
    summary="rank 1 waits in a host callback",
    actions=(
        Action(action="unblock_lane"),
        Action(action="restart_engine"),
        Action(action="rowstore_mode", to="ram"),
    ),
)


@dataclass(slots=True)
class World:
    """One group on the given hosts. `engines` is what each host reports; change it between ticks."""

    hosts: tuple[str, ...] = ("one",)
    limits: Limits = field(default_factory=lambda: Limits(mode="auto", hold_s=10.0, young_s=0.0))
    delays: Delays = field(default_factory=Delays)
    now_s: float = 1000.0
    core: ClusterCore = field(init=False)
    engines: dict[str, EngineReport] = field(init=False)
    silent: set[str] = field(default_factory=set)
    effects: list[AnyClusterEffect] = field(default_factory=list)
    _orders: int = 0

    def __post_init__(self) -> None:
        self.core = ClusterCore(RULES)
        spec = GroupSpec(name="chat", hosts=self.hosts, acts=True, stores=True)
        self._give(Leading(at=self._at(), epoch=7, limits=self.limits, delays=self.delays, groups=(spec,)))
        store = StoreReport(mode="nvme", live=True)
        calm = EngineReport(
            group="chat", incarnation="", phase="watching", moved_s=self.now_s, outstanding=True, store=store
        )  # fmt: skip
        self.engines = {host: msgspec.structs.replace(calm, incarnation=f"{host}-a") for host in self.hosts}
        self.tick(2)

    def tick(self, seconds: int = 1) -> None:
        """Hosts report, time passes."""
        for _ in range(seconds):
            self.now_s += 1.0
            for host in self.hosts:
                if host not in self.silent:
                    report = HostReport(
                        host=host, at=self._at(), agent="a", age_s=1e4, engines=(self._shown(self.engines[host]),)
                    )  # fmt: skip
                    self._give(Reported(at=self._at(), report=report))
            self._give(Beat(at=self._at(), beat=1))

    def stall(self, verdict: Verdict = CALLBACK) -> None:
        """Every host stands still and has judged it."""
        for host in self.hosts:
            self.change(host, phase="judged", verdict=verdict, moved_s=self.now_s - 100.0)
        self.tick(3)
        for command in self.commands("capture"):
            self.ack(command)
        self.tick(2)

    def change(self, host: str, **fields: object) -> None:
        """Let a host say something else."""
        self.engines[host] = msgspec.structs.replace(self.engines[host], **fields)

    def moves(self, host: str, incarnation: str | None = None) -> None:
        """A host sees progress, perhaps of another incarnation."""
        name = incarnation or self.engines[host].incarnation
        self.change(host, incarnation=name, phase="watching", moved_s=self.now_s + 5.0, verdict=None)

    def ack(self, command: Command, outcome: AckOutcome = "done", why: str = "", **fields: object) -> None:
        """A host says what came of a command."""
        ack = Ack(id=command.id, host=command.host, outcome=outcome, why=why)
        self._give(Acked(at=self._at(), ack=msgspec.structs.replace(ack, **fields)))

    def order(self, verb: OrderVerb, *, stale: bool = False, **fields: object) -> Answered:
        """A person asks."""
        self._orders += 1
        asked = Order(id=str(self._orders), verb=verb, by="somebody", reason="test", group="chat")
        given = msgspec.structs.replace(asked, **fields)
        self._give(Ordered(at=self._at(), order=given, number=self._orders, stale=stale))
        return [effect for effect in self.effects if isinstance(effect, Answered)][-1]

    def commands(self, verb: str) -> list[Command]:
        """Commands of a kind, each once, in the order in which they were first sent."""
        sent = [effect.command for effect in self.effects if isinstance(effect, Send) and effect.command.verb == verb]
        return list({command.id: command for command in sent}.values())

    @property
    def told(self) -> list[str]:
        """What people were told, in order."""
        return [effect.what for effect in self.effects if isinstance(effect, Told)]

    @property
    def phase(self) -> str:
        """Where the group stands."""
        return self.core.group("chat").phase

    def _shown(self, engine: EngineReport) -> EngineReport:
        silence_s = None if engine.moved_s is None else max(0.0, self.now_s - engine.moved_s)
        return msgspec.structs.replace(engine, silence_s=silence_s)

    def _give(self, event: AnyClusterEvent) -> None:
        self.effects += self.core.step(event)

    def _at(self) -> Stamp:
        return Stamp(mono_ns=round(self.now_s * 1e9), wall_ns=round(self.now_s * 1e9), boot_id="b")
