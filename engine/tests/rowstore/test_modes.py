"""Switching between modes while gathers run: no wrong byte, no failed gather, no stuck switch."""

import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
from tables import LAYER, eventually, expected_rows, make_table, some_ids

from sentinel_engine.rowstore import Store, StoreRefused
from sentinel_engine.rowstore import telemetry_layout as layout
from sentinel_engine.rowstore.geometry import PAGE_BYTES
from sentinel_engine.rowstore.manifest import manifest_path

TOO_MUCH = 1 << 45


class Load:
    """Threads that gather without pause and remember everything that was not right."""

    def __init__(self, store: Store, lanes: int) -> None:
        self._store, self._stop = store, threading.Event()
        self.wrong: list[str] = []
        self.gathers, self.modes = 0, set[str]()
        self._threads = [threading.Thread(target=self._work, args=(k,)) for k in range(lanes)]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def expect_more(self) -> None:
        """Wait until every lane had time for another gather."""
        seen = self.gathers
        eventually(lambda: self.gathers > seen + 3, "gathers go on")

    def _work(self, lane: int) -> None:
        batches = [some_ids(150, seed=8 * lane + k) for k in range(8)]
        answers = [expected_rows(ids) for ids in batches]
        turn = 0
        while not self._stop.is_set():
            k = turn = (turn + 1) % 8
            got = self._store.gather(LAYER, batches[k], lane=lane)
            if not got.ok or (got.rows != answers[k]).any():
                self.wrong.append(got.status)
            self.modes.add(got.mode)
            self.gathers += 1


@pytest.mark.parametrize("io", ["inline", "uring"])
@pytest.mark.parametrize("grace_ms", [0, 10_000])
def test_switching_back_and_forth_under_load(table: Path, io: str, grace_ms: int) -> None:
    with (
        Store(table, mode="nvme", io=io, lanes=3, grace_ms=grace_ms, cache_bytes=300_000,
              fill_share_percent=100, reserve_bytes=0) as store,
        Load(store, 3) as load,
    ):
        for turn in range(20):
            state = store.switch(("ram", "nvme")[turn % 2])
            assert state.status == "ok", state.reason
            load.expect_more()

    assert load.wrong == [] and load.modes == {"nvme", "ram"} and load.gathers > 20


def test_a_switch_within_the_grace_period_takes_the_kept_backend(table: Path) -> None:
    with Store(table, mode="nvme", lanes=1, reserve_bytes=0) as store:
        store.switch("ram")
        assert "kept from before" in store.switch("nvme").reason
        assert store.switch("nvme").reason == "already in this mode"


def test_the_cache_is_warm_after_a_stay_in_ram(table: Path, tmp_path: Path) -> None:
    page = tmp_path / "page"
    ids = np.unique(some_ids(300))
    with Store(table, mode="nvme", lanes=1, grace_ms=0, prefault="no", telemetry=page,
               reserve_bytes=0) as store:
        store.gather(LAYER, ids)
        store.switch("ram")
        eventually(
            lambda: layout.read_record(page.read_bytes(), "header")["mode_state"] == 0,
            "the old backend is gone",
        )
        store.switch("nvme")
        got = store.gather(LAYER, ids)

    assert (got.hits, got.misses) == (len(ids), 0)
    np.testing.assert_array_equal(got.rows, expected_rows(ids))


def test_a_table_that_does_not_fit_is_refused_with_the_numbers(table: Path) -> None:
    with Store(table, mode="nvme", lanes=1, reserve_bytes=TOO_MUCH) as store:
        state = store.switch("ram")

        assert state.status == "no_memory" and "must stay free" in state.reason
        assert state.mode == "nvme" and store.gather(LAYER, some_ids(20)).ok


def test_a_damaged_table_never_reaches_ram(table: Path, tmp_path: Path) -> None:
    copy = tmp_path / table.name
    shutil.copy(table, copy)
    shutil.copy(manifest_path(table), manifest_path(copy))
    with copy.open("r+b") as file:
        file.seek(100 * PAGE_BYTES + 5)
        file.write(b"rot")
    good = np.arange(101, 200, dtype=np.int64)
    with Store(copy, mode="nvme", lanes=1, reserve_bytes=0) as store:
        state = store.switch("ram")
        assert state.status == "corrupt" and "rowstore verify" in state.reason
        got = store.gather(LAYER, good)

    assert got.mode == "nvme"
    np.testing.assert_array_equal(got.rows, expected_rows(good))


@pytest.mark.usefixtures("no_faults")
def test_a_read_error_while_filling_rolls_back(table: Path) -> None:
    with Store(table, mode="nvme", lanes=1, inject=True, reserve_bytes=0) as store:
        store.inject("fault=eio count=1")
        state = store.switch("ram")
        assert state.status == "io" and store.gather(LAYER, some_ids(9)).mode == "nvme"
        assert store.switch("ram").status == "ok"


def test_auto_moves_to_ram_when_it_fits(table: Path) -> None:
    with Store(table, mode="auto", lanes=1, reserve_bytes=0) as store:
        eventually(lambda: store.gather(LAYER, some_ids(9)).mode == "ram", "auto reaches ram")


def test_auto_stays_on_nvme_when_it_does_not_fit(table: Path) -> None:
    with Store(table, mode="auto", lanes=1, reserve_bytes=TOO_MUCH) as store:
        assert "auto stays on nvme" in store.switch_state().reason
        assert store.gather(LAYER, some_ids(9)).mode == "nvme"


@pytest.mark.usefixtures("no_faults")
def test_auto_flees_to_ram_when_the_circuit_opens(tmp_path: Path) -> None:
    """The table did not fit when the store was opened; the drive dies; memory is there now."""
    path = make_table(tmp_path / "t.rws")
    with Store(path, mode="auto", lanes=1, inject=True, hard_ms=50, warn_ms=20, soft_ms=10,
               cache_policy="none", reserve_bytes=0) as store:
        eventually(lambda: store.switch_state().status == "ok", "the first switch ended")
        store.switch("nvme")
        store.inject("fault=lost")
        eventually(lambda: store.gather(LAYER, some_ids(4)).mode == "ram", "flight to ram")


@pytest.mark.usefixtures("no_faults")
def test_other_lanes_leave_legacy_while_one_hangs_in_it(table: Path, tmp_path: Path) -> None:
    page = tmp_path / "page"
    out = np.empty((1, 264), np.uint8)
    ids = some_ids(1)
    with Store(table, mode="legacy", lanes=2, cache_bytes=0, inject=True, telemetry=page,
               reserve_bytes=0) as store:
        store.inject("fault=stall ms=600000 count=1")
        ticket = store.submit(LAYER, ids, out, lane=0)
        eventually(lambda: layout.read_lane(page.read_bytes(), 0).state == "wait_io", "hung")
        assert store.switch("ram").status == "ok"
        assert store.gather(LAYER, ids, lane=1).mode == "ram"
        assert store.wait(0, ticket, out, timeout_s=0) is None
        store.release(0)
        got = store.wait(0, ticket, out, timeout_s=10)

    assert got is not None and (got.status, got.mode) == ("released", "legacy")


def test_progress_and_residency_are_on_the_page(table: Path, tmp_path: Path) -> None:
    page = tmp_path / "page"
    with Store(table, mode="ram", lanes=1, telemetry=page, reserve_bytes=0):
        gauges = layout.read_record(page.read_bytes(), "gauges")

    data_bytes = table.stat().st_size - PAGE_BYTES
    assert gauges["prefault_done_bytes"] == gauges["prefault_total_bytes"] == data_bytes
    assert gauges["resident_bytes"] == data_bytes


def test_unknown_modes_and_second_switches_are_refused(table: Path) -> None:
    with Store(table, mode="nvme", lanes=1, reserve_bytes=0) as store:
        with pytest.raises(StoreRefused, match="nvme, ram, legacy"):
            store.set_mode("tape")
        store.set_mode("ram")
        try:
            store.set_mode("nvme")
        except StoreRefused as error:
            assert error.status == "busy"
        eventually(lambda: store.switch_state().status == "ok", "a switch ended")
