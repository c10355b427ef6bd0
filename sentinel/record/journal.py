"""The journal: every event in and every effect out, append-only, durable before any effect is carried out.

One record a line: eight hex digits of CRC-32, a space, compact JSON. A record is whole or it is not there: a line whose
checksum fails is skipped and counted, and a torn tail left by a crash is cut when the journal is opened again. Segments
`journal-NNNNNNNN.log` are rotated by size and the oldest are removed, so the folder never exceeds its bound.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO
from zlib import crc32

import msgspec

from sentinel.model.effect import AnyEffect
from sentinel.model.event import AnyEvent

SEGMENT_BYTES = 16 << 20
SEGMENTS_MAX = 16
RECORD_BYTES_MAX = 4 << 20


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One record: an event, or an effect (`e` or `f`), with its position. `done` marks an effect's outcome."""

    n: int
    e: AnyEvent | None = None
    f: AnyEffect | None = None
    done: str | None = None


class JournalError(Exception):
    """The journal cannot be used; the message says what to do."""


@dataclass(slots=True)
class Journal:
    """Writes records; `sync` makes all of them durable. Raises JournalError when the folder cannot be written."""

    folder: Path
    segment_bytes: int = SEGMENT_BYTES
    segments_max: int = SEGMENTS_MAX
    lost: int = 0
    _fd: int = -1
    _size: int = 0
    _next: int = 0
    _segment: int = 0
    _encoder: msgspec.json.Encoder = field(default_factory=msgspec.json.Encoder)

    def open(self) -> "Journal":
        """Continue after the last whole record; a torn tail is cut."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o750)
            found = segments(self.folder)
            self._segment = _number(found[-1]) if found else 0
            path = self.folder / _name(self._segment)
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_APPEND, 0o640)
            self._size = _cut_torn_tail(self._fd)
            self._next = 1 + _last_position(found)
        except OSError as error:
            raise JournalError(f"cannot write the journal in {self.folder}: {error.strerror}; free space or change "
                               "`journal.folder`") from error  # fmt: skip
        return self

    def event(self, event: AnyEvent) -> int:
        """Append an event; returns its position. Not yet durable."""
        return self._append(Entry(n=self._next, e=event))

    def effect(self, effect: AnyEffect) -> int:
        """Append an effect that is about to be carried out; call `sync` before doing it."""
        return self._append(Entry(n=self._next, f=effect))

    def outcome(self, position: int, result: str) -> int:
        """Append the outcome of the effect at `position`."""
        return self._append(Entry(n=self._next, done=f"{position} {result}"))

    def sync(self) -> None:
        """Make everything appended so far durable."""
        os.fdatasync(self._fd)

    def close(self) -> None:
        """Sync and close."""
        if self._fd >= 0:
            self.sync()
            os.close(self._fd)
            self._fd = -1

    def _append(self, entry: Entry) -> int:
        body = self._encoder.encode(entry)
        if len(body) > RECORD_BYTES_MAX:
            self.lost += 1
            return entry.n
        line = b"%08x %s\n" % (crc32(body), body)
        if self._size + len(line) > self.segment_bytes:
            self._rotate()
        try:
            written = 0
            while written < len(line):
                written += os.write(self._fd, line[written:])
        except OSError:
            # Half a record must not be glued to the next one that fits.
            os.ftruncate(self._fd, self._size)
            raise
        self._size += len(line)
        self._next = entry.n + 1
        return entry.n

    def _rotate(self) -> None:
        self.close()
        self._segment += 1
        path = self.folder / _name(self._segment)
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_APPEND, 0o640)
        self._size = 0
        for old in segments(self.folder)[: -self.segments_max]:
            old.unlink(missing_ok=True)


def entries(source: Path) -> Iterator[Entry]:
    """Whole records of a journal folder or of one segment file, in order; damaged lines are left out."""
    decoder = msgspec.json.Decoder(Entry)
    for path in segments(source) if source.is_dir() else [source]:
        with path.open("rb") as file:
            for line in _lines(file):
                if (body := _body(line)) is not None:
                    try:
                        yield decoder.decode(body)
                    except (msgspec.DecodeError, RecursionError):
                        # A checksum tells damage, not malice: whoever wrote the bytes wrote that too.
                        continue


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """Lines of at most the length of a record; what is longer is skipped without being held in memory."""
    inside = False
    while line := file.readline(RECORD_BYTES_MAX + 16):
        whole = line.endswith(b"\n")
        if whole and not inside:
            yield line
        inside = not whole


def _body(line: bytes) -> bytes | None:
    """The JSON of a whole record, None when the line is torn or damaged."""
    if len(line) < 10 or not line.endswith(b"\n") or line[8:9] != b" ":
        return None
    try:
        wanted = int(line[:8], 16)
    except ValueError:
        return None
    body = line[9:-1]
    return body if crc32(body) == wanted else None


def _cut_torn_tail(fd: int) -> int:
    """Remove what follows the last newline; returns the size left."""
    size = os.fstat(fd).st_size
    end = size
    while end > 0:
        start = max(0, end - 65536)
        newline = os.pread(fd, end - start, start).rfind(b"\n")
        if newline >= 0:
            end = start + newline + 1
            break
        end = start
    if end != size:
        os.ftruncate(fd, end)
    return end


def _last_position(found: list[Path]) -> int:
    """Position of the last whole record, -1 without any. Only the newest segment that holds one is read."""
    for path in reversed(found):
        if (last := max((entry.n for entry in entries(path)), default=-1)) >= 0:
            return last
    return -1


def segments(folder: Path) -> list[Path]:
    """Files of a journal, oldest first."""
    return sorted(folder.glob("journal-*.log"))


def _name(number: int) -> str:
    return f"journal-{number:08d}.log"


def _number(path: Path) -> int:
    return int(path.stem.partition("-")[2])
