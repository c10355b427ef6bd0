"""What the telemetry page costs: the same RAM and cached gathers with and without it.

Pairs are interleaved and the order within a pair alternates, so that drift cancels.
"""

import argparse
import statistics
import time
from pathlib import Path

import numpy as np

import methods
from intervals import bootstrap
from methods import ROW_BYTES, StoreMethod
from workloads import DECODE_ROWS, Popularity


def median_us(method: StoreMethod, batches: list[np.ndarray], out: np.ndarray) -> float:
    """Median time of one gather over all batches, in microseconds."""
    took = []
    for ids in batches:
        began = time.perf_counter_ns()
        method.gather(ids, out)
        took.append(time.perf_counter_ns() - began)
    return statistics.median(took) / 1e3


def main() -> None:
    """Print one line per mode: cost in per cent with its interval."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--pairs", type=int, default=40)
    options = parser.parse_args()
    table = methods.make_table(options.folder, options.rows)
    page = options.folder / "cost.page"
    sampler = Popularity(options.rows, 0).sampler(3)
    batches = [sampler.batch(DECODE_ROWS) for _ in range(2000)]
    out = np.empty((DECODE_ROWS, ROW_BYTES), dtype=np.uint8)
    everything = options.rows * 400
    for mode, settings in (
        ("ram", {"mode": "ram"}),
        ("nvme, all hits", {"mode": "nvme", "cache_bytes": everything, "prefault": "no",
                            "cache_policy": "clk3"}),
        ("nvme, all misses", {"mode": "nvme", "cache_policy": "none"}),
    ):
        used = batches[:100] if "misses" in mode else batches
        on = StoreMethod("on", table, telemetry=page, **settings)
        off = StoreMethod("off", table, **settings)
        for method in (on, off):
            median_us(method, batches if "misses" not in mode else used, out)
        costs, base = [], []
        for pair in range(options.pairs):
            order = (on, off) if pair % 2 else (off, on)
            times = {method.name: median_us(method, used, out) for method in order}
            costs.append(100 * (times["on"] / times["off"] - 1))
            base.append(times["off"])
        print(f"{mode}: {bootstrap(base).text(1)} us without, telemetry costs "
              f"{bootstrap(costs).text(2)} %", flush=True)
        on.close()
        off.close()


if __name__ == "__main__":
    main()
