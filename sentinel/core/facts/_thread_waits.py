"""Facts from thread tables and process counters: what threads wait for, and whether anything moves."""

from collections import defaultdict
from collections.abc import Callable

from sentinel.core.fact import Cite, Fact, unknown
from sentinel.core.facts._moments import in_order
from sentinel.core.facts._processes import Process, rank_of_threads, ranks
from sentinel.core.picture import Picture
from sentinel.core.placing import rank_of_pid
from sentinel.core.syscalls import Wait, wait_of
from sentinel.model.observation import Origin, ProcessCounters, ThreadRow, ThreadTable

CITED = 8
_SERVICE = (
    "pt_",
    "NCCL",
    "cuda-Evt",
    "ptl",
    "grpc",
    "ZMQ",
    "zmq",
    "iou-",
    "uv_",
    "asyncio",
    "gloo",
    "jemalloc",
    "OpenBLAS",
)
"""Beginnings of names of service threads; none of them carries a host callback."""
_FILE_WAITS: tuple[Wait, ...] = ("file_read", "open")
_GPU_WAITS: tuple[Wait, ...] = ("running", "poll", "ioctl")
"""How a main thread waits for the GPU: it spins, or polls the driver's file."""
_MOVING = ("utime", "stime", "run_ns", "rchar", "read_bytes", "syscr")


def _tells_waits(table: ThreadTable) -> bool:
    return any(row.syscall >= 0 or row.running for row in table.threads)


def _waits(picture: Picture, test: Callable[[Process, ThreadRow, Wait], str | None]) -> Fact:
    """Ranks with a thread whose wait passes the test; unknown where no thread table shows system calls."""
    told = {
        rank: (process, process.threads)
        for rank, process in picture.memo(ranks).items()
        if process.threads is not None and _tells_waits(process.threads)
    }
    if not told:
        return unknown("a thread table with system calls (/proc/PID/task/TID/syscall)")
    found: dict[int, Cite] = {}
    for rank, (process, table) in told.items():
        for row in table.threads:
            if (says := test(process, row, wait_of(row, table.arch))) is not None:
                found[rank] = Cite(f"rank {rank}: {says}", table.origin)
                break
    shown = list(found.values()) or [
        Cite(f"rank {rank}: no such wait", table.origin) for rank, (_, table) in told.items()
    ]
    return Fact(value=tuple(sorted(found)), cites=tuple(shown[:CITED]))


def mutex_waits(picture: Picture) -> Fact:
    def test(_process: Process, row: ThreadRow, wait: Wait) -> str | None:
        return f"thread {row.tid} waits for a mutex that another thread holds" if wait == "mutex" else None

    return _waits(picture, test)


def main_mutex_waits(picture: Picture) -> Fact:
    def test(process: Process, row: ThreadRow, wait: Wait) -> str | None:
        is_main = process.threads is not None and row.tid == process.threads.pid
        return "its main thread waits for a mutex" if wait == "mutex" and is_main else None

    return _waits(picture, test)


def callback_waits(picture: Picture) -> Fact:
    def test(process: Process, row: ThreadRow, wait: Wait) -> str | None:
        main = process.main
        if main is None or process.threads is None or row.tid == main.tid or row.comm.startswith(_SERVICE):
            return None
        if wait_of(main, process.threads.arch) not in _GPU_WAITS:
            return None
        if wait == "mutex":
            return f"thread {row.tid} waits for a mutex while the main thread waits for the GPU"
        if wait in _FILE_WAITS:
            return f"thread {row.tid} waits for a file while the main thread waits for the GPU"
        return None

    return _waits(picture, test)


def read_waits(picture: Picture) -> Fact:
    def test(_process: Process, row: ThreadRow, wait: Wait) -> str | None:
        return f"thread {row.tid} is blocked in a file {wait}" if wait in (*_FILE_WAITS, "aio") else None

    return _waits(picture, test)


def main_read_waits(picture: Picture) -> Fact:
    def test(process: Process, row: ThreadRow, wait: Wait) -> str | None:
        is_main = process.threads is not None and row.tid == process.threads.pid
        return f"its main thread is blocked in a file {wait}" if wait in _FILE_WAITS and is_main else None

    return _waits(picture, test)


def moving(picture: Picture) -> Fact:
    """Ranks whose counters advance between their first and last sample."""
    samples: dict[int, list[tuple[float, Origin]]] = defaultdict(list)
    for table in in_order(picture, picture.all(ThreadTable)):
        rank = rank_of_threads(picture, table)
        ticks = [row.cpu_ticks for row in table.threads if row.cpu_ticks is not None]
        if rank is not None and ticks:
            samples[rank].append((float(sum(ticks)), table.origin))
    counted: dict[int, list[tuple[float, Origin]]] = defaultdict(list)
    for counters in in_order(picture, picture.all(ProcessCounters)):
        rank = picture.rank_of(counters)
        rank = rank if rank is not None else rank_of_pid(picture, counters.host, counters.pid)
        values = [counters.values[name] for name in _MOVING if name in counters.values]
        if rank is not None and values:
            counted[rank].append((sum(values), counters.origin))
    compared = {
        rank: (first, last)
        for series in (samples, counted)
        for rank, points in series.items()
        if len(points) >= 2
        for first, last in [(points[0], points[-1])]
    }
    if not compared:
        return unknown("two samples of the counters of a process, seconds apart")
    cites = tuple(
        Cite(f"rank {rank}: counters {'advance' if last[0] > first[0] else 'stand still'}", last[1])
        for rank, (first, last) in sorted(compared.items())
    )
    return Fact(
        value=tuple(sorted(rank for rank, (one, two) in compared.items() if two[0] > one[0])), cites=cites[:CITED]
    )
