"""Switches modes every 200 ms under load and checks every row: no wrong byte, no failed gather,
no gather slower than the hard deadline.

`python bench/rowstore/soak.py --seconds 600`; exit status 1 when anything was wrong.
"""

import argparse
import json
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from sentinel_engine.rowstore import (
    FP8,
    Header,
    Slice,
    Store,
    StoreRefused,
    formula_source,
    native,
    write_table,
)

LAYER = 1
HARD_MS = 2000
LANES = 2
BATCHES = 64


@dataclass
class Tally:
    """What the lanes saw."""

    gathers: int = 0
    rows: int = 0
    wrong_rows: int = 0
    failed: list[str] = field(default_factory=list)
    slowest_ms: float = 0.0
    by_mode: dict[str, int] = field(default_factory=dict)


def gather_until(store: Store, lane: int, rows: int, stop: threading.Event, tally: Tally) -> None:
    """One lane's load: batches of 1 to 288 rows, half of them hot."""
    draw = np.random.default_rng(lane)
    batches = []
    for _ in range(BATCHES):
        size = int(draw.integers(1, 289))
        hot = draw.random(size) < 0.5
        ids = np.where(hot, draw.integers(0, 2000, size), draw.integers(0, rows, size))
        batches.append((ids, native.formula_rows(LAYER, ids, FP8.row_bytes)))
    turn = 0
    while not stop.is_set():
        ids, answer = batches[turn % BATCHES]
        turn += 1
        began = time.monotonic()
        got = store.gather(LAYER, ids, lane=lane)
        tally.slowest_ms = max(tally.slowest_ms, (time.monotonic() - began) * 1e3)
        tally.gathers += 1
        tally.rows += len(ids)
        tally.by_mode[got.mode] = tally.by_mode.get(got.mode, 0) + 1
        if not got.ok:
            tally.failed.append(got.status)
        else:
            tally.wrong_rows += int((got.rows != answer).any(axis=1).sum())


def toggle_until(store: Store, period_s: float, end_s: float) -> dict[str, int]:
    """Ask for the other mode every period; a switch still running is not a failure."""
    outcome = {"switched": 0, "still_busy": 0, "failed": 0}
    target, next_s = "ram", time.monotonic()
    while time.monotonic() < end_s:
        try:
            store.set_mode(target)
            target = "nvme" if target == "ram" else "ram"
        except StoreRefused:
            outcome["still_busy"] += 1
        next_s += period_s
        time.sleep(max(0.0, next_s - time.monotonic()))
        state = store.switch_state()
        outcome["failed"] += state.status not in ("ok", "pending")
        outcome["switched"] += state.status == "ok"
    return outcome


def main() -> int:
    """Run the soak and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--period-ms", type=float, default=200)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--grace-ms", type=int, default=100,
                        help="less than the period: every switch rebuilds its backend")
    parser.add_argument("--folder", type=Path, help="on the drive under test")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        table = Path(folder) / "soak.rws"
        header = Header(layer=LAYER, row_format=FP8, slice=Slice.whole(options.rows))
        write_table(table, header, formula_source(header))
        stop, tallies = threading.Event(), [Tally() for _ in range(LANES)]
        with Store(table, mode="nvme", lanes=LANES, hard_ms=HARD_MS, reserve_bytes=0,
                   grace_ms=options.grace_ms, cache_bytes=4 << 20, fill_share_percent=100,
                   telemetry=Path(folder) / "page") as store:
            threads = [
                threading.Thread(target=gather_until,
                                 args=(store, lane, options.rows, stop, tallies[lane]))
                for lane in range(LANES)
            ]
            for thread in threads:
                thread.start()
            switches = toggle_until(
                store, options.period_ms / 1e3, time.monotonic() + options.seconds
            )
            stop.set()
            for thread in threads:
                thread.join()
    modes = {mode: sum(t.by_mode.get(mode, 0) for t in tallies) for mode in ("nvme", "ram")}
    result = {
        "seconds": options.seconds,
        "gathers": sum(t.gathers for t in tallies),
        "rows": sum(t.rows for t in tallies),
        "gathers_by_mode": modes,
        "wrong_rows": sum(t.wrong_rows for t in tallies),
        "failed_gathers": sum(len(t.failed) for t in tallies),
        "slowest_gather_ms": round(max(t.slowest_ms for t in tallies), 1),
        "hard_deadline_ms": HARD_MS,
        "switches": switches,
    }
    good = (
        result["wrong_rows"] == 0 and result["failed_gathers"] == 0 and switches["failed"] == 0
        and max(t.slowest_ms for t in tallies) <= HARD_MS and all(modes.values())
    )
    print(json.dumps(result | {"verdict": "good" if good else "bad"}, indent=2))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
