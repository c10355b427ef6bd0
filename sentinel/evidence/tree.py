"""Walks an evidence folder (or takes one file or one archive) and lists the documents in it, in a fixed order.

Links are never followed, neither out of the folder nor inside it; FIFOs, sockets and devices are never opened; the
number of files has a limit. Everything left out is in `skips` with a reason.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from sentinel.evidence.archive import Found, Opener
from sentinel.evidence.limits import Limits, Skips
from sentinel.evidence.stream import FileSource, reason_of

_KINDS = {
    stat.S_IFLNK: "symbolic link: not followed",
    stat.S_IFIFO: "FIFO: not opened",
    stat.S_IFSOCK: "socket: not opened",
    stat.S_IFCHR: "character device: not opened",
    stat.S_IFBLK: "block device: not opened",
}


_LISTED_MORE = 4

Entry = tuple[tuple[str, ...], os.stat_result]


class Tree:
    """An opened evidence folder; a context manager, because archives stay open while their members are read."""

    def __init__(self, path: Path, limits: Limits, skips: Skips) -> None:
        """Raises OSError when `path` itself cannot be opened."""
        self._limits, self._skips = limits, skips
        self._keep = ExitStack()
        self._opener = Opener(limits, skips, self._keep)
        self.considered = 0
        whole = Path(os.path.realpath(path))
        mode = whole.stat().st_mode
        self._only = None if stat.S_ISDIR(mode) else whole.name
        if self._only is not None and not stat.S_ISREG(mode):
            raise OSError(f"{path} is neither a folder nor a regular file")
        folder = whole if self._only is None else whole.parent
        self._root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._keep.callback(os.close, self._root)

    def __enter__(self) -> "Tree":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._keep.close()

    def documents(self) -> Iterator[Found]:
        """All documents, archives opened, sorted by name within each folder."""
        files = self._walk(self._root, ()) if self._only is None else self._single(self._only)
        for parts, status in files:
            name = "/".join(parts)
            if status.st_size == 0:
                self._skips.add(name, "empty")
                continue
            source = FileSource(self._root, parts, status.st_size)
            yield from self._opener.documents(Found(name, source, status.st_mtime))

    def _single(self, name: str) -> Iterator[Entry]:
        yield (name,), os.stat(name, dir_fd=self._root, follow_symlinks=False)

    def _walk(self, folder: int, above: tuple[str, ...]) -> Iterator[Entry]:
        """Regular files below a folder; stops with a message at the limit of files."""
        for name in self._names(folder, above):
            if self.considered >= self._limits.files:
                return
            self.considered += 1
            parts = (*above, name)
            try:
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            except OSError as error:
                self._skips.add("/".join(parts), reason_of(error))
                continue
            if stat.S_ISDIR(status.st_mode):
                yield from self._below(folder, name, parts)
            elif stat.S_ISREG(status.st_mode):
                yield parts, status
            else:
                self._skips.add("/".join(parts), _KINDS.get(stat.S_IFMT(status.st_mode), "not a regular file"))

    def _below(self, folder: int, name: str, parts: tuple[str, ...]) -> Iterator[Entry]:
        if len(parts) > self._limits.directory_depth:
            self._skips.add("/".join(parts), f"folders nested more than {self._limits.directory_depth} deep")
            return
        try:
            below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        except OSError as error:
            self._skips.add("/".join(parts), reason_of(error))
            return
        try:
            yield from self._walk(below, parts)
        finally:
            os.close(below)

    def _names(self, folder: int, above: tuple[str, ...]) -> list[str]:
        """Sorted names in a folder, at most as many as may still be looked at.

        Somewhat more are listed, so that which ones are left out does not depend on the file system's order.
        """
        room = self._limits.files - self.considered
        names: list[str] = []
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    names.append(entry.name)
                    if len(names) > room + _LISTED_MORE * self._limits.files:
                        break
        except OSError as error:
            self._skips.add("/".join(above) or ".", reason_of(error))
        if len(names) > room:
            why = f"more than {self._limits.files:,} files: the rest was not looked at"
            self._skips.add("/".join(above) or ".", why)
        return sorted(names)[: max(0, room)]
