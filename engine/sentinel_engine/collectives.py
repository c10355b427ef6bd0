"""Collectives of the ranks, each numbered in a ring that other processes can read.

The ring is a mapped file per rank: a header of counters, then the last `CAPACITY` collectives with
start and end. It is the evidence that a debug log lacks: what was begun and not finished, and how
often captured graphs, whose collectives no host code issues, were replayed.
"""

import mmap
import os
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

MAGIC = b"SECRING1"
CAPACITY = 4096
HEADER_BYTES = 4096
TIMEOUT = timedelta(hours=24)
"""Longer than any watchdog: a hang is ended by the watchdog, which leaves evidence."""

_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
"""The newer name, where it exists: the older one warns."""

OPS = ("all_reduce", "all_gather", "broadcast", "barrier")
COUNTERS = ("issued", "completed", "captured", "replays", "enqueued", "forwards")
"""`enqueued` counts what the host has committed to: a step's collectives when it is launched, as
NCCL's debug log does; `issued` and `completed` count what has begun and ended. A rank that waits
for rows has launched the same step as its peers, which wait for it inside the collective.
"""
Issue = Callable[[dist.ProcessGroup | None], object]

_IDENTITY = struct.Struct("<8sIIIIQ")
_COUNTER = struct.Struct("<Q")
_COUNTERS_AT = 64
_RECORD = struct.Struct("<QIIQQQ16x")
_END_AT = 32


@dataclass(frozen=True, slots=True)
class Collective:
    """One numbered collective; `end_ns` is 0 while it runs. `group` 0 is control, 1 the model."""

    number: int
    op: str
    group: int
    bytes: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class RingView:
    """A ring as read from outside: counters by name and the newest collectives, oldest first."""

    rank: int
    world: int
    pid: int
    counters: dict[str, int]
    collectives: tuple[Collective, ...]


class Ring:
    """The writer; one thread of one process."""

    def __init__(self, path: Path, rank: int, world: int) -> None:
        size = HEADER_BYTES + CAPACITY * _RECORD.size
        path.unlink(missing_ok=True)
        path.write_bytes(bytes(size))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), size)
        started = time.monotonic_ns()
        self._map[: _IDENTITY.size] = _IDENTITY.pack(
            MAGIC, rank, world, os.getpid(), CAPACITY, started
        )
        self._counts = dict.fromkeys(COUNTERS, 0)

    def add(self, name: str, by: int = 1) -> None:
        """Raise a counter."""
        self._counts[name] += by
        at = _COUNTERS_AT + _COUNTER.size * COUNTERS.index(name)
        _COUNTER.pack_into(self._map, at, self._counts[name])

    def count(self, name: str) -> int:
        """A counter's value."""
        return self._counts[name]

    def begin(self, op: int, group: int, size: int) -> int:
        """Number a collective that is about to be issued; returns its place in the ring."""
        number = self._counts["issued"]
        at = HEADER_BYTES + number % CAPACITY * _RECORD.size
        _RECORD.pack_into(self._map, at, number, op, group, size, time.monotonic_ns(), 0)
        self.add("issued")
        return at

    def end(self, at: int) -> None:
        """Note that the collective whose place is `at` has returned."""
        _COUNTER.pack_into(self._map, at + _END_AT, time.monotonic_ns())
        self.add("completed")


def read_ring(path: Path) -> RingView:
    """Read a ring of a living, stuck or dead rank; ValueError when the file is none."""
    content = path.read_bytes()
    if not content.startswith(MAGIC):
        raise ValueError(f"{path} is not a ring of collectives")
    _, rank, world, pid, capacity, _ = _IDENTITY.unpack_from(content)
    counters = {
        name: _COUNTER.unpack_from(content, _COUNTERS_AT + _COUNTER.size * k)[0]
        for k, name in enumerate(COUNTERS)
    }
    newest = counters["issued"]
    found = []
    for number in range(max(0, newest - capacity), newest):
        at = HEADER_BYTES + number % capacity * _RECORD.size
        stored, op, group, size, start_ns, end_ns = _RECORD.unpack_from(content, at)
        if stored == number:
            found.append(Collective(number, OPS[op], group, size, start_ns, end_ns))
    return RingView(rank, world, pid, counters, tuple(found))


class Collectives:
    """The collectives of one rank over two groups: gloo for control, gloo or NCCL for the model.

    A single rank needs no library: every collective is then the identity, and still numbered.
    """

    def __init__(self, ring: Ring, rank: int, world: int, device: torch.device) -> None:
        self.ring, self.rank, self.world = ring, rank, world
        self._groups: list[dist.ProcessGroup | None] = [None, None]
        if world > 1:
            dist.init_process_group(
                "gloo", init_method="env://", rank=rank, world_size=world, timeout=TIMEOUT
            )
            backend = "nccl" if device.type == "cuda" else "gloo"
            self._groups = [dist.group.WORLD, dist.new_group(backend=backend, timeout=TIMEOUT)]

    def all_reduce(self, tensor: torch.Tensor, *, group: int = 1, largest: bool = False) -> None:
        """Sum, or maximum, over all ranks, in place."""
        kind = dist.ReduceOp.MAX if largest else dist.ReduceOp.SUM
        self._numbered(
            0, group, tensor, lambda on: dist.all_reduce(tensor, op=kind, group=on)
        )

    def all_gather(self, tensor: torch.Tensor, *, group: int = 1) -> torch.Tensor:
        """The tensors of all ranks, stacked in front."""
        flat = tensor.reshape(-1)
        whole = flat.new_empty(self.world * len(flat))
        if self.world == 1:
            whole.copy_(flat)
        self._numbered(
            1, group, tensor, lambda on: _gather(whole, flat, group=on)
        )
        return whole.view(self.world, *tensor.shape)

    def broadcast(self, tensor: torch.Tensor) -> None:
        """Rank 0's tensor on every rank, in place."""
        self._numbered(2, 0, tensor, lambda on: dist.broadcast(tensor, 0, group=on))

    def barrier(self) -> None:
        """Wait for all ranks."""
        self._numbered(3, 0, torch.empty(0), lambda on: dist.barrier(group=on))

    def close(self) -> None:
        """Leave the groups."""
        if self.world > 1:
            dist.destroy_process_group()

    def _numbered(self, op: int, group: int, tensor: torch.Tensor, issue: Issue) -> None:
        size = tensor.numel() * tensor.element_size()
        if tensor.is_cuda and torch.cuda.is_current_stream_capturing():
            self.ring.add("captured")
            if self.world > 1:
                issue(self._groups[group])
            return
        if group == 0:
            self.ring.add("enqueued")
        at = self.ring.begin(op, group, size)
        if self.world > 1:
            issue(self._groups[group])
        self.ring.end(at)


def main() -> None:
    """Print rings: counters, and the collectives that have begun and not ended."""
    for name in sys.argv[1:]:
        ring = read_ring(Path(name))
        open_ones = [one for one in ring.collectives if one.end_ns == 0]
        print(f"rank {ring.rank}/{ring.world} pid {ring.pid}", ring.counters)
        for one in open_ones:
            print(f"  open: {one.op} number {one.number} group {one.group} {one.bytes} bytes")


if __name__ == "__main__":
    main()
