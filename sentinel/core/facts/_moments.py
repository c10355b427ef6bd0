"""When machine observations were made: completes times of day and times since boot, and orders what has no time."""

import re
from collections.abc import Iterable
from typing import TypeVar

from sentinel.core.picture import Picture
from sentinel.core.timeline import end_s, kill, progress
from sentinel.model.observation import BootTime, KernelEvent, Notice, Observation

T = TypeVar("T", bound=Observation)

_DAY_S = 86_400.0
_DIGITS = re.compile(r"(\d+)")
_FAILURES = frozenset(
    (
        "exception",
        "cuda_error",
        "nccl_error",
        "subprocess_exit",
        "worker_died",
        "engine_dead",
        "exit",
        "collective_timeout",
    )
)


def moment_s(picture: Picture, seen: Observation) -> float | None:
    """Wall time of an observation: its own, or its time of day on the day on which the evidence ends, or its time
    since boot when the host's boot time is known; None when neither is."""
    if isinstance(seen, KernelEvent) and seen.mono_s is not None:
        boot_s = picture.memo(_boots).get(seen.host)
        if boot_s is not None:
            return boot_s + seen.mono_s
    if seen.at_s is not None:
        return seen.at_s
    return None if seen.clock_s is None else _on_last_day(picture, seen.clock_s)


def _on_last_day(picture: Picture, clock_s: float) -> float | None:
    """The last instant with this time of day that is not much later than the end of the evidence."""
    end = picture.memo(end_s)
    if end is None:
        return None
    at_s = end - end % _DAY_S + clock_s
    return at_s - _DAY_S if at_s > end + _DAY_S / 2 else at_s


def _boots(picture: Picture) -> dict[str | None, float]:
    """Boot time of each host that states one; the most exact statement wins."""
    found: dict[str | None, tuple[float, float]] = {}
    for boot in picture.all(BootTime):
        boot_s = boot.boot_s if boot.dated else _undated(picture, boot)
        if boot_s is not None and (boot.host not in found or boot.error_s < found[boot.host][0]):
            found[boot.host] = (boot.error_s, boot_s)
    return {host: boot_s for host, (_, boot_s) in found.items()}


def _undated(picture: Picture, boot: BootTime) -> float | None:
    """Boot time counted from midnight of the day on which it was asked for."""
    if boot.clock_s is None:
        return None
    asked_s = _on_last_day(picture, boot.clock_s)
    return None if asked_s is None else asked_s - boot.clock_s + boot.boot_s


def in_order(picture: Picture, seen: Iterable[T]) -> list[T]:
    """Samples oldest first: by time when all have one, else by the natural order of their file names and lines."""
    items = list(seen)
    moments = [moment_s(picture, item) for item in items]
    if all(moment is not None for moment in moments):
        keyed = sorted(zip(moments, range(len(items)), strict=True), key=lambda pair: (pair[0] or 0.0, pair[1]))
        return [items[index] for _, index in keyed]
    return sorted(items, key=_natural)


def _natural(seen: Observation) -> tuple[list[tuple[int, str]], int]:
    parts = [(int(part[:18]), "") if part.isdigit() else (-1, part) for part in _DIGITS.split(seen.origin.file)]
    return parts, seen.origin.line or 0


def kill_s(picture: Picture, host: str | None) -> float | None:
    """When the engine began to end its processes on a host; a sign that names no host counts for every host."""
    signs = ("sigquit", "kill_tree", "sigterm")
    times = [
        note.at_s for note in picture.all(Notice)
        if note.notice in signs and note.at_s is not None and (host is None or note.host in (host, None))
    ]  # fmt: skip
    return min(times, default=None)


def failure_s(picture: Picture) -> float | None:
    """When the engine first reported that something failed or began to end itself; None when it never did."""
    times = [note.at_s for note in picture.all(Notice) if note.notice in _FAILURES and note.at_s is not None]
    began = picture.memo(kill)
    if began is not None and began.at_s is not None:
        times.append(began.at_s)
    return min(times, default=None)


def stalled_since(picture: Picture) -> float | None:
    """T0 when the evidence goes on for longer than a healthy silence after it; None when progress reaches the end."""
    learned = picture.memo(progress)
    end = picture.memo(end_s)
    if learned.t0 is None or end is None or end - learned.t0.at_s <= learned.limit_s:
        return None
    return learned.t0.at_s
