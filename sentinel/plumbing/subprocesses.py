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
from dataclasses import dataclass

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
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=None if env is None else dict(env),
        )
    except OSError as error:
        return Ran(argv=tuple(argv), status=None, why=f"cannot start {argv[0]}: {error.strerror}")
    with child:
        if stdin and child.stdin is not None:
            _feed(child, stdin)
        out, err, truncated, late = _collect(child, began + deadline_s, bytes_max)
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


def _feed(child: subprocess.Popen[bytes], data: bytes) -> None:
    assert child.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        child.stdin.write(data)
        child.stdin.close()


def _collect(child: subprocess.Popen[bytes], until: float, bytes_max: int) -> tuple[bytes, bytes, bool, bool]:
    """Read both streams until they end, the cap is full (the rest is drained and dropped) or time is up."""
    kept: dict[str, list[bytes]] = {"out": [], "err": []}
    room, truncated = bytes_max, False
    with selectors.DefaultSelector() as selector:
        for name, stream in (("out", child.stdout), ("err", child.stderr)):
            assert stream is not None
            selector.register(stream, selectors.EVENT_READ, name)
        while selector.get_map():
            left = until - time.monotonic()
            if left <= 0:
                break
            for key, _ in selector.select(left):
                data = os.read(key.fd, CHUNK)
                if not data:
                    selector.unregister(key.fileobj)
                    continue
                truncated |= len(data) > room
                kept[key.data].append(data[:room])
                room -= min(room, len(data))
    late = False
    try:
        child.wait(timeout=max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        late = True
    return b"".join(kept["out"]), b"".join(kept["err"]), truncated, late


def _end_group(child: subprocess.Popen[bytes]) -> bool:
    """Kill the child's group; False when it does not die."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    try:
        child.wait(timeout=KILL_GRACE_S)
    except subprocess.TimeoutExpired:
        return False
    return True
