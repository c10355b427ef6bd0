"""Real processes for tests to look at. Each says "ready" on its standard output when it is what it is meant to be."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from sentinel.agent import procfs
from sentinel.model.engine import ProcessId
from sentinel.model.stamp import Stamp
from sentinel.plumbing.clock import SystemClock

WAIT_S = 60.0
IDLE = "import threading; print('ready', flush=True); threading.Event().wait()"
SPIN = "print('ready', flush=True)\nwhile True: pass"


@contextlib.contextmanager
def running(*argv: str, environ: Mapping[str, str] | None = None) -> Iterator["subprocess.Popen[bytes]"]:
    """A program that has said that it is ready; ended, stopped or not, when the block is left."""
    child = subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={**os.environ, **(environ or {})}
    )
    try:
        assert child.stdout is not None and child.stdout.readline() == b"ready\n"
        yield child
    finally:
        child.kill()
        child.wait()
        assert child.stdout is not None
        child.stdout.close()


def python(code: str, **options: Mapping[str, str]) -> contextlib.AbstractContextManager["subprocess.Popen[bytes]"]:
    """A Python program, see `running`."""
    return running(sys.executable, "-c", code, **options)


def identity(pid: int) -> ProcessId:
    """Who a running process is."""
    found = procfs.identity(pid)
    assert found is not None
    return found[0]


def stop(pid: int) -> None:
    """SIGSTOP, and the kernel's word that it has stopped."""
    os.kill(pid, signal.SIGSTOP)
    eventually(lambda: (procfs.stat_fields(pid) or ["?"])[0] == "T")


def eventually(holds: Callable[[], object], within_s: float = WAIT_S) -> None:
    """Wait for something that must come; a deadline only keeps a failing test from hanging."""
    until_s = now().mono_s + within_s
    while not holds():
        assert now().mono_s < until_s, "what was waited for did not come"
        threading.Event().wait(0.01)


def now() -> Stamp:
    """The present."""
    return SystemClock().now()


def script(path: Path, text: str) -> Path:
    """An executable shell script."""
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return path
