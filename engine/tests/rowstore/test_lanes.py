"""Handoffs: host callbacks, memory-operation flags, asynchronous gathers, and their release."""

from collections.abc import Callable, Iterator
from ctypes import byref, c_uint32, c_uint64
from pathlib import Path

import numpy as np
import pytest
from tables import LAYER, Child, eventually, expected_rows, some_ids

from sentinel_engine.rowstore import CallbackLane, Node, Store
from sentinel_engine.rowstore import telemetry_layout as layout
from sentinel_engine.rowstore.cli import main

CAPACITY = 64
STALL = "fault=stall ms=600000 count=1"


@pytest.fixture
def page(tmp_path: Path) -> Path:
    return tmp_path / "page"


@pytest.fixture
def store(table: Path, page: Path, no_faults: None) -> Iterator[Store]:
    with Store(table, mode="nvme", lanes=2, telemetry=page, inject=True, cache_policy="none",
               hard_ms=60_000, hard_prefill_ms=60_000, control=page.with_name("ctl")) as opened:
        yield opened


def make_node(store: Store, lane: int = 0) -> tuple[Node, np.ndarray, np.ndarray]:
    ids = some_ids(CAPACITY, seed=lane)
    out = np.zeros((CAPACITY, 264), np.uint8)
    return Node(store, LAYER, ids, out, lane), ids, out


def lane_record(page: Path, lane: int) -> layout.LaneRecord:
    return layout.read_lane(page.read_bytes(), lane)


def test_a_node_reads_its_row_count_when_it_runs(store: Store) -> None:
    """One captured graph serves ragged draft lengths."""
    node, ids, out = make_node(store)
    for run, count in enumerate((6, 0, CAPACITY, 17), start=1):
        out[:] = 0xEE
        node.count.value = count
        node.run()
        assert (node.status.value, node.sequence.value) == (0, run)
        np.testing.assert_array_equal(out[:count], expected_rows(ids)[:count])
        assert (out[count:] == 0xEE).all()


def test_a_count_above_the_capacity_writes_nothing(store: Store) -> None:
    node, _, out = make_node(store)
    node.count.value = CAPACITY + 1
    node.run()

    assert store.status_name(node.status.value) == "too_many" and not out.any()


def test_the_callback_lane_runs_in_order(store: Store, page: Path) -> None:
    lane = CallbackLane(store)
    nodes = [make_node(store, k) for k in range(2)]
    for node, _, _ in nodes:
        node.count.value = CAPACITY
    tickets = [lane.launch(nodes[k % 2][0]) for k in range(8)]

    assert lane.wait(tickets[-1], timeout_s=20)
    for k, (node, ids, out) in enumerate(nodes):
        assert node.sequence.value == 4
        np.testing.assert_array_equal(out, expected_rows(ids))
        fields = lane_record(page, k).fields
        assert [fields[name] for name in ("enq", "gpu_pre", "enter", "exit", "gpu_post")] == [4] * 5
    lane.close()


def test_a_proxy_that_spins_on_the_callback_thread_starves_the_store(
    store: Store, page: Path
) -> None:
    """The node is reached and its callback is not dispatched: gpu_pre runs ahead of enter."""
    lane, credits = CallbackLane(store), c_uint32(0)
    node, _, _ = make_node(store)
    node.count.value = 1
    lane.occupy(credits)
    ticket = lane.launch(node)

    assert not lane.wait(ticket, timeout_s=0.05)
    starved = lane_record(page, 0)
    assert starved.fields["gpu_pre"] == 1 and starved.fields["enter"] == 0
    credits.value = 1
    assert lane.wait(ticket, timeout_s=20)
    assert lane_record(page, 0).fields["gpu_post"] == 1
    lane.close()


def test_a_full_callback_lane_refuses(store: Store) -> None:
    lane, credits = CallbackLane(store, capacity=1), c_uint32(0)
    node, _, _ = make_node(store)
    lane.occupy(credits)

    def refused() -> bool:
        try:
            lane.launch(node)
        except Exception as error:
            return "busy" in str(error)
        return False

    eventually(refused, "the queue is full")
    credits.value = 1
    lane.close()


def test_flags_serve_a_node_round_after_round(store: Store) -> None:
    node, ids, out = make_node(store)
    node.bind_flags()
    for count in (3, 40, CAPACITY):
        node.count.value, node.done.value = count, 0
        node.ready.value = 1
        eventually(lambda: node.done.value != 0, "rows ready")
        assert node.done.value == 1 and node.ready.value == 0
        np.testing.assert_array_equal(out[:count], expected_rows(ids)[:count])
    node.unbind_flags()


def test_a_waiting_gpu_is_released_with_an_error_code(store: Store, page: Path) -> None:
    """An unmet wait stops the stream for ever, so there is always somebody who writes done."""
    node, _, _ = make_node(store)
    store.inject("fault=lost")
    node.count.value = 4
    node.bind_flags()
    node.ready.value = 1
    eventually(lambda: lane_record(page, 0).state == "wait_io", "the read is out")

    store.release(0)

    eventually(lambda: node.done.value != 0, "the wait is met")
    assert store.status_name(node.done.value - 1) == "released"
    eventually(lambda: not lane_record(page, 0).is_open, "the poller is back")
    node.unbind_flags()


def test_flags_are_released_when_overdue(table: Path, page: Path, no_faults: None) -> None:
    """A poller stuck in a legacy read cannot write done; the guardian does it for it."""
    with Store(table, mode="legacy", lanes=1, inject=True, cache_bytes=0, telemetry=page,
               hard_ms=20, warn_ms=10, soft_ms=10, hard_prefill_ms=20) as store:
        node, _, _ = make_node(store)
        store.inject(STALL)
        node.count.value = 4
        node.bind_flags()
        node.ready.value = 1
        eventually(lambda: node.done.value != 0, "the guardian ends the round")
        assert store.status_name(node.done.value - 1) == "deadline"
        assert lane_record(page, 0).is_open
        store.release(0)
        node.unbind_flags()


def test_stamps_of_the_device_reach_the_page(store: Store, page: Path) -> None:
    before, after = c_uint64(7), c_uint64(5)
    store.core.rs_lane_bind_stamps(store.handle, 1, byref(before), byref(after))

    def shown() -> tuple[object, object]:
        fields = lane_record(page, 1).fields
        return fields["gpu_pre"], fields["gpu_post"]

    eventually(lambda: shown() == (7, 5), "the guardian copies the stamps")
    store.core.rs_lane_bind_stamps(store.handle, 1, None, None)


def test_asynchronous_gathers_keep_their_tickets(store: Store) -> None:
    jobs = []
    for k in range(8):
        ids, out = some_ids(20, seed=k), np.zeros((20, 264), np.uint8)
        jobs.append((store.submit(LAYER, ids, out, lane=k % 2), ids, out))

    for k, (ticket, ids, out) in enumerate(jobs):
        got = store.wait(k % 2, ticket, out, timeout_s=20)
        assert got is not None and got.ok
        np.testing.assert_array_equal(out, expected_rows(ids))


LEGACY_HANG = """
import sys, threading
import numpy as np
from pathlib import Path
from sentinel_engine.rowstore import Store
table, page, control = map(Path, sys.argv[1:])
store = Store(table, mode="legacy", lanes=2, cache_bytes=0, inject=True, telemetry=page,
              control=control, hard_ms=100, warn_ms=50)
store.inject("fault=stall ms=600000 count=1")
results = [None, None]
def work(lane):
    results[lane] = store.gather(7, np.array([101, 131, 161], np.int64), lane=lane).status
first = threading.Thread(target=work, args=(0,))
first.start()
print("first", flush=True)
sys.stdin.readline()
second = threading.Thread(target=work, args=(1,))
second.start()
first.join(); second.join()
print(*results, flush=True)
"""


def test_a_legacy_hang_is_named_and_unblocked_from_outside(
    table: Path, tmp_path: Path, child: Callable[..., Child], capsys: pytest.CaptureFixture[str]
) -> None:
    """The page names the reader, the lock holder and the waiter; `unblock` ends the hang."""
    page, control = tmp_path / "page", tmp_path / "ctl"
    engine = child(LEGACY_HANG, table, page, control)
    engine.expect("first")
    eventually(lambda: lane_record(page, 0).state == "wait_io", "the first lane reads")
    engine.tell("go on")
    eventually(lambda: lane_record(page, 1).state == "wait_lock", "the second lane waits")

    content = page.read_bytes()
    reader, waiter = lane_record(page, 0), lane_record(page, 1)
    oldest = layout.oldest_read(content)
    shard = layout.read_record(content, "shard", 0)
    assert oldest is not None and (oldest["page"], oldest["lane"]) == (0, 0)
    assert shard["holder_tid"] == reader.fields["owner_tid"] != waiter.fields["owner_tid"]
    assert shard["waiters"] == 1
    eventually(lambda: main(["stat", str(page)]) == 1, "the page says that it is not well")
    assert "wait_lock" in capsys.readouterr().out

    assert main(["--json", "unblock", str(control), "0"]) == 0

    engine.expect("released ok")
    assert engine.end() == 0
