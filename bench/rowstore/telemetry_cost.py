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
from workloads import DECODE_ROWS, Ids, Popularity

PAIRS = 4


def median_us(method: StoreMethod, batches: list[Ids], out: methods.Rows) -> float:
    """Median time of one gather over all batches, in microseconds."""
    took = []
    for ids in batches:
        began = time.perf_counter_ns()
        method.gather(ids, out)
        took.append(time.perf_counter_ns() - began)
    return statistics.median(took) / 1e3


def costs_of_round(
    table: Path, page: Path, settings: dict[str, str | int], batches: list[Ids], on_first: bool
) -> list[tuple[float, float]]:
    """(microseconds without, cost in per cent) of some pairs over freshly opened stores.

    Where the pages of a store happen to lie changes its speed by more than telemetry does, so
    every round gets new memory, and the order of opening alternates.
    """
    out = np.empty((DECODE_ROWS, ROW_BYTES), dtype=np.uint8)
    names = ("on", "off") if on_first else ("off", "on")
    stores = {
        name: StoreMethod(name, table, telemetry=page if name == "on" else "off", **settings)
        for name in names
    }
    for method in stores.values():
        median_us(method, batches, out)
    found = []
    for pair in range(PAIRS):
        order = names if pair % 2 else names[::-1]
        times = {name: median_us(stores[name], batches, out) for name in order}
        found.append((times["off"], 100 * (times["on"] / times["off"] - 1)))
    for method in stores.values():
        method.close()
    return found


def main() -> None:
    """Print one line per mode: cost in per cent with its interval over rounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=16)
    options = parser.parse_args()
    table = methods.make_table(options.folder, options.rows)
    page = options.folder / "cost.page"
    sampler = Popularity(options.rows, 0).sampler(3)
    batches = [sampler.batch(DECODE_ROWS) for _ in range(1000)]
    hits: dict[str, str | int] = {
        "mode": "nvme", "cache_bytes": options.rows * 400, "prefault": "no",
        "cache_policy": "clk3",
    }  # fmt: skip
    modes: dict[str, tuple[dict[str, str | int], list[Ids]]] = {
        "ram": ({"mode": "ram"}, batches),
        "nvme, nearly all hits": (hits, batches),
        "nvme, all misses": ({"mode": "nvme", "cache_policy": "none"}, batches[:60]),
    }
    for mode, (settings, used) in modes.items():
        rounds = [
            costs_of_round(table, page, settings, used, bool(k % 2))
            for k in range(options.rounds)
        ]
        base = bootstrap([statistics.median(us for us, _ in found) for found in rounds])
        cost = bootstrap([statistics.median(cost for _, cost in found) for found in rounds])
        print(f"{mode}: {base.text(1)} us without, telemetry costs {cost.text(2)} %", flush=True)


if __name__ == "__main__":
    main()
