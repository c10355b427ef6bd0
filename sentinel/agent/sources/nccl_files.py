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
from sentinel.model.observation import Observation
from sentinel.model.stamp import Stamp

TELL_EVERY_S = 10.0
FILES_MAX = 256
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

    @property
    def lost_bytes(self) -> int:
        """Bytes skipped because files grew faster than they were read."""
        return sum(tail.lost_bytes for tail, _ in self._readers.values())

    def poll(self, now: Stamp) -> Iterator[Said]:
        """Life-cycle lines at once, counts now and then."""
        self._find()
        tell = now.mono_s - self._told_s >= TELL_EVERY_S
        for pid, (tail, reader) in self._readers.items():
            for data in tail.read():
                yield from self._said(pid, reader.feed(data), now)
            if tell:
                yield from self._said(pid, reader.flush(), now)
        if tell:
            self._told_s = now.mono_s

    def tell_now(self) -> None:
        """Have the counts told at the next poll (a capture wants them fresh)."""
        self._told_s = 0.0

    def close(self) -> None:
        """Let go of the files."""
        for tail, _ in self._readers.values():
            tail.close()

    def _said(self, pid: int, observations: Iterator[Observation], now: Stamp) -> Iterator[Said]:
        for seen in observations:
            at_s = now.wall_s if seen.at_s is None else seen.at_s
            yield Said(self.engine.key, msgspec.structs.replace(seen, at_s=at_s, pid=pid))  # type: ignore[arg-type]

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
