"""What a host reports: its agent's newest status, joined to groups, with what would make it a bad witness.

Reads the status that the agent's loop publishes, never the loop itself, so that neither waits for the other.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from sentinel.actions import stores
from sentinel.agent.sources.pressure import HostPressure
from sentinel.agent.status import EngineStatus, Status
from sentinel.bus.bus import Bus, BusDown, TooLarge
from sentinel.coordinator.worker import Worker
from sentinel.groups import Group
from sentinel.model.group import EngineReport, HostPhase, HostReport
from sentinel.model.observation import Pressure
from sentinel.model.stamp import Stamp
from sentinel.model.verdict import Verdict
from sentinel.plumbing.clock import Clock

EVERY_S = 2.0
STATUS_STALE_S = 20.0
STARVED_TICK_S = 2.0
JUMP_S = 2.0
PRESSURE_FULL = 30.0
EVIDENCE_KEPT = 6
LONG = {"starting": "the engine starts", "paused": "it is paused on purpose", "closing": "it shuts down"}
PHASES: Mapping[str, HostPhase] = {
    "watching": "watching", "suspected": "suspected", "capturing": "capturing", "judged": "judged",
}  # fmt: skip


@dataclass(slots=True)
class Uplink:
    """Call `turn` every tick. `latest` gives the agent's newest status."""

    host: str
    groups: Mapping[str, Group]
    bus: Bus
    clock: Clock
    worker: Worker
    latest: Callable[[], Status | None]
    epoch: Callable[[], int]
    agent: str
    time_scale: float = 1.0
    trouble: str = ""
    _born_s: float | None = None
    _due_s: float = 0.0
    _last: Stamp | None = None
    _suspended_s: float = 0.0
    _jumped_at_s: float | None = None
    _starved_at_s: float | None = None

    def turn(self, now: Stamp) -> None:
        """Notice jumps and starvation; report when it is due."""
        self._notice(now)
        if now.mono_s < self._due_s:
            return
        self._due_s = now.mono_s + EVERY_S / self.time_scale
        try:
            self.bus.announce(self.host, msgspec.json.encode(self.report(now)))
            self.trouble = ""
        except (BusDown, TooLarge) as error:
            self.trouble = str(error)

    def report(self, now: Stamp) -> HostReport:
        """The heartbeat."""
        status = self.latest()
        return HostReport(
            host=self.host,
            at=now,
            agent=self.agent,
            age_s=now.mono_s - (self._born_s or now.mono_s),
            epoch_max=self.epoch(),
            starved=self._starved(now),
            jumped_s=None if self._jumped_at_s is None else now.mono_s - self._jumped_at_s,
            engines=tuple(self._engine(name, group, status, now) for name, group in self.groups.items()),
        )

    def _notice(self, now: Stamp) -> None:
        last, suspended_s = self._last, now.mono_s - time.monotonic()
        if self._born_s is None:
            self._born_s = now.mono_s
        if last is not None:
            gap_s = now.mono_s - last.mono_s
            stepped = abs((now.wall_s - last.wall_s) - gap_s) > JUMP_S
            # CLOCK_BOOTTIME runs on while the host sleeps, CLOCK_MONOTONIC does not.
            if stepped or suspended_s - self._suspended_s > JUMP_S:
                self._jumped_at_s = now.mono_s
            if gap_s > STARVED_TICK_S:
                self._starved_at_s = now.mono_s
        self._last, self._suspended_s = now, suspended_s

    def _starved(self, now: Stamp) -> str:
        if self._starved_at_s is not None and now.mono_s - self._starved_at_s < 10.0 / self.time_scale:
            return f"this process was not run for more than {STARVED_TICK_S:g} s"
        for seen in (said.seen for said in HostPressure().poll(now)):
            if isinstance(seen, Pressure) and seen.resource in ("cpu", "memory"):
                share = seen.full_avg10 or 0.0
                if share > PRESSURE_FULL:
                    return f"all work waited for {seen.resource} {share:.0f} % of the last 10 s"
        return ""

    def _engine(self, name: str, group: Group, status: Status | None, now: Stamp) -> EngineReport:
        engine, running = self.worker.seen(name)
        store = None if group.store is None else stores.report(group.store)
        if running is None:
            why = "which engine of this host is meant cannot be told; set port, adapter or supervisor"
            return EngineReport(group=name, incarnation="", phase="absent", unseen=(why,), store=store)
        if not running or engine is None:
            unseen = ("the supervisor reports it running and no process of it is seen",) if running else ()
            return EngineReport(group=name, incarnation=running, phase="absent", unseen=unseen, store=store)
        seen = None if status is None else next((one for one in status.engines if one.key == engine.key), None)
        if status is None or seen is None or now.mono_s - status.at.mono_s > STATUS_STALE_S:
            unseen = ("its agent has no fresh word about the engine",)
            return EngineReport(group=name, incarnation=running, phase="watching", unseen=unseen, store=store)
        moved_s = None if seen.silence_s is None else status.at.mono_s - seen.silence_s
        return EngineReport(
            group=name,
            incarnation=running,
            phase=PHASES[seen.phase],
            moved_s=None if seen.serving == "starting" else moved_s,
            silence_s=None if moved_s is None else now.mono_s - moved_s,
            outstanding=None if seen.serving == "unknown" else seen.serving == "working",
            long_phase=LONG.get(seen.serving, ""),
            incident=seen.incident,
            verdict=_brief(seen),
            store=store,
        )


def _brief(seen: EngineStatus) -> Verdict | None:
    """The verdict with its strongest evidence only: it travels with every heartbeat."""
    if seen.verdict is None or seen.phase != "judged":
        return None
    evidence = seen.verdict.evidence[:EVIDENCE_KEPT]
    return msgspec.structs.replace(seen.verdict, evidence=evidence, ruled_out=(), missing=(), skipped=())
