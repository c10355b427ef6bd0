"""Packs kept incidents into bundles, one after another, in a child process that may not take long.

Packing redacts every line, which costs seconds of CPU: it happens when the evidence is safe on disk, off the agent's
loop, at low priority. A bundle that could not be made is said; it can be made later by `sentinel bundle create`. The
thread that waits for the child also weighs what is kept, which may be thousands of files.
"""

import contextlib
import os
import queue
import shutil
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

from sentinel.plumbing.subprocesses import run_bounded

NAME = "bundle.tar.zst"
DEADLINE_S = 300.0
SAID_BYTES_MAX = 64 << 10
WAITING_MAX = 20


@dataclass(slots=True)
class Bundling:
    """`order` an incident's folder; `why` says what the newest failure was. `state` is the agent's folder.

    `kept_bytes` is the size of all that is below `incidents`, newly weighed with every order.
    """

    state: Path
    incidents: Path
    why: str = ""
    kept_bytes: int = 0
    _orders: "queue.Queue[Path]" = field(default_factory=lambda: queue.Queue(WAITING_MAX))

    def start(self) -> None:
        """Weigh what is there, and wait for orders."""
        threading.Thread(target=self._work, name="bundles", daemon=True).start()

    def order(self, home: Path) -> None:
        """Have this incident packed soon."""
        try:
            self._orders.put_nowait(home)
        except queue.Full:
            self.why = f"{home}: too many bundles at once; make it with `sentinel bundle create {home}`"

    def _work(self) -> None:
        self.kept_bytes = weight(self.incidents)
        while True:
            home = self._orders.get()
            # Its evidence is on disk before it is ordered, and packing may take minutes.
            self.kept_bytes = weight(self.incidents)
            self.why = pack(home, self.state)
            self.kept_bytes = weight(self.incidents)


def pack(home: Path, state: Path) -> str:
    """Make the bundle of one incident; returns why that failed, or nothing."""
    argv = [sys.executable, "-m", "sentinel", "bundle", "create", str(home), "--state", str(state)]
    argv += ["--out", str(home / NAME)]
    if (nice := shutil.which("nice")) is not None:
        argv = [nice, "-n", "10", *argv]
    ran = run_bounded(argv, deadline_s=DEADLINE_S, bytes_max=SAID_BYTES_MAX)
    if ran.ok:
        return ""
    why = ran.why or ran.said_last or f"ended with status {ran.status}"
    lacks = "a bundle without report" if (home / NAME).is_file() else "no bundle"
    return f"{lacks} of {home.name}: {why}; the evidence is kept, `sentinel bundle create {home}` tries again"


def weight(folder: Path) -> int:
    """Bytes of all files below a folder; what is removed or renamed meanwhile is left out."""
    found = 0
    for home, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                found += (Path(home) / name).stat().st_size
    return found
