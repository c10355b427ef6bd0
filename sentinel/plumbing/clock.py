"""Time, injected. Nothing else in the product reads a clock or sleeps."""

import time
from pathlib import Path
from typing import Protocol

from sentinel.model.stamp import Stamp

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Clock(Protocol):
    """What the shells need of time."""

    def now(self) -> Stamp: ...


class SystemClock:
    """CLOCK_BOOTTIME for durations (it counts suspend), UTC for people."""

    def __init__(self) -> None:
        self._boot_id = _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else ""

    def now(self) -> Stamp:
        """The present instant."""
        return Stamp(mono_ns=time.clock_gettime_ns(time.CLOCK_BOOTTIME), wall_ns=time.time_ns(), boot_id=self._boot_id)


def local_s(at_s: float) -> float:
    """UTC seconds moved to the host's local wall clock read as UTC: the scale of logs, and so of evidence folders."""
    return at_s + time.localtime(at_s).tm_gmtoff


def local_text(at_s: float, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Local time as text, in the form that engines print."""
    return time.strftime(form, time.localtime(at_s))
