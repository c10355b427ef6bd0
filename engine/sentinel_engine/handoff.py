"""How the rows of a step get from the store into the forward pass.

Ids depend on tokens alone, so a step states them before it starts. On a CPU the gathers run on a
thread that executes in order, as CUDA's callback thread does, and a layer waits for its own. On a
GPU the gather is a host callback in the stream, a poller released by memory operations, or done
before the launch; the copy to the device is part of the (captured) step in each case.
"""

import ctypes
import threading
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .rowstore import CallbackLane, Node, Store

WAIT_S = 3600.0
_WAIT_GREATER_OR_EQUAL = 0


class RowFeed:
    """Buffers and gathers of one rank, one lane a layer; `outcome` tells after the step."""

    def __init__(
        self, store: Store, layers: tuple[int, ...], heads: int, positions: int,
        device: torch.device,
    ) -> None:  # fmt: skip
        self.store, self.heads = store, heads
        self.delay_ms: Callable[[], float] | None = None
        """Draws how long the callback thread is kept busy before a step (a fault of drills)."""
        rows, pinned = positions * heads, device.type == "cuda"
        self._ids = [torch.empty(rows, dtype=torch.int64, pin_memory=pinned) for _ in layers]
        self._rows = [
            torch.zeros((rows, store.row_bytes), dtype=torch.uint8, pin_memory=pinned)
            for _ in layers
        ]
        self._nodes = [
            Node(store, layer, self._ids[lane].numpy(), self._rows[lane].numpy(), lane)
            for lane, layer in enumerate(layers)
        ]
        self._shape = (0, 0)

    def stage(self, ids: list[NDArray[np.int64]]) -> None:
        """Ids of a step `(batch, tokens, heads)` a layer; negative ones are padding."""
        self._shape = (ids[0].shape[0], ids[0].shape[1])
        for node, buffer, wanted in zip(self._nodes, self._ids, ids, strict=True):
            buffer.numpy()[: wanted.size] = wanted.reshape(-1)
            node.count.value = wanted.size
        self._begin()

    def rows(self, index: int) -> Tensor:
        """Rows of the n-th Engram layer: `(batch, tokens, heads, row_bytes)`."""
        return self._take(index, self._shape[0] * self._shape[1] * self.heads).view(
            *self._shape, self.heads, -1
        )

    def outcome(self) -> str:
        """`ok`, or the status of the first gather of the finished step that failed."""
        for node in self._nodes:
            if node.status.value:
                return self.store.status_name(node.status.value)
        return "ok"

    def hint(self, layer: int, ids: NDArray[np.int64]) -> None:
        """Rows that an admitted request will want."""
        self.store.hint(layer, ids.reshape(-1))

    def _begin(self) -> None:
        raise NotImplementedError

    def _take(self, index: int, count: int) -> Tensor:
        raise NotImplementedError


class CpuFeed(RowFeed):
    """Gathers on a callback lane."""

    def __init__(
        self, store: Store, layers: tuple[int, ...], heads: int, positions: int,
        device: torch.device,
    ) -> None:  # fmt: skip
        super().__init__(store, layers, heads, positions, device)
        self._lane = CallbackLane(store)
        self._tickets = [0] * len(layers)

    def _begin(self) -> None:
        if self.delay_ms is not None:
            credit = ctypes.c_uint32(0)
            self._lane.occupy(credit)
            threading.Timer(self.delay_ms() / 1000, setattr, (credit, "value", 1)).start()
        for lane, node in enumerate(self._nodes):
            self._tickets[lane] = self._lane.launch(node)

    def _take(self, index: int, count: int) -> Tensor:
        while not self._lane.wait(self._tickets[index], timeout_s=WAIT_S):
            pass
        return self._rows[index][:count]


class CudaFeed(RowFeed):
    """Gathers by host callback, memory operation, or before the launch."""

    def __init__(
        self, store: Store, layers: tuple[int, ...], heads: int, positions: int,
        device: torch.device, handoff: str,
    ) -> None:  # fmt: skip
        super().__init__(store, layers, heads, positions, device)
        self._handoff = handoff
        self._on_device = [one.to(device) for one in self._rows]
        major = (torch.version.cuda or "0").partition(".")[0]
        self._runtime = ctypes.CDLL(f"libcudart.so.{major}")
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._entry = ctypes.cast(store.core.rs_hostfn, ctypes.c_void_p)
        self._flags = torch.zeros((len(layers), 2, 16), dtype=torch.int32, pin_memory=True)
        if handoff == "memop":
            for lane, node in enumerate(self._nodes):
                node.ready = ctypes.c_uint32.from_address(self._flags[lane, 0].data_ptr())
                node.done = ctypes.c_uint32.from_address(self._flags[lane, 1].data_ptr())
                node.bind_flags()

    def _begin(self) -> None:
        for node in self._nodes:
            if self._handoff == "prestage":
                node.run()
            elif self._handoff == "memop":
                node.done.value = 0

    def _take(self, index: int, count: int) -> Tensor:
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        if self._handoff == "callback":
            self._check(self._runtime.cudaLaunchHostFunc(
                stream, self._entry, self._nodes[index].handle
            ))  # fmt: skip
        elif self._handoff == "memop":
            ready = ctypes.c_uint64(self._flags[index, 0].data_ptr())
            done = ctypes.c_uint64(self._flags[index, 1].data_ptr())
            one, plain = ctypes.c_uint32(1), ctypes.c_uint32(_WAIT_GREATER_OR_EQUAL)
            self._check(self._driver.cuStreamWriteValue32_v2(stream, ready, one, plain))
            self._check(self._driver.cuStreamWaitValue32_v2(stream, done, one, plain))
        target = self._on_device[index][:count]
        target.copy_(self._rows[index][:count], non_blocking=True)
        return target

    @staticmethod
    def _check(status: int) -> None:
        if status:
            raise RuntimeError(f"CUDA refused the row store's hand-off with status {status}")
