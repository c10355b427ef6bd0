"""The keeper: a process that owns the locked table, so that engines may die and come back.

It fills one sealed memory file per table and hands the descriptor to every rank that asks over a
local socket. A restarted engine maps what is already there instead of reading it again.

One line per question, `image IDENTITY`; the answer is `ready BYTES` with a descriptor,
`filling DONE TOTAL`, or `refused REASON`.
"""

import contextlib
import ctypes
import fcntl
import mmap
import os
import selectors
import signal
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from . import native, reader
from .errors import RowStoreError
from .geometry import PAGE_BYTES, Header

_HUGE_BYTES = 2 << 20
_QUESTION_BYTES_MAX = 256
_MADV_HUGEPAGE = 14
_ANSWER_TIMEOUT_S = 1.0
SCRUB_PAGES = 256

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)


class KeeperRefused(RowStoreError):
    """The keeper cannot hold this table."""


def _mapping(fd: int, size: int, protection: int) -> int:
    address = _libc.mmap(None, size, protection, mmap.MAP_SHARED, fd, 0)
    if address in (None, ctypes.c_void_p(-1).value):
        raise KeeperRefused(f"mapping {size} bytes: {os.strerror(ctypes.get_errno())}")
    return int(address)


def _must(result: int, what: str) -> None:
    if result != 0:
        error = ctypes.get_errno()
        raise KeeperRefused(
            f"{what}: {os.strerror(error)}; the keeper needs LimitMEMLOCK=infinity and free memory"
        )


@dataclass
class Image:
    """One table in memory; `state` is filling, ready or refused."""

    path: Path
    header: Header
    state: str = "filling"
    reason: str = ""
    fd: int = -1
    address: int = 0
    bytes: int = 0
    scrubbed_pages: int = 0
    rotten_pages: int = 0
    progress: ctypes.Array[ctypes.c_uint64] = field(
        default_factory=lambda: (ctypes.c_uint64 * 2)()
    )

    @property
    def identity(self) -> str:
        """What a store asks for: the manifest digest in the file's header."""
        return self.header.manifest_digest.hex()

    def fill(self, threads: int, reserve_bytes: int) -> None:
        """Read, check, seal and lock the table; raises when any of it cannot be done."""
        data_bytes = self.header.file_bytes - self.header.data_offset
        fits, reason = native.ram_fit(data_bytes, reserve_bytes)
        if not fits:
            raise KeeperRefused(reason)
        self.bytes = data_bytes
        size = -(-data_bytes // _HUGE_BYTES) * _HUGE_BYTES
        self.fd = os.memfd_create(f"rowstore-{self.path.name}", os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, size)
        writable = _mapping(self.fd, size, mmap.PROT_READ | mmap.PROT_WRITE)
        _libc.madvise(ctypes.c_void_p(writable), ctypes.c_size_t(size), _MADV_HUGEPAGE)
        core = native.load()
        status = core.rs_fill_image(
            str(self.path).encode(), writable, size, threads, self.progress
        )
        # Sealing against writes needs every writable mapping gone.
        _must(_libc.munmap(ctypes.c_void_p(writable), ctypes.c_size_t(size)), "munmap")
        native.check(core, status)
        seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, seals)
        self.address = _mapping(self.fd, size, mmap.PROT_READ)
        _must(_libc.mlock(ctypes.c_void_p(self.address), ctypes.c_size_t(size)), "mlock")
        self.state = "ready"

    def scrub(self) -> None:
        """Check the next pages again: memory that rots must be reported, not served quietly."""
        pages = self.bytes // PAGE_BYTES
        first = self.scrubbed_pages % pages
        count = min(SCRUB_PAGES, pages - first)
        start = self.address + first * PAGE_BYTES
        memory = (ctypes.c_uint8 * (count * PAGE_BYTES)).from_address(start)
        bad, _ = reader.bad_pages(self.header, first, np.ctypeslib.as_array(memory))
        self.scrubbed_pages += count
        self.rotten_pages += bad

    def answer(self) -> tuple[str, list[int]]:
        """The line to send, and the descriptors that go with it."""
        if self.state == "ready" and self.rotten_pages == 0:
            return f"ready {self.bytes}", [self.fd]
        if self.state == "filling":
            return f"filling {self.progress[0]} {self.header.file_bytes}", []
        return f"refused {self.reason or f'{self.rotten_pages} pages rotted in memory'}", []


class Keeper:
    """Serves the images of some tables on one socket until stopped."""

    def __init__(
        self, socket_path: Path, tables: list[Path], *, threads: int, reserve_bytes: int
    ) -> None:
        self._path = socket_path
        self._threads, self._reserve_bytes = threads, reserve_bytes
        self.images = [Image(path, reader.read_header(path)) for path in tables]
        self._stop = threading.Event()
        socket_path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(socket_path))
        socket_path.chmod(0o600)
        self._listener.listen(64)

    def stop(self) -> None:
        """Make `serve` return; safe in a signal handler."""
        self._stop.set()

    def serve(self, report: Callable[[str], None]) -> None:
        """Fill in the background and answer questions; one scrub step a second."""
        filler = threading.Thread(target=self._fill_all, args=(report,), daemon=True)
        filler.start()
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            scrub_at_s = time.monotonic()
            while not self._stop.is_set():
                for _ in selector.select(timeout=0.2):
                    self._answer_one()
                if time.monotonic() >= scrub_at_s:
                    scrub_at_s = time.monotonic() + 1
                    self._scrub(report)
        self._listener.close()
        self._path.unlink(missing_ok=True)

    def _fill_all(self, report: Callable[[str], None]) -> None:
        for image in self.images:
            began_s = time.monotonic()
            try:
                image.fill(self._threads, self._reserve_bytes)
            except (RowStoreError, OSError) as error:
                image.reason = str(error).replace("\n", " ")
                image.state = "refused"
                report(f"{image.path}: refused: {image.reason}")
                continue
            took_s = time.monotonic() - began_s
            rate = image.bytes / took_s / (1 << 20)
            report(f"{image.path}: ready, {image.bytes} bytes in {took_s:.2f} s ({rate:.0f} MiB/s)")

    def _scrub(self, report: Callable[[str], None]) -> None:
        for image in self.images:
            if image.state != "ready":
                continue
            before = image.rotten_pages
            image.scrub()
            if image.rotten_pages > before:
                report(f"{image.path}: {image.rotten_pages} pages rotted; restart the keeper")

    def _answer_one(self) -> None:
        connection, _ = self._listener.accept()
        with connection, contextlib.suppress(OSError):
            connection.settimeout(_ANSWER_TIMEOUT_S)
            words = connection.recv(_QUESTION_BYTES_MAX).decode(errors="replace").split()
            line, descriptors = self._reply(words)
            socket.send_fds(connection, [line.encode() + b"\n"], descriptors)

    def _reply(self, words: list[str]) -> tuple[str, list[int]]:
        if len(words) == 2 and words[0] == "image":
            for image in self.images:
                if image.identity == words[1]:
                    return image.answer()
        return "refused no such table here; start the keeper with this file", []


def run(
    socket_path: Path, tables: list[Path], *, threads: int, reserve_bytes: int,
    report: Callable[[str], None],
) -> None:
    """Run a keeper until SIGTERM or SIGINT."""
    keeper = Keeper(socket_path, tables, threads=threads, reserve_bytes=reserve_bytes)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: keeper.stop())
    report(f"keeper listens on {socket_path}")
    keeper.serve(report)
