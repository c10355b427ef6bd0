"""Helper processes: each has a deadline, a process group of its own and a size cap. Threads are not a time-out.

A child that does not die of SIGKILL (uninterruptible sleep) is abandoned, counted, and never waited for again.
"""

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

KILL_GRACE_S = 1.0
CHUNK = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a helper process did. `status` None: it could not be started or was ended for its deadline (`why`)."""

    argv: tuple[str, ...]
    status: int | None
    stdout: bytes = b""
    stderr: bytes = b""
    truncated: bool = False
    took_s: float = 0.0
    why: str = ""
    abandoned: bool = False

    @property
    def ok(self) -> bool:
        """It ran to its end and reported success."""
        return self.status == 0

    @property
    def said_first(self) -> str:
        """First line on standard error."""
        return self._complaint.partition("\n")[0]

    @property
    def said_last(self) -> str:
        """Last line on standard error."""
        return self._complaint.rpartition("\n")[2]

    @property
    def _complaint(self) -> str:
        return self.stderr.decode(errors="replace").strip()


def run_bounded(
    argv: Sequence[str],
    *,
    deadline_s: float,
    bytes_max: int = 8 << 20,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
) -> Ran:
    """Run a helper to its end or its deadline. Never raises for what the helper does; a missing tool is an outcome."""
    began = time.monotonic()
    try:
        child = subprocess.Popen(
            list(argv),
            stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
            bufsize=0,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=None if env is None else dict(env),
        )
    except OSError as error:
        return Ran(argv=tuple(argv), status=None, why=f"cannot start {argv[0]}: {error.strerror}")
    with child:
        out, err, truncated, late = _collect(child, stdin, began + deadline_s, bytes_max)
        abandoned = late and not _end_group(child)
        status = None if late else child.wait()
        why = f"not finished after {deadline_s:g} s" if late else ""
        if abandoned:
            # The context manager would wait for ever on a process in uninterruptible sleep.
            child.returncode = -signal.SIGKILL
    return Ran(
        argv=tuple(argv),
        status=status,
        stdout=out,
        stderr=err,
        truncated=truncated,
        took_s=time.monotonic() - began,
        why=why,
        abandoned=abandoned,
    )


@dataclass(slots=True)
class _Pipes:
    """The child's streams: what is still to be written to it, and what it said, up to a cap (the rest is dropped)."""

    pending: memoryview
    room: int
    truncated: bool = False
    said: dict[str, list[bytes]] = field(default_factory=lambda: {"out": [], "err": []})

    def turn(self, key: selectors.SelectorKey) -> bool:
        """One read or write; False when the stream is done."""
        if key.data == "in":
            try:
                self.pending = self.pending[os.write(key.fd, self.pending[:CHUNK]) :]
            except BrokenPipeError:
                return False
            return bool(self.pending)
        data = os.read(key.fd, CHUNK)
        self.truncated |= len(data) > self.room
        self.said[key.data].append(data[: self.room])
        self.room -= min(self.room, len(data))
        return bool(data)


def _collect(
    child: subprocess.Popen[bytes], stdin: bytes, until: float, bytes_max: int
) -> tuple[bytes, bytes, bool, bool]:
    """Write and read until all streams end or time is up; the last word says whether it was late."""
    pipes = _Pipes(memoryview(stdin), bytes_max)
    with selectors.DefaultSelector() as selector:
        for name, stream in (("in", child.stdin), ("out", child.stdout), ("err", child.stderr)):
            if stream is not None:
                os.set_blocking(stream.fileno(), False)
                selector.register(stream, selectors.EVENT_WRITE if name == "in" else selectors.EVENT_READ, name)
        while selector.get_map() and (left := until - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                if not pipes.turn(key):
                    selector.unregister(key.fileobj)
                    if key.data == "in":
                        _close(child)
        open_streams = bool(selector.get_map())
    try:
        child.wait(timeout=max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        open_streams = True
    return b"".join(pipes.said["out"]), b"".join(pipes.said["err"]), pipes.truncated, open_streams


def _close(child: subprocess.Popen[bytes]) -> None:
    """End of input. The pipe holds no buffered data, so closing cannot block."""
    assert child.stdin is not None
    with contextlib.suppress(OSError):
        child.stdin.close()


def _end_group(child: subprocess.Popen[bytes]) -> bool:
    """Kill the child's group; False when it does not die."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    try:
        child.wait(timeout=KILL_GRACE_S)
    except subprocess.TimeoutExpired:
        return False
    return True
