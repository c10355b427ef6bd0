"""Follows an append-only file through everything that happens to logs.

Handled: growth, rename-and-recreate (the old file is read to its end first), copy-truncate (the size shrinks),
a file that does not exist yet, partial last lines (left to the reader), floods (what exceeds the backlog is skipped and
counted). Sizes are polled, because change notices are silent on network file systems and storm on busy ones.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

READ_BYTES = 1 << 20
BACKLOG_BYTES = 8 << 20


@dataclass(slots=True)
class Tail:
    """`read` returns what was appended since. `history_bytes`: how much of an existing file is read at first."""

    path: Path
    history_bytes: int = 256 << 10
    backlog_bytes: int = BACKLOG_BYTES
    lost_bytes: int = 0
    rotations: int = 0
    why: str = ""
    _fd: int = -1
    _inode: tuple[int, int] = (0, 0)
    _offset: int = 0
    _opened: bool = field(default=False)

    def read(self) -> Iterator[bytes]:
        """Chunks that are new, old file first after a rotation. Errors end up in `why`, never raised."""
        if self._fd >= 0:
            yield from self._drain()
        if self._is_replaced():
            self._open()
            yield from self._drain()

    def close(self) -> None:
        """Let go of the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _drain(self) -> Iterator[bytes]:
        size = os.fstat(self._fd).st_size
        if size < self._offset:
            self._offset = 0
            self.rotations += 1
        behind = size - self._offset
        if behind > self.backlog_bytes:
            self.lost_bytes += behind - self.backlog_bytes
            self._offset = size - self.backlog_bytes
            # The skip lands inside a line; its rest must not look like a line of its own.
            yield b"\n"
        while self._offset < size:
            try:
                data = os.pread(self._fd, min(READ_BYTES, size - self._offset), self._offset)
            except OSError as error:
                self.why = f"{self.path}: {error.strerror}"
                return
            if not data:
                return
            self._offset += len(data)
            yield data

    def _is_replaced(self) -> bool:
        try:
            found = self.path.stat()
        except OSError as error:
            self.why = f"{self.path}: {error.strerror}"
            return False
        return self._fd < 0 or (found.st_dev, found.st_ino) != self._inode

    def _open(self) -> None:
        replaced = self._opened
        self.close()
        try:
            self._fd = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            self.why = f"{self.path}: {error.strerror}; the agent needs read access to the engine's log"
            return
        found = os.fstat(self._fd)
        self._inode = (found.st_dev, found.st_ino)
        self._offset = 0 if replaced else max(0, found.st_size - self.history_bytes)
        self.rotations += replaced
        self._opened = True
        self.why = ""
