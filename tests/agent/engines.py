"""A rehearsal engine for tests: real ranks that decode, with their log and their folder."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sentinel.agent.discovery import NAME_MARK, Discovery
from sentinel.model.engine import Engine
from sentinel.testing.rehearsal.shared import Shared
from tests.agent.targets import eventually

NAME = f"tests-{os.getpid()}"
"""The engines of this process of tests; an agent of another one leaves them alone."""


@dataclass(frozen=True)
class Rehearsal:
    """A running engine."""

    launcher: "subprocess.Popen[bytes]"
    folder: Path

    @property
    def log(self) -> Path:
        return self.folder / "engine.log"

    def lines(self, words: str) -> int:
        """How many of its log lines hold these words."""
        return self.log.read_text().count(words)

    def engine(self) -> Engine:
        """What discovery makes of it; other engines of the host are left out."""
        return next(engine for engine in Discovery().scan() if engine.root.pid == self.launcher.pid)


@contextlib.contextmanager
def rehearsal(folder: Path, ranks: int = 2, *options: str, running: int = 4) -> Iterator[Rehearsal]:
    """An engine that has served its first steps; all its processes are ended when the block is left."""
    folder.mkdir(parents=True, exist_ok=True)
    argv = [sys.executable, "-m", "sentinel.testing.rehearsal", "--role", "launcher", "--ranks", str(ranks)]
    argv += ["--folder", str(folder), "--step-s", "0.005", *options]
    with (folder / "engine.log").open("ab") as log:
        environ = {**os.environ, NAME_MARK: NAME, "NCCL_DEBUG_FILE": str(folder / "nccl.%h.%p")}
        launcher = subprocess.Popen(argv, stderr=log, env=environ, start_new_session=True)
    engine = Rehearsal(launcher, folder)
    try:
        eventually(lambda: engine.lines("fired up"))
        Shared(folder / "shared").put("running", running)
        if running:
            eventually(lambda: engine.lines("Decode batch"))
        yield engine
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(launcher.pid, signal.SIGKILL)
        launcher.wait()
