"""One simulated engine under the real agent core, in virtual time, from one seed.

The engine decodes, idles, prefills, pauses for garbage collection and on request, is scraped, rotates its batch size
and may be frozen. The core sees exactly what the live agent would: observations, ticks, capture results. Invariants are
checked after every step, so that a violation names the event that caused it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random

import msgspec

from sentinel.core.agent import AgentCore
from sentinel.core.rules import Rule
from sentinel.model.effect import AnyEffect, Judged, Recovered, StartCapture, Suspected
from sentinel.model.engine import Engine, EngineProcess, KillDeadline, ProcessId
from sentinel.model.event import AnyEvent, CaptureEnded, CoreSettings, EngineSeen, Observed, Started, Tick
from sentinel.model.observation import (
    AnyObservation,
    Decode,
    Frame,
    GpuSample,
    Notice,
    NoticeKind,
    Origin,
    Prefill,
    Scrape,
    Stack,
    Thread,
    ThreadRow,
    ThreadTable,
)
from sentinel.testing.virtual import VirtualClock

ENGINE = "sim"
TICK_S = 1.0
CAPTURE_S = 5.0
PAUSED_SHARE = 0.003
"""Decode lines after which somebody pauses the engine for a while."""
KILL_AFTER_S = 300.0
_LOG = Origin("sim/engine.log")


@dataclass(slots=True)
class Log:
    """What the core did, with the virtual second at which it did it."""

    effects: list[tuple[float, AnyEffect]] = field(default_factory=list)

    def of(self, kind: type[AnyEffect]) -> list[tuple[float, AnyEffect]]:
        """Effects of one kind, in order."""
        return [(at_s, effect) for at_s, effect in self.effects if isinstance(effect, kind)]

    @property
    def verdicts(self) -> list[str]:
        """Classes of the verdicts, in order."""
        return [effect.verdict.kind for _, effect in self.of(Judged) if isinstance(effect, Judged)]


@dataclass(slots=True)
class Simulation:
    """A seed decides everything. `ranks` processes, rank 0 prints; `frozen_rank` is the injected fault."""

    rules: Sequence[Rule]
    seed: int
    ranks: int = 2
    scraped: bool = True
    settings: CoreSettings = field(default_factory=CoreSettings)
    clock: VirtualClock = field(default_factory=VirtualClock)
    log: Log = field(default_factory=Log)
    frozen_rank: int | None = None
    frozen_at_s: float | None = None
    events: list[AnyEvent] = field(default_factory=list)
    keep_events: bool = False
    captures_return: bool = True
    effects_per_event: list[int] = field(default_factory=list)
    _core: AgentCore = field(init=False)
    _dice: Random = field(init=False)
    _running: int = 0
    _tokens: float = 0.0
    _step_s: float = 0.05
    _pace: tuple[float, float, float] = (0.0, 1.0, 0.0)
    _capturing: str | None = None
    _paused: bool = False

    @property
    def near_misses(self) -> int:
        """Suspicions that ended by themselves."""
        return self._core.near_misses

    def __post_init__(self) -> None:
        self._core = AgentCore(self.rules)
        self._dice = Random(self.seed)
        self._send(Started(at=self.clock.now(), version="simulation", settings=self.settings))
        self._send(EngineSeen(at=self.clock.now(), engine=self._engine()))
        self.clock.call_in(0.0, self._tick)
        self.clock.call_in(self._dice.uniform(0, 5), self._burst)
        if self.scraped:
            self.clock.call_in(0.5, self._scrape)

    def run(self, seconds: float) -> Log:
        """Let virtual time pass."""
        self.clock.run_until(self.clock.mono_s + seconds)
        return self.log

    def freeze(self, rank: int, in_s: float) -> None:
        """Stop a rank's process that many seconds from now; work stays outstanding."""
        self.clock.call_in(in_s, lambda: self._freeze(rank))

    def thaw(self, in_s: float) -> None:
        """Let the stopped rank go on."""
        self.clock.call_in(in_s, self._thaw)

    def step_wall_clock(self, seconds: float, in_s: float) -> None:
        """Somebody sets the wall clock."""
        self.clock.call_in(in_s, lambda: self._skew(seconds))

    def _skew(self, seconds: float) -> None:
        self.clock.wall_skew_ns += round(seconds * 1e9)

    def _freeze(self, rank: int) -> None:
        self._running = max(self._running, 4)
        self._go_on()
        self.frozen_rank, self.frozen_at_s = rank, self.clock.mono_s
        self._scrape_once()

    def _thaw(self) -> None:
        self.frozen_rank = None
        self._burst()

    def _tick(self) -> None:
        self._send(Tick(at=self.clock.now()))
        self.clock.call_in(TICK_S, self._tick)

    def _burst(self) -> None:
        """A phase of work: some requests, a prefill, then decode lines until they are done."""
        if self.frozen_rank is not None:
            return
        self._running = self._dice.randint(1, 32)
        self._step_s = self._dice.choice((0.005, 0.02, 0.05, 0.2))
        tokens = self._dice.choice((128, 2048, 8192))
        self._see(Prefill(origin=_LOG, engine="sglang", new_seqs=self._running, new_tokens=tokens, running=0, queued=0))
        self._tokens += tokens
        end_s = self.clock.mono_s + self._dice.uniform(5, 120)
        self.clock.call_in(min(tokens / 4000, 6.0), lambda: self._decode(end_s))

    def _decode(self, end_s: float) -> None:
        if self.frozen_rank is not None:
            return
        if self.clock.mono_s >= end_s:
            self._idle()
            return
        self._see(Decode(origin=_LOG, engine="sglang", running=self._running, queued=0, throughput=40 / self._step_s))
        work_s = 40 * self._step_s * self._dice.uniform(0.9, 1.2)
        pause_s = self._dice.uniform(0.5, 4.0) if self._dice.random() < 0.01 else 0.0
        self._pace = (self.clock.mono_s, work_s, 40.0 * self._running)
        if self._dice.random() < PAUSED_SHARE:
            self._pause(work_s, end_s)
            return
        self.clock.call_in(work_s + pause_s, lambda: self._decode(end_s))

    def _pause(self, work_s: float, end_s: float) -> None:
        """An admin pauses the engine; no step follows until the engine goes on."""
        self._paused = True
        self._pace = (self.clock.mono_s, 1.0, 0.0)
        self._see(_admin("pause"))
        length_s = self._dice.uniform(2.0, 300.0)
        self.clock.call_in(length_s, lambda: self._go_on(work_s))
        self.clock.call_in(length_s + work_s, lambda: self._decode(end_s + length_s))

    def _go_on(self, work_s: float = 1.0) -> None:
        if self._paused:
            self._paused = False
            self._pace = (self.clock.mono_s, work_s, 40.0 * self._running)
            self._see(_admin("resume"))

    def _idle(self) -> None:
        self._running = 0
        self._see(Decode(origin=_LOG, engine="sglang", running=0, queued=0, throughput=0.0))
        self.clock.call_in(self._dice.uniform(0.5, 600), self._burst)

    def _scrape(self) -> None:
        self._scrape_once()
        self.clock.call_in(2.0, self._scrape)

    def _steps(self) -> None:
        """Count the tokens of the steps since the last look: the counter advances with every step, not with lines."""
        begin_s, work_s, tokens = self._pace
        done = min(1.0, (self.clock.mono_s - begin_s) / work_s)
        self._tokens += done * tokens
        self._pace = (self.clock.mono_s, max(1e-3, begin_s + work_s - self.clock.mono_s), (1.0 - done) * tokens)

    def _scrape_once(self) -> None:
        if self.frozen_rank is None:
            self._steps()
        samples = {
            "sglang:num_running_reqs": float(self._running),
            "sglang:num_queue_reqs": 0.0,
            "sglang:realtime_tokens_total": self._tokens,
        }
        self._see(Scrape(origin=Origin("sim/metrics"), samples=samples))

    def _see(self, seen: AnyObservation) -> None:
        now = self.clock.now()
        self._send(Observed(at=now, engine=ENGINE, seen=msgspec.structs.replace(seen, at_s=now.wall_s)))

    def _send(self, event: AnyEvent) -> None:
        if self.keep_events:
            self.events.append(event)
        effects = self._core.step(event)
        if self.keep_events:
            self.effects_per_event.append(len(effects))
        for effect in effects:
            self.log.effects.append((self.clock.mono_s, effect))
            self._check(effect)
            if isinstance(effect, StartCapture):
                assert self._capturing is None, "two captures at once"
                self._capturing = effect.incident
            if isinstance(effect, StartCapture) and self.captures_return:
                self.clock.call_in(CAPTURE_S, partial(self._captured, effect.incident))

    def _check(self, effect: AnyEffect) -> None:
        """Safety: no suspicion of an idle engine, no capture too late, no word of progress while nothing moves, no
        culprit that nothing shows."""
        if isinstance(effect, Suspected):
            assert self._running > 0, "an idle engine was suspected"
        if isinstance(effect, StartCapture) and self.frozen_at_s is not None:
            done_s = self.clock.mono_s + effect.budget_s
            assert done_s - self.frozen_at_s < KILL_AFTER_S, "the capture would end after the engine's own kill"
        if isinstance(effect, Judged):
            assert effect.verdict.kind != "none" or self.frozen_rank is None, "a frozen engine was said to work"
        if isinstance(effect, Judged) and effect.verdict.culprits.ranks:
            assert self.frozen_rank is not None, "a rank was blamed although none is frozen"
            assert effect.verdict.culprits.ranks == (self.frozen_rank,), "the wrong rank was blamed"

    def _captured(self, incident: str) -> None:
        """What the stack ladder would bring: tables and stacks of every rank, GPUs."""
        for rank in range(self.ranks):
            stopped = rank == self.frozen_rank
            for seen in (*self._rank_evidence(rank, stopped), _gpu(rank, busy=not stopped)):
                self._see(seen)
        done = tuple(range(self.ranks))
        self._capturing = None
        self._send(CaptureEnded(at=self.clock.now(), incident=incident, complete=True, ranks_with_stacks=done))

    def _rank_evidence(self, rank: int, stopped: bool) -> tuple[AnyObservation, ...]:
        pid = 1000 + rank
        row = ThreadRow(tid=pid, comm="python3", state="T" if stopped else "R", running=not stopped)
        at_s = self.clock.now().wall_s
        table = ThreadTable(origin=Origin("proc/threads"), at_s=at_s, pid=pid, rank=rank, threads=(row,))
        frames = (Frame("synchronize", "torch/cuda/streams.py", 231), Frame("forward", "engine/model.py", 10))
        thread = Thread(name="MainThread", tid=pid, state="active", frames=frames)
        stack = Stack(origin=Origin("py-spy"), at_s=at_s, pid=pid, rank=rank, tool="py-spy", threads=(thread,))
        return (table,) if stopped else (table, stack)

    def _engine(self) -> Engine:
        ranks = tuple(
            EngineProcess(id=ProcessId(1000 + rank, 1), role="rank", title=f"scheduler_TP{rank}", rank=rank)
            for rank in range(self.ranks)
        )
        deadline = KillDeadline(earliest_s=KILL_AFTER_S, latest_s=1.5 * KILL_AFTER_S, why="simulated watchdog")
        root = ProcessId(999, 1)
        return Engine(
            key=ENGINE, adapter="sglang", root=root, processes=ranks, deadline=deadline, world_size=self.ranks
        )


def _admin(notice: NoticeKind) -> Notice:
    path = {"pause": "/pause_generation"}.get(notice, "/continue_generation")
    return Notice(origin=_LOG, engine="sglang", notice=notice, text=f"POST {path} HTTP/1.1", fields={"path": path})


def _gpu(rank: int, *, busy: bool) -> GpuSample:
    return GpuSample(
        origin=Origin("nvml"),
        index=rank,
        util_percent=100.0 if busy else 0.0,
        mem_util_percent=0.0,
        power_w=150.0 if busy else 115.0,
        sm_mhz=1980.0,
        pids=(1000 + rank,),
    )


def recoveries(log: Log) -> list[float]:
    """Seconds at which incidents were closed."""
    return [at_s for at_s, _ in log.of(Recovered)]
