"""Bytes of one document in bounded chunks: plain files, slices of a spool, and decompressed streams.

Nothing here follows a link, blocks on a FIFO or trusts a size: files are opened below the evidence folder component by
component with O_NOFOLLOW and O_NONBLOCK and checked with fstat, and decompressors give bounded pieces.
"""

import os
import stat
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Protocol

import zstandard

from sentinel.evidence.limits import CHUNK_BYTES, Limits

_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_COMPRESSED_CHUNK_BYTES = 64 << 10
_ZSTD_STEP_BYTES = 1 << 10
GZIP_MAGIC = b"\x1f\x8b\x08"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


class Refused(Exception):
    """A document that must not or cannot be read; the text is the reason given to the person."""


Note = Callable[[str], None]
"""Receives the reason why a stream ended early; what was read before stays valid."""


class Source(Protocol):
    """Something that can be read from its start any number of times."""

    @property
    def size(self) -> int | None: ...

    def chunks(self, note: Note, start: int = 0) -> Iterator[bytes]: ...


def open_beneath(root_fd: int, parts: tuple[str, ...]) -> int:
    """Open a regular file below a folder without following any link; the caller closes the descriptor."""
    folder = os.dup(root_fd)
    try:
        for part in parts[:-1]:
            below = os.open(part, _FOLDER_FLAGS, dir_fd=folder)
            os.close(folder)
            folder = below
        found = os.open(parts[-1], _FILE_FLAGS, dir_fd=folder)
    except OSError as error:
        raise Refused(reason_of(error)) from None
    finally:
        os.close(folder)
    if not stat.S_ISREG(os.fstat(found).st_mode):
        os.close(found)
        raise Refused("not a regular file")
    return found


def reason_of(error: OSError) -> str:
    """The operating system's words, lower case, without the path."""
    return (error.strerror or type(error).__name__).lower()


@dataclass(frozen=True, slots=True)
class FileSource:
    """A regular file below the evidence folder; what is appended after `size` was taken is not read."""

    root_fd: int
    parts: tuple[str, ...]
    size: int

    def chunks(self, note: Note, start: int = 0) -> Iterator[bytes]:
        """Chunks from `start` to the size at walk time; a file that shrank meanwhile ends early with a note."""
        fd = open_beneath(self.root_fd, self.parts)
        try:
            position = start
            while position < self.size:
                try:
                    piece = os.pread(fd, min(CHUNK_BYTES, self.size - position), position)
                except OSError as error:
                    note(f"reading stopped after {position} bytes: {reason_of(error)}")
                    return
                if not piece:
                    note(f"shrank while it was read: {position} of {self.size} bytes")
                    return
                position += len(piece)
                yield piece
        finally:
            os.close(fd)


@dataclass(frozen=True, slots=True)
class SliceSource:
    """A part of another file that stays open (a spooled or plain tar archive)."""

    file: BinaryIO
    offset: int
    size: int

    def chunks(self, note: Note, start: int = 0) -> Iterator[bytes]:
        """Chunks of the part; an archive that ends inside it gives what is there and a note."""
        position = start
        while position < self.size:
            piece = os.pread(self.file.fileno(), min(CHUNK_BYTES, self.size - position), self.offset + position)
            if not piece:
                note(f"archive ends inside it: {position} of {self.size} bytes")
                return
            position += len(piece)
            yield piece


@dataclass(frozen=True, slots=True)
class ExpandedSource:
    """A gzip or zstd stream of another source, bounded in absolute size and in ratio."""

    packed: Source
    form: str
    limits: Limits
    size: None = None

    def chunks(self, note: Note, start: int = 0) -> Iterator[bytes]:
        """Decompressed chunks; truncation, damage and bombs end the stream with a note."""
        expand = _gunzip if self.form == "gzip" else _unzstd
        packed, given, skip = _Counted(self.packed.chunks(note)), 0, start
        for piece in expand(packed, note, self.limits.window_bytes):
            given += len(piece)
            if reason := self._too_large(given, packed.count):
                note(reason)
                return
            if skip < len(piece):
                yield piece[skip:] if skip else piece
            skip = max(0, skip - len(piece))

    def _too_large(self, given: int, taken: int) -> str | None:
        limits = self.limits
        if given > limits.ratio_free_bytes and given > taken * limits.ratio:
            return f"decompression bomb: expands more than {limits.ratio} times; the first {given >> 20} MiB were used"
        if given > limits.expanded_bytes:
            return f"expands to more than {limits.expanded_bytes >> 20} MiB; only these were used"
        return None


class _Counted:
    """Passes chunks on and counts their bytes, so that a ratio can be taken while expanding."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self.count = 0

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            for at in range(0, len(chunk), _COMPRESSED_CHUNK_BYTES):
                piece = chunk[at : at + _COMPRESSED_CHUNK_BYTES]
                self.count += len(piece)
                yield piece


def _gunzip(packed: _Counted, note: Note, _window_bytes: int) -> Iterator[bytes]:
    engine = zlib.decompressobj(wbits=31)
    fed = False
    for chunk in packed:
        pending = chunk
        while pending:
            try:
                piece = engine.decompress(pending, CHUNK_BYTES)
            except zlib.error:
                note("damaged gzip data: only the part before the damage was used")
                return
            fed = True
            if piece:
                yield piece
            pending = engine.unconsumed_tail
            if engine.eof:
                pending = engine.unused_data.lstrip(b"\0")
                engine, fed = zlib.decompressobj(wbits=31), False
    if fed and not engine.eof:
        while piece := engine.decompress(engine.unconsumed_tail, CHUNK_BYTES):
            yield piece
        note("truncated gzip data: only the part before the cut was used")


def _unzstd(packed: _Counted, note: Note, window_bytes: int) -> Iterator[bytes]:
    # The stream reader of the library cannot tell a cut from an end, its decompression object can. That one returns
    # all output of its input at once, at most 128 KiB for 4 bytes, hence the small steps.
    maker = zstandard.ZstdDecompressor(max_window_size=window_bytes)
    engine, fed = maker.decompressobj(), False
    try:
        for chunk in packed:
            for at in range(0, len(chunk), _ZSTD_STEP_BYTES):
                pending = chunk[at : at + _ZSTD_STEP_BYTES]
                while pending:
                    piece, fed = engine.decompress(pending), True
                    pending = b""
                    for start in range(0, len(piece), CHUNK_BYTES):
                        yield piece[start : start + CHUNK_BYTES]
                    if engine.eof:
                        pending = engine.unused_data
                        engine, fed = maker.decompressobj(), False
    except zstandard.ZstdError:
        note("damaged zstd data: only the part before the damage was used")
        return
    if fed:
        note("truncated zstd data: only the part before the cut was used")
