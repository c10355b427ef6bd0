"""The file format, against independent Python implementations of its checks."""

import struct
from pathlib import Path

import numpy as np
import pytest
from tables import RANGES, make_table

from sentinel_engine.rowstore import FP4, FP8, BadTable, Header, HeadRange, Slice, native
from sentinel_engine.rowstore.geometry import PAGE_BYTES, RowFormat, strided_heads
from sentinel_engine.rowstore.reader import read_header

MASK = (1 << 64) - 1


def slow_crc32c(data: bytes, crc: int = 0) -> int:
    crc ^= 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def slow_mix(x: int) -> int:
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 & MASK
    x ^= x >> 27
    x = x * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def slow_row(layer: int, row: int, row_bytes: int) -> bytes:
    golden = 0x9E3779B97F4A7C15
    seed = slow_mix((row + (layer << 56) + golden) & MASK)
    words = [slow_mix((seed + word * golden) & MASK) for word in range(row_bytes // 8)]
    return struct.pack(f"<{len(words)}Q", *words)


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 64, 4092])
def test_crc_equals_the_slow_one(length: int) -> None:
    data = bytes(range(256)) * 16

    assert native.crc32c(data[:length]) == slow_crc32c(data[:length])
    assert native.crc32c(data[length:], native.crc32c(data[:length])) == slow_crc32c(data)


def test_known_crc_vector() -> None:
    assert native.crc32c(b"123456789") == 0xE3069283


def test_formula_equals_the_slow_one() -> None:
    ids = np.array([0, 1, 2**31, 2**40 + 3], dtype=np.int64)

    rows = native.formula_rows(14, ids, 264)

    assert [row.tobytes() for row in rows] == [slow_row(14, int(i), 264) for i in ids]


@pytest.mark.parametrize(("fmt", "rows", "trailer_at"), [(FP8, 15, 4020), (FP4, 29, 4060)])
def test_rows_fill_a_page_as_specified(fmt: RowFormat, rows: int, trailer_at: int) -> None:
    assert fmt.rows_per_page == rows
    assert rows * fmt.stride == trailer_at


@pytest.mark.parametrize("fmt", [FP8, FP4])
def test_a_page_carries_row_checks_and_a_trailer(tmp_path: Path, fmt: RowFormat) -> None:
    path = make_table(tmp_path / "t.rws", (HeadRange(0, 1000, fmt.rows_per_page + 1),),
                      row_format=fmt)

    content = path.read_bytes()

    assert len(content) == 3 * PAGE_BYTES
    page = content[PAGE_BYTES : 2 * PAGE_BYTES]
    row, stored = page[: fmt.row_bytes], page[fmt.row_bytes : fmt.stride]
    assert row == slow_row(7, 1000, fmt.row_bytes)
    assert struct.unpack("<I", stored)[0] == slow_crc32c(row + struct.pack("<Q", 1000))
    magic, layer, first, generation, crc = struct.unpack("<4sIQII", page[-24:])
    assert (magic, layer, first, generation) == (b"RWSP", 7, 1000, 1)
    assert crc == slow_crc32c(page[:-4])
    last = content[2 * PAGE_BYTES :]
    assert last[fmt.stride : -24] == bytes(PAGE_BYTES - 24 - fmt.stride)


def test_a_header_survives_its_encoding() -> None:
    header = Header(layer=14, row_format=FP4, slice=Slice(RANGES), source_digest=b"s" * 32)

    assert Header.decode(header.encode(), "t") == header


def test_damaged_headers_are_refused(tmp_path: Path) -> None:
    page = bytearray(Header(layer=1, row_format=FP8, slice=Slice.whole(5)).encode())
    page[100] ^= 1
    with pytest.raises(BadTable, match="header check"):
        Header.decode(bytes(page), "t")
    path = tmp_path / "other"
    path.write_bytes(b"x" * 8192)
    with pytest.raises(BadTable, match="not an RWS1 file"):
        read_header(path)


def test_slices_map_local_rows_to_global_ids() -> None:
    part = Slice((HeadRange(5, 100, 3), HeadRange(1, 7, 2)))

    assert part.global_ids(0, 5).tolist() == [100, 101, 102, 7, 8]
    assert part.global_ids(2, 2).tolist() == [102, 7]


@pytest.mark.parametrize(
    "ranges", [(), (HeadRange(0, 5, 0),), (HeadRange(0, 0, 5), HeadRange(1, 4, 5))]
)
def test_impossible_slices_are_refused(ranges: tuple[HeadRange, ...]) -> None:
    with pytest.raises(BadTable):
        Slice(ranges)


def test_strided_heads_give_every_rank_every_order() -> None:
    """24 heads, order-major: eight heads of each of three orders."""
    heads = [HeadRange(h, h * 10, 10) for h in range(24)]

    slices = [strided_heads(heads, 4, rank) for rank in range(4)]

    for part in slices:
        assert [r.head // 8 for r in part.ranges] == [0, 0, 1, 1, 2, 2]
    assert sorted(r.head for part in slices for r in part.ranges) == list(range(24))
