"""What an RWS1 file holds: the row format, the slice, and the header page that states both.

The layout follows the C++ core (`engine/rowstore/format.h`), which checks it again on open.
"""

import itertools
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Self

import numpy as np
from numpy.typing import NDArray

from . import native
from .errors import BadTable

PAGE_BYTES = 4096
TRAILER_BYTES = 24
ROW_CHECK_BYTES = 4
RANGES_MAX = 64
MAGIC = b"RWS1\0\0\0\0"
VERSION = 1
BYTE_ORDER = 0x01020304
HUGE_OFFSET = 2 << 20
SPARSE = 1
"""Header flag: most of the file was never written; a page of zeros is a page of zero rows."""

_FIXED = struct.Struct("<8s10I2Q2I32s32s")
_RANGE = struct.Struct("<II2Q")
_FLAGS = struct.Struct("<I")
_FLAGS_AT = _FIXED.size + RANGES_MAX * _RANGE.size
_CRC = struct.Struct("<I")
_CRC_AT = PAGE_BYTES - _CRC.size


class CodeType(IntEnum):
    """Number format of the codes of a row."""

    E4M3 = 1
    E2M1 = 2


@dataclass(frozen=True, slots=True)
class RowFormat:
    """Sizes of one row; `codes_per_scale` codes share one ue8m0 scale."""

    code_type: CodeType
    code_bytes: int
    scale_bytes: int
    codes_per_scale: int = 32

    @property
    def row_bytes(self) -> int:
        return self.code_bytes + self.scale_bytes

    @property
    def stride(self) -> int:
        """Bytes from one row to the next inside a page: the row and its check."""
        return self.row_bytes + ROW_CHECK_BYTES

    @property
    def rows_per_page(self) -> int:
        return (PAGE_BYTES - TRAILER_BYTES) // self.stride


FP8 = RowFormat(CodeType.E4M3, code_bytes=256, scale_bytes=8)
FP4 = RowFormat(CodeType.E2M1, code_bytes=128, scale_bytes=8)


@dataclass(frozen=True, slots=True)
class HeadRange:
    """Rows `start` to `start + count - 1` of the whole table, all of one hash head."""

    head: int
    start: int
    count: int


@dataclass(frozen=True, slots=True)
class Slice:
    """The rows a file holds: a list of head ranges, in file order."""

    ranges: tuple[HeadRange, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.ranges) <= RANGES_MAX:
            raise BadTable(f"a slice has 1 to {RANGES_MAX} head ranges, not {len(self.ranges)}")
        by_start = sorted(self.ranges, key=lambda part: part.start)
        for part in by_start:
            if part.count < 1 or part.start < 0:
                raise BadTable(f"head {part.head}: range {part.start}+{part.count} is empty")
        for before, after in itertools.pairwise(by_start):
            if before.start + before.count > after.start:
                raise BadTable(f"heads {before.head} and {after.head} overlap at {after.start}")

    @classmethod
    def whole(cls, rows: int) -> Self:
        """All of a table of `rows` rows."""
        return cls((HeadRange(0, 0, rows),))

    @property
    def rows(self) -> int:
        return sum(part.count for part in self.ranges)

    def global_ids(self, first: int, count: int) -> NDArray[np.int64]:
        """Global ids of the local rows `first` to `first + count - 1`."""
        parts: list[NDArray[np.int64]] = []
        base = 0
        for part in self.ranges:
            begin = max(first, base)
            end = min(first + count, base + part.count)
            if begin < end:
                start = part.start + begin - base
                parts.append(np.arange(start, start + end - begin, dtype=np.int64))
            base += part.count
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)

    def local_rows(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Places in the file of global ids that the slice holds; BadTable for others."""
        local = np.full(ids.shape, -1, dtype=np.int64)
        base = 0
        for part in self.ranges:
            inside = (ids >= part.start) & (ids < part.start + part.count)
            local[inside] = ids[inside] - part.start + base
            base += part.count
        if (local < 0).any():
            raise BadTable(f"row {ids[local < 0][0]} is not in the slice")
        return local


def strided_heads(
    heads: Sequence[HeadRange], ranks: int, rank: int, together: int = 1
) -> Slice:
    """Every `ranks`-th head from `rank` on: each rank gets its share of every n-gram order.

    Heads are laid out order after order, so a contiguous split gives one rank all the long
    n-grams, which miss far more often, and every other rank waits for it. So many heads as
    `together` says go to the same rank.
    """
    return Slice(tuple(one for k, one in enumerate(heads) if k // together % ranks == rank))


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The first page of an RWS1 file."""

    layer: int
    row_format: RowFormat
    slice: Slice
    data_offset: int = PAGE_BYTES
    generation: int = 1
    sparse: bool = False
    source_digest: bytes = bytes(32)
    manifest_digest: bytes = bytes(32)

    @property
    def pages(self) -> int:
        return -(-self.slice.rows // self.row_format.rows_per_page)

    @property
    def file_bytes(self) -> int:
        return self.data_offset + self.pages * PAGE_BYTES

    def encode(self) -> bytes:
        """The page as it is stored, check included."""
        fmt = self.row_format
        fixed = _FIXED.pack(
            MAGIC, VERSION, BYTE_ORDER, self.layer, fmt.code_type, 1, fmt.codes_per_scale,
            fmt.code_bytes, fmt.scale_bytes, fmt.stride, fmt.rows_per_page, self.slice.rows,
            self.data_offset, self.generation, len(self.slice.ranges), self.source_digest,
            self.manifest_digest,
        )  # fmt: skip
        ranges = b"".join(_RANGE.pack(r.head, 0, r.start, r.count) for r in self.slice.ranges)
        flags = _FLAGS.pack(SPARSE if self.sparse else 0)
        body = ((fixed + ranges).ljust(_FLAGS_AT, b"\0") + flags).ljust(_CRC_AT, b"\0")
        return body + _CRC.pack(native.crc32c(body))

    @classmethod
    def decode(cls, page: bytes, name: str) -> Self:
        """Parse a stored page; `name` is used in errors."""
        if len(page) < PAGE_BYTES or not page.startswith(MAGIC):
            raise BadTable(f"{name} is not an RWS1 file; write it with `rowstore pack`")
        (stored,) = _CRC.unpack_from(page, _CRC_AT)
        if stored != native.crc32c(page[:_CRC_AT]):
            raise BadTable(f"{name}: the header check fails; stage the file again")
        (
            _, version, order, layer, code_type, _, per_scale, code_bytes, scale_bytes, _, _, _,
            data_offset, generation, range_count, source, manifest,
        ) = _FIXED.unpack_from(page)  # fmt: skip
        if version != VERSION or order != BYTE_ORDER:
            raise BadTable(f"{name}: version {version} is not supported; stage the file again")
        (flags,) = _FLAGS.unpack_from(page, _FLAGS_AT)
        if flags & ~SPARSE:
            raise BadTable(f"{name}: its flags are of a later version; stage the file again")
        ranges = []
        for k in range(range_count):
            head, _, start, count = _RANGE.unpack_from(page, _FIXED.size + k * _RANGE.size)
            ranges.append(HeadRange(head, start, count))
        return cls(
            layer=layer,
            row_format=RowFormat(CodeType(code_type), code_bytes, scale_bytes, per_scale),
            slice=Slice(tuple(ranges)),
            data_offset=data_offset,
            generation=generation,
            sparse=bool(flags & SPARSE),
            source_digest=source,
            manifest_digest=manifest,
        )
