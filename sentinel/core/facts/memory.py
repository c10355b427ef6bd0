"""Facts of memory and disk pressure, from pressure-stall files, counters and kernel stacks."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Literal

from sentinel.core.fact import Cite, Fact, FactSpec, unknown
from sentinel.core.facts._moments import in_order, moment_s
from sentinel.core.facts._processes import rank_of_threads
from sentinel.core.picture import Picture
from sentinel.core.syscalls import reclaims
from sentinel.model.observation import DeviceCounters, Origin, Pressure, ProcessCounters, ThreadTable

CITED = 8
MEMORY_FULL, MEMORY_SOME = 20.0, 50.0
IO_FULL, IO_SOME = 40.0, 60.0
"""Percent of the last 10 s in which all, or some, tasks waited. Loading weights stays below the limits for memory."""
LOW_MEMORY, LOW_SWAP = 0.02, 0.02
"""Shares of memory and swap below which nothing is left to give."""
STALLS_PER_S, SWAPS_PER_S = 100.0, 1000.0
"""Direct reclaims, and pages swapped in or out, a second: a healthy host has none of either."""
UNTIMED_S = 10.0
"""Distance assumed between two samples that carry no time."""
MOVED_BYTES, MOVED_FAULTS = 1 << 20, 100
_SECTOR = 512


def _pressed(resource: Literal["memory", "io"], full: float, some: float) -> Callable[[Picture], dict[str, Cite]]:
    def compute(picture: Picture) -> dict[str, Cite]:
        found: dict[str, Cite] = {}
        for seen in picture.all(Pressure):
            if seen.resource != resource:
                continue
            all_percent, some_percent = seen.full_avg10 or 0.0, seen.some_avg10 or 0.0
            if all_percent >= full or some_percent >= some:
                says = f"{resource} pressure of {_name(seen.host)}: some {some_percent:.0f} %, full {all_percent:.0f} %"
                found.setdefault(seen.host or "", Cite(says, seen.origin))
        return found

    return compute


_memory_pressed = _pressed("memory", MEMORY_FULL, MEMORY_SOME)
_io_pressed = _pressed("io", IO_FULL, IO_SOME)


def _name(host: str | None) -> str:
    return host or "the host"


def _exhausted(picture: Picture) -> Iterator[tuple[str, Cite]]:
    """Hosts with neither memory nor swap left in their newest sample."""
    newest: dict[str, DeviceCounters] = {}
    for seen in in_order(picture, (one for one in picture.all(DeviceCounters) if one.family == "memory")):
        newest[seen.host or ""] = seen
    for host, seen in newest.items():
        values = seen.values
        total, available = values.get("MemTotal", 0.0), values.get("MemAvailable")
        swap, swap_free = values.get("SwapTotal", 0.0), values.get("SwapFree", 0.0)
        if total > 0 and available is not None and available <= LOW_MEMORY * total and swap_free <= LOW_SWAP * swap:
            says = f"{_name(host)} has {available / total:.1%} of its memory available and no free swap"
            yield host, Cite(says, seen.origin)


def _series(picture: Picture) -> dict[tuple[str, str, str], list[DeviceCounters]]:
    """Samples of each set of counters in order, keyed by host, family and device."""
    found: dict[tuple[str, str, str], list[DeviceCounters]] = defaultdict(list)
    for seen in in_order(picture, picture.all(DeviceCounters)):
        found[seen.host or "", seen.family, seen.device].append(seen)
    return dict(found)


def _deltas(picture: Picture, family: str) -> Iterator[tuple[str, dict[str, float], float, Origin]]:
    """(host, growth of each counter, seconds between, where) from the first to the last sample of a family."""
    for (host, kind, _), samples in picture.memo(_series).items():
        if kind != family or len(samples) < 2:
            continue
        first, last = samples[0], samples[-1]
        times = [moment_s(picture, first), moment_s(picture, last)]
        seconds = times[1] - times[0] if times[0] is not None and times[1] is not None else UNTIMED_S
        growth = {key: value - first.values[key] for key, value in last.values.items() if key in first.values}
        yield host, growth, max(seconds, 1.0), last.origin


def _storming(picture: Picture) -> Iterator[tuple[str, Cite]]:
    """Hosts whose tasks reclaim memory themselves, or swap, between two samples."""
    for host, growth, seconds, origin in _deltas(picture, "vmstat"):
        stalls = sum(value for key, value in growth.items() if key.startswith("allocstall")) / seconds
        swaps = (growth.get("pswpin", 0.0) + growth.get("pswpout", 0.0)) / seconds
        if stalls >= STALLS_PER_S or swaps >= SWAPS_PER_S:
            says = f"{_name(host)}: {stalls:.0f} direct reclaims and {swaps:.0f} swapped pages a second"
            yield host, Cite(says, origin)


def _memory_found(picture: Picture) -> dict[str, Cite]:
    """Hosts short of memory, by any of the three signs; "" where the source names no host."""
    found = _memory_pressed(picture)
    for host, cite in (*_exhausted(picture), *_storming(picture)):
        found.setdefault(host, cite)
    return found


def _looked(picture: Picture, resource: str) -> list[Cite]:
    """What was looked at: sources that would have shown pressure."""
    cites = [
        Cite(f"{resource} pressure of {_name(seen.host)}: some {seen.some_avg10 or 0:.0f} %", seen.origin)
        for seen in picture.all(Pressure)
        if seen.resource == resource
    ]
    if resource == "memory":
        cites += [
            Cite(f"memory of {_name(seen.host)}: {seen.values['MemAvailable'] / 2**20:.1f} GiB available", seen.origin)
            for seen in picture.all(DeviceCounters)
            if seen.family == "memory" and "MemAvailable" in seen.values
        ]
    return cites


def _hosts(picture: Picture, found: dict[str, Cite], resource: str) -> Fact:
    looked = _looked(picture, resource)
    if not looked and not found:
        return unknown(f"/proc/pressure/{resource} of every host")
    named = {host: cite for host, cite in found.items() if host}
    if found and not named:
        return Fact(value=None, cites=tuple(found.values()), missing=("the name of the host under pressure",))
    return Fact(value=tuple(sorted(named)), cites=tuple((list(named.values()) or looked)[:CITED]))


def _any(found: dict[str, Cite], looked: list[Cite], missing: str) -> Fact:
    if not looked and not found:
        return unknown(missing)
    return Fact(value=bool(found), cites=tuple((list(found.values()) or looked)[:CITED]))


def _memory_hosts(picture: Picture) -> Fact:
    return _hosts(picture, picture.memo(_memory_found), "memory")


def _memory_pressure(picture: Picture) -> Fact:
    return _any(picture.memo(_memory_found), _looked(picture, "memory"), "/proc/pressure/memory of every host")


def _io_hosts(picture: Picture) -> Fact:
    return _hosts(picture, _io_pressed(picture), "io")


def _io_pressure(picture: Picture) -> Fact:
    return _any(_io_pressed(picture), _looked(picture, "io"), "/proc/pressure/io of every host")


def _reclaiming(picture: Picture) -> Iterator[tuple[int | None, str | None, Cite]]:
    """(rank, host, what) of each thread that looks for memory instead of doing its work."""
    for table in picture.all(ThreadTable):
        for row in table.threads:
            if reclaims(row):
                where = row.wchan or row.kernel_stack[0]
                yield (
                    rank_of_threads(picture, table),
                    table.host,
                    Cite(f"{row.comm or row.tid} is in {where}", table.origin),
                )


def _reclaim_ranks(picture: Picture) -> Fact:
    if not _shows_kernel_waits(picture):
        return unknown("wait channels or kernel stacks of the threads")
    found = {rank: cite for rank, _, cite in _reclaiming(picture) if rank is not None}
    return Fact(value=tuple(sorted(found)), cites=tuple(found.values())[:CITED])


def _reclaim_hosts(picture: Picture) -> Fact:
    if not _shows_kernel_waits(picture):
        return unknown("wait channels or kernel stacks of the threads")
    found = {host: cite for _, host, cite in _reclaiming(picture) if host is not None}
    return Fact(value=tuple(sorted(found)), cites=tuple(found.values())[:CITED])


def _shows_kernel_waits(picture: Picture) -> bool:
    return any(row.wchan or row.kernel_stack for table in picture.all(ThreadTable) for row in table.threads)


def _bytes_moving(picture: Picture) -> Fact:
    """Bytes read from storage, or pages faulted in from files, advance between two samples."""
    read, sampled, cites = _process_bytes(picture)
    for host, growth, _, origin in _deltas(picture, "block"):
        sampled = True
        moved = growth.get("sectors_read", 0.0) * _SECTOR
        read += moved
        cites.append(Cite(f"disk of {_name(host)} read {moved / 2**20:.0f} MiB", origin))
    faulted = False
    for host, growth, _, origin in _deltas(picture, "vmstat"):
        if "pgmajfault" in growth:
            sampled = True
            # Pages that come back from swap are no progress of a load.
            faults = growth["pgmajfault"] if growth.get("pswpin", 0.0) <= 0 else 0.0
            faulted |= faults >= MOVED_FAULTS
            cites.append(Cite(f"{_name(host)}: {faults:.0f} pages read in from files", origin))
    if not sampled:
        return unknown("two samples of /proc/PID/io or /proc/vmstat, seconds apart")
    return Fact(value=read >= MOVED_BYTES or faulted, cites=tuple(cites[:CITED]))


def _process_bytes(picture: Picture) -> tuple[float, bool, list[Cite]]:
    """(bytes read between first and last samples, whether there were two, what shows it)."""
    samples: dict[tuple[str | None, int | None], list[ProcessCounters]] = defaultdict(list)
    for seen in in_order(picture, picture.all(ProcessCounters)):
        if "read_bytes" in seen.values or "rchar" in seen.values:
            samples[seen.host, seen.pid].append(seen)
    total, cites = 0.0, []
    for (_, pid), series in samples.items():
        first, last = series[0].values, series[-1].values
        moved = max(last.get(key, 0.0) - first.get(key, 0.0) for key in ("read_bytes", "rchar"))
        if len(series) >= 2:
            total += max(moved, 0.0)
            cites.append(Cite(f"process {pid} read {moved / 2**20:.0f} MiB", series[-1].origin))
    return total, bool(cites), cites


def _spec(name: str, unit: str, about: str, compute: Callable[[Picture], Fact]) -> FactSpec:
    return FactSpec(name=name, unit=unit, about=about, compute=compute)


FACTS: tuple[FactSpec, ...] = (
    _spec("memory.pressure_hosts", "hosts", "Hosts whose tasks wait for memory, or without any left.", _memory_hosts),
    _spec("memory.pressure", "bool", "Some host's tasks wait for memory, or it has none left.", _memory_pressure),
    _spec("memory.reclaim_ranks", "ranks", "Ranks with a thread that looks for free memory.", _reclaim_ranks),
    _spec("memory.reclaim_hosts", "hosts", "Hosts with a thread that looks for free memory.", _reclaim_hosts),
    _spec("io.pressure_hosts", "hosts", "Hosts whose tasks wait for storage most of the time.", _io_hosts),
    _spec("io.pressure", "bool", "Some host's tasks wait for storage most of the time.", _io_pressure),
    _spec("io.bytes_moving", "bool", "Bytes read, or pages read in from files, advance.", _bytes_moving),
)  # fmt: skip
