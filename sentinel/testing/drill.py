"""Fire drills: a real engine of real processes, one real fault, the real agent; what happened when, and was it right.

Times are measured, not asserted against a script: the drill reads the engine's own log for its kill and the agent's
effects for suspicion, capture and verdict. `time_scale` divides every clock of the engine and of the agent alike.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from sentinel.agent import bundling
from sentinel.agent.loop import AgentLoop
from sentinel.config import Config, Folders, Timing
from sentinel.core.rules import Rule
from sentinel.model.effect import AnyEffect, Judged, Recovered, StartCapture, Suspected, WriteBundle
from sentinel.model.engine import Engine
from sentinel.model.stamp import Stamp
from sentinel.model.verdict import Verdict
from sentinel.plumbing.clock import Clock
from sentinel.testing.ports import free_port
from sentinel.testing.rehearsal.shared import Shared
from sentinel.testing.scenarios import Scenario

START_S = 180.0
WARM_LINES = 4
POLL_S = 0.05
BEYOND_S = 15.0
BUNDLE_S = 120.0


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a drill showed; seconds after the fault. None: it did not happen.

    `noticed_s` is the suspicion, or the capture where a death makes waiting pointless.
    """

    scenario: str
    time_scale: float
    suspected_s: float | None
    noticed_s: float | None
    captured_s: float | None
    judged_s: float | None
    deadline_s: float
    verdict: Verdict | None
    complaints: tuple[str, ...]
    folder: str
    bundle: str = ""
    report: str = ""
    told: str = ""
    events: tuple[tuple[float, str], ...] = ()

    @property
    def passed(self) -> bool:
        """Nothing to complain about."""
        return not self.complaints


@dataclass(slots=True)
class Drill:
    """One scenario, run for real. `folder` keeps everything for later looks."""

    scenario: Scenario
    rules: Sequence[Rule]
    clock: Clock
    folder: Path
    time_scale: float = 1.0
    _events: list[tuple[Stamp, AnyEffect]] = field(default_factory=list)
    _root_pid: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self) -> Outcome:
        """Start the engine, warm it up, inject the fault, wait for the verdict (or for the calm to last)."""
        engine_folder = self.folder / "engine"
        engine_folder.mkdir(parents=True)
        with self._engine(engine_folder) as launcher:
            self._root_pid = launcher.pid
            loop = self._agent()
            agent = threading.Thread(target=loop.run, name="agent", daemon=True)
            agent.start()
            try:
                self._warm_up(engine_folder, launcher, loop)
                fault_at = self.clock.now()
                self.scenario.inject(engine_folder, launcher.pid)
                self._wait_for_end(fault_at)
            finally:
                loop.stop.set()
                agent.join(timeout=30.0)
                self.scenario.undo(engine_folder, launcher.pid)
        return self._outcome(fault_at, self._bundle())

    @contextlib.contextmanager
    def _engine(self, folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
        scenario, scale = self.scenario, self.time_scale
        argv = [sys.executable, "-m", "sentinel.testing.rehearsal", "--role", "launcher"]
        argv += ["--ranks", str(scenario.ranks), "--folder", str(folder), "--port", str(free_port())]
        argv += ["--watchdog-timeout", f"{scenario.watchdog_s / scale:g}", "--step-s", f"{0.02 / min(scale, 4):g}"]
        argv += ["--prefill-tps", f"{2000 * scale:g}"]
        with (folder / "engine.log").open("ab") as log:
            environ = {**os.environ, "NCCL_DEBUG_FILE": str(folder / "nccl.%h.%p")}
            launcher = subprocess.Popen(argv, stderr=log, env=environ, start_new_session=True)
        try:
            yield launcher
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(launcher.pid, signal.SIGCONT)
                os.killpg(launcher.pid, signal.SIGKILL)
            launcher.wait()

    def _agent(self) -> AgentLoop:
        timing = Timing(time_scale=self.time_scale, capture_budget_s=20.0 * min(1.0, self.time_scale))
        config = Config(timing=timing, folders=Folders(state=str(self.folder / "agent")))
        # With clocks divided, any other engine of this host would look slow and have its stacks taken.
        loop = AgentLoop(config, self.rules, self.clock, only=self._is_mine)
        loop.listeners.append(self._hear)
        return loop

    def _is_mine(self, engine: Engine) -> bool:
        return engine.root.pid == self._root_pid

    def _hear(self, at: Stamp, effect: AnyEffect) -> None:
        with self._lock:
            self._events.append((at, effect))

    def _warm_up(self, folder: Path, launcher: "subprocess.Popen[bytes]", loop: AgentLoop) -> None:
        """Wait until the engine serves, give it work, and let the agent see it and learn its pace."""
        until = self.clock.now().mono_s + START_S
        log = folder / "engine.log"
        shared: Shared | None = None
        while self.clock.now().mono_s < until:
            text = log.read_text(errors="replace")
            if shared is None and "fired up" in text:
                shared = Shared(folder / "shared")
                shared.put("running", 8)
            if text.count("Decode batch") >= WARM_LINES and _is_at_work(loop):
                return
            if launcher.poll() is not None:
                break
            threading.Event().wait(POLL_S)
        raise RuntimeError(f"the rehearsal engine did not start: {log.read_text(errors='replace')[-2000:]}")

    def _wait_for_end(self, fault_at: Stamp) -> None:
        """Until the bundle is written, or as long as calm has to last."""
        end_s = fault_at.mono_s + self.scenario.watch_s / self.time_scale + BEYOND_S * self.scenario.expects_verdict
        while self.clock.now().mono_s < end_s:
            with self._lock:
                kinds = {type(effect) for _, effect in self._events}
            if self.scenario.expects_verdict and WriteBundle in kinds and Judged in kinds:
                return
            threading.Event().wait(POLL_S)

    def _bundle(self) -> str:
        """The bundle of the incident that was kept, once it is packed; empty when there is none."""
        kept = [effect.incident for _, effect in self._events if isinstance(effect, WriteBundle)]
        if not kept:
            return ""
        until = self.clock.now().mono_s + BUNDLE_S
        while self.clock.now().mono_s < until:
            if found := sorted((self.folder / "agent" / "incidents").glob(f"*/{bundling.NAME}")):
                return str(found[-1])
            threading.Event().wait(POLL_S)
        return ""

    def _outcome(self, fault_at: Stamp, bundle: str) -> Outcome:
        events = [(round(at.mono_s - fault_at.mono_s, 3), effect) for at, effect in self._events]
        told = "" if self.scenario.tells is None else self.scenario.tells()
        found = outcome_of(self.scenario, self.time_scale, events, bundle)
        return msgspec.structs.replace(found, folder=str(self.folder), told=told)


def outcome_of(
    scenario: Scenario, time_scale: float, events: Sequence[tuple[float, AnyEffect]], bundle: str
) -> Outcome:
    """What the agent's effects (seconds after the fault) come to, measured by what the scenario expects."""

    def first(*kinds: type[AnyEffect]) -> float | None:
        return next((at_s for at_s, effect in events if at_s >= 0 and isinstance(effect, kinds)), None)

    verdict = next((effect.verdict for _, effect in reversed(events) if isinstance(effect, Judged)), None)
    captured_s, deadline_s = first(WriteBundle), scenario.watchdog_s / time_scale
    alarms = [at_s for at_s, effect in events if isinstance(effect, Suspected)]
    return Outcome(
        scenario=scenario.name,
        time_scale=time_scale,
        suspected_s=first(Suspected),
        noticed_s=first(Suspected, StartCapture),
        captured_s=captured_s,
        judged_s=first(Judged),
        deadline_s=deadline_s,
        verdict=verdict,
        complaints=tuple(_complaints(scenario, deadline_s, verdict, alarms, captured_s, bundle)),
        folder="",
        bundle=bundle,
        events=tuple((at_s, words(effect)) for at_s, effect in events),
    )


def _complaints(
    scenario: Scenario,
    deadline_s: float,
    verdict: Verdict | None,
    alarms: Sequence[float],
    captured_s: float | None,
    bundle: str,
) -> Iterator[str]:
    for at_s in alarms:
        if not scenario.expects_verdict:
            yield f"false alarm: suspected after {at_s:.1f} s"
        elif at_s < 0:
            yield f"false alarm: suspected {-at_s:.1f} s before the fault"
    if not scenario.expects_verdict:
        return
    if verdict is None or captured_s is None:
        yield "no verdict"
        return
    if not bundle:
        yield f"no bundle within {BUNDLE_S:g} s"
    if captured_s > deadline_s:
        yield f"captured {captured_s - deadline_s:.1f} s after the engine's own kill was due"
    if verdict.kind not in scenario.classes:
        yield f"judged {verdict.kind}, wanted {' or '.join(scenario.classes)}"
    if scenario.culprits is not None and verdict.culprits.ranks != scenario.culprits:
        yield f"blamed {list(verdict.culprits.ranks)}, wanted {list(scenario.culprits)}"


def _is_at_work(loop: AgentLoop) -> bool:
    """Whether the agent sees the engine work, at a pace that it knows."""
    seen = () if loop.latest is None else loop.latest.engines
    return any(engine.serving == "working" and engine.interval_s is not None for engine in seen)


def words(effect: AnyEffect) -> str:
    """One effect in a timeline."""
    match effect:
        case Suspected():
            return f"suspected: {effect.silence_s:.1f} s of silence, limit {effect.limit_s:.1f} s"
        case StartCapture():
            return f"capture begins: {effect.why}"
        case Judged(verdict=verdict):
            who = f", culprit {list(verdict.culprits.ranks)}" if verdict.culprits.ranks else ""
            return f"verdict {verdict.kind} ({verdict.confidence}){who}"
        case WriteBundle():
            return "capture complete, evidence kept"
        case Recovered():
            return f"closed: {effect.why}"
        case _:
            return "suspicion cleared: progress came back"
