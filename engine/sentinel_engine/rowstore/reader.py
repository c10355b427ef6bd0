"""Reads and verifies RWS1 files without opening a store."""

import errno
import hashlib
import mmap
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from . import native
from .errors import BadTable
from .geometry import PAGE_BYTES, Header
from .manifest import Manifest, read_manifest

Progress = Callable[[int, int], None]

_BLOCK_PAGES = 2048


@dataclass(frozen=True, slots=True)
class Verification:
    """What a verification looked at, and the first bad page if there was one."""

    pages_checked: int
    """Pages that were read: of a sparse file those outside its holes."""
    pages_bad: int
    first_bad_page: int | None
    chunks_checked: int
    chunks_bad: int
    pages_in_holes: int

    @property
    def good(self) -> bool:
        return self.pages_bad == 0 and self.chunks_bad == 0


def read_header(path: Path) -> Header:
    """The header of an RWS1 file; BadTable when it is none, or is shorter than it says."""
    with path.open("rb") as file:
        header = Header.decode(file.read(PAGE_BYTES), str(path))
    size = path.stat().st_size
    if size < header.file_bytes:
        raise BadTable(f"{path} has {size} bytes and needs {header.file_bytes}; stage it again")
    return header


def allocated_bytes(path: Path) -> int:
    """Bytes that a file takes on its disk, holes not counted."""
    return path.stat().st_blocks * 512


def read_rows(path: Path, local_rows: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Rows by their place in the file, through the page cache: a slow, simple reference."""
    header = read_header(path)
    fmt = header.row_format
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as image:
        rows = np.empty((len(local_rows), fmt.row_bytes), dtype=np.uint8)
        for k, local in enumerate(local_rows.tolist()):
            page, row = divmod(local, fmt.rows_per_page)
            at = header.data_offset + page * PAGE_BYTES + row * fmt.stride
            rows[k] = np.frombuffer(image[at : at + fmt.row_bytes], dtype=np.uint8)
    return rows


def first_ids(header: Header, first_page: int, pages: int) -> NDArray[np.int64]:
    """Global id of the first row of each page: what its trailer must say."""
    per_page = header.row_format.rows_per_page
    ids = header.slice.global_ids(first_page * per_page, pages * per_page)
    return np.ascontiguousarray(ids[::per_page])


def bad_pages(
    header: Header, first: int, block: NDArray[np.uint8], written: NDArray[np.int64] | None = None
) -> tuple[int, int | None]:
    """Number of the bad ones among consecutive pages from `first` on, and the first of them.

    A page is bad if damaged or misplaced. In a sparse file a page of zeros is good; where it is
    known which pages were `written`, these must not be zeros and all others must.
    """
    pages = block.reshape(-1, PAGE_BYTES)
    numbers, ids = np.arange(first, first + len(pages)), first_ids(header, first, len(pages))
    if header.sparse:
        filled = pages.any(axis=1)
        known = filled if written is None else np.isin(numbers, written)
        ids[~known] = -1  # nothing belongs there
        kept = filled | known
        pages, numbers, ids = pages[kept], numbers[kept], ids[kept]
    bad, at = native.verify_pages(header.layer, ids, pages)
    return bad, int(numbers[at]) if bad else None


def written_pages(header: Header, manifest: Manifest) -> NDArray[np.int64]:
    """Numbers of the pages that the manifest has a digest of."""
    parts = [
        np.arange(chunk.bytes // PAGE_BYTES) + (chunk.offset - header.data_offset) // PAGE_BYTES
        for chunk in manifest.chunks
    ]
    return np.concatenate(parts, dtype=np.int64) if parts else np.empty(0, dtype=np.int64)


def _to_read(file: int, header: Header) -> Iterator[range]:
    """The pages of a file, or what of a sparse file lies outside its holes, in blocks."""
    at, end = header.data_offset, header.file_bytes
    while at < end:
        until = end
        if header.sparse:
            try:
                at = os.lseek(file, at, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:  # nothing but a hole up to the end
                    return
                raise
            until = min(end, os.lseek(file, at, os.SEEK_HOLE))
        first = (at - header.data_offset) // PAGE_BYTES
        stop = -(-(until - header.data_offset) // PAGE_BYTES)
        for k in range(first, stop, _BLOCK_PAGES):
            yield range(k, min(stop, k + _BLOCK_PAGES))
        at = header.data_offset + stop * PAGE_BYTES


def matching_manifest(path: Path, header: Header) -> Manifest:
    """The manifest of `path`, checked against the digest in the header."""
    manifest = read_manifest(path)
    if manifest.digest() != header.manifest_digest:
        raise BadTable(f"{path}: the manifest is not the one the file was written with")
    return manifest


def verify_table(path: Path, *, progress: Progress = lambda _done, _total: None) -> Verification:
    """Read all that was written: every page check, every global row id, every chunk digest."""
    header = read_header(path)
    manifest = matching_manifest(path, header)
    written = written_pages(header, manifest) if header.sparse else None
    checked, bad, first_bad, bad_chunks = 0, 0, None, 0
    with path.open("rb", buffering=0) as file:
        for pages in _to_read(file.fileno(), header):
            at = header.data_offset + pages.start * PAGE_BYTES
            block = os.pread(file.fileno(), len(pages) * PAGE_BYTES, at)
            more, worst = bad_pages(header, pages.start, np.frombuffer(block, np.uint8), written)
            checked, bad = checked + len(pages), bad + more
            first_bad = worst if first_bad is None else first_bad
            progress(pages.stop * PAGE_BYTES, header.pages * PAGE_BYTES)
        for chunk in manifest.chunks:
            content = os.pread(file.fileno(), chunk.bytes, chunk.offset)
            bad_chunks += hashlib.sha256(content).hexdigest() != chunk.sha256
    return Verification(checked, bad, first_bad, len(manifest.chunks), bad_chunks,
                        header.pages - checked)  # fmt: skip
