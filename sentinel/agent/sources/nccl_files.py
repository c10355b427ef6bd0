"""The NCCL debug files of an engine's processes: counted as they grow, told on request and every few seconds.

`NCCL_DEBUG_FILE` may hold `%h` and `%p`; a file appears with the first line that its process prints.
"""

import socket
from collections.abc import Iterator
from pathlib import Path

import msgspec

from sentinel.agent.source import Said
from sentinel.agent.tail import Tail
from sentinel.collector import Context
from sentinel.collectors.nccl_log import NcclReader
from sentinel.model.engine import Engine
from sentinel.model.observation import Enqueues, NcclComm, Observation
from sentinel.model.stamp import Stamp

TELL_EVERY_S = 10.0
FILES_MAX = 256
NEWEST_MAX = 4096
HISTORY_BYTES = 64 << 20
BACKLOG_BYTES = 256 << 20


class NcclFiles:
    """One reader a process; counts are told every `TELL_EVERY_S`, because judgement needs only the newest."""

    every_s = 1.0

    def __init__(self, engine: Engine) -> None:
        self.name = f"nccl:{engine.key}"
        self.engine = engine
        self._readers: dict[int, tuple[Tail, NcclReader]] = {}
        self._told_s = 0.0
        self._newest: dict[tuple[int, str, str], Said] = {}
        self._fresh: set[tuple[int, str, str]] = set()
        self._again = False

    @property
    def lost_bytes(self) -> int:
        """Bytes skipped because files grew faster than they were read."""
        return sum(tail.lost_bytes for tail, _ in self._readers.values())

    def poll(self, now: Stamp) -> Iterator[Said]:
        """Life-cycle lines at once, counts now and then."""
        self._find()
        self._fresh.clear()
        tell = now.mono_s - self._told_s >= TELL_EVERY_S
        for pid, (tail, reader) in self._readers.items():
            for data in tail.read():
                yield from self._said(pid, reader.feed(data), now)
            if tell:
                yield from self._said(pid, reader.flush(), now)
        if tell:
            self._told_s = now.mono_s
        if self._again:
            self._again = False
            yield from [said for key, said in self._newest.items() if key not in self._fresh]

    def tell_now(self) -> None:
        """Have everything told at the next poll, changed or not: a capture keeps what is said while it runs."""
        self._told_s, self._again = 0.0, True

    def close(self) -> None:
        """Let go of the files."""
        for tail, _ in self._readers.values():
            tail.close()

    def _said(self, pid: int, observations: Iterator[Observation], now: Stamp) -> Iterator[Said]:
        for seen in observations:
            at_s = now.wall_s if seen.at_s is None else seen.at_s
            said = Said(self.engine.key, msgspec.structs.replace(seen, at_s=at_s, pid=pid))  # type: ignore[arg-type]
            if isinstance(seen, Enqueues | NcclComm):
                key = (pid, seen.comm, seen.event if isinstance(seen, NcclComm) else "")
                if key in self._newest or len(self._newest) < NEWEST_MAX:
                    self._newest[key] = said
                    self._fresh.add(key)
            yield said

    def _find(self) -> None:
        host = socket.gethostname().partition(".")[0]
        for process in self.engine.ranks:
            pattern = process.nccl_debug_file
            if pattern is None or process.id.pid in self._readers or len(self._readers) >= FILES_MAX:
                continue
            path = Path(pattern.replace("%h", host).replace("%p", str(process.id.pid)).replace("%%", "%"))
            if path.exists():
                tail = Tail(path, history_bytes=HISTORY_BYTES, backlog_bytes=BACKLOG_BYTES)
                self._readers[process.id.pid] = (tail, NcclReader(Context(name=str(path), year=1970)))
