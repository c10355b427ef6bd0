"""Writing, verifying and refusing tables."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tables import Child, make_table

from sentinel_engine.rowstore import FP8, BadTable, Header, Slice, Store, StoreRefused
from sentinel_engine.rowstore.geometry import PAGE_BYTES
from sentinel_engine.rowstore.manifest import manifest_path, read_manifest
from sentinel_engine.rowstore.reader import read_rows, verify_table
from sentinel_engine.rowstore.writer import Provenance, formula_source, write_table

DISK_FULL = """
import resource, sys
from pathlib import Path
from sentinel_engine.rowstore import *
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
header = Header(layer=1, row_format=FP8, slice=Slice.whole(100_000))
try:
    write_table(Path(sys.argv[1]), header, formula_source(header))
except StagingFailed as error:
    print("refused" if "bytes are needed" in str(error) else error, flush=True)
"""


def damaged_copy(table: Path, folder: Path, page: int, damage: Callable[[bytearray], None]) -> Path:
    copy = folder / table.name
    shutil.copy(table, copy)
    shutil.copy(manifest_path(table), manifest_path(copy))
    content = bytearray(copy.read_bytes())
    at = PAGE_BYTES * (page + 1)
    part = content[at : at + PAGE_BYTES]
    damage(part)
    content[at : at + PAGE_BYTES] = part
    copy.write_bytes(content)
    return copy


def test_a_good_table_verifies(table: Path) -> None:
    found = verify_table(table)

    assert found.good and found.pages_checked == 668 and found.chunks_checked == 1


def test_one_flipped_bit_is_found(table: Path, tmp_path: Path) -> None:
    def flip(page: bytearray) -> None:
        page[200] ^= 1

    found = verify_table(damaged_copy(table, tmp_path, 3, flip))

    assert (found.pages_bad, found.first_bad_page, found.chunks_bad) == (1, 3, 1)


def test_a_right_page_in_a_wrong_place_is_found(table: Path, tmp_path: Path) -> None:
    other = table.read_bytes()[PAGE_BYTES : 2 * PAGE_BYTES]

    def replace(page: bytearray) -> None:
        page[:] = other

    found = verify_table(damaged_copy(table, tmp_path, 5, replace))

    assert (found.pages_bad, found.first_bad_page) == (1, 5)


def test_a_table_without_manifest_is_unfinished(table: Path, tmp_path: Path) -> None:
    copy = tmp_path / "t.rws"
    shutil.copy(table, copy)

    with pytest.raises(BadTable, match="did not finish"):
        verify_table(copy)


def test_a_table_of_another_hash_is_refused(tmp_path: Path) -> None:
    header = Header(layer=1, row_format=FP8, slice=Slice.whole(10))
    stored = {"primes": [99_991], "multipliers": [3, 5, 7]}
    provenance = Provenance(hash_parameters=stored, source={"kind": "formula"})
    path = tmp_path / "t.rws"
    write_table(path, header, formula_source(header), provenance=provenance)
    manifest = read_manifest(path)

    manifest.refuse_other_hash(stored, "t.rws")
    with pytest.raises(BadTable, match="primes"):
        manifest.refuse_other_hash({**stored, "primes": [99_989]}, "t.rws")


def test_running_out_of_space_leaves_nothing_behind(
    tmp_path: Path, child: Callable[..., Child]
) -> None:
    started = child(DISK_FULL, tmp_path / "t.rws")
    started.expect("refused")

    assert started.end() == 0
    assert list(tmp_path.iterdir()) == []


def test_a_truncated_table_is_refused_on_open(table: Path, tmp_path: Path) -> None:
    copy = tmp_path / "t.rws"
    copy.write_bytes(table.read_bytes()[:-PAGE_BYTES])

    with pytest.raises(StoreRefused, match="truncated"):
        Store(copy, mode="nvme")


def test_rows_read_back_without_a_store(tmp_path: Path) -> None:
    path = make_table(tmp_path / "t.rws")

    rows = read_rows(path, np.array([0, 9004, 10_012], dtype=np.int64))

    assert (rows[1] == read_rows(path, np.array([9004], dtype=np.int64))[0]).all()
