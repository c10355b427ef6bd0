"""Writes RWS1 files: pages from rows, digests while writing, the manifest last."""

import contextlib
import errno
import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from . import native
from .errors import StagingFailed
from .geometry import PAGE_BYTES, Header
from .manifest import CHUNK_BYTES, Chunk, Manifest, manifest_path

Rows = tuple[NDArray[np.uint8], NDArray[np.uint8]]
RowSource = Callable[[NDArray[np.int64]], Rows]
Progress = Callable[[int, int], None]

_BLOCK_PAGES = 2048  # 8 MiB of pages are encoded and written at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """What the manifest says about the origin of a table."""

    hash_parameters: dict[str, Any]
    source: dict[str, Any]
    source_digest: bytes = bytes(32)


NO_PROVENANCE = Provenance(hash_parameters={}, source={"kind": "unknown"})


def formula_source(header: Header) -> RowSource:
    """Rows that are a pure function of (layer, global id), for tests and benchmarks."""
    fmt = header.row_format

    def rows(ids: NDArray[np.int64]) -> Rows:
        whole = native.formula_rows(header.layer, ids, fmt.row_bytes)
        return whole[:, : fmt.code_bytes], whole[:, fmt.code_bytes :]

    return rows


class _ChunkDigests:
    """Digests of a stream, cut every 64 MiB."""

    def __init__(self, offset: int) -> None:
        self.chunks: list[Chunk] = []
        self._offset = offset
        self._start_new()

    def _start_new(self) -> None:
        self._sha, self._crc, self._bytes = hashlib.sha256(), 0, 0

    def add(self, block: memoryview) -> None:
        while len(block):
            part = block[: CHUNK_BYTES - self._bytes]
            self._sha.update(part)
            self._crc = native.crc32c(part, self._crc)
            self._bytes += len(part)
            block = block[len(part) :]
            if self._bytes == CHUNK_BYTES:
                self.close()

    def close(self) -> None:
        if self._bytes:
            self.chunks.append(
                Chunk(self._offset, self._bytes, self._sha.hexdigest(), self._crc)
            )
            self._offset += self._bytes
        self._start_new()


def encode_blocks(
    header: Header, source: RowSource, pages: range
) -> Iterator[NDArray[np.uint8]]:
    """Consecutive pages of the data region, some MiB of them at a time."""
    per_page = header.row_format.rows_per_page
    for first in range(pages.start, pages.stop, _BLOCK_PAGES):
        count = min(_BLOCK_PAGES, pages.stop - first)
        ids = header.slice.global_ids(first * per_page, count * per_page)
        codes, scales = source(ids)
        yield native.encode_pages(header.layer, header.generation, ids, codes, scales, per_page)


def _runs(header: Header, only: NDArray[np.int64] | None) -> list[range]:
    """The pages to write, as stretches of consecutive ones."""
    if only is None:
        return [range(header.pages)]
    pages = np.unique(header.slice.local_rows(only) // header.row_format.rows_per_page)
    parts = np.split(pages, np.flatnonzero(np.diff(pages) != 1) + 1)
    return [range(int(part[0]), int(part[-1]) + 1) for part in parts if len(part)]


def _write_data(
    file: BinaryIO, header: Header, source: RowSource, runs: list[range], progress: Progress
) -> tuple[Chunk, ...]:
    chunks: list[Chunk] = []
    done, total = 0, sum(map(len, runs)) * PAGE_BYTES
    for run in runs:
        start = header.data_offset + run.start * PAGE_BYTES
        digests = _ChunkDigests(start)
        file.seek(start)
        for block in encode_blocks(header, source, run):
            file.write(block.data)
            digests.add(block.data.cast("B"))
            done += block.nbytes
            progress(done, total)
        digests.close()
        chunks += digests.chunks
    return tuple(chunks)


def _claim(file: BinaryIO, header: Header) -> None:
    """Give the file its size: in blocks, or as one hole."""
    if not header.sparse:
        # Space is claimed first: running out of it in the middle would waste the whole copy.
        os.posix_fallocate(file.fileno(), 0, header.file_bytes)
        return
    os.ftruncate(file.fileno(), header.file_bytes)
    try:
        os.lseek(file.fileno(), 0, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:  # no data anywhere
            return
    raise OSError(errno.EOPNOTSUPP, "the file system keeps no holes")


def _geometry(header: Header) -> dict[str, Any]:
    fmt = header.row_format
    return {
        "layer": header.layer,
        "rows": header.slice.rows,
        "sparse": header.sparse,
        "code_type": fmt.code_type.name.lower(),
        "scale_type": "ue8m0",
        "code_bytes": fmt.code_bytes,
        "scale_bytes": fmt.scale_bytes,
        "codes_per_scale": fmt.codes_per_scale,
        "rows_per_page": fmt.rows_per_page,
        "data_offset": header.data_offset,
        "ranges": [[part.head, part.start, part.count] for part in header.slice.ranges],
    }


def _durably(path: Path, content: bytes) -> None:
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(path)


def write_table(
    path: Path,
    header: Header,
    source: RowSource,
    *,
    provenance: Provenance = NO_PROVENANCE,
    progress: Progress = lambda _done, _total: None,
    only: NDArray[np.int64] | None = None,
) -> Manifest:
    """Write a table and its manifest; on failure nothing remains under either name.

    With `only` the file is sparse: the pages of these global ids are written, all others are a
    hole and read as rows of zeros.
    """
    header = replace(header, sparse=only is not None)
    runs = _runs(header, only)
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("wb") as file:
            _claim(file, header)
            chunks = _write_data(file, header, source, runs, progress)
            manifest = Manifest(
                geometry=_geometry(header),
                chunks=chunks,
                hash_parameters=provenance.hash_parameters,
                source=provenance.source,
            )
            final = replace(
                header,
                manifest_digest=manifest.digest(),
                source_digest=provenance.source_digest,
            )
            file.seek(0)
            file.write(final.encode())
            file.flush()
            os.fsync(file.fileno())
        partial.rename(path)
        _durably(manifest_path(path), manifest.canonical())
    except OSError as error:
        with contextlib.suppress(FileNotFoundError):
            partial.unlink()
        raise StagingFailed(
            f"{path}: {error.strerror}; {header.file_bytes} bytes are needed, free some space or "
            "choose another directory"
        ) from error
    return manifest
