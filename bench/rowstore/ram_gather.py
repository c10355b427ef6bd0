"""A gather of 288 rows in RAM, timed inside the library, beside a bare loop that copies as many.

The two alternate gather by gather and draw their own ids, so both meet the same minute and the same
cold caches. `python bench/rowstore/ram_gather.py --folder DIR` prints percentiles of both with 95 %
intervals over rounds.
"""

import argparse
import subprocess
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sentinel_engine.rowstore import native

import methods
from intervals import bootstrap

SOURCE = Path(__file__).with_suffix(".cpp")
HEADERS = SOURCE.parents[2] / "engine" / "rowstore"
LIBRARY = Path(native.__file__).with_name(native.LIBRARY)
PAIRS = 20_000
DEADLINE_S = 300.0


def build(folder: Path) -> Path:
    """Compile the timing program; raises CalledProcessError when there is no compiler."""
    program = folder / "ram_gather"
    argv = ["g++", "-std=c++20", "-O2", "-I", HEADERS, "-o", program, SOURCE, "-ldl"]
    subprocess.run(argv, check=True, timeout=DEADLINE_S)
    return program


def times_us(program: Path, table: Path, rows: int) -> NDArray[np.float64]:
    """Microseconds of the store and of the bare loop, a column each, over fresh memory."""
    argv = [program, LIBRARY, table, str(rows), str(PAIRS)]
    ran = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=DEADLINE_S)
    return np.array([line.split() for line in ran.stdout.splitlines()], dtype=np.float64) / 1e3


def main() -> None:
    """Print one line a percentile."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    table = methods.make_table(options.folder, options.rows)
    program = build(options.folder)
    rounds = [times_us(program, table, options.rows) for _ in range(options.rounds)]
    for share in (1, 10, 50, 90, 99):
        store, bare = (
            bootstrap([float(np.percentile(found[:, column], share)) for found in rounds])
            for column in (0, 1)
        )
        print(f"p{share}: store {store.text(1)} us, bare loop {bare.text(1)} us")


if __name__ == "__main__":
    main()
