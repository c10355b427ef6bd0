"""Sparse tables: what was never written is rows of zeros, what was written is checked as ever."""

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tables import LAYER, RANGES, expected_rows

from sentinel_engine.rowstore import (
    FP8,
    BadTable,
    Header,
    HeadRange,
    Slice,
    Store,
    StoreRefused,
    formula_source,
    native,
    write_table,
)
from sentinel_engine.rowstore import telemetry_layout as layout
from sentinel_engine.rowstore.cli import Exit, main
from sentinel_engine.rowstore.geometry import PAGE_BYTES, SPARSE
from sentinel_engine.rowstore.keeper import Image
from sentinel_engine.rowstore.manifest import manifest_path
from sentinel_engine.rowstore.reader import bad_pages, read_header, read_rows, verify_table

ENGINES = ("inline", "uring", "aio", "pool")
CHECKS = ("page", "row", "fill_only")
SLICE = Slice(RANGES)
PAGES = 668
WRITTEN = SLICE.global_ids(0, SLICE.rows)[[0, 15 * 20 + 3, 15 * 21, 15 * 400 + 7, -1]]
"""Rows on the first page, on two that are neighbours, on one in the middle and on the last."""
HOLE_PAGE = 30
HOLE = SLICE.global_ids(HOLE_PAGE * 15, 15)
NO_HOLES = """
import subprocess, sys
from pathlib import Path
from sentinel_engine.rowstore import *
subprocess.run(["mount", "-t", "ramfs", "none", sys.argv[1]], check=True)
import numpy
header = Header(layer=1, row_format=FP8, slice=Slice.whole(100_000))
try:
    write_table(Path(sys.argv[1]) / "t.rws", header, formula_source(header), only=numpy.array([7]))
except StagingFailed as error:
    print("refused" if "keeps no holes" in str(error) else error, flush=True)
print(*Path(sys.argv[1]).iterdir())
"""


def make_sparse(path: Path, part: Slice = SLICE, only: np.ndarray = WRITTEN) -> Path:
    header = Header(layer=LAYER, row_format=FP8, slice=part)
    write_table(path, header, formula_source(header), only=only)
    return path


@pytest.fixture(scope="module")
def sparse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sparse table with rows on five pages, shared by tests that only read it."""
    return make_sparse(tmp_path_factory.mktemp("sparse") / "t.rws")


def spoiled(sparse: Path, folder: Path, page: int, at: int, content: bytes) -> Path:
    """A copy of the table with bytes of one page overwritten."""
    copy = folder / sparse.name
    for one in (sparse, manifest_path(sparse)):
        shutil.copy(one, folder / one.name)
    with copy.open("r+b") as file:
        file.seek(PAGE_BYTES * (page + 1) + at)
        file.write(content)
    return copy


def check(store: Store, mode: str) -> None:
    """Rows of both kinds, mixed, come as they are."""
    ids = np.concatenate([HOLE, WRITTEN, HOLE[:3], WRITTEN])
    expected = expected_rows(ids)
    expected[np.isin(ids, HOLE)] = 0
    got = store.gather(LAYER, ids)
    assert (got.status, got.mode) == ("ok", mode)
    np.testing.assert_array_equal(got.rows, expected)


@pytest.mark.parametrize("io", ENGINES)
@pytest.mark.parametrize("verify", CHECKS)
def test_holes_are_rows_of_zeros(sparse: Path, io: str, verify: str) -> None:
    """False: an engine or a check level refuses what was never written, or serves other bytes."""
    with Store(sparse, mode="nvme", io=io, verify=verify, lanes=1) as store:
        assert store.info()["tables"][0]["sparse"]
        check(store, "nvme")
        check(store, "nvme")  # from the cache


@pytest.mark.parametrize("mode", ["ram", "legacy"])
@pytest.mark.parametrize("verify", CHECKS)
def test_other_modes_serve_the_same(sparse: Path, mode: str, verify: str) -> None:
    """False: a switch of mode changes the rows of a sparse table."""
    with Store(sparse, mode=mode, verify=verify, lanes=1, reserve_bytes=0) as store:
        check(store, mode)
        assert store.switch("nvme").status == "ok"
        check(store, "nvme")


def test_a_first_page_that_is_a_hole_passes_the_self_test(tmp_path: Path) -> None:
    """False: whether a store opens depends on which rows were sampled."""
    path = make_sparse(tmp_path / "t.rws", only=WRITTEN[1:])
    for io in ENGINES:
        with Store(path, mode="nvme", io=io, lanes=1) as store:
            assert not store.gather(LAYER, WRITTEN[:1]).rows.any()


def test_a_late_read_of_a_hole_is_hedged(sparse: Path, tmp_path: Path, no_faults: None) -> None:
    """False: the second engine judges pages by other rules than the first."""
    page = tmp_path / "page"
    with Store(sparse, mode="nvme", lanes=1, inject=True, cache_policy="none", telemetry=page,
               soft_ms=10, warn_ms=100, hard_ms=30_000) as store:  # fmt: skip
        store.inject(f"fault=delay offset={PAGE_BYTES * (HOLE_PAGE + 1)} count=1 ms=60000")
        check(store, "nvme")
        seen = layout.read_record(page.read_bytes(), "counters")
    assert seen["hedges_won"] == 1 and seen["crc_failures"] == 0


@pytest.mark.parametrize("io", ENGINES)
@pytest.mark.parametrize("verify", CHECKS)
@pytest.mark.parametrize("at", [0, 300, PAGE_BYTES - 24, PAGE_BYTES - 1])
def test_one_byte_in_a_hole_is_corruption(
    sparse: Path, tmp_path: Path, io: str, verify: str, at: int
) -> None:
    """False: garbage passes for zeros, or for a row."""
    path = spoiled(sparse, tmp_path, HOLE_PAGE, at, b"\1")
    with Store(path, mode="nvme", io=io, verify=verify, lanes=1) as store:
        assert store.gather(LAYER, HOLE[4:5]).status == "corrupt"
        assert store.gather(LAYER, WRITTEN).ok


@pytest.mark.parametrize("io", ENGINES)
def test_a_damaged_row_in_a_sparse_file_is_corruption(
    sparse: Path, tmp_path: Path, io: str
) -> None:
    """False: a sparse table's real rows are no longer checked."""
    path = spoiled(sparse, tmp_path, 20, 3 * 268, bytes(264))  # zeros, and the check of the row
    with Store(path, mode="nvme", io=io, lanes=1) as store:
        assert store.gather(LAYER, WRITTEN[1:2]).status == "corrupt"
        assert store.gather(LAYER, WRITTEN[2:]).ok


def test_a_damaged_page_stops_the_fill_of_ram(sparse: Path, tmp_path: Path) -> None:
    """False: RAM mode serves for good what NVMe mode would refuse."""
    path = spoiled(sparse, tmp_path, HOLE_PAGE, 300, b"\1")
    with pytest.raises(StoreRefused, match="page check failed"):
        Store(path, mode="ram", lanes=1, reserve_bytes=0)
    keeper = Image(path, read_header(path))
    with pytest.raises(StoreRefused, match="did not fill"):
        keeper.fill(1, 0)


@pytest.mark.parametrize("io", ENGINES)
@pytest.mark.parametrize("verify", CHECKS)
def test_zeros_in_a_dense_file_stay_corruption(
    table: Path, tmp_path: Path, io: str, verify: str
) -> None:
    """False: a lost page of an ordinary table is served as rows of zeros."""
    path = spoiled(table, tmp_path, HOLE_PAGE, 0, bytes(PAGE_BYTES))
    with Store(path, mode="nvme", io=io, verify=verify, lanes=1) as store:
        assert store.gather(LAYER, HOLE[:1]).status == "corrupt"
        assert store.gather(LAYER, WRITTEN).ok
    assert verify_table(path).first_bad_page == HOLE_PAGE


def test_a_keeper_holds_and_scrubs_a_sparse_table(sparse: Path) -> None:
    """False: the scrubber takes zeros for rot and ends the keeper's service."""
    keeper = Image(sparse, read_header(sparse))
    keeper.fill(1, 0)
    for _ in range(3):
        keeper.scrub()
    assert (keeper.state, keeper.scrubbed_pages, keeper.rotten_pages) == ("ready", PAGES, 0)


def test_python_and_the_core_judge_alike(sparse: Path, tmp_path: Path) -> None:
    """False: `rowstore verify` and the launcher accept what the store refuses, or the reverse."""
    places = ((HOLE_PAGE, 0), (HOLE_PAGE, 4095), (20, 100), (400, 4090))
    for k, (page, at) in enumerate(((None, 0), *places)):
        folder = tmp_path / str(k)
        folder.mkdir()
        path = sparse if page is None else spoiled(sparse, folder, page, at, b"\xff")
        header = read_header(path)
        content = np.frombuffer(path.read_bytes()[PAGE_BYTES:], np.uint8)
        wrong = [one for one in range(PAGES) if bad_pages(
            header, one, content[one * PAGE_BYTES : (one + 1) * PAGE_BYTES])[0]]
        ids = header.slice.global_ids(0, SLICE.rows)[::15]
        with Store(path, mode="nvme", verify="page", cache_policy="none", lanes=1) as store:
            refused = [k for k, one in enumerate(ids)
                       if store.gather(LAYER, np.array([one])).status == "corrupt"]
        assert wrong == refused == ([] if page is None else [page])


def test_verify_reads_what_was_written_and_finds_what_was_not(
    sparse: Path, tmp_path: Path
) -> None:
    """False: a row that vanished, or one that nobody wrote, goes unnoticed."""
    found = verify_table(sparse)
    assert found.good and found.chunks_checked == 4  # two pages are neighbours
    assert (found.pages_checked, found.pages_in_holes) == (5, PAGES - 5)
    lost = tmp_path / "lost"
    lost.mkdir()
    found = verify_table(spoiled(sparse, lost, 20, 0, bytes(PAGE_BYTES)))
    assert (found.pages_bad, found.first_bad_page, found.chunks_bad) == (1, 20, 1)
    extra = tmp_path / "extra"
    extra.mkdir()
    whole = native.formula_rows(LAYER, HOLE, 264)
    page = native.encode_pages(LAYER, 1, HOLE, whole[:, :256], whole[:, 256:], 15).tobytes()
    found = verify_table(spoiled(sparse, extra, HOLE_PAGE, 0, page))
    assert (found.pages_bad, found.first_bad_page, found.chunks_bad) == (1, HOLE_PAGE, 0)


def test_a_table_of_192_million_rows_takes_a_few_pages(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """False: real sizes need real disks, or offsets and ids wrap on the way."""
    heads = [HeadRange(k, 2**31 * k, 16_000_057) for k in range(12)]
    part = Slice(tuple(heads))
    last = heads[-1].start + heads[-1].count - 1
    written = np.array([heads[3].start, last], np.int64)
    path = make_sparse(tmp_path / "t.rws", part, written)
    holes = np.array([heads[3].start - 2**31, heads[5].start + 9_000_000, last - 100], np.int64)
    assert main(["info", str(path)]) == Exit.OK
    shown = dict(line.split(None, 1) for line in capsys.readouterr().out.splitlines())
    assert int(shown["bytes"]) > 48 << 30 and int(shown["allocated_bytes"]) < 100_000
    assert verify_table(path).good
    np.testing.assert_array_equal(read_rows(path, part.local_rows(written)), expected_rows(written))
    for io in ENGINES:
        with Store(path, mode="nvme", io=io, lanes=1) as store:
            np.testing.assert_array_equal(store.gather(LAYER, written).rows, expected_rows(written))
            got = store.gather(LAYER, holes)
            assert got.ok and not got.rows.any()
            assert store.gather(LAYER, np.array([last + 1])).status == "bad_id"
    with pytest.raises(StoreRefused, match="must stay free"):
        Store(path, mode="ram", lanes=1, reserve_bytes=1 << 50)


def test_unknown_flags_are_refused(sparse: Path, tmp_path: Path) -> None:
    """False: a file of a later version is read by this one's rules."""
    page = bytearray(replace(read_header(sparse), sparse=False).encode())
    at = 136 + 64 * 24
    assert page[at] == 0 and read_header(sparse).encode()[at] == SPARSE
    page[at] = 2
    page[-4:] = native.crc32c(bytes(page[:-4])).to_bytes(4, "little")
    path = spoiled(sparse, tmp_path, -1, 0, bytes(page))
    with pytest.raises(BadTable, match="later version"):
        read_header(path)
    with pytest.raises(StoreRefused, match="later version"):
        Store(path, mode="nvme", lanes=1)


def test_rows_outside_the_slice_cannot_be_written(tmp_path: Path) -> None:
    """False: a sample of another rank is written to wherever its numbers point."""
    with pytest.raises(BadTable, match="5000 is not in the slice"):
        make_sparse(tmp_path / "t.rws", only=np.array([101, 5000]))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system")
def test_a_file_system_without_holes_is_refused(tmp_path: Path) -> None:
    """False: staging fills the disk with a hundred gigabytes of zeros."""
    done = subprocess.run(
        ["unshare", "--mount", sys.executable, "-c", NO_HOLES, str(tmp_path)],
        check=True, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.stdout.split() == ["refused"]
