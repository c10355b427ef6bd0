"""`sentinel-engine`: launch an engine on several nodes, and load it.

Exit status: 0 done and well, 1 not well, 2 usage, 3 a node did not answer.
"""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .config import MODES
from .launcher.errors import LaunchError, NodeLost
from .load.client import BenchError

OK, NOT_WELL, NO_ANSWER = 0, 1, 3


def _counts(text: str) -> list[int]:
    values = [int(part) for part in text.split(",")]
    if not values or min(values) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a list of positive numbers such as 1,2,4")
    return values


def _add_cluster(commands: Any) -> None:
    from .launcher import commands as run

    verbs: dict[str, tuple[str, Callable[[argparse.Namespace], tuple[Any, bool]]]] = {
        "launch": ("check, start workers then head, wait for a generated token", run.launch),
        "plan": ("command and environment of every rank, diff from the last launch", run.plan),
        "status": ("processes of each node, and whether a token can be generated", run.status),
        "stop": ("end the head, then the workers", run.stop),
    }
    for verb, (text, function) in verbs.items():
        command = commands.add_parser(verb, help=text)
        command.add_argument("cluster", type=Path, help="the cluster file")
        command.add_argument("--state", type=Path, default=run.DEFAULT_STATE,
                             help="folder for the plans of earlier launches")  # fmt: skip
        command.set_defaults(run=function)
        if verb in ("launch", "plan"):
            command.add_argument("--mode", choices=MODES, default="",
                                 help="store mode of every node")  # fmt: skip
        if verb == "launch":
            command.add_argument("--dry-run", action="store_true", help="only check")
        if verb == "stop":
            command.add_argument("--incarnation", default="", help="stop this one or none")


def _add_target(command: argparse.ArgumentParser, silence_s: float) -> None:
    command.add_argument("--url", default="http://127.0.0.1:30000")
    command.add_argument("--model", help="default: the first that the server lists")
    command.add_argument("--seed", default="1", help="of prompts and order; use another for "
                         "prompts that the server has not seen")  # fmt: skip
    command.add_argument("--silence-s", type=float, default=silence_s,
                         help="requests are given up when no token came so long")  # fmt: skip


def _add_runs(kinds: Any, run: Any) -> None:
    # Kind: text, function, prompt tokens, output tokens, requests at once (None: not asked).
    runs = {
        "matrix": ("input x concurrency", run.matrix, "512,2048,8192,32768", 8192, "1,2,4,8"),
        "ladder": ("rising concurrency", run.matrix, "2048", 1024, "1,2,4,8,16,32"),
        "prose": ("one fresh and five warm repeats", run.prose, "946", 512, None),
    }
    for kind, (text, function, inputs, outputs, rungs) in runs.items():
        one = kinds.add_parser(kind, help=text)
        _add_target(one, 300)
        one.add_argument("--out", type=Path, required=True, help="new JSONL file")
        one.add_argument("--input", type=_counts, default=inputs, help="prompt tokens")
        one.add_argument("--output", type=int, default=outputs, help="forced tokens")
        if rungs:
            one.add_argument("--concurrency", type=_counts, default=rungs)
            one.add_argument("--passes", type=int, default=3, help="at least 2")
        one.set_defaults(run=function)


def _add_load(commands: Any) -> None:
    from .load import commands as run

    bench = commands.add_parser("bench", help="matrix, ladder, prose run, smoke tests")
    kinds = bench.add_subparsers(required=True, metavar="KIND")
    _add_runs(kinds, run)
    smoke = kinds.add_parser("smoke", help="arithmetic, JSON schema, tool round trip")
    _add_target(smoke, 300)
    smoke.add_argument("--only", action="append", choices=tuple(run.SMOKE_TESTS))
    smoke.set_defaults(run=run.smoke)


def _add_provoke(commands: Any) -> None:
    from .load import commands as run

    provoke = commands.add_parser("provoke", help="repeat a case until a hang or the budget's end")
    _add_target(provoke, 60)
    provoke.add_argument("--out", type=Path, required=True, help="JSONL file; goes on if it exists")
    provoke.add_argument("--arm", required=True, help="name of the setting under test: nvme")
    provoke.add_argument("--input", type=int, default=8192)
    provoke.add_argument("--output", type=int, default=1024)
    provoke.add_argument("--concurrency", type=int, default=8)
    provoke.add_argument("--cases", type=int, default=175, help="budget, all in the file counted")
    provoke.add_argument("--seconds", type=float, default=7200, help="budget of this call")
    provoke.add_argument("--hangs", type=int, default=1, help="stop after so many")
    provoke.add_argument("--on-hang", metavar="COMMAND", help="captures, and restarts the engine")
    provoke.set_defaults(run=run.provoke)
    odds = commands.add_parser("odds", help="exact intervals and tests from provoke's files")
    odds.add_argument("files", type=Path, nargs="+")
    odds.set_defaults(run=run.odds)


def parser() -> argparse.ArgumentParser:
    """The command line of `sentinel-engine`."""
    root = argparse.ArgumentParser(prog="sentinel-engine", description=__doc__)
    root.add_argument("--json", action="store_true", help="one JSON object on standard output")
    commands = root.add_subparsers(required=True, metavar="COMMAND")
    _add_cluster(commands)
    _add_load(commands)
    _add_provoke(commands)
    return root


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    options = parser().parse_args(arguments)
    try:
        output, well = options.run(options)
    except (LaunchError, BenchError, OSError) as error:
        if options.json:
            print(json.dumps({"error": str(error)}))
        print(f"sentinel-engine: {error}", file=sys.stderr)
        return NO_ANSWER if isinstance(error, NodeLost) else NOT_WELL
    if options.json:
        print(json.dumps(output, sort_keys=True))
    return OK if well else NOT_WELL


if __name__ == "__main__":
    sys.exit(main())
