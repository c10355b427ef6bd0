"""One capture: evidence of every process of an engine, within a deadline, written as an evidence folder.

Two passes some seconds apart show what is stuck and what moves. Ranks come before helpers, cheap rungs of all before
attaching rungs of any, and a fixed number of workers bounds the CPU. What could not be had is recorded with its reason.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from sentinel.agent import ladder, procfs, ras
from sentinel.agent.ladder import ATTACHING, CHEAP, Rung, Taken
from sentinel.model.engine import Engine, EngineProcess
from sentinel.model.stamp import Stamp
from sentinel.plumbing.clock import Clock, local_text

WORKERS = 2
SECOND_PASS_AFTER_S = 2.0
RESERVE_S = 1.0
ORDER = {"rank": 0, "core": 1, "frontend": 2, "launcher": 3, "other": 4}


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt, for the manifest: what, of whom, when, and how it went."""

    what: str
    pid: int
    pass_no: int
    began_s: float
    took_s: float
    file: str | None
    why: str = ""


@dataclass(slots=True)
class Captured:
    """What a capture brought. `with_stacks` and `without` are ranks."""

    folder: Path
    steps: list[Step] = field(default_factory=list)
    with_stacks: set[int] = field(default_factory=set)
    without: dict[int, str] = field(default_factory=dict)
    complete: bool = False
    why_incomplete: str = ""
    begun: bool = True


@dataclass(slots=True)
class Capture:
    """Runs one capture into `folder`. `wanted` is asked before every rung, so that a recovered engine is left alone."""

    engine: Engine
    folder: Path
    clock: Clock
    budget_s: float
    wanted: Callable[[], bool]
    stop: threading.Event = field(default_factory=threading.Event)
    _result: Captured = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _until_s: float = 0.0

    def run(self) -> Captured:
        """Take everything, if there can be a folder; returns no later than the budget plus one tool's deadline."""
        self._result = Captured(self.folder)
        self._until_s = self.clock.now().mono_s + self.budget_s - RESERVE_S
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            self._result.why_incomplete = f"no evidence can be kept in {self.folder}: {error.strerror}"
            return self._result
        processes = sorted(self.engine.processes, key=lambda process: (ORDER[process.role], process.id))
        self._keep(0, 1, _process_table(self.engine, self.clock.now()))
        self._pass(1, processes, CHEAP)
        self._keep(0, 1, ras.status(self._left_s()))
        self.stop.wait(min(SECOND_PASS_AFTER_S, max(0.0, self._left_s())))
        self._pass(2, processes, CHEAP)
        self._keep(0, 2, _process_table(self.engine, self.clock.now()))
        self._pass(2, [process for process in processes if process.role in ("rank", "core")], ATTACHING)
        return self._finished(processes)

    def _pass(self, number: int, processes: Sequence[EngineProcess], rungs: tuple[Rung, ...]) -> None:
        pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="capture")
        jobs = [pool.submit(self._climb, process, number, rungs) for process in processes]
        wait(jobs, timeout=max(0.0, self._left_s()) + ladder.TOOL_DEADLINE_S)
        # A worker that is stuck in the kernel must not keep the capture from ending.
        pool.shutdown(wait=False, cancel_futures=True)

    def _climb(self, process: EngineProcess, number: int, rungs: tuple[Rung, ...]) -> None:
        for taken in ladder.climb(process.id, rungs, self._still_wanted):
            self._keep(process.id.pid, number, taken)
            if taken.rung == "py-spy" and taken.ok and process.rank is not None:
                with self._lock:
                    self._result.with_stacks.add(process.rank)
            elif taken.rung in ("py-spy", "eu-stack", "pystack") and process.rank is not None:
                with self._lock:
                    if taken.ok:
                        self._result.with_stacks.add(process.rank)
                    else:
                        self._result.without.setdefault(process.rank, f"{taken.rung}: {taken.why}")

    def _still_wanted(self) -> bool:
        return self._left_s() > 0 and not self.stop.is_set() and self.wanted()

    def _left_s(self) -> float:
        return self._until_s - self.clock.now().mono_s

    def _keep(self, pid: int, number: int, taken: Taken) -> None:
        """Write one piece at once, so that it survives whatever comes next."""
        began_s = self.clock.now().mono_s - taken.took_s
        file, why = None, taken.why
        if taken.ok:
            file = f"pass{number}-{taken.name}"
            try:
                (self.folder / file).write_bytes(taken.data)
            except OSError as error:
                file, why = None, f"cannot write: {error.strerror}"
        step = Step(
            what=taken.rung,
            pid=pid,
            pass_no=number,
            began_s=round(began_s, 3),
            took_s=round(taken.took_s, 3),
            file=file,
            why=why,
        )
        with self._lock:
            self._result.steps.append(step)

    def _finished(self, processes: Sequence[EngineProcess]) -> Captured:
        result = self._result
        ranks = {process.rank for process in processes if process.role == "rank" and process.rank is not None}
        for rank in result.with_stacks:
            result.without.pop(rank, None)
        # A rank whose every attempt failed for a recorded reason is accounted for: absence is evidence too.
        unaccounted = ranks - result.with_stacks - set(result.without)
        result.complete = not unaccounted
        result.why_incomplete = "" if result.complete else f"no attempt was made on ranks {sorted(unaccounted)}"
        return result


def _process_table(engine: Engine, now: Stamp) -> Taken:
    """Who was who, as a process table: lets a bundle be judged without the agent that took it."""
    rows = ["    PID    PPID STAT COMMAND"]
    titles = {process.id.pid: process.title for process in engine.processes}
    for pid in [pid for root in engine.roots for pid in procfs.tree(root.pid)]:
        fields, view = procfs.stat_fields(pid), procfs.view(pid)
        if fields is not None and len(fields) > 1:
            title = titles.get(pid) or ("" if view is None else view.title[:200])
            state = "S" if fields[0] in "Tt" and procfs.held_by_stack_tool(pid) else fields[0]
            rows.append(f"{pid:7d} {fields[1]:>7s} {state:4s} {title}")
    name = local_text(now.wall_s, "processes-%Y%m%dT%H%M%S.txt")
    return Taken(rung="processes", name=name, data=("\n".join(rows) + "\n").encode())
