"""What a read that does not come back does: `nvme` fails one gather, `legacy` hangs until told.

`python bench/rowstore/stall.py --folder DIR` injects the same fault into both modes, reads the
telemetry page while the gather hangs, shows what `sentinel` says of it when that is on the path,
and ends the hang with `rowstore unblock`. Exit status 0 means that all of it happened.
"""

import argparse
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from sentinel_engine.rowstore import FP8, Gathered, Store
from sentinel_engine.rowstore.commands_live import read_stat
from sentinel_engine.rowstore.geometry import PAGE_BYTES

import methods
from methods import LAYER, ROW_BYTES, Rows
from workloads import Ids

ROWS = 100_000
STALL_MS = 5_000
HARD_MS = 2_000
LEGACY_STALL_MS = 3_600_000
LOOK_AFTER_S = 6.0  # longer than every hard deadline, and what counts as stuck for the watcher
GIVE_UP_S = 30.0
POLL_S = 0.05
STAT_LINES = 12  # what is open and held; counters follow
STUCK_ROW, OTHER_ROWS = 4_711, np.arange(9_000, 9_288, dtype=np.int64)
PAGE_OFFSET = (1 + STUCK_ROW // FP8.rows_per_page) * PAGE_BYTES
ROWSTORE = [sys.executable, "-m", "sentinel_engine.rowstore.cli"]


def step(store: Store, ids: Ids, what: str) -> str:
    """Gather once, print how it ended and return its status."""
    began = time.monotonic()
    got = store.gather(LAYER, ids)
    took_ms = (time.monotonic() - began) * 1e3
    print(f"  {what}: {len(ids)} rows, status {got.status}, {took_ms:,.1f} ms")
    return got.status


def bounded(table: Path, folder: Path) -> bool:
    """One stalled read is read again; a page that stays stalled fails its gather, in time."""
    print(f"nvme, one read stalls for {STALL_MS} ms, hard deadline {HARD_MS} ms")
    ids = np.append(OTHER_ROWS, STUCK_ROW)
    with Store(table, inject=True, mode="nvme", lanes=1, cache_policy="none", hard_ms=HARD_MS,
               telemetry=folder / "nvme.page") as store:
        stall = f"fault=stall offset={PAGE_OFFSET} ms={STALL_MS}"
        store.inject(f"{stall} count=1")
        statuses = [step(store, ids, "one read of the page stalls, the hedge answers")]
        store.inject(stall)
        statuses.append(step(store, ids, "every read of the page stalls               "))
        statuses.append(step(store, OTHER_ROWS, "the next step                               "))
        store.inject("clear")
    return statuses == ["ok", "deadline", "ok"]


def hang(store: Store, page: Path) -> dict[int, tuple[int, Ids, Rows]]:
    """Two lanes of `legacy` want the row that stalls; returns them when one waits for the lock."""
    lanes = {}
    for lane in (0, 1):
        ids, out = np.array([STUCK_ROW], np.int64), np.empty((1, ROW_BYTES), np.uint8)
        lanes[lane] = (store.submit(LAYER, ids, out, lane=lane), ids, out)
    give_up = time.monotonic() + GIVE_UP_S
    while not any(held["waiters"] for held in stat(page)["held_shards"]):
        if time.monotonic() > give_up:
            raise SystemExit("the second lane never waited for the lock")
        time.sleep(POLL_S)
    return lanes


def stat(page: Path) -> dict[str, Any]:
    """What `rowstore stat` would show now."""
    return read_stat(page.read_bytes(), time.monotonic_ns())


def show(command: list[str], shown_as: str, lines: int | None = None) -> None:
    """Run a command and print what it says, or the first `lines` of it."""
    said = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
    print("\n".join([f"$ {shown_as}", *said[:lines]]), flush=True)


def unbounded(table: Path, folder: Path) -> bool:
    """`legacy` hangs past every deadline, the page names holder and read, `unblock` ends it."""
    print(f"\nlegacy, the same fault, hard deadline {HARD_MS} ms (which it does not keep)")
    page, control = folder / "legacy.page", folder / "legacy.sock"
    with Store(table, inject=True, mode="legacy", lanes=2, cache_bytes=0, hard_ms=HARD_MS,
               telemetry=page, control=control) as store:
        store.inject(f"fault=stall offset={PAGE_OFFSET} ms={LEGACY_STALL_MS} count=1")
        lanes = hang(store, page)
        ended = finish(store, lanes, 0, LOOK_AFTER_S)
        print(f"  after {LOOK_AFTER_S:g} s the gather of lane 0 "
              f"{'hangs' if ended is None else 'has ended'}")
        evidence = folder / "evidence"
        evidence.mkdir(exist_ok=True)
        shutil.copy(page, evidence / "rank0.page")
        show([*ROWSTORE, "stat", str(page)], "rowstore stat legacy.page", STAT_LINES)
        if sentinel := shutil.which("sentinel"):
            show([sentinel, "analyze", str(evidence)], "sentinel analyze evidence")
        found = stat(page)
        holder = found["held_shards"][0]["holder_tid"]
        stuck = next(lane["lane"] for lane in found["open_lanes"] if lane["tid"] == holder)
        show([*ROWSTORE, "unblock", str(control), str(stuck)],
             f"rowstore unblock legacy.sock {stuck}")
        released = finish(store, lanes, stuck, GIVE_UP_S)
        other = finish(store, lanes, 1 - stuck, GIVE_UP_S)
        print(f"  lane {stuck} ended with {released and released.status}, "
              f"lane {1 - stuck} with {other and other.status}")
        store.inject("clear")
    if released is None or other is None:
        return False
    return ended is None and (released.status, other.status) == ("released", "ok")


def finish(
    store: Store, lanes: dict[int, tuple[int, Ids, Rows]], lane: int, timeout_s: float
) -> Gathered | None:
    ticket, _, out = lanes[lane]
    return store.wait(lane, ticket, out, timeout_s=timeout_s)


def main() -> None:
    """Run both and exit with 1 when one of them did not go as described."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    table = methods.make_table(folder, ROWS)
    good = [bounded(table, folder), unbounded(table, folder)]
    raise SystemExit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
