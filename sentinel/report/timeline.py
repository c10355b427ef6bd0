"""The timeline: every source as a lane of marks around T0, and the moments that matter as a list."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from sentinel.core.picture import Picture
from sentinel.model import observation as seen
from sentinel.model.observation import Observation, Origin
from sentinel.report.axis import Axis, Tick
from sentinel.report.clean import clip
from sentinel.report.words import clock, many

LANES_PER_SOURCE = 8
SLOTS = 480
"""Marks closer than one slot are drawn as one."""
MOMENTS_MAX = 60
ALIKE_CHARS = 60
TEXT_MAX = 220

_NUMBER = re.compile(r"0x[0-9a-fA-F]+|\d[\d.,:]*")
Tone = Literal["progress", "info", "warn", "bad"]
_RANKING: Mapping[Tone, int] = {"progress": 0, "info": 1, "warn": 2, "bad": 3}

_BAD_NOTICES = frozenset({
    "watchdog_timeout", "sigquit", "kill_tree", "exception", "cuda_error", "nccl_error", "subprocess_exit",
    "worker_died", "engine_dead", "rpc_timeout", "core_dump_wait", "collective_timeout", "remote_error",
})  # fmt: skip
_CALM_NOTICES = frozenset({
    "server_args", "version", "request", "request_done", "health_ok", "resume", "wake", "flush", "weights_updated",
    "flight_dump", "host_alloc", "repeated", "other", "grammar",
})  # fmt: skip
_BAD_TOPICS = frozenset({"ib_completion", "cuda_failure", "mismatch", "call_failed"})
_SEVERITY: Mapping[str, Tone] = {"info": "info", "warning": "warn", "error": "bad", "fatal": "bad"}


@dataclass(frozen=True, slots=True)
class Moment:
    """One thing at one time, in words. `lane` groups moments of one source and one speaker."""

    at_s: float
    tone: Tone
    source: str
    speaker: str
    text: str
    origin: Origin

    @property
    def label(self) -> str:
        """`engine, rank 3`."""
        return f"{self.source}, {self.speaker}" if self.speaker else self.source


@dataclass(frozen=True, slots=True)
class Mark:
    """What is drawn: one or more moments in one slot of a lane; `share` is its place from 0 to 1."""

    share: float
    tone: Tone
    title: str


@dataclass(frozen=True, slots=True)
class Lane:
    """One row of the picture."""

    label: str
    marks: tuple[Mark, ...]
    count: int


@dataclass(frozen=True, slots=True)
class Telling:
    """One line of the list: a moment, how often it was said and until when; `offset` is its distance from T0."""

    moment: Moment
    times: int
    until: str
    offset: str = ""


@dataclass(slots=True)
class Chart:
    """Everything the template needs. `outside` counts moments off the axis, `untimed` observations without a time."""

    axis: Axis
    ticks: tuple[Tick, ...]
    lanes: list[Lane] = field(default_factory=list)
    moments: list[Telling] = field(default_factory=list)
    cut: int = 0
    outside: int = 0
    untimed: Mapping[str, int] = field(default_factory=dict)


def moments(picture: Picture) -> tuple[list[Moment], Mapping[str, int]]:
    """All timed observations as moments, in time order, and how many of each source carried no time."""
    found: list[Moment] = []
    untimed: dict[str, int] = defaultdict(int)
    for kind in sorted(picture.kinds, key=lambda kind: kind.__name__):
        for item in picture.all(kind):
            told = _tell(item)
            if told is None:
                continue
            source, tone, text = told
            if item.at_s is None:
                untimed[source] += 1
                continue
            found.append(Moment(item.at_s, tone, source, _speaker(picture, item), clip(text, TEXT_MAX), item.origin))
    found.sort(key=lambda moment: moment.at_s)
    return found, dict(untimed)


def chart(found: list[Moment], untimed: Mapping[str, int], axis: Axis) -> Chart:
    """Lanes and the list of moments that matter, for one axis."""
    drawn = Chart(axis=axis, ticks=tuple(axis.ticks()), untimed=untimed)
    inside = [moment for moment in found if axis.holds(moment.at_s)]
    drawn.outside = len(found) - len(inside)
    drawn.lanes = list(_lanes(inside, axis))
    telling = list(_telling(found))
    near = sorted(telling, key=lambda line: _distance(line.moment, axis))[:MOMENTS_MAX]
    drawn.cut = len(telling) - len(near)
    near.sort(key=lambda line: line.moment.at_s)
    drawn.moments = [replace(line, offset=_offset(line.moment.at_s, axis.t0_s)) for line in near]
    return drawn


def _tell(item: Observation) -> tuple[str, Tone, str] | None:
    """Source, tone and words of an observation; None for those that are context and no event."""
    match item:
        case seen.Decode():
            return "progress", "progress", f"decode: {_given('running', item.running)}{_given('queued', item.queued)}"
        case seen.Prefill():
            return "progress", "progress", f"prefill: {item.new_seqs} requests, {item.new_tokens} new tokens"
        case seen.EngineStats():
            tone: Tone = "progress" if item.generation_tps + item.prompt_tps > 0 else "info"
            load = f"{item.running} running, {item.waiting} waiting"
            return "progress", tone, f"statistics: {item.generation_tps:g} tok/s, {load}"
        case seen.Phase():
            percent = "" if item.percent is None else f" {item.percent:g} %"
            return "phase", "info", f"{item.phase} {item.edge}{percent}{f': {item.text}' if item.text else ''}"
        case seen.Notice():
            return "engine", _notice_tone(item.notice), item.text or item.notice
        case seen.HealthProbe():
            answer = "no answer" if item.status is None else f"HTTP {item.status}"
            return "health probe", "info" if item.status == 200 else "warn", f"{item.url}: {answer}"
        case seen.NcclNote() | seen.NcclComm() | seen.Ras() | seen.FlightTrace():
            return _tell_nccl(item)
        case _:
            return _tell_machine(item)


def _notice_tone(notice: str) -> Tone:
    if notice in _BAD_NOTICES:
        return "bad"
    return "info" if notice in _CALM_NOTICES else "warn"


def _tell_nccl(item: Observation) -> tuple[str, Tone, str] | None:
    match item:
        case seen.NcclNote(level="warn") | seen.NcclNote(topic="ib_completion" | "ib_async" | "peer_closed"):
            return "NCCL", "bad" if item.topic in _BAD_TOPICS else "warn", item.text
        case seen.NcclComm(event="abort" | "revoke"):
            return "NCCL", "warn", f"communicator {item.event}"
        case seen.NcclComm():
            return "NCCL", "info", f"communicator {item.event.replace('_', ' ')}, {item.nranks} ranks"
        case seen.Ras():
            ill = bool(item.error) or any(comm.errors or comm.mismatch for comm in item.comms)
            return "NCCL RAS", "warn" if ill else "info", item.error or f"answer on {len(item.comms)} communicators"
        case seen.FlightTrace():
            return "flight recorder", "info", f"dump with {len(item.entries)} entries"
    return None


def _tell_machine(item: Observation) -> tuple[str, Tone, str] | None:
    match item:
        case seen.KernelEvent():
            return "kernel", _SEVERITY[item.severity], item.text
        case seen.GpuSample():
            words = "lost" if item.lost else _given("% utilisation", item.util_percent)
            return "GPU samples", "bad" if item.lost else "info", f"GPU {item.index}: {words}"
        case seen.GpuHealth(lost=True) | seen.GpuHealth(remap_failed=True):
            return "GPU health", "bad", item.text or "GPU lost or row remap failed"
        case seen.Scrape():
            return "scrapes", "info", f"{len(item.samples)} series"
        case seen.Stack():
            return "stacks", "warn" if item.error else "info", item.error or f"{item.tool}: {len(item.threads)} threads"
        case seen.ThreadTable():
            return "threads", "info", f"{len(item.threads)} threads"
        case seen.ProcessTable():
            return "processes", "info", f"{len(item.rows)} processes"
        case seen.ProcessExit():
            return "processes", "bad", f"gone: {item.how}"
        case seen.Pressure() | seen.DeviceCounters() | seen.ProcessCounters() | seen.StoreTelemetry() | seen.Sockets():
            return "counters", "info", type(item).__name__
    return None


def _given(name: str, value: float | None) -> str:
    return "" if value is None else f"{value:g} {name} "


def _speaker(picture: Picture, item: Observation) -> str:
    rank = picture.rank_of(item)
    return f"rank {rank}" if rank is not None else item.host or ""


def _lanes(inside: list[Moment], axis: Axis) -> Iterator[Lane]:
    """One lane per source and speaker; a source with many speakers gets one lane for all."""
    by_source: dict[str, dict[str, list[Moment]]] = defaultdict(lambda: defaultdict(list))
    for moment in inside:
        by_source[moment.source][moment.speaker].append(moment)
    for source in sorted(by_source, key=_place):
        speakers = by_source[source]
        if len(speakers) > LANES_PER_SOURCE:
            members = [moment for group in speakers.values() for moment in group]
            yield Lane(f"{source}, {len(speakers)} speakers", _marks(members, axis), len(members))
            continue
        for speaker in sorted(speakers, key=_natural):
            members = speakers[speaker]
            yield Lane(members[0].label, _marks(members, axis), len(members))


def _marks(members: Iterable[Moment], axis: Axis) -> tuple[Mark, ...]:
    slots: dict[int, list[Moment]] = defaultdict(list)
    for moment in members:
        slots[int(axis.share(moment.at_s) * SLOTS)].append(moment)
    drawn = []
    for slot, group in sorted(slots.items()):
        worst = max(group, key=lambda moment: _RANKING[moment.tone])
        more = f" (+{len(group) - 1} more)" if len(group) > 1 else ""
        title = f"{clock(worst.at_s, fraction=True)} {worst.text} [{worst.origin}]{more}"
        drawn.append(Mark(slot / SLOTS, worst.tone, title))
    return tuple(drawn)


def _telling(found: list[Moment]) -> Iterator[Telling]:
    """Moments worth reading: each warning and error, phase edges, first and last progress per speaker.

    Alike ones (same source and tone, same text but for numbers) are told once, with their number, speakers and end.
    """
    alike: dict[tuple[str, Tone, str], list[Moment]] = defaultdict(list)
    for moment in found:
        if moment.tone in ("warn", "bad") or (moment.source == "phase" and " progress" not in moment.text[:24]):
            alike[moment.source, moment.tone, _NUMBER.sub("#", moment.text)[:ALIKE_CHARS]].append(moment)
    yield from (_together(group) for group in alike.values())
    yield from _edges([moment for moment in found if moment.tone == "progress"])


def _together(group: list[Moment]) -> Telling:
    speakers = {moment.speaker for moment in group}
    first = group[0]
    if len(speakers) > 1:
        ranks = [int(speaker.removeprefix("rank ")) for speaker in speakers if speaker.startswith("rank ")]
        whole = len(ranks) == len(speakers)
        first = replace(first, speaker=many("rank", ranks) if whole else f"{len(speakers)} speakers")
    until = clock(group[-1].at_s) if len(group) > 1 and group[-1].at_s - first.at_s >= 1 else ""
    return Telling(first, len(group), until)


def _edges(progress: list[Moment]) -> Iterator[Telling]:
    """First and last progress of each speaker; speakers with the same edge in the same second are told as one."""
    by_speaker: dict[str, list[Moment]] = defaultdict(list)
    for moment in progress:
        by_speaker[moment.speaker].append(moment)
    alike: dict[tuple[bool, int, str], list[Moment]] = defaultdict(list)
    for marks in by_speaker.values():
        edges = [("first", marks[0]), ("last", marks[-1])] if len(marks) > 1 else [("only", marks[0])]
        for which, edge in edges:
            told = replace(edge, text=f"{which} progress: {edge.text}")
            alike[which == "first", int(edge.at_s), told.text].append(told)
    for group in alike.values():
        group.sort(key=lambda moment: -moment.at_s)
        yield replace(_together(group), times=1, until="")


def _distance(moment: Moment, axis: Axis) -> tuple[bool, int, float]:
    anchor_s = axis.end_s if axis.t0_s is None else axis.t0_s
    return (not axis.holds(moment.at_s), -_RANKING[moment.tone] // 2, abs(moment.at_s - anchor_s))


def _offset(at_s: float, t0_s: float | None) -> str:
    if t0_s is None:
        return ""
    delta_s = at_s - t0_s
    return "T0" if abs(delta_s) < 0.0005 else f"{delta_s:+.1f} s"


_ORDER = ("progress", "phase", "engine", "health probe", "NCCL", "NCCL RAS", "flight recorder", "kernel")


def _place(source: str) -> tuple[int, str]:
    return (_ORDER.index(source) if source in _ORDER else len(_ORDER), source)


def _natural(speaker: str) -> tuple[bool, int, str]:
    tail = speaker.rpartition(" ")[2]
    return (speaker == "", int(tail) if tail.isdigit() else -1, speaker)
