"""What the telemetry page costs: the same RAM and cached gathers with and without it.

The two take turns gather by gather, so that drift and the neighbours' noise meet both.
"""

import argparse
import contextlib
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from sentinel_engine.rowstore.keeper import Keeper

import methods
from intervals import bootstrap
from methods import ROW_BYTES, StoreMethod
from workloads import DECODE_ROWS, Ids, Popularity

PAIRS = 4
ON = "on"
NAMES = (ON, "off")
Settings = dict[str, str | int]


def pair_medians_us(
    stores: dict[str, StoreMethod], batches: list[Ids], out: methods.Rows, pair: int
) -> tuple[float, float]:
    """Median microseconds of a gather (with, without) telemetry, turn about, each on fresh ids.

    What the one draws in one pair the other draws in the next.
    """
    took: dict[str, list[int]] = {name: [] for name in stores}
    for k, ids in enumerate(batches):
        name = NAMES[(k + k // 2 + pair) % 2]
        began = time.perf_counter_ns()
        stores[name].gather(ids, out)
        took[name].append(time.perf_counter_ns() - began)
    on, off = (statistics.median(took[name]) / 1e3 for name in NAMES)
    return on, off


def costs_of_round(
    table: Path, page: Path, settings: Settings, batches: list[Ids]
) -> list[tuple[float, float]]:
    """(microseconds without, cost in per cent) of some pairs over freshly opened stores.

    Where the pages of a cache happen to lie changes its speed by more than telemetry does, so
    every round gets new memory. In RAM both read the same memory, that of a keeper.
    """
    out = np.empty((DECODE_ROWS, ROW_BYTES), dtype=np.uint8)
    stores = {
        name: StoreMethod(name, table, telemetry=page if name == ON else "off", **settings)
        for name in NAMES
    }
    for method in stores.values():
        for ids in batches:
            method.gather(ids, out)
    times = [pair_medians_us(stores, batches, out, pair) for pair in range(PAIRS)]
    for method in stores.values():
        method.close()
    return [(off, 100 * (on / off - 1)) for on, off in times]


@contextlib.contextmanager
def kept(table: Path) -> Iterator[Path]:
    """The socket of a keeper that holds the table."""
    with tempfile.TemporaryDirectory() as folder:
        address = Path(folder) / "keeper"
        keeper = Keeper(address, [table], threads=2, reserve_bytes=0)
        serving = threading.Thread(target=keeper.serve, args=(lambda _: None,))
        serving.start()
        try:
            yield address
        finally:
            keeper.stop()
            serving.join()


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
    hits: Settings = {
        "mode": "nvme", "cache_bytes": options.rows * 400, "prefault": "no",
        "cache_policy": "clk3",
    }  # fmt: skip
    with kept(table) as keeper:
        modes: dict[str, tuple[Settings, list[Ids]]] = {
            "ram": ({"mode": "ram", "keeper": str(keeper)}, batches),
            "nvme, nearly all hits": (hits, batches),
            "nvme, all misses": ({"mode": "nvme", "cache_policy": "none"}, batches[:60]),
        }
        for mode, (settings, used) in modes.items():
            rounds = [costs_of_round(table, page, settings, used) for _ in range(options.rounds)]
            base = bootstrap([statistics.median(us for us, _ in found) for found in rounds])
            cost = bootstrap([statistics.median(cost for _, cost in found) for found in rounds])
            print(f"{mode}: {base.text(1)} us without, telemetry costs {cost.text(2)} %")


if __name__ == "__main__":
    main()
