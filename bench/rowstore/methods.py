"""Ways to gather rows, behind one interface, each checked byte for byte."""

import ctypes
import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from sentinel_engine.rowstore import FP8, Header, Slice, Store, formula_source, native, write_table

from workloads import PREFILL_ROWS, Ids

LAYER = 1
ROW_BYTES = FP8.row_bytes
PEERS_SOURCE = Path(__file__).with_name("peers.cpp")
LOAD_BLOCK_ROWS = 500_000
HARD_MS = 60_000  # a busy machine must not end the comparison

Rows = NDArray[np.uint8]


class Method(Protocol):
    """Something that fills `out` with the rows of `ids`."""

    name: str
    answers_at_once: bool = True  # False: gather() returns while rows are still on their way

    def gather(self, ids: Ids, out: Rows) -> None: ...

    def settle(self, out: Rows) -> None:
        """Wait for what is in flight; `out` then holds the rows of the last gather."""
        return

    def device_reads(self) -> int | None:
        """Reads of the device so far; None where nobody counts them."""
        return None

    def renew(self, between: Callable[[], object]) -> None:
        """Call `between`; a method that maps pages, which stay cached, lets go of them for it."""
        between()

    def close(self) -> None: ...


class WrongBytes(AssertionError):
    """A method returned something else than the rows asked for."""


def check(method: Method, ids: Ids, out: Rows) -> None:
    """Compare with the formula; a fast method that is wrong is not fast."""
    if (out[: len(ids)] != native.formula_rows(LAYER, ids, ROW_BYTES)).any():
        raise WrongBytes(method.name)


class StoreMethod(Method):
    """The row store in one of its modes."""

    def __init__(self, name: str, table: Path, **settings: str | int | Path) -> None:
        self.name = name
        self.store = Store(table, inject=False, reserve_bytes=0, hard_ms=HARD_MS,
                           hard_prefill_ms=HARD_MS, **{"lanes": 1, **settings})
        self._request = native.Request(layer=LAYER)
        self._reads = 0

    def gather(self, ids: Ids, out: Rows) -> None:
        request = self._request
        request.ids, request.codes = ids.ctypes.data, out.ctypes.data
        request.count = len(ids)
        status = self.store.core.rs_gather(self.store.handle, ctypes.byref(request))
        native.check(self.store.core, status)
        self._reads += request.misses

    def device_reads(self) -> int | None:
        return self._reads

    def close(self) -> None:
        self.store.close()


class LanesMethod(Method):
    """A store with one gather in flight per lane, as an engine with as many layers has."""

    answers_at_once = False

    def __init__(self, name: str, served: StoreMethod, lanes: int) -> None:
        self.name, self.store, self._lanes = name, served.store, lanes
        self._turn = self._reads = 0
        self._rows = [np.empty((PREFILL_ROWS, ROW_BYTES), dtype=np.uint8) for _ in range(lanes)]
        self._requests = [native.Request(layer=LAYER, lane=k) for k in range(lanes)]
        self._held: list[Ids | None] = [None] * lanes  # the store reads them until it is done
        self._tickets = [ctypes.c_uint64(0) for _ in range(lanes)]

    def gather(self, ids: Ids, out: Rows) -> None:
        lane = self._turn % self._lanes
        self._turn += 1
        self._finish(lane)
        request = self._requests[lane]
        request.ids, request.codes = ids.ctypes.data, self._rows[lane].ctypes.data
        request.count, self._held[lane] = len(ids), ids
        status = self.store.core.rs_submit(
            self.store.handle, ctypes.byref(request), ctypes.byref(self._tickets[lane])
        )
        native.check(self.store.core, status)

    def _finish(self, lane: int) -> None:
        if self._held[lane] is None:
            return
        core, result = self.store.core, native.Request()
        status = core.rs_wait(self.store.handle, lane, self._tickets[lane], HARD_MS * 1_000_000,
                              ctypes.byref(result))
        native.check(core, status)
        native.check(core, result.status)
        self._reads += result.misses
        self._held[lane] = None

    def settle(self, out: Rows) -> None:
        last = (self._turn - 1) % self._lanes
        ids = self._held[last]
        for lane in range(self._lanes):
            self._finish(lane)
        if ids is not None:
            out[: len(ids)] = self._rows[last][: len(ids)]

    def device_reads(self) -> int | None:
        return self._reads

    def close(self) -> None:
        """The store belongs to the method it was taken from."""


class PeerMethod(Method):
    """One of the ways in `peers.cpp`."""

    def __init__(self, library: ctypes.CDLL, name: str, kind: str, path: Path, arg: int) -> None:
        self.name = name
        self._library = library
        self._opening = (kind.encode(), str(path).encode(), arg)
        self._open()

    def _open(self) -> None:
        self._peer = self._library.peer_open(*self._opening)
        if not self._peer:
            raise FileNotFoundError(f"{self.name} is not available here")

    def gather(self, ids: Ids, out: Rows) -> None:
        good = self._library.peer_gather(self._peer, ids.ctypes.data, len(ids), out.ctypes.data)
        if not good:
            raise WrongBytes(f"{self.name} could not read a row")

    def renew(self, between: Callable[[], object]) -> None:
        self.close()
        between()
        self._open()

    def load_once(self, rows: int) -> None:
        """Fill a key-value peer with the whole table, in key order."""
        if self._library.peer_loaded(self._peer):
            return
        for first in range(0, rows, LOAD_BLOCK_ROWS):
            ids = np.arange(first, min(rows, first + LOAD_BLOCK_ROWS), dtype=np.int64)
            data = native.formula_rows(LAYER, ids, ROW_BYTES)
            good = self._library.peer_load(
                self._peer, ids.ctypes.data, len(ids), data.ctypes.data
            )
            if not good:
                raise OSError(f"loading {self.name} failed at row {first}")

    def close(self) -> None:
        self._library.peer_close(self._peer)


class ArrayMethod(Method):
    """A take over an array in memory: numpy, or torch when `torch_module` is given."""

    def __init__(self, name: str, gather: Callable[[Ids, Rows], None]) -> None:
        self.name = name
        self._gather = gather

    def gather(self, ids: Ids, out: Rows) -> None:
        self._gather(ids, out)

    def close(self) -> None:
        self._gather = lambda _ids, _out: None


def numpy_take(array: Rows) -> ArrayMethod:
    def gather(ids: Ids, out: Rows) -> None:
        np.take(array, ids, axis=0, out=out[: len(ids)], mode="clip")

    return ArrayMethod("numpy take", gather)


def torch_index_select(array: Rows) -> ArrayMethod | None:
    """None when torch is not installed."""
    try:
        import torch
    except ImportError:
        return None
    torch.set_num_threads(1)
    source = torch.from_numpy(array)

    def gather(ids: Ids, out: Rows) -> None:
        target = torch.from_numpy(out[: len(ids)])
        torch.index_select(source, 0, torch.from_numpy(ids), out=target)

    return ArrayMethod("torch index_select (1 thread)", gather)


def build_peers() -> ctypes.CDLL:
    """Compile the peers, with the key-value stores whose headers are installed."""
    flags: list[str] = []
    for define, header, library in (
        ("WITH_LMDB", "lmdb.h", "lmdb"), ("WITH_ROCKSDB", "rocksdb/db.h", "rocksdb"),
    ):  # fmt: skip
        if (Path("/usr/include") / header).exists():
            flags += [f"-D{define}", f"-l{library}"]
    target = Path(tempfile.mkdtemp()) / "peers.so"
    command = ["g++", "-std=c++20", "-O2", "-fPIC", "-shared", "-pthread", str(PEERS_SOURCE),
               "-o", str(target), *flags]
    subprocess.run(command, check=True)
    peers = ctypes.CDLL(str(target))
    peers.peer_open.restype = ctypes.c_void_p
    peers.peer_open.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint64)
    peers.peer_close.argtypes = (ctypes.c_void_p,)
    peers.peer_gather.argtypes = (
        ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p,
    )  # fmt: skip
    peers.peer_loaded.argtypes = (ctypes.c_void_p,)
    peers.peer_load.argtypes = (
        ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p,
    )  # fmt: skip
    return peers


def make_table(folder: Path, rows: int) -> Path:
    """The table under test; kept between runs because writing it takes longest."""
    path = folder / f"bench-{rows}.rws"
    if not path.with_name(path.name + ".manifest.json").exists():
        header = Header(layer=LAYER, row_format=FP8, slice=Slice.whole(rows))
        write_table(path, header, formula_source(header))
    return path


def fio_rate(table: Path, depth: int, seconds: float) -> dict[str, float] | None:
    """Random 4 KiB direct reads of the same file, as fast as fio can; None without fio."""
    if shutil.which("fio") is None:
        return None
    command = [
        "fio", "--name=limit", f"--filename={table}", "--rw=randread", "--bs=4k", "--direct=1",
        "--ioengine=io_uring", f"--iodepth={depth}", f"--runtime={seconds}", "--time_based",
        "--readonly", "--norandommap", "--randrepeat=0", "--output-format=json",
    ]  # fmt: skip
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    read = json.loads(run.stdout[run.stdout.index("{") :])["jobs"][0]["read"]
    return {"iops": read["iops"], "p99_us": read["clat_ns"]["percentile"]["99.000000"] / 1e3}
