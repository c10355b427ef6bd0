"""The pulse of one live engine: when it last made progress, how often it normally does, whether work is waiting.

Everything here costs O(1) an observation, because a busy engine prints many. Times are monotonic seconds of the agent.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

from sentinel.core.timeline import GENERATING, INTERVALS_LEARNED, TOKEN_COUNTERS
from sentinel.model.event import CoreSettings
from sentinel.model.observation import (
    AnyObservation,
    Decode,
    EngineStats,
    HealthProbe,
    Notice,
    Phase,
    Prefill,
    Scrape,
    StoreTelemetry,
)
from sentinel.model.stamp import Stamp

RUNNING_GAUGES = ("sglang:num_running_reqs", "vllm:num_requests_running", "sentinel_engine_running_requests")
WAITING_GAUGES = ("sglang:num_queue_reqs", "vllm:num_requests_waiting", "sentinel_engine_waiting_requests")
HISTORY_MAX_S = 3600.0
PREFILL_FLOOR_TPS = 200.0
"""Prompt tokens a second that even a slow prefill reaches; bounds how long one chunk may be silent."""
UNPACED_FACTOR = 1.75
"""Times the floor: how long an engine may be silent whose pace in the present burst of work is not known yet. Forty
steps of 200 ms with a pause for garbage collection between two lines are healthy."""


@dataclass(slots=True)
class Pulse:
    """`last_s` is the newest progress, None before the first; `ready` whether it may serve, `served` whether it has."""

    settings: CoreSettings
    last_s: float | None = None
    running: int | None = None
    waiting: int | None = None
    ready: bool = False
    served: bool = False
    booting: bool = False
    paused: bool = False
    closing: bool = False
    failed: bool = False
    prefill_until_s: float = 0.0
    gauges_at_s: float | None = None
    mute_since_s: float | None = None
    asked_s: float | None = None
    _gathering: set[int | None] = field(default_factory=set)
    _gaps: deque[float] = field(default_factory=lambda: deque(maxlen=INTERVALS_LEARNED))
    _line_s: dict[str, float] = field(default_factory=dict)
    _counters: dict[str, float] = field(default_factory=dict)
    _prefill_tps: float = 0.0
    _interval_s: float | None = None
    _counted: bool = False
    _paused_s: float = 0.0
    _scraped_s: float | None = None

    def note(self, at: Stamp, seen: AnyObservation) -> bool:
        """Learn from one observation; True when it shows progress."""
        when_s = self._when_s(at, seen.at_s)
        match seen:
            case Decode():
                self.served = True
                self._line("decode", when_s)
                self._work(seen.running, seen.queued)
                return self._progress(when_s, serving=True)
            case Prefill():
                self._prefill(when_s, seen)
                return self._progress(when_s, serving=True)
            case EngineStats():
                self._work(seen.running, seen.waiting)
                moved = seen.prompt_tps + seen.generation_tps > 0
                return moved and self._progress(when_s, serving=True)
            case Scrape():
                return self._scrape(when_s, seen.samples)
            case Phase():
                return self._phase(when_s, seen)
            case Notice():
                self._notice(when_s, seen)
            case HealthProbe():
                self._probe(when_s, seen)
            case StoreTelemetry():
                self._gather(when_s, seen)
        return False

    @property
    def interval_s(self) -> float | None:
        """Median gap between progress lines; None before three of them."""
        return self._interval_s

    def limit_s(self, now_s: float) -> float:
        """How long the engine may be silent now before it is suspected."""
        if self.booting and not self.ready:
            return self.settings.boot_silence_s
        paced = self._interval_s is not None or self._counted
        floor_s = self.settings.silence_floor_s * (1.0 if paced else UNPACED_FACTOR)
        limit_s = max(self.settings.silence_factor * (self._interval_s or 0.0), floor_s)
        if not self.served:
            # The first request after a start warms up kernels and caches: 18 s to its first token was healthy.
            limit_s = max(limit_s, self.settings.first_token_s)
        if self.last_s is not None and now_s < self.prefill_until_s:
            limit_s = max(limit_s, self.prefill_until_s - self.last_s)
        return limit_s

    def outstanding(self) -> bool | None:
        """Whether requests run or wait, or may for all that a mute front end tells; None when nothing ever said.

        Gauges are those of the last step: an engine that hangs in the first step of a burst shows none of it. A gather
        of its row store that stays open is work all the same.
        """
        if self.mute_since_s is not None or self.asked_s is not None or self._gathering:
            return True
        if self.running is None and self.waiting is None:
            return None
        return bool(self.running) or bool(self.waiting)

    def silence_s(self, now_s: float) -> float | None:
        """Seconds since the last progress; None when there never was any."""
        return None if self.last_s is None else max(0.0, now_s - self.last_s)

    def overdue(self, now_s: float) -> tuple[float, float] | None:
        """(silence, limit) when the engine has to do something and was silent for too long; else None."""
        silence_s, limit_s = self.silence_s(now_s), self.limit_s(now_s)
        work = self.booting or self.outstanding()
        if silence_s is None or silence_s < limit_s or not work or self.closing or self.paused:
            return None
        return silence_s, limit_s

    def _when_s(self, at: Stamp, at_s: float | None) -> float:
        """Receipt time, moved back for lines that were written before the agent read them."""
        if at_s is None:
            return at.mono_s
        return at.mono_s - min(max(at.wall_s - at_s, 0.0), HISTORY_MAX_S)

    def _progress(self, when_s: float, *, serving: bool) -> bool:
        self.ready |= serving
        self.booting &= not serving
        # Steps that were under way and counters that are read late show progress just after a pause.
        self.paused &= when_s <= self._paused_s + self.settings.silence_floor_s
        self.asked_s = None
        newer = self.last_s is None or when_s > self.last_s
        self.last_s = when_s if newer else self.last_s
        return newer

    def _line(self, kind: str, when_s: float) -> None:
        before_s = self._line_s.get(kind)
        # Lines across an idle or suspicious gap say nothing about the step rate.
        longest_s = UNPACED_FACTOR * self.settings.silence_floor_s
        if before_s is not None and self.running and 0.0 <= when_s - before_s <= longest_s:
            self._gaps.append(when_s - before_s)
            self._interval_s = median(self._gaps) if len(self._gaps) >= 2 else None
        self._line_s[kind] = when_s

    def _prefill(self, when_s: float, chunk: Prefill) -> None:
        self._work((chunk.running or 0) + chunk.new_seqs, chunk.queued)
        self._prefill_tps = max(chunk.throughput or 0.0, self._prefill_tps * 0.9)
        rate = max(self._prefill_tps / 4, PREFILL_FLOOR_TPS)
        self.prefill_until_s = when_s + max(self.settings.silence_floor_s, chunk.new_tokens / rate)

    def _work(self, running: int | None, waiting: int | None) -> None:
        if not self.outstanding() and (running or waiting):
            # The pace of the last burst of work says little about the next one, with other lengths and batch sizes.
            self._gaps.clear()
            self._interval_s = None
        self.running = running if running is not None else self.running
        self.waiting = waiting if waiting is not None else self.waiting

    def _gather(self, when_s: float, page: StoreTelemetry) -> None:
        """Processes whose row store has had a gather open for longer than a working engine is silent."""
        self._gathering.discard(page.pid)
        if page.gather_s < self.settings.silence_floor_s:
            return
        if not self.outstanding():
            # Silence counts from the moment at which there was something to do.
            self.last_s = max(self.last_s or 0.0, when_s - page.gather_s)
        self._gathering.add(page.pid)

    def _probe(self, when_s: float, probe: HealthProbe) -> None:
        """A front end that does not answer its own metrics page answers nobody."""
        if probe.status is not None:
            self.mute_since_s = None
        elif self.mute_since_s is None and self.gauges_at_s is not None:
            if not self.outstanding():
                self.last_s = when_s
            self.mute_since_s = when_s

    def _scrape(self, when_s: float, samples: Mapping[str, float]) -> bool:
        moved = False
        self.mute_since_s = None
        running, waiting = _total(samples, RUNNING_GAUGES), _total(samples, WAITING_GAUGES)
        if running is not None or waiting is not None:
            self.gauges_at_s = when_s
            woke = not self.outstanding() and bool(running or waiting)
            self._work(None if running is None else int(running), None if waiting is None else int(waiting))
            if woke:
                # Silence counts from the moment at which there was something to do.
                self.last_s = when_s
        for series, value in samples.items():
            if series.partition("{")[0] in TOKEN_COUNTERS:
                before = self._counters.get(series)
                moved |= before is not None and value > before
                self.served |= value > 0
                self._counted |= value > 0
                self._counters[series] = value
        before_s, self._scraped_s = self._scraped_s, when_s
        line_s = max(self._line_s.values(), default=None)
        if line_s is not None and self._interval_s is not None and before_s is not None and line_s > before_s:
            # Where lines come at a known pace, one since the scrape before accounts for what the counters grew.
            when_s = line_s
        return moved and self._progress(when_s, serving=True)

    def _phase(self, when_s: float, seen: Phase) -> bool:
        if seen.phase == "ready":
            self.ready, self.booting = True, False
        elif seen.phase == "shutdown":
            # An engine that dies of a lost rank shuts its front end down in the same words as one that is asked to.
            self.closing |= not self.failed
        elif not self.ready:
            self.booting = True
        return not self.ready and self._progress(when_s, serving=False)

    def _asked(self, when_s: float, seen: Notice) -> None:
        """An answer began after a silence: an idle engine was given work, which its gauges tell only after a step.

        The answer to a short request begins when it ends, but then its tokens were counted around that time.
        """
        silence_s = self.silence_s(when_s)
        idle = silence_s is None or silence_s >= self.limit_s(when_s)
        if seen.at_s is not None and seen.fields.get("path") in GENERATING and idle and not self.outstanding():
            self.asked_s = self.last_s = when_s

    def _notice(self, when_s: float, seen: Notice) -> None:
        match seen.notice:
            case "request":
                self._asked(when_s, seen)
            case "pause" | "sleep":
                self.paused, self._paused_s = True, when_s
            case "resume" | "wake":
                # Nothing was owed during the pause; silence counts anew.
                self.last_s = when_s if self.paused else self.last_s
                self.paused = False
            case "sigterm":
                self.closing |= not self.failed
            case "worker_died" | "engine_dead" | "subprocess_exit" | "rpc_timeout" | "watchdog_timeout":
                self.failed = True


def _total(samples: Mapping[str, float], families: tuple[str, ...]) -> float | None:
    found = [value for series, value in samples.items() if series.partition("{")[0] in families]
    return sum(found) if found else None
