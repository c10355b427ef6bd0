"""Reads and verifies RWS1 files without opening a store."""

import hashlib
import mmap
from collections.abc import Callable
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
    pages_bad: int
    first_bad_page: int | None
    chunks_checked: int
    chunks_bad: int

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


def matching_manifest(path: Path, header: Header) -> Manifest:
    """The manifest of `path`, checked against the digest in the header."""
    manifest = read_manifest(path)
    if manifest.digest() != header.manifest_digest:
        raise BadTable(f"{path}: the manifest is not the one the file was written with")
    return manifest


def verify_table(
    path: Path, *, progress: Progress = lambda _done, _total: None, chunks: bool = True
) -> Verification:
    """Read the whole file: every page check, every global row id, every chunk digest."""
    header = read_header(path)
    table = matching_manifest(path, header).chunks if chunks else ()
    bad_pages, first_bad, bad_chunks = 0, None, 0
    with path.open("rb") as file:
        file.seek(header.data_offset)
        for first in range(0, header.pages, _BLOCK_PAGES):
            count = min(_BLOCK_PAGES, header.pages - first)
            block = np.frombuffer(file.read(count * PAGE_BYTES), dtype=np.uint8)
            bad, at = native.verify_pages(header.layer, first_ids(header, first, count), block)
            if bad and first_bad is None:
                first_bad = first + at
            bad_pages += bad
            progress((first + count) * PAGE_BYTES, header.pages * PAGE_BYTES)
        for chunk in table:
            file.seek(chunk.offset)
            bad_chunks += hashlib.sha256(file.read(chunk.bytes)).hexdigest() != chunk.sha256
    return Verification(header.pages, bad_pages, first_bad, len(table), bad_chunks)
