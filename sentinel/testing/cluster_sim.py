"""A whole cluster under the real coordinator, fences, ledgers and hands, in virtual time, from one seed.

What is simulated is the world: engines whose ranks die, agents and coordinators that crash between any two writes,
partitions, lost and doubtful messages, wall clocks that step. What is real is every decision about them. The invariants
are checked when the world is touched, so that a violation names the command that caused it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random

import msgspec

from sentinel.bus.bus import Bus, BusDown
from sentinel.bus.memory import MemoryBus
from sentinel.coordinator.hand import Hand
from sentinel.coordinator.leader import Leader
from sentinel.core.judge import judge
from sentinel.core.rules import Rule
from sentinel.model.cluster import Delays, Limits
from sentinel.model.group import Ack, Command, EngineReport, GroupSpec, HostPhase, HostReport
from sentinel.model.observation import AnyObservation, Decode, Origin, ProcessExit, ThreadRow, ThreadTable
from sentinel.model.stamp import Stamp
from sentinel.model.verdict import Verdict
from sentinel.testing.cluster_ills import Crash, Ills, Line, Shaky
from sentinel.testing.virtual import EPOCH_NS, VirtualClock

TICK_S = 1.0
REPORT_S = 2.0
SUSPECT_S, CAPTURE_S, JUDGED_S = 8.0, 60.0, 70.0
LIMITS = Limits(mode="auto", hold_s=90.0, restarts_max=4, young_s=30.0)
DELAYS = Delays(start_s=120.0, ready_s=120.0, stop_s=60.0, prove_s=60.0)


class Violation(AssertionError):
    """An invariant does not hold."""


@dataclass(slots=True)
class Process:
    """The engine on one host. `incarnation` empty: nothing runs. `broken`: a rank of it died."""

    incarnation: str = ""
    broken: bool = False
    moved_s: float = 0.0


@dataclass(slots=True)
class Host:
    """One machine: its engine processes, its agent and its hand."""

    world: "ClusterSim"
    name: str
    groups: tuple[str, ...]
    ledger: Shaky
    line: Line
    engines: dict[str, Process]
    hand: Hand | None = None
    agent: str = ""
    born_s: float = 0.0
    wall_ns: int = 0
    jumped_s: float | None = None

    def running(self, group: str) -> str | None:
        """The incarnation that runs now."""
        return self.engines[group].incarnation

    def resolve(self, command: Command, running: str | None) -> Ack | None:
        """A stop or start whose result is there was done; anything else is carried on, a probe asked again."""
        if command.verb == "stop" and running != command.incarnation:
            return Ack(id=command.id, host=self.name, outcome="done", why="seen after a restart of the agent")
        if command.verb == "start" and running:
            return Ack(id=command.id, host=self.name, outcome="done", incarnation=running)
        return None

    def perform(self, command: Command, hand: Hand) -> None:
        """Take some time, then touch the world and answer, unless the agent is gone by then."""
        self.world.check_command(self, command)
        took_s = self.world.dice.uniform(0.1, 8.0)
        self.world.clock.call_in(took_s, lambda: self._act(command, hand))

    def _act(self, command: Command, hand: Hand) -> None:
        if self.hand is not hand:
            return
        try:
            self.world.ills.may_crash()
            ack = self._done(command)
            self.world.ills.may_crash()
        except Crash:
            self.world.crash_agent(self)
            return
        hand.done(ack)

    def _done(self, command: Command) -> Ack:
        engine = self.engines[command.group]
        match command.verb:
            case "capture":
                if not engine.incarnation:
                    return Ack(id=command.id, host=self.name, outcome="failed", why="no engine of the group runs here")
                evidence = self.world.evidence(self, command.group)
                digest = self.world.bus.put(msgspec.json.encode(evidence))
                return Ack(id=command.id, host=self.name, outcome="done", evidence=digest)
            case "probe" | "ready":
                token = self.world.progresses(command.group)
                if command.verb == "ready" and not token:
                    return Ack(id=command.id, host=self.name, outcome="failed", why="no token")
                return Ack(id=command.id, host=self.name, outcome="done", checks={"token": token})
            case "stop":
                if engine.incarnation == command.incarnation:
                    self.world.stopped(self, command)
                    engine.incarnation = ""
                return Ack(id=command.id, host=self.name, outcome="done", checks={"processes_gone": True})
            case _:
                if not engine.incarnation:
                    self.world.started(self, command)
                return Ack(id=command.id, host=self.name, outcome="done", incarnation=engine.incarnation)


@dataclass(slots=True)
class ClusterSim:
    """`seed` decides everything. `faults` False makes a world in which only engines break."""

    seed: int
    rules: Sequence[Rule]
    faults: bool = True
    limits: Limits = LIMITS
    clock: VirtualClock = field(default_factory=VirtualClock)
    bus: Bus = field(default_factory=MemoryBus)
    dice: Random = field(init=False)
    ills: Ills = field(init=False)
    hosts: dict[str, Host] = field(default_factory=dict)
    specs: tuple[GroupSpec, ...] = ()
    leaders: dict[str, Leader | None] = field(default_factory=dict)
    lines: dict[str, Line] = field(default_factory=dict)
    kills: list[tuple[float, str, str, str]] = field(default_factory=list)
    starts: list[tuple[float, str, str]] = field(default_factory=list)
    plans: dict[str, list[tuple[float, str]]] = field(default_factory=dict)
    verdicts: dict[tuple[str, str], Verdict] = field(default_factory=dict)
    _number: int = 0
    _killed: set[tuple[str, str]] = field(default_factory=set)
    _obeyed: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.dice = Random(self.seed)
        self.ills = Ills(self.clock, self.dice)
        shapes = self.dice.choice(((1,), (2,), (3,), (1, 2), (2, 2)))
        names = [f"host{number}" for number in range(max(shapes))]
        self.specs = tuple(
            GroupSpec(name=f"group{index}", hosts=tuple(names[:size]), acts=True) for index, size in enumerate(shapes)
        )
        for name in names:
            groups = tuple(spec.name for spec in self.specs if name in spec.hosts)
            ledger, line = Shaky(ills=self.ills), Line(self.bus, self.ills)
            engines = {group: self._fresh() for group in groups}
            self.hosts[name] = Host(self, name, groups, ledger, line, engines)
            self._start_agent(self.hosts[name])
            self.clock.call_in(self.dice.uniform(0, 1), partial(self._tick_host, self.hosts[name]))
            self.clock.call_in(self.dice.uniform(0, 2), partial(self._report, self.hosts[name]))
        for name in ("lead0", "lead1"):
            self.lines[name] = Line(self.bus, self.ills)
            self._start_leader(name)
            self.clock.call_in(self.dice.uniform(0, 1), partial(self._tick_leader, name))

    def break_rank(self, group: str, in_s: float) -> None:
        """One rank's process dies while its launcher lives: the whole group stands still for good."""
        self.clock.call_in(in_s, lambda: self._break(group))

    def trouble(self, from_s: float, until_s: float) -> None:
        """Between these seconds everything fails now and then; afterwards nothing does."""
        if self.faults:
            self.clock.call_in(from_s, lambda: self._begin_trouble(until_s))

    def run(self, seconds: float) -> None:
        """Let virtual time pass."""
        self.clock.run_until(self.clock.mono_s + seconds)

    # --- what goes wrong ----------------------------------------------------------------------------------------

    def crash_agent(self, host: Host) -> None:
        """The agent is gone; another is started a while later, with the same ledger."""
        host.hand = None
        self.clock.call_in(self.dice.uniform(1, 40), lambda: self._start_agent(host))

    def _begin_trouble(self, until_s: float) -> None:
        self.ills.until_s = until_s
        self._more_trouble()

    def _more_trouble(self) -> None:
        if not self.ills.on:
            for line in (*self.lines.values(), *(host.line for host in self.hosts.values())):
                line.cut = False
            return
        host = self.dice.choice(list(self.hosts.values()))
        match self.dice.randrange(5):
            case 0:
                host.line.cut = not host.line.cut
            case 1:
                line = self.dice.choice(list(self.lines.values()))
                line.cut = not line.cut
            case 2:
                step_ns = round(self.dice.uniform(-7200, 7200) * 1e9)
                host.wall_ns += step_ns
                host.jumped_s = self.clock.mono_s
            case 3 if host.hand is not None:
                self.crash_agent(host)
            case _:
                name = self.dice.choice(list(self.leaders))
                if self.leaders[name] is not None:
                    self._crash_leader(name)
        self.clock.call_in(self.dice.uniform(1, 30), self._more_trouble)

    def _break(self, group: str) -> None:
        spec = next(spec for spec in self.specs if spec.name == group)
        live = [self.hosts[name] for name in spec.hosts if self.hosts[name].engines[group].incarnation]
        if live:
            self.dice.choice(live).engines[group].broken = True

    # --- processes ----------------------------------------------------------------------------------------------

    def _start_agent(self, host: Host) -> None:
        host.born_s, host.agent = self.clock.mono_s, f"{host.name}#{self._next()}"
        host.hand = Hand(host.name, host.groups, host.line, host.ledger, host)

    def _tick_host(self, host: Host) -> None:
        for group in host.groups:
            if self.progresses(group):
                host.engines[group].moved_s = self.clock.mono_s
        if host.hand is not None:
            try:
                host.hand.turn(self.clock.mono_s)
            except Crash:
                self.crash_agent(host)
        self.clock.call_in(TICK_S, lambda: self._tick_host(host))

    def _report(self, host: Host) -> None:
        if host.hand is not None:
            try:
                host.line.announce(host.name, msgspec.json.encode(self._host_report(host)))
            except BusDown:
                pass
            except Crash:
                self.crash_agent(host)
        self.clock.call_in(REPORT_S, lambda: self._report(host))

    def _start_leader(self, name: str) -> None:
        self.leaders[name] = Leader(
            me=f"{name}#{self._next()}", bus=self.lines[name], rules=self.rules, groups=self.specs, limits=self.limits,
            delays=DELAYS, jitter_s=self.dice.uniform(0, 3),
        )  # fmt: skip

    def _crash_leader(self, name: str) -> None:
        self.leaders[name] = None
        self.clock.call_in(self.dice.uniform(1, 60), lambda: self._start_leader(name))

    def _tick_leader(self, name: str) -> None:
        leader = self.leaders[name]
        if leader is not None:
            try:
                leader.turn(self._stamp(0))
            except Crash:
                self._crash_leader(name)
        self.clock.call_in(TICK_S, lambda: self._tick_leader(name))

    # --- the world as agents see it -----------------------------------------------------------------------------

    def progresses(self, group: str) -> bool:
        """Whether the group's engine generates tokens: a whole engine on every host."""
        spec = next(spec for spec in self.specs if spec.name == group)
        parts = [self.hosts[name].engines[group] for name in spec.hosts]
        return all(part.incarnation and not part.broken for part in parts)

    def evidence(self, host: Host, group: str) -> tuple[AnyObservation, ...]:
        """What a capture finds on one host."""
        spec = next(spec for spec in self.specs if spec.name == group)
        first, engine = 2 * spec.hosts.index(host.name), host.engines[group]
        wall_s = EPOCH_NS / 1e9
        at_s = wall_s + engine.moved_s
        seen: list[AnyObservation] = []
        if first == 0:
            seen.append(Decode(origin=Origin("log"), at_s=at_s, engine="sglang", running=8, queued=0, throughput=100.0))
        for rank in (first, first + 1):
            if engine.broken and rank == first:
                continue
            row = ThreadRow(tid=100 + rank, comm="python3", state="R", running=True)
            now_s = wall_s + self.clock.mono_s
            table = ThreadTable(origin=Origin("proc"), at_s=now_s, pid=100 + rank, rank=rank, threads=(row,))
            seen.append(table)
        if engine.broken:
            how = "the rank is gone while the engine lives"
            died = ProcessExit(
                origin=Origin("agent"), at_s=at_s + 1.0, pid=100 + first, rank=first, role="rank", how=how
            )  # fmt: skip
            seen.append(died)
        return tuple(seen)

    def _host_report(self, host: Host) -> HostReport:
        now_s = self.clock.mono_s
        return HostReport(
            host=host.name,
            at=self._stamp(host.wall_ns),
            agent=host.agent,
            age_s=now_s - host.born_s,
            epoch_max=host.ledger.last,
            jumped_s=None if host.jumped_s is None else now_s - host.jumped_s,
            engines=tuple(self._engine_report(host, group) for group in host.groups),
        )

    def _engine_report(self, host: Host, group: str) -> EngineReport:
        engine = host.engines[group]
        silence_s = self.clock.mono_s - engine.moved_s
        phase: HostPhase = "watching"
        if not engine.incarnation:
            phase = "absent"
        elif silence_s > JUDGED_S:
            phase = "judged"
        elif silence_s > CAPTURE_S or (engine.broken and silence_s > 2.0):
            phase = "capturing"
        elif silence_s > SUSPECT_S:
            phase = "suspected"
        return EngineReport(
            group=group,
            incarnation=engine.incarnation,
            phase=phase,
            moved_s=engine.moved_s if engine.incarnation else None,
            silence_s=silence_s if engine.incarnation else None,
            outstanding=True,
            verdict=self._verdict(host, group) if phase == "judged" else None,
        )

    def _verdict(self, host: Host, group: str) -> Verdict:
        """What the agent alone makes of it; only a group of one host rests on it."""
        key = (group, host.engines[group].incarnation)
        if key not in self.verdicts:
            now_s = EPOCH_NS / 1e9 + self.clock.mono_s
            self.verdicts[key] = judge(self.evidence(host, group), self.rules, now_s=now_s).verdict
        return self.verdicts[key]

    # --- invariants ---------------------------------------------------------------------------------------------

    def check_command(self, host: Host, command: Command) -> None:
        """A hand is about to obey."""
        if command.epoch < self._obeyed.get(host.name, 0):
            raise Violation(f"{host.name} obeyed epoch {command.epoch} after {self._obeyed[host.name]}")
        self._obeyed[host.name] = command.epoch
        if command.id not in host.ledger.commands:
            raise Violation(f"{command.id} was begun before it was journalled")

    def stopped(self, host: Host, command: Command) -> None:
        """An engine is about to be killed."""
        what = (host.name, command.incarnation)
        if what in self._killed:
            raise Violation(f"{what} was killed twice")
        self._killed.add(what)
        if self.progresses(command.group):
            raise Violation(f"{command.id} kills an engine that makes progress")
        plans = self.plans.setdefault(command.group, [])
        if not plans or plans[-1][1] != command.plan:
            if plans and self.clock.mono_s - plans[-1][0] < self.limits.backoff_s[1]:
                raise Violation(f"{command.plan} comes {self.clock.mono_s - plans[-1][0]:.0f} s after {plans[-1][1]}")
            plans.append((self.clock.mono_s, command.plan))
        self.kills.append((self.clock.mono_s, host.name, command.group, command.incarnation))

    def started(self, host: Host, command: Command) -> None:
        """An engine is about to be started where none runs."""
        host.engines[command.group] = self._fresh()
        self.starts.append((self.clock.mono_s, host.name, command.group))

    def _fresh(self) -> Process:
        return Process(f"inc{self._next()}", moved_s=self.clock.mono_s)

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _stamp(self, wall_skew_ns: int) -> Stamp:
        now = self.clock.now()
        return Stamp(mono_ns=now.mono_ns, wall_ns=now.wall_ns + wall_skew_ns, boot_id=now.boot_id)
