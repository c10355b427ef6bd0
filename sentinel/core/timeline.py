"""The instants that order causes: last progress (T0), first kill by the engine itself, end of the evidence.

Time order beats severity: what happened after T0, or after a kill of that process, is a consequence. All times are on
the aligned wall scale of `Observation.at_s`; `picture.clock_error_s` is how far two of them may be apart.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from sentinel.core.picture import Picture
from sentinel.model.observation import (
    Decode,
    EngineStats,
    GpuSample,
    HealthProbe,
    KernelEvent,
    Notice,
    Observation,
    Origin,
    Prefill,
    ProcessTable,
    Scrape,
    Silence,
)

INTERVALS_LEARNED = 50
SILENCE_FACTOR = 6.0
SILENCE_FLOOR_S = 8.0

COUNTED_MIN = 2
"""Gaps between growing counters that teach a pace."""

FLAT_MIN, UNLEARNED_S = 4, 2.5
"""Scrapes in a row without growth that tell a silence before a pace was learned, and the pace then assumed."""

LOAD_GAUGES = (
    "sglang:num_running_reqs", "sglang:num_queue_reqs", "vllm:num_requests_running", "vllm:num_requests_waiting",
    "sentinel_engine_running_requests", "sentinel_engine_waiting_requests",
)  # fmt: skip

GENERATING = (
    "/generate", "/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages", "/inference/v1/generate",
)  # fmt: skip
"""Paths whose answer begins when the request is accepted and needs at least one token."""

TOKEN_COUNTERS = (
    "sglang:realtime_tokens_total", "vllm:generation_tokens_total", "vllm:prompt_tokens_total",
    "vllm:iteration_tokens_total_count", "sentinel_engine_tokens_total",
)  # fmt: skip
"""Counters that advance with every step, by metric family (SGLang 0.5, vLLM V1)."""


@dataclass(frozen=True, slots=True)
class Mark:
    """One instant of progress and where it is shown. `running` is the work it left outstanding, when it says so.

    `engine_index` tells the engines of one vLLM front end apart, which print their statistics at the same instants.
    """

    at_s: float
    origin: Origin
    rank: int | None
    kind: str
    running: int | None = None
    waiting: int | None = None
    engine_index: int | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """All progress marks in time order, and the learned interval between lines of the busiest stream.

    `counted`: the interval is that of counters, which were read to the end and are finer than any line.
    `told`: what the agent that watched the engine says of the silence after the last mark.
    """

    marks: tuple[Mark, ...]
    interval_s: float | None
    counted: bool = False
    told: Silence | None = None

    @property
    def t0(self) -> Mark | None:
        """Last progress of anything; None when no source of progress was seen."""
        return self.marks[-1] if self.marks else None

    @property
    def limit_s(self) -> float:
        """Silence after which progress counts as stopped: what the agent went by, for the silence that it tells of;
        else six learned intervals, at least eight seconds."""
        if self.told is not None:
            return self.told.limit_s
        return max(SILENCE_FACTOR * (self.interval_s or 0.0), SILENCE_FLOOR_S)


def progress(picture: Picture) -> Progress:
    """Every observed instant at which the engine did work (log lines, statistics with tokens, counters that moved)."""
    marks = sorted((*_line_marks(picture), *_counter_marks(picture)), key=lambda mark: mark.at_s)
    counted_s = _counted_interval(picture, marks[-1].at_s) if marks else None
    told = _told(picture, marks[-1].at_s if marks else None)
    if counted_s is not None:
        return Progress(tuple(marks), counted_s, counted=True, told=told)
    return Progress(tuple(marks), _interval(marks), told=told)


def end_s(picture: Picture) -> float | None:
    """End of the evidence: the judgement time when given, else the newest time any periodic source carries."""
    if picture.now_s is not None:
        return picture.now_s
    times = [
        seen.at_s
        for kind in (Decode, EngineStats, Prefill, Notice, Scrape, GpuSample, HealthProbe, ProcessTable, Silence)
        for seen in picture.all(kind)
        if seen.at_s is not None
    ]
    return max(times, default=None)


def kill(picture: Picture) -> Notice | None:
    """The first sign that the engine itself began to end its processes; what follows it is cleanup."""
    kinds = {"sigquit", "kill_tree", "sigterm"}
    found = [seen for seen in picture.all(Notice) if seen.notice in kinds and seen.at_s is not None]
    return min(found, key=lambda seen: seen.at_s or 0.0, default=None)


def before_stall(picture: Picture, seen: Observation, slack_s: float = 2.0) -> bool | None:
    """Whether an observation lies at or before T0 (plus slack and clock error); None when either time is unknown."""
    t0 = picture.memo(progress).t0
    if t0 is None or seen.at_s is None:
        return None
    return seen.at_s <= t0.at_s + slack_s + picture.clock_error_s


def after_kill(picture: Picture, seen: Observation) -> bool | None:
    """Whether an observation lies after the engine began to kill itself; None when its time is unknown."""
    began = picture.memo(kill)
    if began is None or began.at_s is None:
        return False
    return None if seen.at_s is None else seen.at_s > began.at_s + picture.clock_error_s


def world(picture: Picture) -> tuple[int, ...]:
    """Global ranks known to exist: from communicators, tags, titles and the stated world size."""
    ranks = {
        rank
        for comms in picture.identity.by_comm.values()
        for nranks, _ in [max(comms.values())]
        for rank in range(nranks)
    }
    for tags in picture.identity.by_tags.values():
        if (rank := picture.identity.global_rank(tags)) is not None:
            ranks.add(rank)
    for kind in picture.kinds:
        if kind is not KernelEvent:
            ranks.update(rank for seen in picture.all(kind) if (rank := picture.rank_of(seen)) is not None)
    if picture.identity.world_size is not None:
        ranks.update(range(picture.identity.world_size))
    return tuple(sorted(ranks))


def _line_marks(picture: Picture) -> Iterator[Mark]:
    for step in picture.all(Decode):
        if step.at_s is not None:
            yield Mark(step.at_s, step.origin, picture.rank_of(step), "decode", step.running, step.queued)
    for chunk in picture.all(Prefill):
        if chunk.at_s is not None:
            running = (chunk.running or 0) + chunk.new_seqs
            yield Mark(chunk.at_s, chunk.origin, picture.rank_of(chunk), "prefill", running, chunk.queued)
    for stats in picture.all(EngineStats):
        if stats.at_s is not None and stats.generation_tps + stats.prompt_tps > 0:
            yield Mark(stats.at_s, stats.origin, None, "stats", stats.running, stats.waiting, stats.engine_index)


def _told(picture: Picture, last_s: float | None) -> Silence | None:
    """The newest word of an agent on a silence, unless progress was seen after it."""
    told = max(picture.all(Silence), key=lambda seen: seen.at_s or 0.0, default=None)
    if told is None or told.at_s is None:
        return None
    return told if last_s is None or last_s < told.at_s else None


def _counter_marks(picture: Picture) -> Iterator[Mark]:
    """A scrape marks progress when a token counter is higher than in the scrape before it."""
    known: dict[str, float] = {}
    for scrape in _in_time(picture):
        if _grew(scrape, known) and scrape.at_s is not None:
            yield Mark(scrape.at_s, scrape.origin, None, "counter")


def _counted_interval(picture: Picture, last_s: float) -> float | None:
    """Median gap between scrapes that show growth, idle gaps left out; None when the log reaches further, or when they
    are few and the scrapes do not stay flat either.

    vLLM prints statistics every ten seconds whatever its pace is; its counters tell the pace itself.
    """
    gaps: list[float] = []
    flat = 0
    grew_s: float | None = None
    known: dict[str, float] = {}
    newest_s = 0.0
    for scrape in _in_time(picture):
        newest_s = scrape.at_s or 0.0
        if not any(value > 0 for series, value in scrape.samples.items() if series.partition("{")[0] in LOAD_GAUGES):
            grew_s = None
        flat += 1
        if _grew(scrape, known):
            gaps += [] if grew_s is None else [newest_s - grew_s]
            grew_s, flat = newest_s, 0
    if newest_s < last_s:
        return None
    if len(gaps) >= COUNTED_MIN:
        return median(gaps[-INTERVALS_LEARNED:])
    return UNLEARNED_S if flat > FLAT_MIN and any(known.values()) else None


def _in_time(picture: Picture) -> list[Scrape]:
    return sorted((seen for seen in picture.all(Scrape) if seen.at_s is not None), key=lambda seen: seen.at_s or 0.0)


def _grew(scrape: Scrape, known: dict[str, float]) -> bool:
    """Whether a token counter is higher than in `known`, which learns from the scrape."""
    grew = False
    for series, value in scrape.samples.items():
        if series.partition("{")[0] in TOKEN_COUNTERS:
            grew |= series in known and value > known[series]
            known[series] = value
    return grew


def _interval(marks: list[Mark]) -> float | None:
    """Median gap between neighbouring lines of one printer, over the newest lines; None with fewer than 3."""
    streams: dict[tuple[str, int | None, int | None], list[float]] = {}
    for mark in marks:
        if mark.kind != "prefill":
            streams.setdefault((mark.kind, mark.rank, mark.engine_index), []).append(mark.at_s)
    busiest = max(streams.values(), key=len, default=[])[-INTERVALS_LEARNED:]
    gaps = [later - earlier for earlier, later in pairwise(busiest)]
    return median(gaps) if len(gaps) >= 2 else None
