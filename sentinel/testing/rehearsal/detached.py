"""`python -m sentinel.testing.rehearsal.detached start|stop --folder DIR …`: a pair of commands that own an engine.

`start` returns at once and leaves the engine in a session of its own; every start gets a folder of its own, `DIR/N`,
and `DIR/current` names the newest. `stop` ends the engine that `start` began, if it still runs.
"""

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path

from sentinel.agent import procfs
from sentinel.model.engine import ProcessId


def start(folder: Path, argv: list[str]) -> int:
    """Begin a new engine; returns its pid."""
    folder.mkdir(parents=True, exist_ok=True)
    number = sum(1 for path in folder.iterdir() if path.name.isdecimal())
    home = folder / str(number)
    home.mkdir()
    command = [sys.executable, "-m", "sentinel.testing.rehearsal", "--role", "launcher", "--folder", str(home), *argv]
    environ = {**os.environ, "NCCL_DEBUG_FILE": str(home / "nccl.%h.%p")}
    with (home / "engine.log").open("wb") as log:
        engine = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environ, start_new_session=True
        )  # fmt: skip
    found = procfs.identity(engine.pid)
    (home / "engine.pid").write_text(f"{engine.pid} {found[0].started_ticks if found else 0}")
    (folder / "current").write_text(str(number))
    return engine.pid


def stop(folder: Path) -> None:
    """SIGTERM to the newest engine, if it is still the same process."""
    home = folder / (folder / "current").read_text()
    pid, ticks = map(int, (home / "engine.pid").read_text().split())
    if procfs.still_same(ProcessId(pid, ticks)):
        os.kill(pid, signal.SIGTERM)


def main() -> None:
    """Do what the arguments say."""
    parser = argparse.ArgumentParser(prog="sentinel.testing.rehearsal.detached")
    parser.add_argument("verb", choices=("start", "stop"))
    parser.add_argument("--folder", type=Path, required=True)
    given, rest = parser.parse_known_args()
    if given.verb == "start":
        sys.stdout.write(f"{start(given.folder, rest)}\n")
    else:
        stop(given.folder)


if __name__ == "__main__":
    main()
