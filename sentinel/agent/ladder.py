"""The stack ladder: how evidence of one process is taken, cheapest and least intrusive first.

Order and limits were measured on GPU engines: thread tables cost nothing; `py-spy --nonblocking` pauses nothing;
`eu-stack` attaches thread by thread for 40 to 130 ms; `pystack --native-all` pauses the whole process for 150 to
280 ms and comes last. For stopped and uninterruptible processes only the forms that do not attach are used.
"""

import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from sentinel.agent import procfs
from sentinel.agent.helper import HELPER, KERNEL_STACKS, Helper
from sentinel.model.engine import ProcessId
from sentinel.plumbing.subprocesses import Ran, run_bounded

_TRACED = re.compile(rb"( ; stat=\d+ \(.*\)) t (?=-?\d)")

TOOL_DEADLINE_S = 5.0
KERNEL_STACKS_S = 3.0
STACK_BYTES_MAX = 4 << 20
NO_ATTACH_STATES = frozenset("DTtZX")


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """One piece of evidence: the file to keep, or why there is none."""

    rung: str
    name: str
    data: bytes = b""
    why: str = ""
    took_s: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether there is evidence."""
        return bool(self.data)


@dataclass(frozen=True, slots=True)
class Rung:
    """A step of the ladder. `attaches`: it stops threads for a moment and is skipped for D, T and dead processes."""

    name: str
    suffix: str
    attaches: bool
    take: Callable[[ProcessId], Taken]


def thread_table(target: ProcessId, proc: Path = procfs.PROC) -> Taken:
    """All threads with state, wait channel, system call and CPU ticks, as text that `collectors/thread_table` reads."""
    held = procfs.held_by_stack_tool(target.pid, proc)
    told = _through_helper("threads", target, "threads", "txt") if proc == procfs.PROC else None
    taken = _threads(target, proc) if told is None else with_kernel_stacks(told, target, KERNEL_STACKS)
    if taken.ok and (held or procfs.held_by_stack_tool(target.pid, proc)):
        return replace(taken, data=shown_asleep(taken.data))
    return taken


def with_kernel_stacks(table: Taken, target: ProcessId, service: Helper) -> Taken:
    """The helper's thread table with the kernel stacks of the optional service, or with the word why there are none."""
    if not service.path.exists():
        return replace(table, why="without kernel stacks: sentinel-kstack.socket is not enabled")
    told = service.ask("kernel_stacks", target, KERNEL_STACKS_S)
    if not told.data:
        return replace(table, why=f"without kernel stacks: {told.why or 'no answer'}")
    stacks = dict(line.partition(b" ; ")[::2] for line in told.data.splitlines())
    rows = (
        row + b" ; " + stack if (stack := stacks.get(row.partition(b" ; ")[0])) else row
        for row in table.data.splitlines()
    )
    return replace(table, data=b"\n".join(rows) + b"\n")


def shown_asleep(table: bytes) -> bytes:
    """A thread table, the helper's or ours, taken while a stack tool held the process.

    A tool lets go in a moment; left as they are, its stops would say that somebody has stopped the process.
    """
    first, newline, rows = table.partition(b"\n")
    rows = rows.replace(b" ; wchan=ptrace_stop ;", b" ; wchan= ;")
    note = b" (a stack tool holds it: tracing stops are shown as sleep)"
    return first + note + newline + _TRACED.sub(rb"\1 S ", rows)


def _threads(target: ProcessId, proc: Path) -> Taken:
    lines = [f"# pid {target.pid}, one line a thread: tid ; comm= ; wchan= ; syscall= ; stat= ; stack="]
    tasks = proc / str(target.pid) / "task"
    try:
        tids = sorted(int(entry) for entry in os.listdir(tasks) if entry.isdecimal())
    except OSError as error:
        return Taken(rung="threads", name=_name("threads", target, "txt"), why=f"{tasks}: {error.strerror}")
    for tid in tids:
        fields = _thread(tasks / str(tid))
        lines.append(f"{tid} ; " + " ; ".join(f"{name}={text}" for name, text in fields.items()))
    text = "\n".join(lines) + "\n"
    return Taken(rung="threads", name=_name("threads", target, "txt"), data=text.encode())


def _thread(task: Path) -> dict[str, str]:
    return {name: _one_line(task / name) for name in ("comm", "wchan", "syscall", "stat", "stack")}


def _through_helper(verb: str, target: ProcessId, rung: str, suffix: str) -> Taken | None:
    """What the privileged helper tells; None when there is no need to ask it, or it has no answer."""
    if not HELPER.wanted():
        return None
    began = time.monotonic()
    told = HELPER.ask(verb, target)
    if not told.data:
        return None
    return Taken(rung=rung, name=_name(rung, target, suffix), data=told.data, took_s=time.monotonic() - began)


def _py_spy(target: ProcessId) -> Taken:
    if (told := _through_helper("python_stacks", target, "py-spy", "json")) is not None:
        return told
    argv = [_tool("py-spy"), "dump", "--nonblocking", "--json", "--pid", str(target.pid)]
    return _ran("py-spy", target, "json", run_bounded(argv, deadline_s=TOOL_DEADLINE_S, bytes_max=STACK_BYTES_MAX))


def _eu_stack(target: ProcessId) -> Taken:
    if (told := _through_helper("native_stacks", target, "eu-stack", "txt")) is not None:
        return told
    argv = [_tool("eu-stack"), "-p", str(target.pid)]
    return _ran("eu-stack", target, "txt", run_bounded(argv, deadline_s=TOOL_DEADLINE_S, bytes_max=STACK_BYTES_MAX))


def _pystack(target: ProcessId) -> Taken:
    argv = [_tool("pystack"), "remote", "--native-all", str(target.pid)]
    taken = _ran("pystack", target, "txt", run_bounded(argv, deadline_s=TOOL_DEADLINE_S, bytes_max=STACK_BYTES_MAX))
    return taken if taken.ok else _gdb(target, taken.why)


def _gdb(target: ProcessId, before: str) -> Taken:
    # Without auto-solib-add off, gdb stopped processes that load torch for 9 to 12 s.
    argv = [_tool("gdb"), "-batch", "-iex", "set auto-solib-add off", "-ex", "thread apply all bt"]
    ran = run_bounded([*argv, "-p", str(target.pid)], deadline_s=TOOL_DEADLINE_S, bytes_max=STACK_BYTES_MAX)
    taken = _ran("gdb", target, "txt", ran)
    return taken if taken.ok else Taken(rung="pystack", name=taken.name, why=f"{before}; then {taken.why}")


THREADS = Rung("threads", "txt", False, thread_table)
PY_SPY = Rung("py-spy", "json", False, _py_spy)
EU_STACK = Rung("eu-stack", "txt", True, _eu_stack)
PYSTACK = Rung("pystack", "txt", True, _pystack)
CHEAP = (THREADS, PY_SPY)
ATTACHING = (EU_STACK, PYSTACK)


def climb(target: ProcessId, rungs: tuple[Rung, ...], still_wanted: Callable[[], bool]) -> Iterator[Taken]:
    """Take evidence of one process, rung by rung, while it is wanted and the process is the one that was meant."""
    for rung in rungs:
        name = _name(rung.name, target, rung.suffix)
        if not still_wanted():
            yield Taken(rung=rung.name, name=name, why="no longer wanted: progress came back or time is up")
            continue
        fields = procfs.stat_fields(target.pid)
        if fields is None or not procfs.still_same(target):
            yield Taken(rung=rung.name, name=name, why="the process is gone")
            continue
        if rung.attaches and fields[0] in NO_ATTACH_STATES:
            yield Taken(rung=rung.name, name=name, why=f"not attached to a process in state {fields[0]}")
            continue
        yield rung.take(target)
        if rung.attaches and fields[0] not in NO_ATTACH_STATES and (came_of_it := resume_if_left_stopped(target)):
            yield Taken(rung="resume", name=name, why=f"{rung.name} left it stopped; {came_of_it}")


def resume_if_left_stopped(target: ProcessId) -> str:
    """Continue a process that a stack tool left stopped; says what came of it, nothing where that was not needed."""
    fields = procfs.stat_fields(target.pid)
    if fields is None or fields[0] != "T" or not procfs.still_same(target):
        return ""
    try:
        os.kill(target.pid, signal.SIGCONT)
    except ProcessLookupError:
        return ""
    except PermissionError:
        return f"the agent may not continue it: kill -CONT {target.pid}, and run the agent as root or grant CAP_KILL"
    return "it was continued"


def available() -> dict[str, str | None]:
    """Path of each tool, None when it is not installed."""
    return {name: shutil.which(_tool(name)) for name in ("py-spy", "eu-stack", "pystack", "gdb")}


def _tool(name: str) -> str:
    """A tool beside our interpreter (pip installed it there) or on the PATH."""
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.is_file() else name


def _ran(rung: str, target: ProcessId, suffix: str, ran: Ran) -> Taken:
    name = _name(rung, target, suffix)
    if ran.ok and ran.stdout.strip():
        return Taken(rung=rung, name=name, data=ran.stdout, took_s=ran.took_s)
    why = ran.why or ran.said_first[:200] or f"{rung} ended with status {ran.status} and printed nothing"
    return Taken(rung=rung, name=name, why=why, took_s=ran.took_s)


def _name(rung: str, target: ProcessId, suffix: str) -> str:
    return f"{rung}-{target.pid}.{suffix}"


def _one_line(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return " | ".join(file.read(4096).decode(errors="replace").split("\n")).strip(" |")
    except OSError:
        return ""
