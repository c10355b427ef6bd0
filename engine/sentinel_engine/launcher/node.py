"""The launcher's half on a node: answers JSON requests on its standard input until that closes."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..config import BadConfig
from ..rowstore.errors import RowStoreError
from . import checks
from .hold import EXIT, RECORD
from .plan import INCARNATION_KEY
from .processes import Member, alive, members, send, wait_gone

LOG = "log"
TAIL_BYTES = 4000
KILL_WAIT_S = 10.0


class _No(Exception):
    """A request that is declined; nothing was changed."""


def clock(_request: dict[str, Any]) -> int:
    """Wall-clock time of this host in nanoseconds."""
    return time.time_ns()


def check(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Every check of this node; changes nothing."""
    return [asdict(found) for found in checks.all_checks(request)]


def start(request: dict[str, Any]) -> dict[str, Any]:
    """Start the node's worker under its holder, in a session of its own."""
    home = Path(request["config_path"]).parent
    folder = home / request["incarnation"]
    folder.mkdir(parents=True)
    if not Path(request["config_path"]).exists():
        with open(request["config_path"], "x", opener=_private) as file:
            file.write(request["config"])
    command = [sys.executable, "-m", "sentinel_engine.launcher.hold", "--role", "holder",
               "--folder", str(folder), "--", *request["command"]]  # fmt: skip
    environment = os.environ | request["environment"] | {INCARNATION_KEY: request["incarnation"]}
    with (folder / LOG).open("xb") as log:
        holder = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stderr=log,
                                  stdout=subprocess.PIPE, start_new_session=True)  # fmt: skip
    assert holder.stdout is not None
    line = holder.stdout.readline()
    if not line:
        raise _No(f"the holder ended at once: {_tail(folder)}")
    answer: dict[str, Any] = json.loads(line)
    if "refused" in answer:
        raise _No(answer["refused"])
    return answer | {"log": str(folder / LOG)}


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _tail(folder: Path) -> str:
    with (folder / LOG).open("rb") as log:
        log.seek(max(0, (folder / LOG).stat().st_size - TAIL_BYTES))
        return log.read().decode(errors="replace")


def _read(path: Path) -> Any:
    return json.loads(path.read_text()) if path.exists() else None


def status(request: dict[str, Any]) -> dict[str, Any]:
    """The newest incarnation on this node: running or not, its processes, how it ended."""
    home = Path(request["state"]) / request["name"]
    records = sorted(home.glob(f"{request['name']}-*/{RECORD}"))
    if not records:
        return {"incarnation": None, "running": False, "processes": []}
    folder = records[-1].parent
    holder = _read(records[-1])["hold"]
    mine = [each for each in members(request["name"]) if each.incarnation == folder.name
            and each.node == request["node"]]  # fmt: skip
    return {
        "incarnation": folder.name, "running": alive(holder["pid"], holder["started_ticks"]),
        "exit": _read(folder / EXIT), "processes": [asdict(each) for each in mine],
        "log": str(folder / LOG), "tail": _tail(folder),
    }  # fmt: skip


def stop(request: dict[str, Any]) -> dict[str, Any]:
    """End the named incarnation: ask its holder, wait, then kill what is left."""
    found = status(request)
    wanted = request["incarnation"] or found["incarnation"]
    if found["incarnation"] != wanted:
        raise _No(f"the newest incarnation here is {found['incarnation']}, not {wanted}")
    those = [Member(**each) for each in found["processes"]]
    heads = [each for each in those if "sentinel_engine.launcher.hold" in each.command]
    for each in heads or those:
        send(each, signal.SIGTERM)
    left = wait_gone(those, request["grace_s"])
    for each in left:
        send(each, signal.SIGKILL)
    unkillable = wait_gone(left, KILL_WAIT_S)
    return {"incarnation": wanted, "stopped": len(those) - len(unkillable), "killed": len(left),
            "left": [each.pid for each in unkillable]}  # fmt: skip


def prove(request: dict[str, Any]) -> dict[str, Any]:
    """One real token from the engine; `ready` false with the reason while there is none."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def exchange(path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        ask = urllib.request.Request(request["url"] + path, data, headers)
        with opener.open(ask, timeout=request["limit_s"]) as got:
            return json.load(got)

    try:
        model = exchange("/v1/models")["data"][0]["id"]
        body = {"model": model, "prompt": "The", "max_tokens": 1, "temperature": 0,
                "ignore_eos": True}  # fmt: skip
        tokens = exchange("/v1/completions", body)["usage"]["completion_tokens"]
    except (OSError, ValueError, LookupError, TypeError) as error:
        return {"ready": False, "why": f"{type(error).__name__}: {error}"}
    return {"ready": tokens >= 1, "why": f"{tokens} tokens from {model}"}


VERBS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "clock": clock, "check": check, "start": start, "status": status, "stop": stop, "prove": prove,
}  # fmt: skip


def answer(line: str) -> dict[str, Any]:
    """Serve one request: `{"answer": ...}`, or `{"refused": why}`."""
    request = json.loads(line)
    try:
        return {"answer": VERBS[request["verb"]](request)}
    except (_No, BadConfig, RowStoreError, OSError) as error:
        return {"refused": str(error)}


def main() -> None:
    """Serve until the other side closes."""
    for line in sys.stdin:
        print(json.dumps(answer(line)), flush=True)


if __name__ == "__main__":
    main()
