"""Side-by-side benchmark: same file, same minutes, repetitions interleaved.

`python bench/rowstore/compare.py --folder DIR --out report.md` writes a markdown report with
medians, 95 % bootstrap intervals and every loss. It drops the page cache before cold runs when
it may; otherwise the report says that it could not.
"""

import argparse
import os
import platform
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from sentinel_engine.rowstore import native

import methods
from intervals import Estimate, bootstrap
from methods import ROW_BYTES, LanesMethod, Method, PeerMethod, StoreMethod
from workloads import DECODE_ROWS, PREFILL_ROWS, Ids, Popularity, Sampler, ragged_sizes

CACHE_SHARE = 0.05
WARM_BATCH = 4000
CHUNK_ROWS = 50_000
WARM_DRAWS = 30  # per row of the cache: by then the policies have nearly settled
IN_FLIGHT = (2, 4)
CACHE_SET_BYTES = 16 * ROW_BYTES + 128


@dataclass
class Series:
    """Measurements of one method in one workload, one entry per repetition."""

    rows_per_s: list[float] = field(default_factory=list)
    took_us: list[float] = field(default_factory=list)
    cpu_s: float = 0.0
    rows: int = 0
    reads: int | None = None

    def took(self, q: float) -> str:
        return f"{np.percentile(self.took_us, q):,.0f}" if self.took_us else "-"

    def cpu_per_million(self) -> str:
        return f"{self.cpu_s / self.rows * 1e6:.2f}" if self.rows else "-"

    def reads_per_row(self) -> str:
        return f"{self.reads / self.rows:.3f}" if self.reads is not None else "-"


Table = dict[str, Series]
Sizes = Callable[[int], Iterator[int]]


def fixed(rows: int) -> Sizes:
    """Batches of one size."""

    def sizes(_seed: int) -> Iterator[int]:
        while True:
            yield rows

    return sizes


def drop_page_cache() -> bool:
    """Forget clean pages; False when this user may not."""
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3")
    except OSError:
        return False
    return True


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def draw_chunk(sampler: Sampler, sizes: Iterator[int]) -> list[Ids]:
    """Batches drawn ahead, about CHUNK_ROWS rows in all."""
    chunk: list[Ids] = []
    rows = 0
    while rows < CHUNK_ROWS:
        chunk.append(sampler.batch(next(sizes)))
        rows += len(chunk[-1])
    return chunk


def measure(
    method: Method, sampler: Sampler, sizes: Sizes, seconds: float, seed: int, series: Series
) -> None:
    """Gather for `seconds`, in chunks; drawing ids is not timed. Last batches are checked.

    A chunk ends with nothing in flight, so no read is made while the clock stands.
    """
    out = np.empty((PREFILL_ROWS, ROW_BYTES), dtype=np.uint8)
    sampler.reseed(seed)
    wanted_rows = sizes(seed)
    reads_before, busy_s, rows, cpu = method.device_reads(), 0.0, 0, 0.0
    while busy_s < seconds:
        chunk = draw_chunk(sampler, wanted_rows)
        cpu_before, began = cpu_seconds(), time.perf_counter()
        asked = began
        for ids in chunk:
            method.gather(ids, out)
            answered = time.perf_counter()
            if method.answers_at_once:
                series.took_us.append((answered - asked) * 1e6)
            asked = answered
            rows += len(ids)
            if answered - began + busy_s >= seconds:
                break
        method.settle(out)
        busy_s += time.perf_counter() - began
        cpu += cpu_seconds() - cpu_before
        methods.check(method, ids, out)
    series.rows_per_s.append(rows / busy_s)
    series.rows += rows
    series.cpu_s += cpu
    reads_after = method.device_reads()
    if reads_before is not None and reads_after is not None:
        series.reads = (series.reads or 0) + reads_after - reads_before


def interleave(
    candidates: list[Method], sampler: Sampler, sizes: Sizes, options: argparse.Namespace,
    *, cold: bool, limit: Callable[[], float] | None = None,
) -> Table:
    """All methods once per repetition, in turn; `limit` measures the device in between.

    Every run draws its own ids: the second user of a cache must not find the first one's rows.
    """
    table: Table = {method.name: Series() for method in candidates}
    for repetition in range(options.repetitions):
        for place, method in enumerate(candidates):
            if cold:
                method.renew(drop_page_cache)
            seed = 1000 + repetition * len(candidates) + place
            measure(method, sampler, sizes, options.seconds, seed, table[method.name])
        if limit is not None:
            table.setdefault("fio (limit)", Series()).rows_per_s.append(limit())
    return table


def warm(method: Method, sampler: Sampler, rows: int, seconds_max: float) -> None:
    """Fill a cache with the same draws for every method; slow ones stop at `seconds_max`."""
    out = np.empty((PREFILL_ROWS, ROW_BYTES), dtype=np.uint8)
    sampler.reseed(5)
    give_up = time.monotonic() + seconds_max
    for _ in range(rows // WARM_BATCH):
        method.gather(sampler.batch(WARM_BATCH), out)
        if time.monotonic() > give_up:
            break


def rows_of(table: Table, reference: str) -> list[str]:
    """Markdown lines, best first; the ratio is to `reference`."""
    base = float(np.median(table[reference].rows_per_s)) if reference in table else 0.0
    lines = [
        f"| method | rows/s, median [95 %] | ratio to {reference} | p50 µs | p99 µs | p99.9 µs "
        + "| CPU s / M rows | reads / row |",
        "|---|---|---|---|---|---|---|---|",
    ]
    ordered = sorted(table.items(), key=lambda item: -float(np.median(item[1].rows_per_s)))
    for name, series in ordered:
        rate: Estimate = bootstrap(series.rows_per_s)
        ratio = f"{rate.median / base:.2f}" if base else "-"
        cells = [name, rate.text(), ratio, *(series.took(q) for q in (50, 99, 99.9)),
                 series.cpu_per_million(), series.reads_per_row()]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


class Report:
    """Markdown, written again after every section so that a stopped run loses little."""

    def __init__(self, path: Path) -> None:
        self._path, self._lines = path, [f"Machine: {machine()}", ""]

    def section(self, title: str, note: str, lines: list[str]) -> None:
        self._lines += [f"### {title}", "", note, "", *lines, ""]
        self._path.write_text("\n".join(self._lines))
        print("\n".join([title, *lines, ""]), flush=True)


def machine() -> str:
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
    memory_kib = int(Path("/proc/meminfo").read_text().split()[1])
    return (
        f"{os.cpu_count()} x {model}, {memory_kib / (1 << 20):.0f} GiB, Linux "
        f"{platform.release()}, load average {os.getloadavg()[0]:.1f} at the start"
    )


def wanted(name: str, only: str) -> bool:
    """Whether `--only` lets a method take part."""
    return not only or any(part in name for part in only.split(","))


def device_peers(folder: Path, table: Path, rows: int, only: str) -> list[Method]:
    """Peers that read the device: the same file, or a store loaded with the same rows."""
    library = methods.build_peers()
    found: list[Method] = [
        PeerMethod(library, "packed serial pread", "serial", table, 0),
        PeerMethod(library, "pread pool 16", "pool", table, 16),
        PeerMethod(library, "pread pool 64", "pool", table, 64),
        PeerMethod(library, "mmap, random advice", "mmap", table, 0),
    ]
    for name, kind in (("LMDB", "lmdb"), ("RocksDB MultiGet, direct", "rocksdb")):
        if not wanted(name, only):
            continue
        path = folder / f"{kind}-{rows}"
        path.mkdir(exist_ok=True)
        try:
            peer = PeerMethod(library, name, kind, path, 0)
        except FileNotFoundError as missing:
            print(missing)
            continue
        peer.load_once(rows)
        found.append(peer)
    return found


# Serial methods need seconds for a prefill chunk; key-value stores say nothing new there.
RAGGED = ("io_uring inline", "legacy", "serial", "pread pool")
PREFILL = ("io_uring", "pread pool 64")


def device_methods(options: argparse.Namespace, table: Path) -> list[Method]:
    """Everything that reads the device without a cache, as far as `--only` wants it."""
    uncached: dict[str, str | int] = {
        "mode": "nvme", "cache_policy": "none", "depth": options.depth,
    }  # fmt: skip
    settings: dict[str, dict[str, str | int]] = {
        "row store, io_uring inline": {"io": "inline", **uncached},
        "row store, io_uring owner": {"io": "uring", **uncached},
        "row store, libaio owner": {"io": "aio", **uncached},
        "row store, pread pool 16": {"io": "pool", **uncached},
        "legacy": {"mode": "legacy", "cache_bytes": 0},
    }
    ours: list[Method] = [
        StoreMethod(name, table, **given)
        for name, given in settings.items()
        if wanted(name, options.only)
    ]
    return ours + device_peers(options.folder, table, options.rows, options.only)


def device_limit(table: Path, options: argparse.Namespace) -> float:
    """Reads per second of the table as fast as fio can; not a number without fio."""
    measured = methods.fio_rate(table, options.depth, options.seconds)
    return measured["iops"] if measured else float("nan")


def cold_section(report: Report, options: argparse.Namespace, table: Path) -> None:
    candidates = device_methods(options, table)

    def some(parts: tuple[str, ...]) -> list[Method]:
        return [method for method in candidates if wanted(method.name, ",".join(parts))]

    dropped = drop_page_cache()
    sampler = Popularity(options.rows, 0).sampler(1)
    limit = partial(device_limit, table, options)
    result = interleave(candidates, sampler, fixed(DECODE_ROWS), options, cold=True, limit=limit)
    note = (
        f"Uniform ids over {options.rows:,} rows, {DECODE_ROWS} a gather, depth {options.depth}; "
        f"page cache {'dropped before every run' if dropped else 'NOT dropped (not permitted)'}."
    )
    report.section("Cold unique rows", note, rows_of(result, "fio (limit)"))
    if "shapes" in options.sections.split(","):
        result = interleave(some(RAGGED), sampler, ragged_sizes, options, cold=True)
        report.section("Cold, ragged decode sizes", "Sizes drawn from acceptance 0.76-0.91 at "
                       "five drafts, eight requests.", rows_of(result, "legacy"))
        result = interleave(some(PREFILL), sampler, fixed(PREFILL_ROWS), options, cold=True)
        report.section("Cold, prefill chunk", f"{PREFILL_ROWS:,} rows a gather.",
                       rows_of(result, "pread pool 64"))
    for method in candidates:
        method.close()


def cached_methods(options: argparse.Namespace, table: Path, cache: int) -> list[Method]:
    """Stores with a cache of `cache` bytes, and the peers that can have one of that size."""
    settings: dict[str, dict[str, str | int]] = {
        "row store, s3": {"cache_policy": "s3", "io": "uring"},
        "row store, s3, inline": {"cache_policy": "s3", "io": "inline"},
        "row store, clk3": {"cache_policy": "clk3", "io": "uring"},
        "row store, direct": {"cache_policy": "direct", "io": "uring"},
    }
    found: list[Method] = [
        StoreMethod(name, table, mode="nvme", cache_bytes=cache, depth=options.depth, prefault="no",
                    lanes=max(IN_FLIGHT), **given)
        for name, given in settings.items()
        if wanted(name, options.only)
    ]
    if wanted("legacy", options.only):
        found.append(StoreMethod("legacy, same cache", table, mode="legacy", cache_bytes=cache))
    rocks = options.folder / f"rocksdb-{options.rows}"
    if rocks.exists() and wanted("RocksDB", options.only):
        found.append(PeerMethod(methods.build_peers(), "RocksDB, row cache of equal size",
                                "rocksdb", rocks, cache))
    return found


def zipf_section(
    report: Report, options: argparse.Namespace, table: Path, exponent: float
) -> None:
    cache_rows = int(options.rows * CACHE_SHARE)
    cache = cache_rows // 16 * CACHE_SET_BYTES
    candidates = cached_methods(options, table, cache)
    sampler = Popularity(options.rows, exponent).sampler(1)
    for method in candidates:
        warm(method, sampler, WARM_DRAWS * cache_rows, options.warm_seconds)
    candidates += [
        LanesMethod(f"{first.name}, {lanes} in flight", first, lanes)
        for first in candidates[:1] if isinstance(first, StoreMethod)
        for lanes in IN_FLIGHT
    ]  # fmt: skip

    limit = partial(device_limit, table, options)
    result = interleave(candidates, sampler, fixed(DECODE_ROWS), options, cold=False, limit=limit)
    note = (
        f"{options.rows:,} rows, cache of {CACHE_SHARE:.0%} ({cache >> 20} MiB), "
        f"{DECODE_ROWS} a gather, warmed with {WARM_DRAWS * cache_rows:,} draws or "
        f"{options.warm_seconds:g} s, whichever ends first. All gathers in flight share one queue "
        f"of depth {options.depth}."
    )
    report.section(f"Zipf {exponent:g}, cache 5 %", note, rows_of(result, "fio (limit)"))
    for method in candidates:
        method.close()


def ram_section(report: Report, options: argparse.Namespace) -> None:
    table = methods.make_table(options.folder, options.ram_rows)
    array = native.formula_rows(
        methods.LAYER, np.arange(options.ram_rows, dtype=np.int64), ROW_BYTES
    )
    page = options.folder / "bench.page"
    candidates: list[Method | None] = [
        StoreMethod("row store, ram", table, mode="ram", telemetry=page),
        methods.numpy_take(array),
        methods.torch_index_select(array),
    ]
    present = [method for method in candidates if method is not None]
    sampler = Popularity(options.ram_rows, 0).sampler(1)
    for rows in (6, 48, DECODE_ROWS, PREFILL_ROWS):
        result = interleave(present, sampler, fixed(rows), options, cold=False)
        report.section(f"RAM, {rows:,} rows a gather", f"{options.ram_rows:,} rows in memory.",
                       rows_of(result, "numpy take"))
    for method in present:
        method.close()


def main() -> None:
    """Run the sections asked for and write the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="on the drive under test")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--ram-rows", type=int, default=4_000_000)
    parser.add_argument("--depth", type=int, default=64, help="reads in flight, fio's too")
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.0, help="per method and repetition")
    parser.add_argument("--warm-seconds", type=float, default=180.0)
    parser.add_argument("--sections", default="ram,cold,shapes,zipf99,zipf80")
    parser.add_argument("--only", default="", help="parts of method names, comma-separated")
    options = parser.parse_args()
    report = Report(options.out)
    sections = options.sections.split(",")
    if "ram" in sections:
        ram_section(report, options)
    table = methods.make_table(options.folder, options.rows)
    if "cold" in sections:
        cold_section(report, options, table)
    for name, exponent in (("zipf99", 0.99), ("zipf80", 0.80)):
        if name in sections:
            zipf_section(report, options, table, exponent)


if __name__ == "__main__":
    main()
