"""A store in this process: open, gather, submit, hint, switch, release, close."""

import ctypes
import json
import time
from collections.abc import Iterable, Mapping
from ctypes import byref, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from . import native
from .errors import StoreRefused
from .inplace import InplaceTable
from .telemetry_layout import MODES

POLICIES = {"configured": 0, "zero": 1, "wait": 2}


@dataclass(frozen=True, slots=True)
class Gathered:
    """Outcome of one gather: `rows` is `(n, row_bytes)`, codes then scales."""

    status: str
    rows: NDArray[np.uint8]
    hits: int
    misses: int
    unique: int
    degraded: int
    mode: str
    elapsed_ns: int

    @property
    def ok(self) -> bool:
        return self.status == "ok"


@dataclass(frozen=True, slots=True)
class SwitchState:
    """The last mode switch: `status` is `pending` while it runs."""

    status: str
    mode: str
    done_bytes: int
    total_bytes: int
    elapsed_ns: int
    reason: str


def config_text(
    tables: Iterable[Path | InplaceTable], settings: Mapping[str, str | int | Path]
) -> str:
    """The core's configuration: one `key=value` line per setting."""
    lines = [
        f"inplace={table.config_value()}" if isinstance(table, InplaceTable) else f"table={table}"
        for table in tables
    ]
    lines += [f"{key}={value}" for key, value in settings.items()]
    return "\n".join(lines)


class Store:
    """The row store; every method may be called from any thread, one gather per lane at a time."""

    def __init__(
        self,
        *tables: Path | InplaceTable,
        inject: bool = False,
        **settings: str | int | Path,
    ) -> None:
        self._core = native.load(native.INJECT_LIBRARY if inject else native.LIBRARY)
        self._handle = c_void_p()
        text = config_text(tables, settings)
        native.check(self._core, self._core.rs_open(text.encode(), byref(self._handle)))
        self.row_bytes: int = self.info()["row_bytes"]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def core(self) -> ctypes.CDLL:
        """The loaded library, for callers that use the C ABI themselves."""
        return self._core

    @property
    def handle(self) -> c_void_p:
        """The `rs_store*` of this store."""
        return self._handle

    def close(self) -> None:
        """Stop all threads and free the table; closing twice is harmless."""
        if self._handle:
            handle, self._handle = self._handle, c_void_p()
            native.check(self._core, self._core.rs_close(handle))

    def info(self) -> dict[str, Any]:
        """Effective settings, and every automatic choice with its reason."""
        needed = self._core.rs_info(self._handle, None, 0)
        buffer = ctypes.create_string_buffer(needed + 256)
        self._core.rs_info(self._handle, buffer, len(buffer))
        info: dict[str, Any] = json.loads(buffer.value)
        return info

    def request(
        self,
        layer: int,
        ids: NDArray[np.int64],
        out: NDArray[np.uint8],
        *,
        lane: int = 0,
        deadline_ms: float = 0,
        policy: str = "configured",
    ) -> native.Request:
        """A request for the C ABI; the caller keeps `ids` and `out` alive."""
        return native.Request(
            ids=native.address(ids),
            codes=native.address(out),
            count=len(ids),
            layer=layer,
            lane=lane,
            deadline_ns=int(deadline_ms * 1e6),
            policy=POLICIES[policy],
        )

    def gather(
        self,
        layer: int,
        ids: NDArray[np.int64],
        *,
        out: NDArray[np.uint8] | None = None,
        lane: int = 0,
        deadline_ms: float = 0,
        policy: str = "configured",
    ) -> Gathered:
        """Read rows by global id; negative ids give zeros. Errors are in the result's status."""
        ids = np.ascontiguousarray(ids, dtype=np.int64)
        if out is None:
            out = np.empty((len(ids), self.row_bytes), dtype=np.uint8)
        request = self.request(
            layer, ids, out, lane=lane, deadline_ms=deadline_ms, policy=policy
        )
        self._core.rs_gather(self._handle, byref(request))
        return self._outcome(request, out)

    def _outcome(self, request: native.Request, out: NDArray[np.uint8]) -> Gathered:
        return Gathered(
            status=self.status_name(request.status),
            rows=out,
            hits=request.hits,
            misses=request.misses,
            unique=request.unique,
            degraded=request.degraded,
            mode=MODES[request.mode],
            elapsed_ns=request.elapsed_ns,
        )

    def submit(
        self, layer: int, ids: NDArray[np.int64], out: NDArray[np.uint8], *, lane: int = 0
    ) -> int:
        """Start a gather on a lane and return its ticket; keep `ids` and `out` until it ended."""
        ticket = c_uint64()
        request = self.request(layer, ids, out, lane=lane)
        native.check(
            self._core, self._core.rs_submit(self._handle, byref(request), byref(ticket))
        )
        return ticket.value

    def wait(
        self, lane: int, ticket: int, out: NDArray[np.uint8], *, timeout_s: float
    ) -> Gathered | None:
        """The outcome of a ticket, or None when it has not ended within `timeout_s`."""
        request = native.Request()
        status = self._core.rs_wait(
            self._handle, lane, ticket, int(timeout_s * 1e9), byref(request)
        )
        if status == native.PENDING:
            return None
        native.check(self._core, status)
        return self._outcome(request, out)

    def hint(self, layer: int, ids: NDArray[np.int64]) -> None:
        """Rows that will probably be wanted soon; read at low priority into the cache."""
        ids = np.ascontiguousarray(ids, dtype=np.int64)
        status = self._core.rs_hint(self._handle, layer, native.address(ids), len(ids))
        native.check(self._core, status)

    def selftest(self, rows: int = 1000) -> None:
        """Gather evenly spaced rows and compare them with plain reads of the file."""
        native.check(self._core, self._core.rs_selftest(self._handle, rows))

    def release(self, lane: int, status: int = 5) -> None:
        """End the gather inside a lane with a status (default: released)."""
        native.check(self._core, self._core.rs_lane_release(self._handle, lane, status))

    def set_mode(self, target: str) -> None:
        """Start switching to `nvme`, `ram` or `legacy` while serving."""
        native.check(self._core, self._core.rs_mode_set(self._handle, target.encode()))

    def switch_state(self) -> SwitchState:
        """Where the last switch stands."""
        ticket = native.ModeTicket()
        self._core.rs_mode_poll(self._handle, byref(ticket))
        return SwitchState(
            status=self.status_name(ticket.status),
            mode=MODES[ticket.mode],
            done_bytes=ticket.done_bytes,
            total_bytes=ticket.total_bytes,
            elapsed_ns=ticket.elapsed_ns,
            reason=ticket.reason.decode(errors="replace"),
        )

    def switch(self, target: str, *, timeout_s: float = 60) -> SwitchState:
        """Switch and wait for the outcome, which is in the returned status."""
        self.set_mode(target)
        give_up = time.monotonic() + timeout_s
        while (state := self.switch_state()).status == "pending":
            if time.monotonic() > give_up:
                raise StoreRefused("pending", f"the switch to {target} takes over {timeout_s} s")
            time.sleep(0.001)
        return state

    def status_name(self, status: int) -> str:
        """Name of an `rs_status`."""
        name: bytes = self._core.rs_status_name(status)
        return name.decode()

    def inject(self, spec: str) -> None:
        """Inject a fault; only in a store opened with `inject=True`."""
        native.check(self._core, self._core.rs_inject(self._handle, spec.encode()))


class Node:
    """One captured gather with fixed buffers whose row count is read when it runs."""

    def __init__(
        self, store: Store, layer: int, ids: NDArray[np.int64], out: NDArray[np.uint8], lane: int
    ) -> None:
        self._store, self._ids, self._out = store, ids, out
        self.count, self.status, self.sequence = c_uint32(0), c_uint32(0), c_uint64(0)
        self.ready, self.done = c_uint32(0), c_uint32(0)
        self.lane = lane
        self.handle = c_void_p()
        fixed = store.request(layer, ids, out, lane=lane)
        status = store.core.rs_node_create(
            store.handle, byref(fixed), byref(self.count), byref(self.status),
            byref(self.sequence), byref(self.handle),
        )  # fmt: skip
        native.check(store.core, status)

    def run(self) -> None:
        """Run it here, as a host callback would."""
        self._store.core.rs_hostfn(self.handle)

    def bind_flags(self) -> None:
        """Let a poller serve it whenever `ready` becomes non-zero; `done` is 1 + status."""
        status = self._store.core.rs_lane_bind_flags(
            self._store.handle, self.handle, byref(self.ready), byref(self.done)
        )
        native.check(self._store.core, status)

    def unbind_flags(self) -> None:
        """Stop the poller of this node's lane."""
        self._store.core.rs_lane_unbind_flags(self._store.handle, self.lane)

    def destroy(self) -> None:
        """Free the descriptor; it must not be running."""
        handle, self.handle = self.handle, c_void_p()
        self._store.core.rs_node_destroy(handle)


class CallbackLane:
    """The CPU twin of CUDA's callback thread: one thread runs everything launched, in order."""

    def __init__(self, store: Store, capacity: int = 64) -> None:
        self._store = store
        self._handle = c_void_p()
        status = store.core.rs_callback_lane_create(store.handle, capacity, byref(self._handle))
        native.check(store.core, status)

    def launch(self, node: Node) -> int:
        """Queue a node's gather; returns its ticket."""
        ticket = c_uint64()
        status = self._store.core.rs_callback_lane_launch(
            self._handle, node.handle, byref(ticket)
        )
        native.check(self._store.core, status)
        return ticket.value

    def occupy(self, credits: c_uint32) -> int:
        """Queue a callback that spins until `credits` is non-zero, as a starved proxy does."""
        ticket = c_uint64()
        function = ctypes.cast(self._store.core.rs_spin_for_credit, c_void_p)
        status = self._store.core.rs_callback_lane_call(
            self._handle, function, ctypes.addressof(credits), byref(ticket)
        )
        native.check(self._store.core, status)
        return ticket.value

    def wait(self, ticket: int, *, timeout_s: float) -> bool:
        """Whether the ticket has ended within `timeout_s`."""
        status = self._store.core.rs_callback_lane_wait(
            self._handle, ticket, int(timeout_s * 1e9)
        )
        return int(status) == native.OK

    def close(self) -> None:
        """Drop what has not started and end the thread."""
        handle, self._handle = self._handle, c_void_p()
        self._store.core.rs_callback_lane_destroy(handle)
