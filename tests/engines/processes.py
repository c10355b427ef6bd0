"""The process tree of a real engine: find processes by title, signal them, and leave nothing behind."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from sentinel.plumbing.clock import SystemClock

POLL_S = 0.1
SHARED_MEMORY = "/dev/shm/"


def now_s() -> float:
    """UTC seconds."""
    return SystemClock().now().wall_s


class NotInTime(Exception):
    """What a test waited for did not happen; the message holds the end of the log that should show why."""


def wait_until(
    done: Callable[[], object], limit_s: float, what: str | Callable[[], str], log: Path | None = None
) -> None:
    """Poll until `done` is true. Raises NotInTime after `limit_s` seconds."""
    until = time.monotonic() + limit_s
    pause = threading.Event()
    while not done():
        if time.monotonic() > until:
            tail = "" if log is None else "\n" + log.read_text(errors="replace")[-3000:]
            wanted = what if isinstance(what, str) else what()
            raise NotInTime(f"{wanted}: not within {limit_s:g} s{tail}")
        pause.wait(POLL_S)


def family(root: int) -> list[psutil.Process]:
    """A process and its descendants that still run, parents first."""
    try:
        parent = psutil.Process(root)
        return [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def session(root: int) -> list[psutil.Process]:
    """All processes of the session that a process began; finds orphans after the root has died."""
    found = []
    for pid in psutil.pids():
        with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
            if os.getsid(pid) == root:
                found.append(psutil.Process(pid))
    return found


def title(process: psutil.Process) -> str:
    """The command line as one string; "" when the process is gone."""
    with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        return " ".join(word.strip() for word in process.cmdline()).strip()
    return ""


def signal_one(pid: int, number: signal.Signals) -> None:
    """Send a signal; a process that is gone already is no error."""
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(pid).send_signal(number)


def end_tree(members: list[psutil.Process]) -> None:
    """End processes for certain, stopped ones too, and remove the shared memory that only they had mapped."""
    shared = {path for member in members for path in _shared_memory(member)}
    for member in members:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()
    psutil.wait_procs(members, timeout=10)
    for path in shared:
        path.unlink(missing_ok=True)


def _shared_memory(process: psutil.Process) -> set[Path]:
    with contextlib.suppress(psutil.Error, OSError):
        maps = process.memory_maps(grouped=True)
        return {Path(region.path) for region in maps if region.path.startswith(SHARED_MEMORY)}
    return set()
