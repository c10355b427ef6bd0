"""Faults for drills, switched at run time; only an engine started with `faults_allowed` takes them.

| kind | what happens on the given rank |
|---|---|
| `store_stall` | the next `count` reads of the store take `ms` |
| `lock_holder` | a thread takes a lock of the `legacy` store and keeps it |
| `delays` | the callback thread is busy before a step; `histogram` is [[ms, weight], ...] |
| `extra_collective` | it issues `count` all-reduces that its peers do not: ranks diverge |
| `skip_collective` | it leaves out its next `count` all-reduces |
| `gil_hold` | a native call keeps the interpreter lock for `ms` |
| `clear` | all of these that can end, end |
"""

import ctypes
import threading
from typing import Any

import numpy as np

from .collectives import Collectives
from .handoff import CpuFeed, RowFeed
from .logs import say
from .modelfile import NgramHash
from .rowstore import Store, StoreRefused

SPARE_LANE = 3
FOREVER_MS = 1000 * 3600 * 24
KINDS = ("store_stall", "lock_holder", "delays", "extra_collective", "skip_collective",
         "gil_hold", "clear")  # fmt: skip


def problem(spec: dict[str, Any]) -> str:
    """What is wrong with a fault that a client asks for; empty when nothing is."""
    if spec.get("kind") not in KINDS:
        return f"kind must be one of {', '.join(KINDS)}"
    numbers = {name: spec.get(name, 0) for name in ("rank", "ms", "count")}
    if bad := [name for name, value in numbers.items() if type(value) is not int or value < 0]:
        return f"{', '.join(bad)} must be whole numbers, not negative"
    weights = spec.get("histogram", [[1, 1]])
    if not isinstance(weights, list) or not weights or not all(
        isinstance(one, list) and len(one) == 2 and all(type(n) in (int, float) for n in one)
        for one in weights
    ):  # fmt: skip
        return "histogram must be a list of [ms, weight]"
    return ""


class Faults:
    """The faults of one rank."""

    def __init__(
        self, tag: str, store: Store, feed: RowFeed, peers: Collectives, hashing: NgramHash,
        layer: int,
    ) -> None:  # fmt: skip
        self._tag, self._store, self._feed, self._peers = tag, store, feed, peers
        self._layer, self._row = layer, hashing.ids(np.zeros(4, dtype=np.int64)).reshape(-1)[:1]
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
            self._peers.extra = count
        elif kind == "skip_collective":
            self._peers.skip = count
        elif kind == "gil_hold":
            # Called through PyDLL, a foreign function keeps the interpreter lock.
            ctypes.PyDLL(None).usleep(ctypes.c_uint(ms * 1000))
        else:
            self._store.inject("clear")
            self._feed.delay_ms = None
            self._peers.extra = self._peers.skip = 0

    def _hold_lock(self) -> None:
        self._store.inject(f"fault=stall ms={FOREVER_MS} count=1")
        out = np.empty((1, self._store.row_bytes), dtype=np.uint8)
        try:
            self._store.gather(self._layer, self._row, out=out, lane=SPARE_LANE)
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
