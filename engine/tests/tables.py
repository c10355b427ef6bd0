"""Tables whose every byte is a function of (layer, row), and processes that say when ready."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sentinel_engine.rowstore import (
    FP8,
    Header,
    HeadRange,
    Slice,
    formula_source,
    native,
    write_table,
)
from sentinel_engine.rowstore.geometry import RowFormat

LAYER = 7
# Three heads in the middle of a larger table: odd sizes, gaps, and a last page that is not full.
RANGES = (HeadRange(0, 101, 4001), HeadRange(2, 10_007, 5003), HeadRange(4, 3_000_000_019, 1009))
WAIT_S = 30.0


def make_table(
    path: Path,
    ranges: tuple[HeadRange, ...] = RANGES,
    *,
    layer: int = LAYER,
    row_format: RowFormat = FP8,
) -> Path:
    """A formula table at `path`."""
    header = Header(layer=layer, row_format=row_format, slice=Slice(ranges))
    write_table(path, header, formula_source(header))
    return path


def expected_rows(
    ids: NDArray[np.int64], *, layer: int = LAYER, row_bytes: int = 264
) -> NDArray[np.uint8]:
    """What a gather must return: formula rows, and zeros for padding."""
    rows = native.formula_rows(layer, ids, row_bytes)
    rows[ids < 0] = 0
    return rows


def some_ids(
    count: int, seed: int = 0, ranges: tuple[HeadRange, ...] = RANGES
) -> NDArray[np.int64]:
    """Random global ids of the slice."""
    part = Slice(ranges)
    everything = part.global_ids(0, part.rows)
    return np.random.default_rng(seed).choice(everything, count)


def eventually(condition: Callable[[], bool], what: str) -> None:
    """Return as soon as `condition` holds; fail after a generous deadline."""
    give_up = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < give_up, f"never happened: {what}"
        os.sched_yield()


class Child:
    """A Python child running `script`; `expect` waits for a line of its output."""

    def __init__(self, script: str, *arguments: str | Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", script, *map(str, arguments)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def expect(self, line: str) -> None:
        """The next line must be `line`; end of file shows as an empty one."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline().strip() == line

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def end(self) -> int:
        """Let it finish and return its exit status."""
        self.process.communicate(timeout=WAIT_S)
        return self.process.returncode

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()
