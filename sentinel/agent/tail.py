"""Follows an append-only file through everything that happens to logs.

Handled: growth, rename-and-recreate (the old file is read to its end, also when its writer goes on for a while),
copy-truncate (the size shrinks, or the first bytes are others), holes that a writer without O_APPEND leaves after a
truncation, a file that does not exist yet, partial last lines (left to the reader), floods (what exceeds the backlog is
skipped up to the next line and counted). Sizes are polled, because change notices are silent on network file systems
and storm on busy ones.
"""

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

READ_BYTES = 1 << 20
BACKLOG_BYTES = 8 << 20
HEAD_BYTES = 64
LINGER_READS = 20
"""How often a renamed file is looked at again; a writer reopens its log when it is told to, not when it is renamed."""


@dataclass(slots=True)
class _Open:
    """One open file and how far it was read. `head` are its first bytes: others in their place mean a truncation."""

    fd: int
    inode: tuple[int, int]
    offset: int
    head: bytes = b""
    skipping: bool = False
    holes: bool = False
    lingers: int = LINGER_READS


@dataclass(slots=True)
class Tail:
    """`read` returns what was appended since. `history_bytes`: how much of an existing file is read at first.

    `written_s`: when the file was last written before it was read, by its own time stamp (UTC).
    """

    path: Path
    history_bytes: int = 256 << 10
    backlog_bytes: int = BACKLOG_BYTES
    lost_bytes: int = 0
    rotations: int = 0
    why: str = ""
    written_s: float = 0.0
    _file: _Open | None = field(default=None, init=False)
    _old: _Open | None = field(default=None, init=False)
    _opened: bool = field(default=False, init=False)
    _whole: bool = field(default=True, init=False)

    def read(self) -> Iterator[bytes]:
        """Chunks that are new, old file first after a rotation. Errors end up in `why`, never raised."""
        if self._old is not None:
            yield from self._drain(self._old)
            self._linger(self._old)
        if self._file is not None:
            yield from self._drain(self._file)
        if self._is_replaced():
            self._open()
            if self._file is not None:
                yield from self._end_line()
                yield from self._drain(self._file)

    def close(self) -> None:
        """Let go of the files."""
        for file in (self._file, self._old):
            if file is not None:
                os.close(file.fd)
        self._file = self._old = None

    def _drain(self, file: _Open) -> Iterator[bytes]:
        found = os.fstat(file.fd)
        size = found.st_size
        if size == file.offset:
            return
        self.written_s = found.st_mtime
        if self._is_truncated(file, size):
            self.rotations += 1
            file.offset, file.head, file.holes = 0, b"", True
            yield from self._end_line()
        self._skip(file, size)
        while file.offset < size:
            try:
                data = os.pread(file.fd, min(READ_BYTES, size - file.offset), file.offset)
            except OSError as error:
                self.why = f"{self.path}: {error.strerror}"
                return
            if not data:
                return
            file.offset += len(data)
            if kept := _without_rest(file, data):
                self._whole = kept.endswith(b"\n")
                yield kept

    def _skip(self, file: _Open, size: int) -> None:
        """Step over holes, and over what is more than the backlog."""
        if file.holes:
            file.offset = _next_data(file.fd, file.offset, size)
        behind = size - file.offset
        if behind > self.backlog_bytes:
            self.lost_bytes += behind - self.backlog_bytes
            # One byte earlier, so that a line that begins just here is seen to be whole.
            file.offset = size - self.backlog_bytes - 1
            file.skipping = True

    def _is_truncated(self, file: _Open, size: int) -> bool:
        head = b""
        try:
            head = os.pread(file.fd, HEAD_BYTES, 0)
        except OSError as error:
            self.why = f"{self.path}: {error.strerror}"
        if size < file.offset or not head.startswith(file.head):
            return True
        file.head = head
        return False

    def _end_line(self) -> Iterator[bytes]:
        """A line that was cut off must not be glued to the first one of another file."""
        if not self._whole:
            self._whole = True
            yield b"\n"

    def _is_replaced(self) -> bool:
        try:
            found = self.path.stat()
        except OSError as error:
            self.why = f"{self.path}: {error.strerror}"
            return False
        return self._file is None or (found.st_dev, found.st_ino) != self._file.inode

    def _open(self) -> None:
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            self.why = f"{self.path}: {error.strerror}; the agent needs read access to the engine's log"
            return
        found = os.fstat(fd)
        offset = 0 if self._opened else max(0, found.st_size - self.history_bytes - 1)
        if self._old is not None:
            os.close(self._old.fd)
        self._old = self._file
        self._file = _Open(fd, (found.st_dev, found.st_ino), offset, skipping=offset > 0)
        self.rotations += self._opened
        self._opened = True
        self.why = ""

    def _linger(self, old: _Open) -> None:
        old.lingers -= 1
        if old.lingers <= 0:
            os.close(old.fd)
            self._old = None


def _without_rest(file: _Open, data: bytes) -> bytes:
    """`data` from its first whole line on, when reading began inside one."""
    if file.holes:
        # A block of a sparse file begins with zeros up to the first byte that was written.
        data, file.holes = data.lstrip(b"\0"), False
    if file.skipping:
        _, newline, data = data.partition(b"\n")
        file.skipping = not newline
    return data


def _next_data(fd: int, offset: int, size: int) -> int:
    """Where written bytes follow, in a file that may have holes."""
    try:
        return os.lseek(fd, offset, os.SEEK_DATA)
    except OSError as error:
        return size if error.errno == errno.ENXIO else offset
