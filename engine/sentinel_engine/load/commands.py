"""The load verbs of the command line: progress, records, tables."""

import argparse
import asyncio
import json
import shlex
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TextIO, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from ..console import say, stream
from . import bench, chance
from . import provoke as provoking
from . import smoke as smoking
from .client import BenchError, Client

Output = tuple[Any, bool]
Record = dict[str, Any]
Result = TypeVar("Result")
TABLE_WIDTH = 120
SMOKE_TESTS = smoking.TESTS


@contextmanager
def _progress(what: str, total: int, done: int = 0) -> Iterator[Callable[[str], None]]:
    """A bar on standard error, drawn only on a terminal; call it after each step."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
               TimeElapsedColumn())  # fmt: skip
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(what, total=total, completed=done)
        yield lambda text: bar.update(task, advance=1, description=f"{what}: {text}")


def _with_client(
    options: argparse.Namespace, work: Callable[[Client], Awaitable[Result]]
) -> Result:
    async def run() -> Result:
        async with Client(options.url, options.model, options.silence_s) as client:
            return await work(client)

    return asyncio.run(run())


def _table(options: argparse.Namespace, title: str, rows: Sequence[Sequence[str]]) -> None:
    table = Table(*rows[0], title=title)
    for row in rows[1:]:
        table.add_row(*row)
    out = stream(options)
    Console(file=out, width=None if out.isatty() else TABLE_WIDTH).print(table)


def _figure(value: float | None, spread: float | None = None) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" + (f" ± {spread:.3g}" if spread is not None else "")


@contextmanager
def _records(path: Path, step: Callable[[str], None]) -> Iterator[bench.Write]:
    """A new JSONL file, made with its first record; an existing one is refused, not replaced."""
    if path.exists():
        raise BenchError(f"{path} exists and is not replaced; give --out another name")
    with ExitStack() as stack:
        opened: list[TextIO] = []

        def write(record: Record) -> None:
            if not opened:
                opened.append(stack.enter_context(path.open("x")))
            opened[0].write(json.dumps(record) + "\n")
            opened[0].flush()
            step(str(record.get("kind")))

        yield write


def matrix(options: argparse.Namespace) -> Output:
    """All cells in several passes; well means that no request failed or came short."""
    if options.passes < bench.PASSES_MIN:
        raise BenchError("one pass says nothing about variance: give --passes 2 or more")
    cells = [bench.Cell(i, options.output, c) for i in options.input for c in options.concurrency]
    with (
        _progress("bursts", len(cells) * (options.passes + 1)) as step,
        _records(options.out, step) as write,
    ):
        rows = _with_client(
            options, lambda client: bench.matrix(client, cells, options.passes, options.seed, write)
        )
        for row in rows:
            write(row)
    head = ("input", "output", "at once", "ttft s", "decode tok/s", "total decode", "prefill tok/s",
            "failed", "short")  # fmt: skip
    body = [(str(row["input_tokens"]), str(row["output_tokens"]), str(row["concurrency"]),
             *(_figure(row[key], row[key + "_sd"]) for key in bench.FIGURES),
             str(row["failed"]), str(row["short"])) for row in rows]  # fmt: skip
    _table(options, f"mean ± sd of {options.passes} passes", [head, *body])
    return {"cells": rows}, not any(row["failed"] or row["short"] for row in rows)


def prose(options: argparse.Namespace) -> Output:
    """One fresh and five warm requests; well means that every text was whole and sane."""
    with _progress("requests", 1 + bench.PROSE_REPEATS) as step, _records(options.out, step) as out:
        sizes = (options.input[0], options.output)
        records = _with_client(
            options, lambda client: bench.prose(client, options.seed, out, sizes)
        )
    rows = [("condition", "decode tok/s", "ttft s", "prompt tokens", "flaw")]
    rows += [(each["condition"], _figure(each["decode_tok_s"]), _figure(each["ttft_s"]),
              str(each["prompt_tokens"]), each["flaw"] or "none") for each in records]  # fmt: skip
    _table(options, "prose", rows)
    return {"requests": records}, all(each["flaw"] is None for each in records)


def smoke(options: argparse.Namespace) -> Output:
    """Each smoke test with what the model said."""
    names = options.only or list(SMOKE_TESTS)
    found = _with_client(options, lambda client: smoking.smoke(client, names))
    for name, (well, says) in found.items():
        say(options, f"{'ok    ' if well else 'failed'} {name:<12} {says}")
    return {name: {"ok": well, "says": says} for name, (well, says) in found.items()}, all(
        well for well, _ in found.values()
    )


def provoke(options: argparse.Namespace) -> Output:
    """Cases until the budget ends; well means that none hung or failed."""
    cell = bench.Cell(options.input, options.output, options.concurrency)
    hook = provoking.Hook(tuple(shlex.split(options.on_hang))) if options.on_hang else None
    budget = provoking.Budget(options.cases, options.seconds, options.hangs)
    upper = chance.share_upper(0, options.cases)
    print(f"{options.cases} clean cases would bound the rate at {upper:.2%} (95 %)",
          file=sys.stderr)
    with _progress(options.arm, options.cases, len(provoking.read_cases(options.out))) as step:
        cases = _with_client(
            options,
            lambda client: provoking.provoke(
                client, cell, options.arm, options.seed, options.out, budget, hook,
                lambda case: step(f"{case['outcome']} {case['wall_s']:.1f} s"),
            ),
        )  # fmt: skip
    counts = {name: sum(case["outcome"] == name for case in cases)
              for name in ("clean", "hang", "error")}  # fmt: skip
    say(options, f"{options.arm}: {counts}")
    return {"arm": options.arm, "cases": len(cases), **counts}, counts["clean"] == len(cases)


def odds(options: argparse.Namespace) -> Output:
    """Intervals per arm and tests between arms."""
    cases = [case for path in options.files for case in provoking.read_cases(path)]
    if not cases:
        raise BenchError("the files hold no case; write some with `sentinel-engine provoke`")
    rows = chance.compare(cases)
    for row in rows:
        say(options, "  ".join(f"{key}={value}" for key, value in row.items()))
    return {"rows": rows}, True
