"""Follows the part of journald's journal that one engine writes, through `journalctl --follow` in a child process.

The child prints JSON records (systemd 239 and later), which the same unframer reads as offline. The pipe bounds how far
it can be ahead of the reader. One that ends is started again behind the last record that was read.
"""

import contextlib
import os
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

READ_BYTES = 1 << 20
HISTORY_LINES = 2000
RESTART_S = 30.0
COMMAND = ("journalctl", "--output=json", "--follow", "--quiet", "--no-pager")
PREFIX = "journal:"
"""Begins the place of a log in the journal; a match such as `_SYSTEMD_CGROUP=/system.slice/x.service` follows."""

_CURSOR = re.compile(rb'"__CURSOR" ?: ?"([^"\\]{1,300})"')


@dataclass(slots=True)
class JournalFollow:
    """`read` returns whole records that came since; what keeps it from reading is in `why`."""

    match: str
    command: Sequence[str] = COMMAND
    restart_s: float = RESTART_S
    lost_bytes: int = 0
    written_s: float = 0.0
    why: str = ""
    _child: "subprocess.Popen[bytes] | None" = None
    _cursor: str = ""
    _rest: bytes = b""
    _due_s: float = field(default=0.0, init=False)

    def read(self) -> Iterator[bytes]:
        """Chunks of whole lines. Never waits."""
        if self._child is None and not self._start():
            return
        while data := self._available():
            whole, newline, self._rest = (self._rest + data).rpartition(b"\n")
            if not newline and len(self._rest) > READ_BYTES:
                self.lost_bytes += len(self._rest)
                self._rest = b""
            if newline:
                # Inside a text the quotes would be escaped, so that only the field's own name is found.
                last = _CURSOR.match(whole, max(0, whole.rfind(b'"__CURSOR"')))
                self._cursor = last[1].decode() if last else self._cursor
                yield whole + newline
        if self._child is not None and (status := self._child.poll()) is not None:
            self.close()
            self.why = f"{self.command[0]} ended with status {status}; started again in {self.restart_s:.0f} s"

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            assert self._child.stdout is not None
            self._child.stdout.close()
            self._child, self._rest = None, b""

    def _start(self) -> bool:
        now_s = time.monotonic()
        if now_s < self._due_s:
            return False
        self._due_s = now_s + self.restart_s
        where = f"--after-cursor={self._cursor}" if self._cursor else f"--lines={HISTORY_LINES}"
        try:
            self._child = subprocess.Popen(
                [*self.command, where, self.match], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, start_new_session=True, bufsize=0,
            )  # fmt: skip
        except OSError as error:
            self.why = f"cannot start {self.command[0]}: {error.strerror}; the engine's output is in the journal"
            return False
        assert self._child.stdout is not None
        os.set_blocking(self._child.stdout.fileno(), False)
        self.why = ""
        return True

    def _available(self) -> bytes:
        data = b""
        if self._child is not None and self._child.stdout is not None:
            with contextlib.suppress(BlockingIOError):
                data = os.read(self._child.stdout.fileno(), READ_BYTES)
        return data
