"""The agent's loop: the world in, the core's effects out, everything journalled in between.

One thread gathers, steps the core and writes the journal. Captures run on a thread of their own and come back as
events; bundles are packed by a child. An effect is durable in the journal before it is carried out. Without room for
the journal detection goes on, and the status says what a replay will miss.
"""

import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec

from sentinel import __version__
from sentinel.agent import status
from sentinel.agent.bundling import NAME as BUNDLE
from sentinel.agent.bundling import Bundling
from sentinel.agent.capture import Capture, Captured
from sentinel.agent.discovery import Discovery
from sentinel.agent.figures import Figures
from sentinel.agent.gather import Gather
from sentinel.agent.incidents import Incidents
from sentinel.agent.readiness import Readiness
from sentinel.agent.ring import Ring
from sentinel.agent.roster import OF_PROCESSES, engine_sources, host_sources
from sentinel.agent.sources.engine_log import EngineLog
from sentinel.agent.sources.nccl_files import NcclFiles
from sentinel.collectors import agent_notes
from sentinel.config import Config
from sentinel.core.agent import AgentCore, silence_seen
from sentinel.core.rules import Rule
from sentinel.metrics.tally import Snapshot, merged
from sentinel.model.effect import AnyEffect, Recovered, StartCapture, Suspected, WriteBundle
from sentinel.model.engine import Engine, ProcessId
from sentinel.model.event import AnyEvent, CaptureEnded, EngineGone, EngineSeen, Observed, OpenIncident, Started, Tick
from sentinel.model.observation import (
    AnyObservation,
    Enqueues,
    Environment,
    HealthProbe,
    NcclComm,
    Observation,
    Origin,
    ProcessExit,
    ProcessTable,
    StoreTelemetry,
)
from sentinel.model.stamp import Stamp
from sentinel.plumbing.clock import Clock, local_s
from sentinel.plumbing.notify import Heartbeat
from sentinel.record.journal import Journal, JournalError

Listener = Callable[[Stamp, AnyEffect], None]
CAPTURES_MAX = 2
NAP_MIN_S = 0.02


@dataclass(slots=True)
class AgentLoop:
    """Owns all parts of the agent. `run` until `stop` is set; `turn` is one round, for tests and the view.

    `beside`: snapshots of what works beside the loop, for the same page. `only`: which engines to watch, for a drill
    beside engines that are none of its business.
    """

    config: Config
    rules: Sequence[Rule]
    clock: Clock
    listeners: list[Listener] = field(default_factory=list)
    only: Callable[[Engine], bool] | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    core: AgentCore = field(init=False)
    gather: Gather = field(default_factory=Gather)
    journal_trouble: str = ""
    metrics_trouble: str = ""
    latest: status.Status | None = None
    figures: Figures = field(default_factory=Figures)
    measured: Snapshot | None = None
    measurers: list[Callable[[Snapshot], None]] = field(default_factory=list)
    beside: list[Callable[[], Snapshot | None]] = field(default_factory=list)
    _journal: Journal = field(init=False)
    _ring: Ring = field(init=False)
    _incidents: Incidents = field(init=False)
    _bundling: Bundling = field(init=False)
    _discovery: Discovery = field(default_factory=Discovery)
    _engines: dict[str, Engine] = field(default_factory=dict)
    _captured: "queue.SimpleQueue[tuple[StartCapture, Captured]]" = field(default_factory=queue.SimpleQueue)
    _wanted: set[str] = field(default_factory=set)
    _running: int = 0
    _scan_due_s: float = 0.0
    _status_due_s: float = 0.0
    _status_trouble: str = ""
    _left_open: dict[str, OpenIncident] = field(default_factory=dict)
    _readiness: Readiness = field(default_factory=Readiness)
    _ourselves: ProcessId = field(default_factory=status.ourselves)
    _heartbeat: Heartbeat = field(default_factory=Heartbeat)

    def __post_init__(self) -> None:
        limits = self.config.limits
        self.core = AgentCore(self.rules)
        self._journal = Journal(
            self.config.folder("journal"),
            segment_bytes=limits.journal_bytes // 16,
        ).open()
        self._ring = Ring(self.config.folder("ring"))
        self._incidents = Incidents(self.config.folder("incidents"), limits.incidents_kept, limits.incident_bytes)
        self._bundling = Bundling(Path(self.config.folders.state), self._incidents.folder)
        self._bundling.start()
        for source in host_sources(self.config, self._ring):
            self.gather.add(source)
        now = self.clock.now()
        left_open = self._incidents.left_open(now.boot_id)
        self._left_open = {left.engine: left for left in left_open}
        self._give(Started(at=now, version=__version__, settings=self.config.core(), left_open=left_open))

    def run(self) -> None:
        """Turn until stopped: at every tick, and in the instant in which a silence has lasted too long."""
        nap_s = tick_s = self.config.timing.tick_s / self.config.timing.time_scale
        due_s = self.clock.now().mono_s + tick_s
        try:
            while not self.stop.wait(nap_s):
                began = self.clock.now()
                self.turn()
                ended = self.clock.now()
                self.figures.turned(began, "turn", began.mono_s - due_s, ended.mono_s - began.mono_s)
                self._heartbeat.beat(ended.mono_s)
                nap_s = self._nap_s(tick_s)
                due_s = ended.mono_s + nap_s
        finally:
            self.close()

    def _nap_s(self, tick_s: float) -> float:
        now_s = self.clock.now().mono_s
        due_s = self.core.next_due_s(now_s)
        return tick_s if due_s is None else min(tick_s, max(due_s - now_s, NAP_MIN_S))

    def turn(self) -> None:
        """One round: discover, gather, hear from captures, let time pass."""
        now = self.clock.now()
        if now.mono_s >= self._scan_due_s:
            self._scan_due_s = now.mono_s + self.config.timing.discover_every_s / self.config.timing.time_scale
            self._discover()
            self.figures.turned(now, "discovery")
        for said in self.gather.poll(self.clock.now()):
            if said.engine is not None and self._is_kept(said.seen):
                self._note(said.engine, said.seen)
            self.figures.observed(said.engine, said.seen)
            self._give(Observed(at=self.clock.now(), engine=said.engine, seen=said.seen))
        while not self._captured.empty():
            self._hear(*self._captured.get())
        self._give(Tick(at=self.clock.now()))
        if now.mono_s >= self._status_due_s:
            self._status_due_s = now.mono_s + status.WRITE_EVERY_S / self.config.timing.time_scale
            self.latest = self._status(self.clock.now())
            self._status_trouble = status.write(Path(self.config.folders.state), self.latest)
            self._measure(self.latest)

    def _is_kept(self, seen: AnyObservation) -> bool:
        """Whether nothing but the agent's notes would show it offline; counts of calls are large and kept in need."""
        kept = isinstance(seen, ProcessTable | HealthProbe | StoreTelemetry | Environment)
        return kept or (self._running > 0 and isinstance(seen, Enqueues | NcclComm))

    def close(self) -> None:
        """Stop the sources and make the journal durable."""
        self.stop.set()
        self.gather.close()
        self._ring.close()
        self._journal.close()

    def _give(self, event: AnyEvent) -> None:
        try:
            self._journal.event(event)
        except OSError as error:
            self._journal_failed(error)
        effects = self.core.step(event)
        if effects:
            self._carry_out(event.at, effects)

    def _carry_out(self, at: Stamp, effects: Sequence[AnyEffect]) -> None:
        try:
            positions = [self._journal.effect(effect) for effect in effects]
            self._journal.sync()
        except OSError as error:
            # Detection and capture go on without a journal; only what nobody can replay is lost.
            self._journal_failed(error)
            positions = [-1] * len(effects)
        # Whoever reads the status waits for exactly this.
        self._status_due_s = 0.0
        for position, effect in zip(positions, effects, strict=True):
            outcome = self._act(at, effect)
            self.figures.acted(at, effect, outcome)
            if position >= 0 and not self.journal_trouble:
                self._journal.outcome(position, outcome)
            for listener in self.listeners:
                listener(at, effect)

    def _journal_failed(self, error: OSError) -> None:
        self.journal_trouble = f"journal: {error.strerror}; detection continues, replay will miss what follows"

    def _act(self, at: Stamp, effect: AnyEffect) -> str:
        done = "done"
        if isinstance(effect, WriteBundle):
            done = self._incidents.finish(effect.incident, self._ring, root_pid=effect.engine.split(":")[1])
        # The record comes before a capture and after a bundle: an agent that is ended in between must not believe
        # that evidence is on disk which is not, nor take it twice.
        self._incidents.note(at, effect)
        match effect:
            case Suspected(silence_s=silence_s, limit_s=limit_s):
                self._note(effect.engine, silence_seen(at, silence_s, limit_s))
            case StartCapture():
                return self._start_capture(effect)
            case WriteBundle():
                self._bundling.order(self._incidents.folder_of(effect.incident).parent)
            case Recovered():
                self._wanted.discard(effect.incident)
        return done

    def _start_capture(self, effect: StartCapture) -> str:
        engine = self._engines.get(effect.engine)
        if engine is None or self._running >= CAPTURES_MAX:
            why = "too many captures at once"
            folder = self._incidents.folder_of(effect.incident)
            self._captured.put((effect, Captured(folder, begun=False, why_incomplete=why)))
            return "refused"
        for source in self.gather.sources.values():
            if isinstance(source, NcclFiles) and source.engine.key == engine.key:
                source.tell_now()
        self._wanted.add(effect.incident)
        self._running += 1
        folder = self._incidents.folder_of(effect.incident)
        capture = Capture(engine, folder, self.clock, effect.budget_s, lambda: effect.incident in self._wanted)
        thread = threading.Thread(
            target=lambda: self._captured.put((effect, capture.run())), name="capture", daemon=True
        )
        thread.start()
        return "started"

    def _hear(self, effect: StartCapture, captured: Captured) -> None:
        """A capture came back: what it found goes to the core as observations, then its end."""
        self._running -= captured.begun
        self.figures.captured(captured.steps)
        self._tell(effect.engine, self._incidents.observations(effect.incident, captured))
        self._give(
            CaptureEnded(
                at=self.clock.now(),
                incident=effect.incident,
                complete=captured.complete,
                ranks_with_stacks=tuple(sorted(captured.with_stacks)),
                ranks_without=tuple(sorted(captured.without)),
                why_incomplete=captured.why_incomplete,
            )
        )

    def _discover(self) -> None:
        wanted = self.only
        scanned = self._discovery.scan()
        found = {engine.key: engine for engine in scanned if wanted is None or wanted(engine)}
        for key in self._engines.keys() - found.keys():
            for name in [name for name in self.gather.sources if name.endswith(f":{key}")]:
                # What the log said last is evidence: read it before the source is dropped.
                self._last_words(name)
                self.gather.drop(name)
            del self._engines[key]
            self._give(EngineGone(at=self.clock.now(), key=key))
        for key, engine in found.items():
            known = self._engines.get(key)
            if known != engine:
                self._mourn(known, engine)
                self._engines[key] = engine
                self._give(EngineSeen(at=self.clock.now(), engine=engine))
                self._follow(engine)
                self._take_over(engine)
        for key in self._left_open.keys() - found.keys():
            del self._left_open[key]
            self._give(EngineGone(at=self.clock.now(), key=key))
        self._readiness.look(tuple(found.values()))

    def _mourn(self, known: Engine | None, engine: Engine) -> None:
        """Say which processes of an engine that still runs are gone."""
        now = self.clock.now()
        present = {process.id for process in engine.processes}
        for process in () if known is None else known.processes:
            if process.id not in present:
                exit_seen = ProcessExit(
                    origin=Origin("agent/discovery"),
                    at_s=now.wall_s,
                    pid=process.id.pid,
                    rank=process.rank,
                    tags=process.tags,
                    role=process.role,
                    how=f"{process.title[:80]} is gone while the engine lives",
                )
                self._note(engine.key, exit_seen)
                self._give(Observed(at=now, engine=engine.key, seen=exit_seen))

    def _note(self, key: str, seen: AnyObservation) -> None:
        """Keep what only the agent knows in a form that offline analysis reads."""
        name = f"agent-{key.split(':')[1]}.jsonl"
        local = seen if seen.at_s is None else msgspec.structs.replace(seen, at_s=local_s(seen.at_s))
        line = msgspec.json.encode(local) + b"\n"
        self._ring.write(name, line, self.clock.now().mono_s, header=agent_notes.HEADER)

    def _last_words(self, name: str) -> None:
        now = self.clock.now()
        source = self.gather.sources[name]
        if isinstance(source, NcclFiles):
            source.tell_now()
        if isinstance(source, EngineLog | NcclFiles):
            for said in source.poll(now):
                if isinstance(said.seen, Enqueues | NcclComm) and said.engine is not None:
                    self._note(said.engine, said.seen)
                self._give(Observed(at=now, engine=said.engine, seen=said.seen))

    def _follow(self, engine: Engine) -> None:
        wonders = partial(self.core.wonders, engine.key)
        mine = [known for name, known in self.gather.sources.items() if name.endswith(f":{engine.key}")]
        followed = {known.log for known in mine if isinstance(known, EngineLog)}
        for name, build in engine_sources(self.config, engine, self._ring, wonders, followed):
            if name not in self.gather.sources:
                self.gather.add(build())
        for known in self.gather.sources.values():
            if isinstance(known, OF_PROCESSES) and known.engine.key == engine.key:
                known.engine = engine

    def _take_over(self, engine: Engine) -> None:
        """Go on with an incident that an agent before this one left open: its evidence is read, not taken again."""
        left = self._left_open.pop(engine.key, None)
        if left is None or left.stage == "suspected":
            return
        self._tell(left.engine, self._incidents.observations(left.incident))
        home = self._incidents.folder_of(left.incident).parent
        if left.stage == "kept" and not (home / BUNDLE).exists():
            self._bundling.order(home)
        if left.stage == "capturing":
            why = "the agent was ended during the capture"
            self._give(CaptureEnded(at=self.clock.now(), incident=left.incident, complete=False, why_incomplete=why))

    def _tell(self, key: str, observations: Iterable[Observation]) -> None:
        """Give the core what evidence on disk shows."""
        for seen in observations:
            now = self.clock.now()
            timed = seen if seen.at_s is not None else msgspec.structs.replace(seen, at_s=now.wall_s)
            self._give(Observed(at=now, engine=key, seen=timed))  # type: ignore[arg-type]

    def evidence_of(self, incident: str) -> Path:
        """Where the evidence of an incident is or will be."""
        return self._incidents.folder_of(incident)

    def _status(self, now: Stamp) -> status.Status:
        return status.Status(
            at=now,
            agent=self._ourselves,
            version=__version__,
            engines=status.engines(self.core.watched(), now),
            sources=status.sources(self.gather, now),
            readiness=self._readiness.checks(),
            near_misses=self.core.near_misses,
            shed=self.gather.shed,
            troubles=tuple(trouble for trouble in self._troubles().values() if trouble),
        )

    def _troubles(self) -> dict[str, str]:
        """What the agent cannot do, by part; empty words for what works."""
        return {
            "journal": self.journal_trouble,
            "ring": self._ring.why,
            "incidents": self._incidents.why,
            "bundle": self._bundling.why,
            "status": self._status_trouble,
            "metrics": self.metrics_trouble,
        }

    def _measure(self, latest: status.Status) -> None:
        """Replace the snapshot that scrapes are served from."""
        limits = self.config.limits
        limit_bytes = limits.incidents_kept * limits.incident_bytes
        kept_bytes = self._bundling.kept_bytes
        own = self.figures.snapshot(latest, self.gather, self._troubles(), kept_bytes, limit_bytes)
        self.measured = merged(own, *(told for ask in self.beside if (told := ask()) is not None))
        for measurer in self.measurers:
            measurer(self.measured)


def open_loop(config: Config, rules: Sequence[Rule], clock: Clock) -> AgentLoop:
    """The agent, ready to run. Raises JournalError when its folders cannot be written."""
    try:
        return AgentLoop(config, rules, clock)
    except OSError as error:
        raise JournalError(f"cannot use {config.folders.state}: {error.strerror}") from error
