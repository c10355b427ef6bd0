"""Commands that work on a table file."""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from . import inplace, reader
from .errors import BadTable, StoreRefused
from .geometry import FP4, FP8, HUGE_OFFSET, PAGE_BYTES, Header, HeadRange, Slice
from .store import Store
from .writer import NO_PROVENANCE, Provenance, Rows, RowSource, formula_source, write_table

Output = dict[str, Any]


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error, drawn only on a terminal; call it with done and total bytes."""
    columns = (TextColumn(what), BarColumn(), DownloadColumn(True), TransferSpeedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(what)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def parse_range(text: str) -> HeadRange:
    """`HEAD:START:COUNT` as given on the command line."""
    try:
        head, start, count = (int(part) for part in text.split(":"))
    except ValueError:
        raise BadTable(f"--range {text} is not HEAD:START:COUNT") from None
    return HeadRange(head, start, count)


def safetensors_source(table: inplace.InplaceTable) -> RowSource:
    """Rows of a checkpoint's tensors by global id."""

    def array(path: Path, tensor: inplace.Tensor) -> NDArray[np.uint8]:
        width = tensor.bytes // table.rows
        return np.memmap(path, np.uint8, "r", tensor.offset, (table.rows, width))

    codes = array(table.path, table.codes)
    scales = array(table.scales_path, table.scales)

    def rows(ids: NDArray[np.int64]) -> Rows:
        return codes[ids], scales[ids]

    return rows


def _plan(options: argparse.Namespace) -> tuple[Header, RowSource, Provenance]:
    ranges = tuple(parse_range(text) for text in options.range)
    offset = HUGE_OFFSET if options.huge_offset else PAGE_BYTES
    if options.formula_rows:
        header = Header(
            layer=options.layer,
            row_format=FP4 if options.fp4 else FP8,
            slice=Slice(ranges) if ranges else Slice.whole(options.formula_rows),
            data_offset=offset,
        )
        return header, formula_source(header), NO_PROVENANCE
    if not (options.codes and options.scales):
        raise BadTable("--safetensors needs --codes and --scales, the names of two tensors")
    table = inplace.find_table(
        options.safetensors, options.codes, options.scales, options.layer, options.scales_file
    )
    header = Header(
        layer=options.layer,
        row_format=table.row_format,
        slice=Slice(ranges) if ranges else Slice.whole(table.rows),
        data_offset=offset,
    )
    _, digest = inplace.read_tensors(options.safetensors)
    source = {"kind": "safetensors", "file": options.safetensors.name, "codes": options.codes,
              "scales": options.scales, "header_sha256": digest.hex()}
    provenance = Provenance(hash_parameters={}, source=source, source_digest=digest)
    return header, safetensors_source(table), provenance


def pack(options: argparse.Namespace) -> tuple[Output, bool]:
    """Write a table; the manifest comes last."""
    header, source, provenance = _plan(options)
    with progress_bar("packing") as progress:
        manifest = write_table(
            options.out, header, source, provenance=provenance, progress=progress
        )
    return {
        "table": str(options.out),
        "rows": header.slice.rows,
        "bytes": header.file_bytes,
        "chunks": len(manifest.chunks),
        "manifest_sha256": manifest.digest().hex(),
    }, True


def verify(options: argparse.Namespace) -> tuple[Output, bool]:
    """Check a whole file against its own checks and its manifest."""
    with progress_bar("verifying") as progress:
        found = reader.verify_table(options.table, progress=progress)
    return {
        "table": str(options.table),
        "verdict": "good" if found.good else "bad: stage the file again",
        "pages_checked": found.pages_checked,
        "pages_in_holes": found.pages_in_holes,
        "pages_bad": found.pages_bad,
        "first_bad_page": found.first_bad_page,
        "chunks_checked": found.chunks_checked,
        "chunks_bad": found.chunks_bad,
    }, found.good


def info(options: argparse.Namespace) -> tuple[Output, bool]:
    """What the header and the manifest say."""
    header = reader.read_header(options.table)
    manifest = reader.matching_manifest(options.table, header)
    return {
        "table": str(options.table),
        "bytes": header.file_bytes,
        "allocated_bytes": reader.allocated_bytes(options.table),
        "pages": header.pages,
        "generation": header.generation,
        "manifest_sha256": header.manifest_digest.hex(),
        **manifest.geometry,
        "source": manifest.source,
        "hash_parameters": manifest.hash_parameters,
    }, True


def gather(options: argparse.Namespace) -> tuple[Output, bool]:
    """Rows as hexadecimal text."""
    layer = reader.read_header(options.table).layer
    with Store(options.table, mode=options.mode, lanes=1) as store:
        got = store.gather(layer, np.array(options.ids, dtype=np.int64))
    if not got.ok:
        raise StoreRefused(got.status, f"the gather ended with '{got.status}'")
    output: Output = {"mode": got.mode, "misses": got.misses, "elapsed_us": got.elapsed_ns / 1e3}
    for row_id, row in zip(options.ids, got.rows, strict=True):
        output[f"row {row_id}"] = row.tobytes().hex()
    return output, True


def bench(options: argparse.Namespace) -> tuple[Output, bool]:
    """Uniform random gathers for some seconds, one lane."""
    header = reader.read_header(options.table)
    draw = np.random.default_rng(1)
    rows = header.slice.rows
    settings = {"mode": options.mode, "io": options.io, "cache_bytes": options.cache_bytes}
    took_ns: list[int] = []
    with Store(options.table, lanes=1, **settings) as store:
        out = np.empty((options.batch, store.row_bytes), dtype=np.uint8)
        give_up = time.monotonic() + options.seconds
        while time.monotonic() < give_up:
            local = draw.integers(0, rows, options.batch)
            ids = _global(header, local)
            got = store.gather(header.layer, ids, out=out)
            if not got.ok:
                raise StoreRefused(got.status, f"a gather ended with '{got.status}'")
            took_ns.append(got.elapsed_ns)
        io = store.info().get("io_reason", "")
    times = np.array(took_ns)
    return {
        "mode": options.mode,
        "io": io,
        "gathers": len(times),
        "rows_per_s": round(options.batch * len(times) / (times.sum() / 1e9)),
        "p50_us": round(float(np.percentile(times, 50)) / 1e3, 1),
        "p99_us": round(float(np.percentile(times, 99)) / 1e3, 1),
    }, True


def _global(header: Header, local: NDArray[np.int64]) -> NDArray[np.int64]:
    ids = np.empty_like(local)
    base = 0
    for part in header.slice.ranges:
        inside = (local >= base) & (local < base + part.count)
        ids[inside] = local[inside] - base + part.start
        base += part.count
    return ids
