"""Every backend, engine, policy and check level must return the same bytes."""

import threading
from pathlib import Path

import numpy as np
import pytest
from tables import LAYER, RANGES, eventually, expected_rows, make_table, some_ids

from sentinel_engine.rowstore import FP4, FP8, Header, HeadRange, Slice, Store, StoreRefused, native
from sentinel_engine.rowstore import telemetry_layout as layout
from sentinel_engine.rowstore.geometry import PAGE_BYTES

ENGINES = ("inline", "uring", "aio", "pool")
SMALL_CACHE = 300_000  # a tenth of the table, so that sets fill and evict


def check(store: Store, ids: np.ndarray) -> None:
    got = store.gather(LAYER, ids)
    assert got.status == "ok"
    np.testing.assert_array_equal(got.rows, expected_rows(ids))


@pytest.mark.parametrize("io", ENGINES)
@pytest.mark.parametrize("policy", ["s3", "clk3", "direct", "none"])
def test_engines_and_policies(table: Path, io: str, policy: str) -> None:
    with Store(table, mode="nvme", io=io, cache_policy=policy, cache_bytes=SMALL_CACHE,
               depth=16, lanes=1, prefault="no") as store:
        for seed in range(6):
            check(store, some_ids(400, seed % 4))


@pytest.mark.parametrize("mode", ["nvme", "ram", "legacy"])
@pytest.mark.parametrize("verify", ["page", "row", "fill_only"])
def test_modes_and_check_levels(table: Path, mode: str, verify: str) -> None:
    with Store(table, mode=mode, verify=verify, lanes=1) as store:
        check(store, some_ids(300))


@pytest.mark.parametrize("mode", ["nvme", "ram", "legacy"])
def test_fp4_rows(tmp_path: Path, mode: str) -> None:
    path = make_table(tmp_path / "t.rws", row_format=FP4)
    ids = some_ids(300)
    with Store(path, mode=mode, lanes=1) as store:
        got = store.gather(LAYER, ids)

    np.testing.assert_array_equal(got.rows, expected_rows(ids, row_bytes=136))


@pytest.mark.parametrize("mode", ["nvme", "ram", "legacy"])
class TestShapes:
    def test_edges_of_every_head(self, table: Path, mode: str) -> None:
        ids = np.array([i for r in RANGES for i in (r.start, r.start + r.count - 1)], np.int64)
        with Store(table, mode=mode, lanes=1) as store:
            check(store, ids)

    def test_nothing(self, table: Path, mode: str) -> None:
        with Store(table, mode=mode, lanes=1) as store:
            check(store, np.empty(0, np.int64))

    def test_only_padding(self, table: Path, mode: str) -> None:
        with Store(table, mode=mode, lanes=1) as store:
            check(store, np.full(10, -1, np.int64))

    def test_padding_between_rows(self, table: Path, mode: str) -> None:
        ids = some_ids(30)
        ids[::3] = -5
        with Store(table, mode=mode, lanes=1) as store:
            check(store, ids)

    def test_one_id_outside_fails_the_request_only(self, table: Path, mode: str) -> None:
        ids = some_ids(30)
        with Store(table, mode=mode, lanes=1) as store:
            bad = ids.copy()
            bad[17] = 5000  # in the gap between two heads
            assert store.gather(LAYER, bad).status == "bad_id"
            assert store.gather(99, ids).status == "bad_id"
            check(store, ids)

    def test_too_many_rows_are_refused(self, table: Path, mode: str) -> None:
        with Store(table, mode=mode, lanes=1, lane_rows=16) as store:
            assert store.gather(LAYER, some_ids(17)).status == "too_many"
            check(store, some_ids(16))


@pytest.mark.parametrize("io", ENGINES)
def test_more_misses_than_depth(table: Path, io: str) -> None:
    with Store(table, mode="nvme", io=io, depth=2, lanes=1) as store:
        check(store, some_ids(5000))


def test_a_repeated_row_is_read_once(table: Path) -> None:
    """A prompt of one filler token asks for the same few rows thousands of times."""
    ids = np.repeat(some_ids(3, seed=5), 1000)
    with Store(table, mode="nvme", cache_policy="none", lanes=1) as store:
        got = store.gather(LAYER, ids)

    assert (got.unique, got.misses) == (3, 3)
    np.testing.assert_array_equal(got.rows, expected_rows(ids))


def test_rows_of_one_page_are_read_together(table: Path, tmp_path: Path) -> None:
    page = tmp_path / "page"
    ids = np.arange(101, 101 + 15, dtype=np.int64)
    with Store(table, mode="nvme", cache_policy="none", lanes=1, telemetry=page) as store:
        check(store, ids)
        counters = layout.read_record(page.read_bytes(), "counters")

    assert counters["reads_issued"] - counters["hedges_issued"] == 1


def test_codes_and_scales_may_go_to_two_strided_buffers(table: Path) -> None:
    ids = some_ids(40)
    codes, scales = np.zeros((40, 512), np.uint8), np.zeros((40, 8), np.uint8)
    with Store(table, mode="nvme", lanes=1) as store:
        request = store.request(LAYER, ids, codes)
        request.codes_stride, request.scales = 512, native.address(scales)
        assert store.core.rs_gather(store.handle, request) == native.OK

    np.testing.assert_array_equal(codes[:, :256], expected_rows(ids)[:, :256])
    np.testing.assert_array_equal(scales, expected_rows(ids)[:, 256:])
    assert not codes[:, 256:].any()


def test_two_layers_in_one_store(table: Path, tmp_path: Path) -> None:
    other = make_table(tmp_path / "other.rws", layer=14)
    ids = some_ids(200)
    with Store(table, other, mode="nvme", lanes=1) as store:
        for layer in (LAYER, 14, LAYER):
            got = store.gather(layer, ids)
            np.testing.assert_array_equal(got.rows, expected_rows(ids, layer=layer))


def test_rows_beyond_4_gib_of_a_sparse_file(tmp_path: Path) -> None:
    """Only the pages asked for exist; the rest of the file is a hole."""
    rows = 20_000_000
    header = Header(layer=LAYER, row_format=FP8, slice=Slice((HeadRange(0, 2**33, rows),)))
    path = tmp_path / "sparse.rws"
    pages = [0, 1_048_577, header.pages - 1]
    with path.open("wb") as file:
        file.truncate(header.file_bytes)
        file.write(header.encode())
        for page in pages:
            ids = header.slice.global_ids(page * 15, 15)
            whole = native.formula_rows(LAYER, ids, 264)
            file.seek(header.data_offset + page * PAGE_BYTES)
            file.write(native.encode_pages(
                LAYER, 1, ids, whole[:, :256], whole[:, 256:], 15).tobytes())
    ids = np.array([2**33 + page * 15 + 3 for page in pages], np.int64)
    with Store(path, mode="nvme", lanes=1) as store:
        check(store, ids)
        hole = store.gather(LAYER, np.array([2**33 + 15 * 500], np.int64))
        assert hole.status == "corrupt"


@pytest.mark.parametrize("io", ENGINES)
def test_lanes_that_want_the_same_pages(table: Path, io: str) -> None:
    ids = [some_ids(500, seed=k % 2) for k in range(4)]
    wrong: list[int] = []

    def work(store: Store, lane: int) -> None:
        for _ in range(20):
            got = store.gather(LAYER, ids[lane], lane=lane)
            if not got.ok or (got.rows != expected_rows(ids[lane])).any():
                wrong.append(lane)

    with Store(table, mode="nvme", io=io, lanes=4, cache_bytes=SMALL_CACHE) as store:
        threads = [threading.Thread(target=work, args=(store, lane)) for lane in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert not wrong


def test_a_lane_in_use_is_refused(table: Path, tmp_path: Path, no_faults: None) -> None:
    page = tmp_path / "page"
    ids = some_ids(10)
    out = np.empty((10, 264), np.uint8)
    with Store(table, mode="nvme", lanes=1, inject=True, cache_policy="none",
               telemetry=page) as store:
        store.inject("fault=delay ms=60000 count=100")
        ticket = store.submit(LAYER, ids, out)
        eventually(lambda: layout.read_lane(page.read_bytes(), 0).is_open, "the lane is entered")
        assert store.gather(LAYER, ids).status == "busy"
        store.release(0)
        assert store.wait(0, ticket, out, timeout_s=10) is not None


def test_hints_fill_the_cache(table: Path, tmp_path: Path) -> None:
    page = tmp_path / "page"
    ids = np.unique(some_ids(200, seed=9))
    with Store(table, mode="nvme", lanes=1, prefault="no", telemetry=page,
               cache_bytes=8 << 20) as store:
        store.hint(LAYER, ids)

        def cached() -> bool:
            gauges = layout.read_record(page.read_bytes(), "gauges")
            return gauges["cache_rows_used"] == len(ids)

        eventually(cached, "all hinted rows are cached")
        got = store.gather(LAYER, ids)
        useful = layout.read_record(page.read_bytes(), "counters")["prefetch_useful"]

    assert (got.hits, got.misses, useful) == (len(ids), 0, len(ids))
    np.testing.assert_array_equal(got.rows, expected_rows(ids))


@pytest.mark.parametrize(
    ("setting", "text"),
    [({"depht": 3}, "did you mean depth"), ({"depth": 0}, "from 1 to 256"),
     ({"mode": "disk"}, "auto, nvme, ram, legacy"), ({"soft_ms": 5000}, "hard_ms")],
)
def test_wrong_settings_say_what_is_right(table: Path, setting: dict[str, str], text: str) -> None:
    with pytest.raises(StoreRefused, match=text):
        Store(table, inject=False, **setting)
