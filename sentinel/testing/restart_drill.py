"""The restart drill: a rehearsal engine freezes, and the real agent and coordinator bring it back, in policy `auto`.

Everything is real: processes, the freeze, the capture, the bus and its disk, the stop, its proof, the start, the token.
"""

import contextlib
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec

from sentinel.agent.loop import AgentLoop
from sentinel.agent.procfs import still_same
from sentinel.config import Config, Folders, Metrics, Timing
from sentinel.coordinator.embed import Coordinated, coordinating
from sentinel.coordinator.names import ACKS, NOTICES
from sentinel.coordinator.worker import matching
from sentinel.core.rules import Rule
from sentinel.groups import Coordination, Coordinator, Group, Supervisor
from sentinel.model.cluster import Limits, Told
from sentinel.model.effect import AnyEffect, StartCapture, WriteBundle
from sentinel.model.engine import Engine, ProcessId
from sentinel.model.group import Ack
from sentinel.model.stamp import Stamp
from sentinel.plumbing.clock import Clock
from sentinel.plumbing.subprocesses import run_bounded
from sentinel.testing.life import ask
from sentinel.testing.ports import free_port
from sentinel.testing.rehearsal.clients import coming_back

NAME = "restart"
ABOUT = "a rank deadlocks; the coordinator captures, stops, starts, and sees the next token"
GROUP, HOST = "drill", "here"
START_S = 40.0
WARM_LINES = 4
POLL_S = 0.05
WATCHDOG_S = 300.0
HOLD_S = 60.0
ADDED_MAX_S = 20.0
"""What Sentinel may add once it has a verdict and the group has stood still long enough."""
END_S = 420.0
CLIENTS = 8


class RestartOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What the drill showed. `events`: seconds after the fault, words. `hold_s`: how long the group had to stand still
    first, as counted by the drill's clocks. `added_s`: what Sentinel added, see there.
    """

    time_scale: float
    events: tuple[tuple[float, str], ...]
    complaints: tuple[str, ...]
    folder: str
    hold_s: float = 0.0
    added_s: float | None = None
    relaunches: dict[str, int] = {}

    @property
    def passed(self) -> bool:
        """Nothing to complain about."""
        return not self.complaints


@dataclass(slots=True)
class RestartDrill:
    """Run once. `fault` is one of the rehearsal engine's; `limits` None means policy `auto`."""

    rules: Sequence[Rule]
    clock: Clock
    folder: Path
    time_scale: float = 1.0
    fault: str = "deadlock"
    limits: Limits = field(default_factory=lambda: Limits(mode="auto", hold_s=HOLD_S))
    stop_command: tuple[str, ...] = ()
    _effects: list[tuple[Stamp, AnyEffect]] = field(default_factory=list)
    _told: list[tuple[float, Told]] = field(default_factory=list)
    _acks: list[tuple[float, Ack]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _first_pid: int = 0

    def run(self) -> RestartOutcome:
        """Start, warm up, freeze rank 1, wait until the incident is closed or the time is up."""
        self.folder.mkdir(parents=True, exist_ok=True)
        port = free_port()
        with self._engine(port) as first:
            self._first_pid = first.pid
            found = self._coordination(port)
            loop = self._agent(found.groups[GROUP])
            agent = threading.Thread(target=loop.run, name="agent", daemon=True)
            agent.start()
            try:
                with coordinating(loop, found, self.rules) as together, coming_back(self._engines(), CLIENTS):
                    assert together is not None, "the bus of the drill cannot be opened"
                    self._warm_up(together)
                    fault_at = self.clock.now()
                    ask(self._home() / "fault.1", self.fault)
                    self._wait_for_end(together, fault_at)
                    return self._outcome(together, fault_at, first)
            finally:
                loop.stop.set()
                agent.join(timeout=30.0)

    def _argv(self, verb: str, port: int) -> tuple[str, ...]:
        argv = (sys.executable, "-m", "sentinel.testing.rehearsal.detached", verb, "--folder", str(self._engines()))
        if verb == "stop":
            return argv
        scale = self.time_scale
        settings = ("--ranks", "2", "--port", str(port), "--watchdog-timeout", f"{WATCHDOG_S / scale:g}")
        return (*argv, *settings, "--step-s", f"{0.02 / min(scale, 4):g}")

    @contextlib.contextmanager
    def _engine(self, port: int) -> Iterator[ProcessId]:
        started = run_bounded(self._argv("start", port), deadline_s=START_S)
        assert started.ok, f"the rehearsal engine did not start: {started.why} {started.stderr.decode()}"
        pid, ticks = map(int, (self._home() / "engine.pid").read_text().split())
        try:
            yield ProcessId(pid, ticks)
        finally:
            run_bounded(self._argv("stop", port), deadline_s=START_S)

    def _engines(self) -> Path:
        return self.folder / "engine"

    def _home(self) -> Path:
        return self._engines() / (self._engines() / "current").read_text()

    def _agent(self, group: Group) -> AgentLoop:
        scale = self.time_scale
        timing = Timing(time_scale=scale, capture_budget_s=20.0 * min(1.0, scale))
        config = Config(timing=timing, folders=Folders(state=str(self.folder / "agent")), metrics=Metrics(listen=""))
        # With clocks divided, any other engine of this host would look slow and have its stacks taken.
        loop = AgentLoop(config, self.rules, self.clock, only=partial(_is_of, group))
        loop.listeners.append(self._hear)
        return loop

    def _coordination(self, port: int) -> Coordination:
        stop = self.stop_command or self._argv("stop", port)
        owner = Supervisor(kind="command", start=self._argv("start", port), stop=stop)
        scale = self.time_scale
        group = Group(hosts=(HOST,), port=port, supervisor=owner, term_s=15.0 / scale, verify_s=60.0 / scale)
        return Coordination(groups={GROUP: group}, policy=self.limits, coordinator=Coordinator(host=HOST))

    def _hear(self, at: Stamp, effect: AnyEffect) -> None:
        # The next life of the engine is watched too; the timeline is about the first.
        if effect.engine.split(":")[1] == str(self._first_pid):
            with self._lock:
                self._effects.append((at, effect))

    def _warm_up(self, together: Coordinated) -> None:
        """Until the engine decodes, the agent knows its pace, the coordinator leads and trusts its witnesses."""
        began_s = self.clock.now().mono_s
        young_s = self.limits.young_s / self.time_scale
        while self.clock.now().mono_s < began_s + START_S + young_s:
            text = (self._home() / "engine.log").read_text(errors="replace")
            old_enough = self.clock.now().mono_s - began_s > young_s
            if text.count("Decode batch") >= WARM_LINES and together.leader.leading and old_enough:
                return
            threading.Event().wait(POLL_S)
        raise RuntimeError("the rehearsal engine did not warm up")

    def _wait_for_end(self, together: Coordinated, fault_at: Stamp) -> None:
        end_s = fault_at.mono_s + END_S / self.time_scale + 30.0
        after = {NOTICES: 0, ACKS: 0}
        while self.clock.now().mono_s < end_s:
            now_s = self.clock.now().mono_s
            for record in together.bus.follow(NOTICES, after[NOTICES]):
                after[NOTICES] = record.number
                self._told.append((now_s, msgspec.json.decode(record.data, type=Told)))
            for record in together.bus.follow(ACKS, after[ACKS]):
                after[ACKS] = record.number
                self._acks.append((now_s, msgspec.json.decode(record.data, type=Ack)))
            if any(told.what in ("closed", "page") for _, told in self._told):
                return
            threading.Event().wait(POLL_S)

    def _outcome(self, together: Coordinated, fault_at: Stamp, first: ProcessId) -> RestartOutcome:
        events = [(at_s - fault_at.mono_s, _first_line(told)) for at_s, told in self._told]
        events += [(at_s - fault_at.mono_s, _ack_words(ack)) for at_s, ack in self._acks]
        with self._lock:
            for at, effect in self._effects:
                if isinstance(effect, StartCapture | WriteBundle):
                    words = "agent: capture begins" if isinstance(effect, StartCapture) else "agent: evidence kept"
                    events.append((at.mono_s - fault_at.mono_s, words))
        core = together.leader.core
        state = None if core is None else core.group(GROUP)
        hold_s = self.limits.hold_s / self.time_scale
        stopped_s = next((at_s for at_s, ack in self._acks if "/stop/" in ack.id), None)
        sentinel_s = added_s(self._when("verdict"), fault_at.mono_s + hold_s, stopped_s)
        return RestartOutcome(
            time_scale=self.time_scale,
            events=tuple(sorted((round(at_s, 3), words) for at_s, words in events)),
            complaints=(
                *self._complaints(first, {} if state is None else state.relaunches),
                *too_slow(sentinel_s, self.time_scale),
            ),
            folder=str(self.folder),
            hold_s=hold_s,
            added_s=sentinel_s,
            relaunches={} if state is None else dict(state.relaunches),
        )

    def _when(self, what: str) -> float | None:
        return next((at_s for at_s, told in self._told if told.what == what), None)

    def _complaints(self, first: ProcessId, relaunches: dict[str, int]) -> Iterator[str]:
        with self._lock:
            kept_s = next((at.mono_s for at, effect in self._effects if isinstance(effect, WriteBundle)), None)
        stops = [(at_s, ack) for at_s, ack in self._acks if "/stop/" in ack.id]
        bundles = [path for path in (self.folder / "agent" / "incidents").glob(f"*_{first.pid}_*") if path.is_dir()]
        if not bundles:
            yield "no evidence of the incident was kept"
        if not any(told.what == "closed" and "worked" in told.words for _, told in self._told):
            yield "the incident was not closed by an observation: " + "; ".join(t.words for _, t in self._told[-3:])
        if [ack.outcome for _, ack in stops] != ["done"]:
            yield f"wanted one verified stop, got {[(ack.outcome, ack.why) for _, ack in stops]}"
        if kept_s is None or (stops and stops[0][0] < kept_s):
            yield "the engine was stopped before its evidence was kept"
        if still_same(first):
            yield "the frozen engine still runs"
        if sum(relaunches.values()) != 1:
            yield f"wanted one relaunch, counted {relaunches}"


def _is_of(group: Group, engine: Engine) -> bool:
    return bool(matching(group, (engine,)))


def added_s(verdict_s: float | None, held_s: float, stopped_s: float | None) -> float | None:
    """Seconds from the instant in which there is a verdict and the group has stood still long enough, whichever comes
    last, to the verified stop: what is Sentinel's own. None without verdict or stop.
    """
    return None if verdict_s is None or stopped_s is None else round(stopped_s - max(verdict_s, held_s), 3)


def too_slow(sentinel_s: float | None, time_scale: float) -> Iterator[str]:
    """The complaint about it. Divided clocks do not divide what the machine takes, so only real ones are judged."""
    if time_scale == 1.0 and sentinel_s is not None and sentinel_s > ADDED_MAX_S:
        yield f"{sentinel_s:.1f} s from verdict and hold to the verified stop, {ADDED_MAX_S:g} s are allowed"


def timeline(outcome: RestartOutcome) -> list[str]:
    """The timeline in words."""
    scale = "" if outcome.time_scale == 1.0 else f", clocks divided by {outcome.time_scale:g}"
    lines = [f"{'ok  ' if outcome.passed else 'FAIL'} {NAME}: {ABOUT}{scale}", "    0.0 s  fault"]
    lines += [f"{at_s:7.1f} s  {words[:200]}" for at_s, words in outcome.events]
    if outcome.added_s is not None:
        held = f"{outcome.hold_s:g} s of standing still"
        lines.append(f"           from the verdict and {held} to the verified stop: {outcome.added_s:.1f} s")
    lines += [f"           relaunches for {cause}: {count}" for cause, count in outcome.relaunches.items()]
    lines += [f"           {complaint}" for complaint in outcome.complaints]
    lines.append(f"           everything: {outcome.folder}")
    return lines


def _first_line(told: Told) -> str:
    return f"{told.what}: {told.words.partition(chr(10))[0]}"


def _ack_words(ack: Ack) -> str:
    step = ack.id.split("/")[-2]
    return " ".join(filter(None, [f"{step} on {ack.host}: {ack.outcome}", checked(ack), ack.why]))


def checked(ack: Ack) -> str:
    """What a step's proof looked at, in brackets; empty for a step that proves nothing."""
    found = (f"{name} {'yes' if well else 'no' if well is False else 'unknown'}" for name, well in ack.checks.items())
    return f"({', '.join(found)})" if ack.checks else ""
