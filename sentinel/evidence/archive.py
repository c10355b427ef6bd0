"""Tar archives, plain or compressed, and compressed files: what is inside, as documents, never trusting a name.

Members are read in place; nothing is extracted to a path. A compressed archive is expanded once into an unnamed
temporary file, bounded like every other stream.
"""

import os
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import BinaryIO, cast

from sentinel.evidence.limits import Limits, Skips
from sentinel.evidence.stream import (
    GZIP_MAGIC,
    ZSTD_MAGIC,
    ExpandedSource,
    FileSource,
    Refused,
    SliceSource,
    Source,
    open_beneath,
    reason_of,
)

_HEADER_BYTES = 1 << 20
_BLOCK = tarfile.BLOCKSIZE
_FORMS_NOT_READ = {
    b"\xfd7zXZ\x00": "xz archive: unpack it first",
    b"BZh": "bzip2 archive: unpack it first",
    b"PK\x03\x04": "zip archive: unpack it first",
    b"7z\xbc\xaf\x27\x1c": "7z archive: unpack it first",
    b"\x04\x22\x4d\x18": "lz4 archive: unpack it first",
    b"\x7fELF": "binary (ELF: program or core dump)",
}


@dataclass(slots=True)
class Found:
    """One document: `name` for people (archive members after `!`), its bytes, its modification time if known.

    `first` holds its first bytes, already read to see whether it is an archive, until the document takes them.
    """

    name: str
    source: Source
    mtime_s: float | None = None
    first: bytes = b""


@dataclass(slots=True)
class Opener:
    """Looks inside containers, at most `limits.archive_depth` deep, and yields the documents they hold."""

    limits: Limits
    skips: Skips
    keep: ExitStack
    members: int = 0
    spooled: int = 0
    noted: set[str] = field(default_factory=set)

    def documents(self, found: Found, depth: int = 0) -> Iterator[Found]:
        """The document itself, or what is inside it."""
        head = self._head(found)
        if head is None:
            return
        form = form_of(head[:_BLOCK])
        if form is None:
            for magic, why in _FORMS_NOT_READ.items():
                if head.startswith(magic):
                    self.skips.add(found.name, why)
                    return
            found.first = head
            yield found
        elif depth >= self.limits.archive_depth:
            self.skips.add(found.name, f"archive nested more than {self.limits.archive_depth} deep")
        elif form == "tar":
            yield from self._members(found, found.source, depth)
        else:
            yield from self._expanded(found, form, depth)

    def _expanded(self, found: Found, form: str, depth: int) -> Iterator[Found]:
        inner = Found(found.name, ExpandedSource(found.source, form, self.limits), found.mtime_s)
        head = self._head(inner)
        if head is None:
            return
        if form_of(head[:_BLOCK]) == "tar":
            yield from self._members(found, self._spool(inner), depth)
        else:
            yield from self.documents(inner, depth + 1)

    def _head(self, found: Found) -> bytes | None:
        """The first bytes; None, with a reason, when there are none."""
        notes: list[str] = []
        head = b""
        try:
            for chunk in found.source.chunks(notes.append):
                head += chunk
                if len(head) >= _BLOCK:
                    break
        except Refused as refused:
            notes.append(str(refused))
        if not head:
            self.skips.add(found.name, notes[0] if notes else "empty")
            return None
        return head

    def _spool(self, found: Found) -> Source:
        """The whole expanded archive in an unnamed temporary file."""
        file = self.keep.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - closed with the tree
        size = 0
        try:
            for chunk in found.source.chunks(lambda why: self._note(found.name, why)):
                size += len(chunk)
                if self.spooled + size > self.limits.spool_bytes:
                    self._note(
                        found.name, f"archives exceed {self.limits.spool_bytes >> 20} MiB: the rest was left out"
                    )
                    break
                file.write(chunk)
        except OSError as error:
            self._note(found.name, f"no room to unpack it: {reason_of(error)}")
        self.spooled += size
        file.flush()
        return SliceSource(cast(BinaryIO, file), 0, os.fstat(file.fileno()).st_size)

    def _note(self, name: str, why: str) -> None:
        self.skips.add(name, why)

    def _members(self, outer: Found, source: Source, depth: int) -> Iterator[Found]:
        file, offset, size = self._seekable(source)
        view = _View(file, offset, size)
        try:
            with tarfile.open(fileobj=cast(BinaryIO, view), mode="r:", errorlevel=0) as tar:
                while (member := tar.next()) is not None:
                    tar.members.clear()  # type: ignore[attr-defined]  # a hostile archive must not fill memory
                    self.members += 1
                    if self.members > self.limits.files:
                        self.skips.add(outer.name, f"more than {self.limits.files:,} archive members; rest not read")
                        return
                    part = SliceSource(file, offset + member.offset_data, member.size)
                    yield from self._member(outer, member, part, depth)
        except (tarfile.TarError, EOFError, ValueError, OverflowError, OSError, Refused):
            self.skips.add(outer.name, "damaged or truncated archive: only the members before that place were used")
            return
        if view.short:
            self.skips.add(outer.name, "truncated archive: members before the cut were used")
        elif view.read_at(tar.offset).strip(b"\0"):  # tarfile takes a damaged header for the end
            self.skips.add(outer.name, "damaged archive: members before the damage were used")

    def _member(self, outer: Found, member: tarfile.TarInfo, part: SliceSource, depth: int) -> Iterator[Found]:
        if member.isdir():
            return
        name = f"{outer.name}!{member.name}"
        if reason := refusal(member):
            self.skips.add(name, reason)
        elif part.size == 0:
            self.skips.add(name, "empty")
        else:
            yield from self.documents(Found(name, part, float(member.mtime)), depth + 1)

    def _seekable(self, source: Source) -> tuple[BinaryIO, int, int]:
        if isinstance(source, SliceSource):
            return source.file, source.offset, source.size
        if isinstance(source, FileSource):
            file = self.keep.enter_context(os.fdopen(open_beneath(source.root_fd, source.parts), "rb", buffering=0))
            return cast(BinaryIO, file), 0, source.size
        raise Refused("cannot be read at random")


class _View:
    """The part of a file that holds an archive, for tarfile; refuses header blocks of absurd size."""

    def __init__(self, file: BinaryIO, offset: int, size: int) -> None:
        self._fd, self._offset, self._size, self._at = file.fileno(), offset, size, 0
        self.short = False

    def tell(self) -> int:
        return self._at

    def seek(self, position: int, whence: int = 0) -> int:
        self._at = position if whence == 0 else (self._at if whence == 1 else self._size) + position
        return self._at

    def read_at(self, position: int) -> bytes:
        """The block at a position; empty behind the end."""
        room = self._size - position
        return os.pread(self._fd, min(_BLOCK, room), self._offset + position) if room > 0 else b""

    def read(self, count: int = -1) -> bytes:
        if count < 0 or count > _HEADER_BYTES:
            raise tarfile.ReadError("header block too large")
        wanted = max(0, min(count, self._size - self._at))
        data = os.pread(self._fd, wanted, self._offset + self._at) if wanted else b""
        self.short = self.short or 0 < len(data) < count
        self._at += len(data)
        return data


def refusal(member: tarfile.TarInfo) -> str | None:
    """Why a member of an archive must not be used; None when it may."""
    if member.issym() or member.islnk():
        return "link inside an archive: not followed"
    if member.ischr() or member.isblk() or member.isfifo():
        return "device or pipe inside an archive: refused"
    if member.name.startswith(("/", "\\")) or member.name[1:3] in (":\\", ":/"):
        return "absolute name inside an archive: refused"
    if ".." in member.name.replace("\\", "/").split("/"):
        return "name inside an archive leads out of it: refused"
    if not member.isreg() or member.issparse():
        return "not a plain file inside an archive"
    return None


def form_of(head: bytes) -> str | None:
    """Container form of a document from its first block: "gzip", "zstd", "tar" or None."""
    if head.startswith(GZIP_MAGIC):
        return "gzip"
    if head.startswith(ZSTD_MAGIC):
        return "zstd"
    if len(head) >= _BLOCK and (head[257:262] == b"ustar" or _old_tar(head)):
        return "tar"
    return None


def _old_tar(head: bytes) -> bool:
    """Archives from before the ustar magic carry only a checksum over their first header."""
    stated = head[148:156].strip(b" \0")
    if not 1 <= len(stated) <= 7 or stated.strip(b"01234567") or not head[:1].strip(b"\0"):
        return False
    return sum(head[:148]) + sum(head[156:512]) + 8 * 32 == int(stated, 8)
