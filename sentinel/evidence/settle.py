"""After parsing: fills in what only the whole evidence tells (hosts, wall times) and sorts everything by time."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import median

import msgspec

from sentinel.evidence.align import align
from sentinel.evidence.clock import Clock
from sentinel.evidence.hosts import Hosts, short
from sentinel.evidence.snapshots import Modified, nearest_day, states_utc, time_in_name
from sentinel.model.observation import (
    BootTime,
    Decode,
    DeviceCounters,
    EngineStats,
    Enqueues,
    Environment,
    FlightTrace,
    GpuHealth,
    GpuKernels,
    GpuSample,
    KernelEvent,
    KernelLog,
    NcclComm,
    NcclNote,
    Observation,
    Prefill,
    Pressure,
    ProcessCounters,
    ProcessTable,
    Ras,
    Scrape,
    Sockets,
    Stack,
    StoreTelemetry,
    Tags,
    ThreadTable,
    Unavailable,
)

_OF_ONE_PROCESS = (
    Stack, ThreadTable, FlightTrace, Enqueues, NcclComm, NcclNote, ProcessCounters, Environment, GpuKernels,
)  # fmt: skip
_SNAPSHOTS = (
    Stack, ThreadTable, GpuKernels, GpuHealth, GpuSample, ProcessTable, ProcessCounters, DeviceCounters, Pressure,
    Scrape, Sockets, Ras, FlightTrace, Environment, StoreTelemetry, Unavailable,
)  # fmt: skip
_IN_ORDER = (Decode, Prefill, EngineStats, GpuSample)
"""Kinds of which one writer prints one after the other, so that a time that goes back is the clock's doing."""
_SMALL_STEP_S = 120.0
_SUMMER_TIME_S = 3600.0
_MOST_STEPS = 20
_RANK = re.compile(r"(?<![A-Za-z])rank[_.-]?(\d{1,5})(?![0-9A-Za-z])", re.IGNORECASE)
_TAG = re.compile(r"(?<![A-Za-z])(DP|PP|TP|EP)[_.-]?(\d{1,5})(?![0-9A-Za-z])", re.IGNORECASE)

STEP_S = 5.0
"""Wall and monotonic clock of one host drift apart by less than this in weeks; more is a step."""


def settle(
    documents: Sequence[list[Observation]], names: Sequence[str], hosts: Hosts, clock: Clock
) -> list[Observation]:
    """All observations with hosts, ranks of last resort and wall times, in order of time."""
    placed = [list(_placed(seen, name, hosts, clock)) for seen, name in zip(documents, names, strict=True)]
    placed = [_stepped(observations, name, clock) for observations, name in zip(placed, names, strict=True)]
    span = _span(placed)
    placed = [_dated(observations, span) for observations in placed]
    boots = _boot_times(placed, clock)
    placed = [[_since_boot(seen, boots) for seen in observations] for observations in placed]
    placed = _aligned(placed, clock)
    snapshots = _snapshot_times(placed, names, hosts, clock, span)
    keyed: list[tuple[float, int, int, Observation]] = []
    for number, (observations, taken_s) in enumerate(zip(placed, snapshots, strict=True)):
        at_s = float("-inf")
        for order, seen in enumerate(observations):
            timed = seen if taken_s is None or seen.at_s is not None else msgspec.structs.replace(seen, at_s=taken_s)
            at_s = timed.at_s if timed.at_s is not None else at_s
            keyed.append((at_s, number, order, timed))
    keyed.sort(key=lambda entry: entry[:3])
    return [entry[3] for entry in keyed]


def _aligned(placed: list[list[Observation]], clock: Clock) -> list[list[Observation]]:
    """Brings hosts whose clocks are proven to differ onto one."""
    alignment = align(seen for observations in placed for seen in observations)
    clock.error_s = max(clock.error_s, alignment.error_s)
    clock.notes.extend(alignment.notes)
    if not alignment.shifts:
        return placed
    return [
        [_moved(seen, alignment.shifts.get(seen.host or "", 0.0)) for seen in observations] for observations in placed
    ]


def _span(placed: list[list[Observation]]) -> tuple[float, float] | None:
    """First and last time that the evidence states."""
    known = [seen.at_s for observations in placed for seen in observations if seen.at_s is not None]
    return (min(known), max(known)) if known else None


def _dated(observations: list[Observation], span: tuple[float, float] | None) -> list[Observation]:
    """Completes times of day with the day that fits the rest of the evidence."""
    if span is None:
        return observations
    return [
        seen
        if seen.at_s is not None or seen.clock_s is None
        else _on_day(seen, nearest_day(seen.clock_s, *span) - seen.clock_s)
        for seen in observations
    ]


def _on_day(seen: Observation, midnight_s: float) -> Observation:
    at_s = midnight_s + (seen.clock_s or 0.0)
    if isinstance(seen, BootTime) and not seen.dated:
        return msgspec.structs.replace(seen, at_s=at_s, boot_s=midnight_s + seen.boot_s, dated=True)
    return msgspec.structs.replace(seen, at_s=at_s)


def _snapshot_times(
    placed: list[list[Observation]], names: Sequence[str], hosts: Hosts, clock: Clock, span: tuple[float, float] | None
) -> list[float | None]:
    """For each document of snapshots without any time, when it was taken, if its name or its file tells."""
    if span is None:
        return [None] * len(placed)
    modified = Modified(clock)
    taken: list[float | None] = []
    for observations, name in zip(placed, names, strict=True):
        if not observations or not all(isinstance(seen, _SNAPSHOTS) and seen.at_s is None for seen in observations):
            taken.append(None)
            continue
        named = time_in_name(name, *span, clock.zone_s(hosts.of(name)))
        taken.append(named if named is not None else modified.time_of(name))
    return taken


def _stepped(observations: list[Observation], name: str, clock: Clock) -> list[Observation]:
    """Reports where the clock of a single writer went back, and closes the gap of a small or a summer-time step.

    What was printed before the step is moved, because the end of the evidence is what is judged. A large step may as
    well be an older log appended to a newer one, so it is only reported.
    """
    last: dict[tuple[object, ...], float] = {}
    moved, steps = list(observations), 0
    for order, seen in enumerate(observations):
        if seen.at_s is None or not isinstance(seen, _IN_ORDER):
            continue
        writer = (type(seen), seen.host, seen.pid, seen.tags, getattr(seen, "index", None))
        back_s = last.get(writer, seen.at_s) - seen.at_s
        last[writer] = seen.at_s
        if back_s <= STEP_S:
            continue
        where = f"{name}:{seen.origin.line}" if seen.origin.line else name
        clock.notes.append(f"the clock went back by {back_s:.0f} s at {where}")
        steps += 1
        if steps > _MOST_STEPS:
            clock.notes.append(f"more than {_MOST_STEPS} such steps in {name}: its times are not to be relied on")
            return observations
        if back_s <= _SMALL_STEP_S or abs(back_s - _SUMMER_TIME_S) <= _SMALL_STEP_S:
            clock.error_s = max(clock.error_s, back_s)
            moved[:order] = [_moved(earlier, -back_s) for earlier in moved[:order]]
            last = {key: at_s - back_s if key != writer else at_s for key, at_s in last.items()}
    return moved


def _moved(seen: Observation, by_s: float) -> Observation:
    """An observation with its times moved, those of its span and of the boot included."""
    if seen.at_s is None:
        return seen
    if isinstance(seen, KernelLog) and seen.first_at_s is not None and seen.last_at_s is not None:
        first_s, last_s = seen.first_at_s + by_s, seen.last_at_s + by_s
        return msgspec.structs.replace(seen, at_s=seen.at_s + by_s, first_at_s=first_s, last_at_s=last_s)
    if isinstance(seen, BootTime):
        return msgspec.structs.replace(seen, at_s=seen.at_s + by_s, boot_s=seen.boot_s + by_s)
    return msgspec.structs.replace(seen, at_s=seen.at_s + by_s)


def _placed(observations: list[Observation], name: str, hosts: Hosts, clock: Clock) -> Iterator[Observation]:
    """Observations of one document with host, year and zone settled."""
    fallback, shift_s = hosts.of(name) or hosts.fallback(name), clock.text_shift_s(name)
    zone_s = clock.zone_s(fallback)
    short_years = bool(clock.documents[name].short)
    rank, tags = _hints(name) if _one_process(observations) else (None, None)
    for seen in observations:
        by_s = 0.0
        if seen.at_s is not None and (shift_s or short_years):
            by_s = clock.right_year(name, seen.at_s) - seen.at_s + shift_s
        elif seen.at_s is not None and zone_s and (isinstance(seen, FlightTrace) or states_utc(name, seen.at_s)):
            by_s = zone_s
        timed = _moved(seen, by_s) if by_s else seen
        changes: dict[str, object] = {}
        host = fallback if seen.host is None else hosts.alias.get(short(seen.host), short(seen.host))
        if host != seen.host:
            changes["host"] = host
        if seen.rank is None and seen.tags is None and isinstance(seen, _OF_ONE_PROCESS):
            if rank is not None:
                changes["rank"] = rank
            elif tags is not None:
                changes["tags"] = tags
        yield msgspec.structs.replace(timed, **changes) if changes else timed


def _one_process(observations: list[Observation]) -> bool:
    """Whether everything in a document speaks of one process, so that its name may say which."""
    return len({seen.pid for seen in observations if seen.pid is not None}) <= 1


def _hints(name: str) -> tuple[int | None, Tags | None]:
    """The rank or the coordinates in a file name: the last resort, used when the content names neither."""
    base = re.split(r"[/!]", name)
    for part in reversed(base[-2:]):
        if found := _RANK.findall(part):
            return (int(found[0]), None) if len(set(found)) == 1 else (None, None)
        if coordinates := _TAG.findall(part):
            return None, Tags(**{key.lower(): int(value) for key, value in coordinates})
    return None, None


def _boot_times(placed: list[list[Observation]], clock: Clock) -> dict[str | None, float]:
    """When each host booted, on its wall scale: as stated, or from kernel lines that print both clocks."""
    stated: dict[str | None, list[tuple[float, float]]] = defaultdict(list)
    both: dict[str | None, list[float]] = defaultdict(list)
    for observations in placed:
        for seen in observations:
            if isinstance(seen, BootTime) and seen.dated:
                stated[seen.host].append((seen.error_s, seen.boot_s))
            elif isinstance(seen, KernelEvent) and seen.mono_s is not None and seen.at_s is not None:
                both[seen.host].append(seen.at_s - seen.mono_s)
    boots: dict[str | None, float] = {}
    for host, found in stated.items():
        error_s, boots[host] = min(found)
        clock.error_s = max(clock.error_s, error_s)
    for host, differences in both.items():
        boots[host] = median(differences)
        spread = max(differences) - min(differences)
        if spread > STEP_S:
            clock.error_s = max(clock.error_s, spread)
            clock.notes.append(f"the clock of {host or 'the host'} was stepped by {spread:.0f} s during the kernel log")
    return boots


def _since_boot(seen: Observation, boots: dict[str | None, float]) -> Observation:
    if isinstance(seen, KernelEvent) and seen.at_s is None and seen.mono_s is not None:
        boot_s = boots.get(seen.host)
        if boot_s is not None:
            return msgspec.structs.replace(seen, at_s=boot_s + seen.mono_s)
    return seen
