"""The keeper: an engine that comes back finds its table resident."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from tables import LAYER, expected_rows, make_table, some_ids

from sentinel_engine.rowstore import HeadRange, Store, StoreRefused
from sentinel_engine.rowstore.geometry import PAGE_BYTES

KEEPER = [sys.executable, "-m", "sentinel_engine.rowstore.cli", "keeper", "--reserve-bytes", "0"]

StartKeeper = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start_keeper() -> Iterator[StartKeeper]:
    running: list[subprocess.Popen[str]] = []

    def start(path: Path, *tables: Path) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [*KEEPER, str(path), *map(str, tables)], stdout=subprocess.PIPE, text=True
        )
        running.append(process)
        assert process.stdout is not None
        assert "listens" in process.stdout.readline()
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate()


def check(store: Store) -> None:
    ids = some_ids(300)
    got = store.gather(LAYER, ids)
    assert (got.status, got.mode) == ("ok", "ram")
    np.testing.assert_array_equal(got.rows, expected_rows(ids))


def test_restarted_engines_take_the_same_memory(
    table: Path, tmp_path: Path, start_keeper: StartKeeper
) -> None:
    path = tmp_path / "keeper"
    keeper = start_keeper(path, table)
    for _ in range(3):
        with Store(table, mode="ram", keeper=path, lanes=1) as store:
            assert store.info()["ram"]["memory"] == "keeper"
            check(store)
    keeper.send_signal(signal.SIGTERM)

    assert keeper.wait(timeout=30) == 0 and not path.exists()


def test_a_killed_keeper_does_not_take_the_rows_along(
    table: Path, tmp_path: Path, start_keeper: StartKeeper
) -> None:
    path = tmp_path / "keeper"
    keeper = start_keeper(path, table)
    with Store(table, mode="ram", keeper=path, lanes=1) as store:
        keeper.kill()
        keeper.wait()
        check(store)
    with pytest.raises(StoreRefused, match="rowstore keeper"):
        Store(table, mode="ram", keeper=path, lanes=1)


def test_a_live_switch_goes_through_the_keeper_and_survives_its_absence(
    table: Path, tmp_path: Path, start_keeper: StartKeeper
) -> None:
    path = tmp_path / "keeper"
    with Store(table, mode="nvme", keeper=path, lanes=1, grace_ms=0) as store:
        assert store.switch("ram").status == "io"
        assert store.gather(LAYER, some_ids(5)).mode == "nvme"
        start_keeper(path, table)
        assert store.switch("ram").status == "ok"
        check(store)


def test_a_keeper_refuses_other_tables_and_damaged_ones(
    table: Path, tmp_path: Path, start_keeper: StartKeeper
) -> None:
    damaged = make_table(tmp_path / "damaged.rws", layer=9)
    with damaged.open("r+b") as file:
        file.seek(50 * PAGE_BYTES)
        file.write(b"rot")
    path = tmp_path / "keeper"
    keeper = start_keeper(path, damaged)
    assert keeper.stdout is not None
    assert "refused" in keeper.stdout.readline()

    with pytest.raises(StoreRefused, match="did not fill"):
        Store(damaged, mode="ram", keeper=path, lanes=1)
    with pytest.raises(StoreRefused, match="no such table"):
        Store(table, mode="ram", keeper=path, lanes=1)


def test_memory_that_is_not_sealed_is_refused(table: Path, tmp_path: Path) -> None:
    """Rows in memory that somebody can still write are not exact."""
    path = tmp_path / "impostor"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen(1)
    pid = os.fork()
    if pid == 0:
        fd = os.memfd_create("open")
        os.truncate(fd, table.stat().st_size)
        connection, _ = listener.accept()
        connection.recv(200)
        socket.send_fds(connection, [b"ready 1\n"], [fd])
        os._exit(0)
    listener.close()
    with pytest.raises(StoreRefused, match="not sealed"):
        Store(table, mode="ram", keeper=path, lanes=1)

    assert os.waitpid(pid, 0)[1] == 0


def test_a_keeper_killed_while_filling_leaves_a_clear_error(
    tmp_path: Path, start_keeper: StartKeeper
) -> None:
    large = make_table(tmp_path / "large.rws", (HeadRange(0, 0, 300_000),))
    path = tmp_path / "keeper"
    keeper = start_keeper(path, large)
    keeper.kill()
    keeper.wait()

    with pytest.raises(StoreRefused, match="keeper"):
        Store(large, mode="ram", keeper=path, lanes=1)
    Store(large, mode="nvme", lanes=1).close()
