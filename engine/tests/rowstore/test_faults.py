"""Faults of the device and the file: bounded, counted, and never a wrong byte."""

from pathlib import Path

import numpy as np
import pytest
from tables import LAYER, eventually, expected_rows, some_ids

from sentinel_engine.rowstore import Store
from sentinel_engine.rowstore import telemetry_layout as layout

pytestmark = pytest.mark.usefixtures("no_faults")

IDS = np.array([101, 102, 10_010, 3_000_000_100], dtype=np.int64)
FIRST_PAGE = "offset=4096"
ENGINES = ("inline", "uring", "aio", "pool")
LONG = "ms=60000"


def open_store(table: Path, page: Path | str = "off", **settings: str | int) -> Store:
    given: dict[str, str | int | Path] = {
        "mode": "nvme", "lanes": 2, "cache_policy": "none", "telemetry": page, "hard_ms": 30_000,
        "warn_ms": 100, "soft_ms": 10, "depth": 8, **settings,
    }  # fmt: skip
    return Store(table, inject=True, **given)


def counters(page: Path) -> dict[str, int]:
    record = layout.read_record(page.read_bytes(), "counters")
    return {name: value for name, value in record.items() if isinstance(value, int)}


def check(store: Store, ids: np.ndarray = IDS, lane: int = 0) -> None:
    got = store.gather(LAYER, ids, lane=lane)
    assert got.status == "ok"
    np.testing.assert_array_equal(got.rows, expected_rows(ids))


@pytest.mark.parametrize("io", ENGINES)
@pytest.mark.parametrize("fault", ["eio", "short", "torn", "wrong"])
def test_one_bad_read_is_repeated(table: Path, tmp_path: Path, io: str, fault: str) -> None:
    page = tmp_path / "page"
    # A hedge would be a second read of the page, and its answer makes the repetition unnecessary.
    never = {"soft_ms": 20_000, "warn_ms": 25_000}
    with open_store(table, page, io=io, **never) as store:
        store.inject(f"fault={fault} {FIRST_PAGE} count=1")
        check(store)
        seen = counters(page)

    assert (seen["reads_issued"], seen["hedges_issued"]) == (4, 0)
    assert seen["crc_failures"] == (1 if fault in ("torn", "wrong") else 0)


@pytest.mark.parametrize(
    ("fault", "status"),
    [("eio", "io"), ("short", "io"), ("torn", "corrupt"), ("wrong", "corrupt")],
)
@pytest.mark.parametrize("io", ENGINES)
def test_a_page_that_stays_bad_fails_its_gather_only(
    table: Path, io: str, fault: str, status: str
) -> None:
    with open_store(table, io=io) as store:
        store.inject(f"fault={fault} {FIRST_PAGE}")
        assert store.gather(LAYER, IDS).status == status
        check(store, IDS[2:])
        store.inject("clear")
        check(store)


@pytest.mark.parametrize("io", ENGINES)
def test_a_late_read_is_hedged_and_the_second_answer_wins(
    table: Path, tmp_path: Path, io: str
) -> None:
    page = tmp_path / "page"
    with open_store(table, page, io=io) as store:
        store.inject(f"fault=delay {FIRST_PAGE} count=1 {LONG}")
        check(store)
        seen = counters(page)

    assert seen["hedges_issued"] >= 1 and seen["hedges_won"] == 1
    assert seen["hard_deadlines"] == 0


@pytest.mark.parametrize("io", ENGINES)
@pytest.mark.parametrize("fault", [f"delay {LONG}", "lost"])
def test_a_stalled_page_ends_at_the_hard_deadline_and_the_next_step_runs(
    table: Path, tmp_path: Path, io: str, fault: str
) -> None:
    page = tmp_path / "page"
    with open_store(table, page, io=io, hard_ms=2000) as store:
        store.inject(f"fault={fault} {FIRST_PAGE} count=3")
        got = store.gather(LAYER, IDS)
        assert got.status == "deadline"

        def the_next_steps_run_and_stuck_reads_are_set_aside() -> bool:
            check(store, IDS[2:])
            return layout.read_record(page.read_bytes(), "gauges")["quarantined_slots"] == 3

        eventually(the_next_steps_run_and_stuck_reads_are_set_aside, "three quarantined reads")
        check(store)
        seen = counters(page)

    assert seen["hard_deadlines"] == 1


def test_the_zero_policy_degrades_openly(table: Path) -> None:
    with open_store(table, hard_ms=1000) as store:
        store.inject(f"fault=delay {FIRST_PAGE} {LONG}")
        got = store.gather(LAYER, IDS, policy="zero")

    assert got.status == "ok" and got.degraded == 4
    assert not got.rows.any()


def test_repeated_hard_deadlines_open_the_circuit_and_a_good_read_closes_it(
    table: Path, tmp_path: Path
) -> None:
    page = tmp_path / "page"

    def circuit() -> object:
        return layout.read_record(page.read_bytes(), "header")["circuit"]

    with open_store(table, page, hard_ms=60, warn_ms=50, trip_hard=3, io="uring") as store:
        store.inject(f"fault=delay count=9 {LONG}")
        for first in (101, 131, 161):
            assert store.gather(LAYER, np.array([first], np.int64)).status == "deadline"
        assert circuit() == 1
        eventually(
            lambda: layout.read_record(page.read_bytes(), "header")["health"] == 2, "failing"
        )
        eventually(lambda: store.gather(LAYER, IDS[2:]).ok, "a read in time")
        assert circuit() == 0


@pytest.mark.parametrize("io", ["inline", "uring"])
def test_a_drive_that_never_answers_fills_the_quarantine_and_fails_fast(
    table: Path, tmp_path: Path, io: str
) -> None:
    page = tmp_path / "page"
    with open_store(table, page, io=io, hard_ms=50, warn_ms=20, depth=4) as store:
        store.inject("fault=lost")
        for seed in range(6):
            got = store.gather(LAYER, some_ids(20, seed))
            assert got.status in ("deadline", "circuit_open")
        assert layout.read_record(page.read_bytes(), "header")["circuit"] == 1


def test_a_stuck_read_is_visible_with_its_page_and_lane(table: Path, tmp_path: Path) -> None:
    page = tmp_path / "page"
    out = np.empty((1, 264), np.uint8)
    with open_store(table, page, hard_ms=60_000, warn_ms=50) as store:
        store.inject(f"fault=delay {LONG}")
        ticket = store.submit(LAYER, IDS[:1], out, lane=1)
        eventually(
            lambda: layout.read_record(page.read_bytes(), "counters")["warn_deadlines"] == 1,
            "the guardian warns",
        )
        content = page.read_bytes()
        oldest = layout.oldest_read(content)
        lane = layout.read_lane(content, 1)
        assert oldest is not None and (oldest["page"], oldest["lane"]) == (0, 1)
        assert lane.is_open and lane.state == "wait_io" and lane.fields["stuck_spells"] == 1
        assert layout.read_record(content, "header")["health"] == 1
        store.release(1)
        got = store.wait(1, ticket, out, timeout_s=10)
        assert got is not None and got.status == "released"
        store.inject("clear")
        check(store, IDS[2:], lane=1)


def test_an_engine_that_is_refused_is_replaced_and_the_reason_kept(table: Path) -> None:
    with open_store(table) as store:
        assert "uring: self-test passed" in store.info()["io_reason"]
        store.inject("refuse=uring")
    with open_store(table, io="auto") as store:
        assert store.info()["io_reason"].startswith("aio: self-test passed; not uring")
        store.inject("refuse=aio")
        check(store)
    with open_store(table, io="auto") as store:
        assert store.info()["io_reason"].startswith("pool: self-test passed; not uring")
        check(store)


def test_refused_direct_reads_fall_back_to_buffered_ones(table: Path) -> None:
    with open_store(table) as store:
        assert store.info()["tables"][0]["reads"] == "direct reads"
        store.inject("refuse=direct")
    with open_store(table) as store:
        assert "direct I/O was refused" in store.info()["tables"][0]["reads"]
        check(store)


def test_a_file_cut_while_open_fails_the_missing_rows_only(table: Path, tmp_path: Path) -> None:
    copy = tmp_path / "t.rws"
    copy.write_bytes(table.read_bytes())
    with open_store(copy) as store:
        check(store)
        with copy.open("r+b") as file:
            file.truncate(40_960)
        assert store.gather(LAYER, IDS[3:]).status == "io"
        check(store, IDS[:2])
