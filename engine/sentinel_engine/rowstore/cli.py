"""`rowstore`: pack, verify, inspect and serve tables; look at and steer a running store.

Exit status: 0 done, 1 the table or the store is not well, 2 usage, 3 nobody answered.
"""

import argparse
import json
import sys
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from typing import Any

from . import commands_live, commands_table
from .errors import NoAnswer, RowStoreError

Output = dict[str, Any]
Command = Callable[[argparse.Namespace], tuple[Output, bool]]


class Exit(IntEnum):
    """Exit status of the command."""

    OK = 0
    NOT_WELL = 1
    USAGE = 2
    NO_ANSWER = 3


def _add_pack(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    pack = commands.add_parser("pack", help="write an RWS1 file and its manifest")
    pack.add_argument("out", type=Path)
    pack.add_argument("--layer", type=int, required=True)
    source = pack.add_mutually_exclusive_group(required=True)
    source.add_argument("--formula-rows", type=int, metavar="N",
                        help="N rows that are a function of (layer, row): for tests")
    source.add_argument("--safetensors", type=Path, metavar="FILE")
    pack.add_argument("--codes", help="name of the tensor of codes")
    pack.add_argument("--scales", help="name of the tensor of scales")
    pack.add_argument("--scales-file", type=Path, help="shard of the scales, if another one")
    pack.add_argument("--range", action="append", default=[], metavar="HEAD:START:COUNT",
                      help="rows of one head that belong to this rank; may be repeated")
    pack.add_argument("--fp4", action="store_true", help="formula rows of e2m1 codes")
    pack.add_argument("--huge-offset", action="store_true", help="data from 2 MiB, for huge pages")
    pack.set_defaults(run=commands_table.pack)


def _add_table_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    verify = commands.add_parser("verify", help="check every page, row id and chunk digest")
    verify.add_argument("table", type=Path)
    verify.set_defaults(run=commands_table.verify)

    info = commands.add_parser("info", help="geometry, slice and origin of a file")
    info.add_argument("table", type=Path)
    info.set_defaults(run=commands_table.info)

    gather = commands.add_parser("gather", help="read rows by global id through a store")
    gather.add_argument("table", type=Path)
    gather.add_argument("ids", type=int, nargs="+")
    gather.add_argument("--mode", default="nvme", choices=("nvme", "ram", "legacy"))
    gather.set_defaults(run=commands_table.gather)

    bench = commands.add_parser("bench", help="rows per second of one mode on this machine")
    bench.add_argument("table", type=Path)
    bench.add_argument("--mode", default="nvme", choices=("nvme", "ram", "legacy"))
    bench.add_argument("--io", default="auto", choices=("auto", "uring", "aio", "pool", "inline"))
    bench.add_argument("--batch", type=int, default=288, help="rows per gather")
    bench.add_argument("--seconds", type=float, default=5)
    bench.add_argument("--cache-bytes", type=int, default=0)
    bench.set_defaults(run=commands_table.bench)


def _add_live_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    stat = commands.add_parser("stat", help="read a telemetry page, also of a dead process")
    stat.add_argument("page", type=Path)
    stat.set_defaults(run=commands_live.stat)

    mode = commands.add_parser("mode", help="switch a running store to another mode")
    mode.add_argument("control", type=Path, help="control socket of the store")
    mode.add_argument("target", choices=("nvme", "ram", "legacy"))
    mode.add_argument("--timeout-s", type=float, default=600)
    mode.set_defaults(run=commands_live.mode)

    unblock = commands.add_parser("unblock", help="end the gather that a lane is stuck in")
    unblock.add_argument("control", type=Path, help="control socket of the store")
    unblock.add_argument("lane", type=int)
    unblock.set_defaults(run=commands_live.unblock)

    keeper = commands.add_parser("keeper", help="hold tables in locked memory for engines")
    keeper.add_argument("socket", type=Path)
    keeper.add_argument("tables", type=Path, nargs="+")
    keeper.add_argument("--threads", type=int, default=4)
    keeper.add_argument("--reserve-bytes", type=int, default=2 << 30)
    keeper.set_defaults(run=commands_live.keeper)


def parser() -> argparse.ArgumentParser:
    """The command line of `rowstore`."""
    root = argparse.ArgumentParser(prog="rowstore", description=__doc__)
    root.add_argument("--json", action="store_true", help="one JSON object on standard output")
    commands = root.add_subparsers(required=True, metavar="COMMAND")
    _add_pack(commands)
    _add_table_commands(commands)
    _add_live_commands(commands)
    return root


def _print(output: Output, as_json: bool) -> None:
    if as_json:
        print(json.dumps(output, sort_keys=True))
        return
    width = max((len(key) for key in output), default=0)
    for key, value in output.items():
        print(f"{key:<{width}}  {value}")


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    options = parser().parse_args(arguments)
    command: Command = options.run
    try:
        output, well = command(options)
    except NoAnswer as error:
        print(f"rowstore: {error}", file=sys.stderr)
        return Exit.NO_ANSWER
    except (RowStoreError, OSError) as error:
        print(f"rowstore: {error}", file=sys.stderr)
        return Exit.NOT_WELL
    _print(output, options.json)
    return Exit.OK if well else Exit.NOT_WELL


if __name__ == "__main__":
    sys.exit(main())
