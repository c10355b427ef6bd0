"""Faults of the store and of the ranks: which end a batch, which hang, and what shows of it."""

import os
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from clusters import WAIT_S, Cluster, Start

from sentinel_engine.config import EXIT_KILLED
from sentinel_engine.rowstore import telemetry_layout as layout

UNCACHED = {"cache_policy": "none", "hint_depth": 0, "hard_ms": 700, "hard_prefill_ms": 700,
            "warn_ms": 200, "soft_ms": 50, "io": "inline"}  # fmt: skip
STALL = {"kind": "store_stall", "rank": 1, "ms": 3_600_000, "count": 1_000_000}
WATCHDOG_S = 6.0


def ask(cluster: Cluster, tokens: int = 400) -> httpx.Response | None:
    """A long greedy completion; None when the engine ends before it does."""
    body = {"prompt": "The ", "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
    try:
        return cluster.post("/v1/completions", body)
    except httpx.TransportError:
        return None


def hang(cluster: Cluster, fault: dict[str, Any]) -> int:
    """Hang a running engine with a fault; returns the number of log lines before it."""
    cluster.head.wait_for("Decode batch")
    before = len(cluster.head.lines)
    answer = httpx.post(
        cluster.url + "/faults", json=fault, timeout=WAIT_S,
        headers={"authorization": "Bearer secret"},
    )  # fmt: skip
    assert answer.status_code == 200
    cluster.head.wait_for(f"Fault {fault['kind']}", after=before)
    return len(cluster.head.lines)


def killed_by_watchdog(cluster: Cluster, last_progress_ns: int, timeout_s: float) -> str:
    """Wait for the kill; the name of the rank that asked for it first."""
    line = cluster.head.wait_for(rf"watchdog timeout \(self.watchdog_timeout={timeout_s:g}, ")
    assert cluster.head.process.wait(WAIT_S) == EXIT_KILLED
    # The watchdog must not fire early; how late it may fire depends on the machine.
    assert time.monotonic_ns() - last_progress_ns >= timeout_s * 1e9
    cluster.head.wait_for("kill_process_tree called")
    found = re.search(r" (TP\d)\]", line)
    assert found is not None
    return found[1]


def test_a_stalled_read_fails_one_batch_and_the_engine_goes_on(start: Start) -> None:
    """False: a slow disk ends the engine, or the ranks disagree on what was computed."""
    cluster = start(rows_settings=UNCACHED)
    expected = cluster.text("go", 20)
    for kind in ("prefill", "decode"):
        with ThreadPoolExecutor(2) as clients:
            if kind == "decode":
                running = clients.submit(ask, cluster, 900)
                cluster.head.wait_for("Decode batch", after=len(cluster.head.lines))
            before = len(cluster.head.lines)
            cluster.control("/faults", STALL)
            if kind == "prefill":
                running = clients.submit(ask, cluster)
            answer = running.result()
        assert answer is not None and answer.status_code == 503
        assert answer.json()["error"]["retriable"] and "rank 1" in answer.json()["error"]["message"]
        assert answer.headers["retry-after"] == "1"
        for rank in range(2):
            cluster.head.wait_for(rf" TP{rank}\] Batch failed: ", after=before)
        cluster.head.wait_for(r" TP1\] Row store gather failed with status deadline", after=before)
        cluster.control("/faults", {"kind": "clear"})
        assert cluster.text("go", 20) == expected
    assert cluster.metric("sentinel_engine_failed_batches_total") == 2
    # An idle follower already waits in the next broadcast.
    enqueued = [cluster.ring(rank).counters["enqueued"] for rank in range(2)]
    assert enqueued[1] - enqueued[0] in (-1, 0, 1)
    assert cluster.head.process.poll() is None
    assert cluster.head.end() == 0


def test_the_legacy_store_hangs_as_reported(start: Start) -> None:
    """False: the engine does not show the hang that the store was rebuilt for.

    One rank sits in the gather, its peer in a collective; both have enqueued the same; decode lines
    stop; health and metrics still answer; the watchdog kills the tree at its time.
    """
    cluster = start(
        rows_mode="legacy", soft_watchdog_timeout_s=3, watchdog_timeout_s=20,
        rows_settings={"cache_bytes": 0},
    )  # fmt: skip
    with ThreadPoolExecutor(1) as client:
        running = client.submit(ask, cluster, 900)
        said = hang(cluster, STALL)
        cluster.head.wait_for(r"self\.watchdog_timeout=3, self\.soft=True", after=said)
        rings = [cluster.ring(rank) for rank in range(2)]
        assert httpx.get(cluster.url + "/health", timeout=WAIT_S).status_code == 200
        assert cluster.metric("sglang:num_running_reqs") == 1.0
        lane = layout.read_lane(cluster.page(1), 0)
        others = layout.read_lane(cluster.page(0), 0)
        killed_by_watchdog(cluster, max(one.end_ns for one in rings[0].collectives), 20)
        answer = running.result()
    assert answer is None or answer.status_code == 503
    assert rings[0].counters["enqueued"] == rings[1].counters["enqueued"]
    assert [one.op for one in rings[0].collectives if not one.end_ns] == ["all_reduce"]
    assert [one.op for one in rings[1].collectives if not one.end_ns] == []
    assert lane.is_open and lane.state == "wait_io" and not others.is_open
    assert not any("Decode batch" in one for one in cluster.head.lines[said + 1 :])


@pytest.mark.parametrize(
    ("fault", "settings"),
    [
        ({"kind": "skip_collective", "rank": 1}, {}),
        ({"kind": "extra_collective", "rank": 1}, {}),
        ({"kind": "lock_holder", "rank": 1}, {"rows_mode": "legacy"}),
        ({"kind": "gil_hold", "rank": 1, "ms": 3_600_000}, {}),
    ],
)
def test_other_faults_hang_until_the_watchdog(
    start: Start, fault: dict[str, Any], settings: dict[str, Any]
) -> None:
    """False: a drill believes in a fault that does nothing."""
    cluster = start(
        watchdog_timeout_s=WATCHDOG_S, rows_settings={"cache_bytes": 0}, **settings
    )
    with ThreadPoolExecutor(1) as client:
        running = client.submit(ask, cluster, 900)
        hang(cluster, fault)
        blamer = killed_by_watchdog(cluster, 0, WATCHDOG_S)
        running.result()
    waiting = [
        [(one.op, one.group) for one in cluster.ring(rank).collectives if not one.end_ns]
        for rank in range(2)
    ]
    # A stray rank and its peer wait in collectives of different groups.
    if fault["kind"] == "extra_collective":
        assert waiting == [[("all_reduce", 0)], [("all_gather", 1)]]
    elif fault["kind"] == "skip_collective":
        assert waiting == [[("all_gather", 1)], [("all_reduce", 0)]]
    elif fault["kind"] == "gil_hold":
        # A watchdog thread needs the interpreter lock too: only the peer can speak up.
        assert blamer == "TP0"
    else:
        shard = layout.read_lane(cluster.page(1), 0)
        assert shard.is_open and shard.state == "wait_lock"


def test_delays_slow_the_engine_and_change_nothing(start: Start) -> None:
    """False: the delay histogram of an experiment also changes what is computed."""
    cluster = start()
    expected = cluster.text("slow", 30)
    cluster.control("/faults", {"kind": "delays", "rank": 0, "histogram": [[5, 3], [40, 1]]})
    assert cluster.text("slow", 30) == expected
    cluster.control("/faults", {"kind": "clear"})
    assert cluster.text("slow", 30) == expected


def test_a_lost_rank_ends_the_node(start: Start) -> None:
    """False: after a crash the rest waits for ever and holds its devices."""
    cluster = start()
    pid = cluster.ring(1).pid
    with ThreadPoolExecutor(1) as client:
        running = client.submit(ask, cluster, 900)
        cluster.head.wait_for("Decode batch")
        os.kill(pid, signal.SIGKILL)
        assert cluster.head.process.wait(WAIT_S) == EXIT_KILLED
        running.result()
    assert any(
        "crashed with exit code -9" in one or "Scheduler hit an exception" in one
        for one in cluster.head.lines
    )


def test_faults_are_refused_unless_allowed(start: Start) -> None:
    """False: a token for switching modes is enough to break a production engine."""
    cluster = start(world=1, faults_allowed=False)
    answer = cluster.post("/faults", {"kind": "clear"}, authorization="Bearer secret")
    assert answer.status_code == 403 and "faults_allowed" in answer.json()["error"]["message"]
