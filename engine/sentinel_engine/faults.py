"""Faults for drills, switched at run time; only an engine started with `faults_allowed` takes them.

| kind | what happens on the given rank |
|---|---|
| `store_stall` | the next `count` reads of the store take `ms` |
| `lock_holder` | a thread takes a lock of the `legacy` store and keeps it |
| `delays` | the callback thread is busy before a step; `histogram` is [[ms, weight], ...] |
| `extra_collective` | its next `count` eager steps issue one more collective |
| `skip_collective` | its next `count` eager steps leave one out |
| `gil_hold` | a native call keeps the interpreter lock for `ms` |
| `clear` | all of these that can end, end |
"""

import ctypes
import threading
from typing import Any

import numpy as np

from .handoff import CpuFeed
from .logs import say
from .modelfile import HISTORY
from .rowstore import Store, StoreRefused
from .runner import Runner

FOREVER_MS = 1000 * 3600 * 24


class Faults:
    """The faults of one rank."""

    def __init__(self, tag: str, store: Store, runner: Runner) -> None:
        self._tag, self._store, self._runner, self._feed = tag, store, runner, runner.feed
        layers = runner.model.model.engram_layers
        self._layer, self._spare_lane = layers[0], len(layers)
        self._row = runner.hashes[0].ids(np.zeros(HISTORY + 1, dtype=np.int64)).reshape(-1)[:1]
        self._random = np.random.default_rng(0)

    def apply(self, spec: dict[str, Any]) -> None:
        """Start, or clear, a fault on this rank."""
        kind, ms, count = spec["kind"], spec.get("ms", 1000), spec.get("count", 1)
        say(self._tag, f"Fault {kind} {spec}")
        if kind == "store_stall":
            self._store.inject(f"fault=stall ms={ms} count={count}")
        elif kind == "lock_holder":
            threading.Thread(target=self._hold_lock, name="lock holder", daemon=True).start()
        elif kind == "delays":
            self._delay(spec.get("histogram", [[ms, 1]]))
        elif kind == "extra_collective":
            self._runner.extra = count
        elif kind == "skip_collective":
            self._runner.skip = count
        elif kind == "gil_hold":
            # Called through PyDLL, a foreign function keeps the interpreter lock.
            ctypes.PyDLL(None).usleep(ctypes.c_uint(ms * 1000))
        else:
            self._store.inject("clear")
            self._feed.delay_ms = None
            self._runner.extra = self._runner.skip = 0

    def _hold_lock(self) -> None:
        self._store.inject(f"fault=stall ms={FOREVER_MS} count=1")
        out = np.empty((1, self._store.row_bytes), dtype=np.uint8)
        try:
            self._store.gather(self._layer, self._row, out=out, lane=self._spare_lane)
        except StoreRefused as error:
            say(self._tag, f"The lock holder ended: {error}")

    def _delay(self, histogram: list[list[float]]) -> None:
        if not isinstance(self._feed, CpuFeed):
            say(self._tag, "Fault delays needs the callback lane of a CPU engine; ignored")
            return
        values, weights = (np.array(one, dtype=np.float64) for one in zip(*histogram, strict=True))
        self._feed.delay_ms = lambda: float(
            self._random.choice(values, p=weights / weights.sum())
        )
