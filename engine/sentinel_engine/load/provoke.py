"""Repeats a case until it hangs or the budget ends; each case is one line of JSON.

A hang is: requests outstanding and no token for `silence_s`. Lines are appended and a run goes on
from what is in the file, so that a restart of the engine between them is part of the same run.
"""

import asyncio
import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from .bench import Cell, Record, burst, figures, utc_now
from .client import Answer, BenchError, Client
from .workload import Prompts

HOOK_LIMIT_S = 300.0
ERRORS_MAX = 3


@dataclass(frozen=True, slots=True)
class Budget:
    """When to stop: cases and hangs count what is already in the file, seconds this call."""

    cases: int
    seconds: float
    hangs: int = 1


@dataclass(frozen=True, slots=True)
class Hook:
    """A command run at each hang: captures evidence and, to go on, restarts the engine.

    It finds the case in SENTINEL_CASE (JSON) and ends within `limit_s` or is killed.
    """

    command: tuple[str, ...]
    limit_s: float = HOOK_LIMIT_S

    async def run(self, case: Record) -> str:
        """Exit status as text; never raises for a hook that fails."""
        environment = os.environ | {"SENTINEL_CASE": json.dumps(case)}
        try:
            process = await asyncio.create_subprocess_exec(*self.command, env=environment)
        except OSError as error:
            return f"not started: {error}"
        try:
            return f"exit {await asyncio.wait_for(process.wait(), self.limit_s)}"
        except TimeoutError:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            return f"killed after {self.limit_s:g} s"


def read_cases(path: Path) -> list[Record]:
    """Cases in a file, lines torn by a crash left out; BenchError when it is something else."""
    if not path.exists():
        return []
    cases = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.startswith("{"):
            raise BenchError(f"{path}:{number} is no record; give another file")
        with suppress(ValueError):
            cases.append(json.loads(line))
    return [case for case in cases if case.get("kind") == "case"]


def outcome(answers: list[Answer]) -> str:
    """`hang` when any request fell silent, `error` when any ended badly, else `clean`."""
    statuses = {answer.status for answer in answers}
    if "silent" in statuses:
        return "hang"
    return "clean" if statuses == {"ok"} else "error"


def _moved(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    return {name: value - before.get(name, 0.0) for name, value in after.items()
            if value != before.get(name, 0.0) and "_bucket{" not in name}  # fmt: skip


async def run_case(client: Client, prompts: Prompts, cell: Cell, number: int, arm: str) -> Record:
    """One burst with prompts of its own; `moved` is what the server's metrics counted meanwhile."""
    before = await client.metrics()
    answers, started, wall_s = await burst(client, prompts, cell, f"case {number}")
    return {
        "kind": "case", "case": number, "arm": arm, **asdict(cell), "started": started,
        "ended": utc_now(), "wall_s": wall_s, "silence_s": client.silence_s,
        "outcome": outcome(answers),
        "status": [answer.status for answer in answers],
        "detail": next((answer.detail for answer in answers if answer.detail), ""),
        "tokens": sum(answer.tokens for answer in answers),
        **figures(answers), "moved": _moved(before, await client.metrics()),
    }  # fmt: skip


async def provoke(
    client: Client, cell: Cell, arm: str, seed: str, path: Path, budget: Budget, hook: Hook | None,
    report: Callable[[Record], None] = lambda _case: None,
) -> list[Record]:  # fmt: skip
    """Run cases until the budget ends; without a hook that restarts, the first hang ends it.

    A request that fails is no hang; `ERRORS_MAX` such cases in a row end the run.
    """
    cases = read_cases(path)
    prompts = await Prompts.calibrate(client, seed)
    give_up = time.monotonic() + budget.seconds

    def hangs() -> int:
        return sum(case["outcome"] == "hang" for case in cases)

    with path.open("a") as file:
        if file.tell() and not path.read_bytes().endswith(b"\n"):
            file.write("\n")
        while (
            len(cases) < budget.cases and hangs() < budget.hangs and time.monotonic() < give_up
        ):
            case = await run_case(client, prompts, cell, len(cases), arm)
            if case["outcome"] == "hang" and hook is not None:
                case["hook"] = await hook.run(case)
            file.write(json.dumps(case) + "\n")
            file.flush()
            cases.append(case)
            report(case)
            last = [each["outcome"] for each in cases[-ERRORS_MAX:]]
            if last == ["error"] * ERRORS_MAX or (last[-1] == "hang" and hook is None):
                break
    return cases
