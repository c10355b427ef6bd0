"""Parent of one node's worker: holds the name, records what started and how it ended.

`--role holder` tells whoever looks at the process table that the engine's root is the worker. The
first line of its output says what came of the start.
"""

import argparse
import fcntl
import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .processes import started_ticks

RECORD, EXIT = "process.json", "exit.json"


def write_new(path: Path, content: Any) -> None:
    """A JSON file that appears complete or not at all, and never replaces one."""
    part = path.with_name(path.name + ".part")
    with part.open("x") as file:
        json.dump(content, file, sort_keys=True)
        file.flush()
        os.fsync(file.fileno())
    part.rename(path)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--role", choices=("holder",), required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("command", nargs="+")
    return parser.parse_args()


def main() -> int:
    """Run the worker to its end; the exit status is the worker's."""
    options = _arguments()
    lock = os.open(options.folder.parent / "lock", os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(json.dumps({"refused": "another engine of this name runs here; stop it first"}))
        return 1
    # Blocked until the worker exists, so that a request to end is never lost.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    # The worker inherits the lock: the name stays taken when this process alone is killed.
    worker = subprocess.Popen(options.command, stdin=subprocess.DEVNULL, stdout=2,
                              pass_fds=(lock,), preexec_fn=_unblock)  # fmt: skip
    signal.signal(signal.SIGTERM, lambda _signal, _frame: worker.terminate())
    _unblock()
    pids = {"hold": os.getpid(), "worker": worker.pid}
    record = {name: {"pid": pid, "started_ticks": started_ticks(pid)} for name, pid in pids.items()}
    write_new(options.folder / RECORD, record)
    print(json.dumps(pids), flush=True)
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    status = worker.wait()
    ended = datetime.now(UTC).isoformat(timespec="milliseconds")
    write_new(options.folder / EXIT, {"status": status, "ended": ended})
    return status if status >= 0 else 128 - status


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


if __name__ == "__main__":
    sys.exit(main())
