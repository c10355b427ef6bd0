"""After parsing: fills in what only the whole evidence tells (hosts, wall times) and sorts everything by time."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import median

import msgspec

from sentinel.evidence.clock import Clock
from sentinel.evidence.hosts import Hosts, short
from sentinel.model.observation import (
    BootTime,
    Enqueues,
    Environment,
    FlightTrace,
    GpuKernels,
    KernelEvent,
    NcclComm,
    NcclNote,
    Observation,
    ProcessCounters,
    Stack,
    Tags,
    ThreadTable,
)

_OF_ONE_PROCESS = (
    Stack, ThreadTable, FlightTrace, Enqueues, NcclComm, NcclNote, ProcessCounters, Environment, GpuKernels,
)  # fmt: skip
_RANK = re.compile(r"(?<![A-Za-z])rank[_.-]?(\d{1,5})(?![0-9A-Za-z])", re.IGNORECASE)
_TAG = re.compile(r"(?<![A-Za-z])(DP|PP|TP|EP)[_.-]?(\d{1,5})(?![0-9A-Za-z])", re.IGNORECASE)

STEP_S = 5.0
"""Wall and monotonic clock of one host drift apart by less than this in weeks; more is a step."""


def settle(
    documents: Sequence[list[Observation]], names: Sequence[str], hosts: Hosts, clock: Clock
) -> list[Observation]:
    """All observations with hosts, ranks of last resort and wall times, in order of time."""
    placed = [list(_placed(seen, name, hosts, clock)) for seen, name in zip(documents, names, strict=True)]
    boots = _boot_times(placed, clock)
    keyed: list[tuple[float, int, int, Observation]] = []
    for number, observations in enumerate(placed):
        at_s = float("-inf")
        for order, seen in enumerate(observations):
            timed = _since_boot(seen, boots)
            at_s = timed.at_s if timed.at_s is not None else at_s
            keyed.append((at_s, number, order, timed))
    keyed.sort(key=lambda entry: entry[:3])
    return [entry[3] for entry in keyed]


def _placed(observations: list[Observation], name: str, hosts: Hosts, clock: Clock) -> Iterator[Observation]:
    """Observations of one document with host, year and zone settled."""
    fallback, shift_s = hosts.fallback(name), clock.text_shift_s(name)
    short_years = bool(clock.documents[name].short)
    rank, tags = _hints(name) if _one_process(observations) else (None, None)
    for seen in observations:
        changes: dict[str, object] = {}
        host = fallback if seen.host is None else hosts.alias.get(short(seen.host), short(seen.host))
        if host != seen.host:
            changes["host"] = host
        if seen.at_s is not None and (shift_s or short_years):
            changes["at_s"] = clock.right_year(name, seen.at_s) + shift_s
        if seen.rank is None and seen.tags is None and isinstance(seen, _OF_ONE_PROCESS):
            if rank is not None:
                changes["rank"] = rank
            elif tags is not None:
                changes["tags"] = tags
        yield msgspec.structs.replace(seen, **changes) if changes else seen


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
            if isinstance(seen, BootTime):
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
