"""What all benchmarks of this folder state beside their figures: the machine, its load, the spread of the runs."""

import os
import platform
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


class Spread(NamedTuple):
    """Median and range of the runs; over seven runs the range holds the median with 98 % confidence."""

    median: float
    low: float
    high: float

    def text(self, digits: int = 2) -> str:
        """`median [low, high]`."""
        return f"{self.median:,.{digits}f} [{self.low:,.{digits}f}, {self.high:,.{digits}f}]"


def spread(values: Sequence[float]) -> Spread:
    """Median and range of at least one value."""
    return Spread(statistics.median(values), min(values), max(values))


def machine() -> dict[str, str]:
    """What the figures were measured on."""
    try:
        text = Path("/proc/cpuinfo").read_text()
        model = next(line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name"))
    except (OSError, StopIteration):
        model = platform.processor() or "unknown"
    return {
        "cpu": model,
        "cores": str(os.cpu_count()),
        "load": f"{os.getloadavg()[0]:.1f}",
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def machine_line() -> str:
    """The same in one line."""
    about = machine()
    return f"machine: {about['cpu']}, {about['cores']} cores, load {about['load']}, Python {about['python']}"


def say(text: str) -> None:
    """One line of output."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
