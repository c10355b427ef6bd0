"""The row store's telemetry pages of an engine's ranks, read from files in memory, whatever their owner does.

A page is any file of the right size and first bytes in the engine's runtime folder: `--runtime-dir` of the launcher,
`SENTINEL_ENGINE_RUNTIME` of its environment, or `/run/sentinel-engine`. It belongs to the rank whose pid and start time
it names, also when that process is stopped or dead.
"""

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from sentinel.agent import procfs
from sentinel.agent.source import Said
from sentinel.collectors.rowstore_page import PAGE_BYTES, owner_of, telemetry
from sentinel.model.engine import Engine, EngineProcess, ProcessId
from sentinel.model.observation import Origin
from sentinel.model.stamp import Stamp

FOLDER = Path("/run/sentinel-engine")
VARIABLE, FLAG = "SENTINEL_ENGINE_RUNTIME", "--runtime-dir"
LOOK_EVERY_S = 10.0
TELL_EVERY_S = 5.0
FILES_MAX = 512


class StorePages:
    """Says what the pages show. An engine without a row store has none, and costs a look every ten seconds."""

    every_s = 1.0

    def __init__(self, engine: Engine, folder: Path | None = None) -> None:
        self.name = f"store:{engine.key}"
        self.engine = engine
        self._folder = folder
        self._folders: dict[ProcessId, Path] = {}
        self._pages: dict[Path, tuple[int, EngineProcess, int]] = {}
        self._look_due_s = 0.0
        self._tell_due_s = 0.0

    def poll(self, now: Stamp) -> Iterator[Said]:
        """One observation a page."""
        if now.mono_s >= self._look_due_s:
            self._look_due_s = now.mono_s + LOOK_EVERY_S
            self._find()
        if now.mono_s < self._tell_due_s:
            return
        self._tell_due_s = now.mono_s + TELL_EVERY_S
        for path, (fd, process, _) in self._pages.items():
            page = _content(fd)
            # The store's clock; the agent's own also counts the time that the host slept.
            seen = None if page is None else telemetry(page, Origin(str(path)), time.monotonic_ns())
            if seen is not None:
                placed = msgspec.structs.replace(seen, at_s=now.wall_s, pid=process.id.pid, tags=process.tags)
                yield Said(self.engine.key, placed)

    def close(self) -> None:
        """Let go of the files."""
        for fd, _, _ in self._pages.values():
            os.close(fd)
        self._pages.clear()

    def _where(self) -> Iterable[Path]:
        """The folder given, else that of every tree of the engine, once."""
        if self._folder is not None:
            return (self._folder,)
        for root in self.engine.roots:
            if root not in self._folders:
                self._folders[root] = _folder_of(root)
        return {path.resolve(): path for path in self._folders.values()}.values()

    def _find(self) -> None:
        paths = [path for folder in self._where() for path in _files(folder)]
        # The pid that a containerised process writes is its own view; its start time is the host's.
        owners = {process.id.started_ticks: process for process in self.engine.ranks}
        for path in paths:
            try:
                known = path.stat()
                held = self._pages.get(path)
                if known.st_size != PAGE_BYTES or (held is not None and held[2] == known.st_ino):
                    continue
                fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError:
                continue
            page = _content(fd)
            owner = None if page is None else owner_of(page)
            process = None if owner is None else owners.get(owner[1])
            if process is None:
                os.close(fd)
                continue
            if held is not None:
                os.close(held[0])
            self._pages[path] = (fd, process, known.st_ino)


def _files(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())[:FILES_MAX]
    except OSError:
        return []


def _folder_of(root: ProcessId) -> Path:
    view = procfs.view(root.pid)
    given = None if view is None else view.flag(FLAG) or view.environ.get(VARIABLE)
    return FOLDER if given is None else Path(given)


def _content(fd: int) -> bytes | None:
    """The whole page; None when there is none any more. A map of a file that its owner cuts would end the agent."""
    try:
        content = os.pread(fd, PAGE_BYTES, 0)
    except OSError:
        return None
    return content if len(content) == PAGE_BYTES else None
