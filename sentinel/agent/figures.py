"""The agent in numbers: what its loop saw and did, as the metrics of `metrics.registry`.

Everything is counted on the loop's own thread and put into an immutable snapshot every few seconds. What serves the
snapshot never asks the loop, an engine, a driver or `/proc` for anything.
"""

import os
import platform
import resource
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sentinel import __version__
from sentinel.agent.capture import Step
from sentinel.agent.gather import Gather
from sentinel.agent.sources.processes import Processes
from sentinel.agent.status import EngineStatus, Status
from sentinel.metrics.registry import AGENT, AGENT_STATE, PHASE, SERVING
from sentinel.metrics.tally import Snapshot, Tally, Values, gauges
from sentinel.model.effect import AnyEffect, Cleared, Judged, Recovered, StartCapture, Suspected, WriteBundle
from sentinel.model.observation import AnyObservation, KernelEvent, Pressure, StoreTelemetry
from sentinel.model.stamp import Stamp

HZ = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
Gauges = defaultdict[str, dict[Values, float]]

REASONS = {
    "not finished after": "timeout",
    "Permission": "denied",
    "not permitted": "denied",
    "cannot start": "missing",
    "is gone": "gone",
    "no longer wanted": "unwanted",
    "in state": "state",
}
"""Words of a failed attempt's reason -> the closed set that is counted."""


@dataclass(slots=True)
class Figures:
    """Counts while the loop works; `snapshot` is what a scrape may serve."""

    tally: Tally = field(default_factory=lambda: Tally(AGENT))
    began: Stamp | None = None
    _since_s: dict[str, float] = field(default_factory=dict)
    _judged: set[str] = field(default_factory=set)
    _pressure: dict[Values, float] = field(default_factory=dict)
    _stores: dict[tuple[str, int], StoreTelemetry] = field(default_factory=dict)
    _ticks_s: dict[Values, float] = field(default_factory=dict)
    _success_s: dict[Values, float] = field(default_factory=dict)

    def turned(self, at: Stamp, loop: str, lag_s: float | None = None, took_s: float | None = None) -> None:
        """A loop turned; `lag_s` later than planned, and it took `took_s`."""
        self.began = self.began or at
        self._ticks_s[loop,] = at.wall_s
        if lag_s is not None:
            self.tally.observe("sentinel_loop_lag_seconds", max(0.0, lag_s))
        if took_s is not None:
            self.tally.observe("sentinel_loop_turn_duration_seconds", took_s)

    def observed(self, engine: str | None, seen: AnyObservation) -> None:
        """A source said something."""
        match seen:
            case KernelEvent():
                self.tally.add("sentinel_kmsg_events_total", seen.event)
                if seen.event == "xid" and seen.code is not None:
                    self.tally.add("sentinel_xid_events_total", str(seen.code))
            case Pressure(full_avg10=float(percent)) if engine is None and seen.resource != "irq":
                self._pressure[seen.resource,] = percent / 100.0
            case StoreTelemetry(pid=int(pid)) if engine is not None:
                self._stores[engine, pid] = seen

    def acted(self, at: Stamp, effect: AnyEffect, outcome: str) -> None:
        """An effect was carried out."""
        match effect:
            case Suspected():
                self._since_s[effect.incident] = at.mono_s - effect.silence_s
                self.tally.add("sentinel_suspicions_total")
            case StartCapture():
                self._since_s.setdefault(effect.incident, at.mono_s)
            case Judged():
                self._first_verdict(at, effect)
            case WriteBundle():
                done = outcome == "done"
                self.tally.add("sentinel_bundles_total" if done else "sentinel_bundle_failures_total")
            case Cleared():
                self.tally.add("sentinel_near_misses_total")
                self._over(effect.incident)
            case Recovered():
                self.tally.add("sentinel_recoveries_total")
                self.tally.observe("sentinel_incident_duration_seconds", effect.lasted_s)
                self._over(effect.incident)

    def _first_verdict(self, at: Stamp, effect: Judged) -> None:
        if effect.incident not in self._judged:
            since_s = self._since_s.get(effect.incident, at.mono_s)
            self.tally.observe("sentinel_detection_delay_seconds", at.mono_s - since_s)
            if effect.verdict.stalled:
                self.tally.add("sentinel_stalls_total", effect.verdict.kind)
        self._judged.add(effect.incident)

    def _over(self, incident: str) -> None:
        self._since_s.pop(incident, None)
        self._judged.discard(incident)

    def captured(self, steps: Iterable[Step]) -> None:
        """A capture ended with these attempts."""
        for step in steps:
            if step.what == "resume":
                self.tally.add("sentinel_target_left_stopped_total")
                continue
            self.tally.add("sentinel_dumps_total", step.what)
            self.tally.observe("sentinel_dump_duration_seconds", step.took_s, step.what)
            if step.file is None:
                reason = next((reason for words, reason in REASONS.items() if words in step.why), "other")
                self.tally.add("sentinel_dump_failures_total", step.what, reason)

    def snapshot(
        self, status: Status, gather: Gather, troubles: Mapping[str, str], kept_bytes: int, limit_bytes: int
    ) -> Snapshot:
        """Everything, now. `kept_bytes` of kept incidents, of `limit_bytes` that they may take."""
        now, found = status.at, Gauges(dict)
        self._sources(status, gather, found)
        self.tally.grown("sentinel_observations_shed_total", "gather", float(status.shed))
        blind = any(engine.silence_s is None and engine.serving == "unknown" for engine in status.engines)
        ill = bool(status.troubles) or any(source.quarantined_for_s for source in status.sources)
        state = "blind" if blind else "degraded" if ill else "watching"
        found["sentinel_agent_state"] = {(name,): float(name == state) for name in AGENT_STATE.values or ()}
        found["sentinel_build_info"][__version__, platform.python_version()] = 1.0
        found["sentinel_agent_start_timestamp_seconds"][()] = (self.began or now).wall_s
        found["sentinel_snapshot_timestamp_seconds"][()] = now.wall_s
        found["sentinel_loop_last_tick_timestamp_seconds"] = dict(self._ticks_s)
        found["sentinel_trouble"] = {(part,): float(bool(why)) for part, why in troubles.items()}
        found["sentinel_evidence_missing"] = _missing(status)
        found["sentinel_psi_full_ratio"] = dict(self._pressure)
        found["sentinel_bundle_store_bytes"][()] = float(kept_bytes)
        found["sentinel_bundle_store_limit_bytes"][()] = float(limit_bytes)
        self._ourselves(status, found)
        named = dict(zip((engine.key for engine in status.engines), labels(status.engines), strict=True))
        for engine in status.engines:
            _engine(engine, named[engine.key], now, found)
            self._store_pages(engine, named[engine.key], found)
        self._stores = {owner: page for owner, page in self._stores.items() if owner[0] in named}
        for source in gather.sources.values():
            if isinstance(source, Processes) and source.engine.key in named:
                for state, count in source.counts().items():
                    found["sentinel_engine_processes"][named[source.engine.key], state] = float(count)
        return (*gauges(found), *self.tally.series())

    def _sources(self, status: Status, gather: Gather, found: Gauges) -> None:
        """Sources of all engines together, by kind: their number grows with engines, the series' must not."""
        for source in status.sources:
            kind = source.name.partition(":")[0]
            for name, value in (
                ("sentinel_probes_total", source.polls),
                ("sentinel_probe_failures_total", source.failures),
                ("sentinel_probe_seconds_total", source.seconds),
                ("sentinel_probe_observations_total", source.said),
                ("sentinel_log_lost_bytes_total", source.lost_bytes),
            ):
                self.tally.grown(name, source.name, float(value), kind)
            quarantined = found["sentinel_probe_quarantined"]
            quarantined[kind,] = quarantined.get((kind,), 0.0) + bool(source.quarantined_for_s)
            answered_s = gather.health[source.name].answered_s
            if answered_s:
                self._success_s[kind,] = max(self._success_s.get((kind,), 0.0), answered_s)
        self.tally.forget(["gather", "cpu", *(source.name for source in status.sources)])
        found["sentinel_probe_last_success_timestamp_seconds"] = dict(self._success_s)

    def _ourselves(self, status: Status, found: Gauges) -> None:
        """The agent's own process, in the names of the Prometheus client libraries."""
        uses = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        cpu_s = sum(use.ru_utime + use.ru_stime for use in uses)
        self.tally.grown("process_cpu_seconds_total", "cpu", cpu_s)
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * PAGE
        found["process_resident_memory_bytes"][()] = float(resident)
        found["process_start_time_seconds"][()] = _started_s(status.agent.started_ticks, status.at)
        found["process_open_fds"][()] = float(len(os.listdir("/proc/self/fd")))
        found["process_max_fds"][()] = float(resource.getrlimit(resource.RLIMIT_NOFILE)[0])

    def _store_pages(self, engine: EngineStatus, label: str, found: Gauges) -> None:
        pids = {process.id.pid for process in engine.processes}
        pages = [page for (key, pid), page in self._stores.items() if key == engine.key and pid in pids]
        for mode, count in Counter(page.mode for page in pages).items():
            found["sentinel_store_mode"][label, mode] = float(count)
        ages = [page.oldest_read_age_s for page in pages if page.oldest_read_age_s is not None]
        if pages:
            found["sentinel_store_oldest_read_seconds"][label,] = max(ages, default=0.0)


def labels(engines: tuple[EngineStatus, ...]) -> list[str]:
    """A name for each engine that survives its restart: adapter and port; with the root's pid where that is not unique.

    An engine that listens nowhere is called by its adapter and pid.
    """
    plain = []
    for engine in engines:
        port = (engine.url or "").rpartition(":")[2].strip("/")
        plain.append(f"{engine.adapter}:{port}" if port else ":".join(engine.key.split(":")[:2]))
    counts = Counter(plain)
    return [
        name if counts[name] == 1 else f"{name}:{engine.key.split(':')[1]}"
        for name, engine in zip(plain, engines, strict=True)
    ]


def _engine(engine: EngineStatus, label: str, now: Stamp, found: Gauges) -> None:
    found["sentinel_engine_info"][label, engine.adapter, engine.key] = 1.0
    for state in SERVING.values or ():
        found["sentinel_engine_state"][label, state] = float(state == engine.serving)
    for phase in PHASE.values or ():
        found["sentinel_engine_phase"][label, phase] = float(phase == engine.phase)
    found["sentinel_engine_ranks"][label,] = float(sum(process.role == "rank" for process in engine.processes))
    progress_s = None if engine.silence_s is None else now.wall_s - engine.silence_s
    root_ticks = int(engine.key.rpartition(":")[2])
    found["sentinel_engine_start_timestamp_seconds"][label,] = _started_s(root_ticks, now)
    optional = {
        "sentinel_engine_last_progress_timestamp_seconds": progress_s,
        "sentinel_engine_silence_limit_seconds": engine.limit_s,
        "sentinel_engine_kill_deadline_seconds": None if engine.deadline is None else engine.deadline.earliest_s,
    }
    for name, value in optional.items():
        if value is not None:
            found[name][label,] = value
    for queue, count in (("running", engine.running), ("waiting", engine.waiting)):
        if count is not None:
            found["sentinel_engine_outstanding_requests"][label, queue] = float(count)
    stalled = engine.verdict is not None and bool(engine.verdict.stalled)
    cause = engine.verdict.kind if engine.verdict is not None and stalled else "none"
    found["sentinel_stall_active"][label, cause] = float(stalled)


def _missing(status: Status) -> dict[Values, float]:
    found: Counter[str] = Counter()
    for check in status.readiness:
        found[check.what] += not check.ok
    return {(what,): float(count) for what, count in found.items()}


def _started_s(ticks: int, now: Stamp) -> float:
    """Wall-clock second of a start that the kernel counts in ticks since boot."""
    return now.wall_s - (now.mono_s - ticks / HZ)
