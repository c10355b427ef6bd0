"""Clients of the engines that `detached` starts: they come back to every new one."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

from sentinel.testing.rehearsal.shared import Shared

LOOK_EVERY_S = 0.05


@contextlib.contextmanager
def coming_back(folder: Path, requests: int) -> Iterator[None]:
    """While the block runs, each engine below `folder` has this many requests running as soon as it serves."""
    over = threading.Event()

    def call() -> None:
        served: set[Path] = set()
        while not over.wait(LOOK_EVERY_S):
            home = folder / (folder / "current").read_text()
            log = home / "engine.log"
            if home not in served and log.exists() and "fired up" in log.read_text(errors="replace"):
                Shared(home / "shared").put("running", requests)
                served.add(home)

    thread = threading.Thread(target=call, name="clients", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(timeout=5.0)
