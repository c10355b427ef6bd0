"""The newest view of each rank's process: its row in a process table, its threads, and who stands around it."""

import re
from dataclasses import dataclass

from sentinel.core.facts._moments import in_order
from sentinel.core.identity import tags_of
from sentinel.core.picture import Picture
from sentinel.core.placing import processes, rank_of_pid
from sentinel.model.observation import Origin, ProcessRow, ProcessTable, ThreadRow, ThreadTable

FRONTEND = re.compile(
    r"sglang\.launch_server|sglang::(?:http|tokenizer|detokenizer)|vllm serve|vllm\.entrypoints|VLLM::APIServer"
    r"|api_server|trtllm-serve|uvicorn|hypercorn|granian|TokenizerManager"
)
ENGINE = re.compile(r"sglang::|VLLM::|EngineCore|trtllm|launch_server|vllm serve|vllm\.entrypoints")
_COMPILER = re.compile(
    r"(?:^|[/\s])(?:nvcc|cicc|ptxas|cudafe\+\+|fatbinary|nvlink|cc1plus|cc1|[cg]\+\+|clang(?:\+\+)?|ninja|tileiras)(?:\s|$|-)"
)
_POOL = re.compile(r"compile_worker|triton.{0,40}compile|inductor.{0,40}worker")
_PARENT = re.compile(r"--parent=(\d{1,10})\b")

_SEVERITY = {"Z": 5, "X": 5, "T": 4, "t": 4, "D": 3, "R": 2, "S": 1, "I": 1}
"""When two views of one process disagree, the rarer state was seen for certain."""


@dataclass(frozen=True, slots=True)
class Process:
    """Newest view of one rank's process. `row` and `threads` are None where no table shows it."""

    rank: int
    host: str | None
    pid: int
    state: str
    origin: Origin
    row: ProcessRow | None = None
    threads: ThreadTable | None = None

    @property
    def main(self) -> ThreadRow | None:
        """The main thread; None where no thread table shows it."""
        if self.threads is None:
            return None
        return next((row for row in self.threads.threads if row.tid == self.threads.pid), None)


def ranks(picture: Picture) -> dict[int, Process]:
    """Newest view of the process of each rank that any table shows."""
    rows: dict[int, tuple[str | None, ProcessRow, Origin]] = {}
    for table in in_order(picture, picture.all(ProcessTable)):
        for row in table.rows:
            rank = rank_of_row(picture, table.host, row)
            if rank is not None and row.state != "?":
                rows[rank] = (table.host, _with_tracer(row, rows.get(rank)), table.origin)
    threads: dict[int, ThreadTable] = {}
    for listing in in_order(picture, picture.all(ThreadTable)):
        rank = rank_of_threads(picture, listing)
        if rank is not None:
            threads[rank] = listing
    return {rank: _joined(rank, rows.get(rank), threads.get(rank)) for rank in sorted({*rows, *threads})}


def rank_of_row(picture: Picture, host: str | None, row: ProcessRow) -> int | None:
    """Rank of one row: by pid, else by the coordinates in its title."""
    found = rank_of_pid(picture, host, row.pid)
    if found is None and "::" in row.command and (tags := tags_of(row.command)) is not None:
        found = picture.identity.global_rank(tags)
    return found


def rank_of_threads(picture: Picture, table: ThreadTable) -> int | None:
    found = picture.rank_of(table)
    return found if found is not None else rank_of_pid(picture, table.host, table.pid)


def _with_tracer(row: ProcessRow, before: tuple[str | None, ProcessRow, Origin] | None) -> ProcessRow:
    """A table without a tracer column does not end a trace that /proc/PID/status showed."""
    if before is None or before[1].tracer_pid is None or row.tracer_pid is not None or row.pid != before[1].pid:
        return row
    return ProcessRow(
        pid=row.pid, ppid=row.ppid, state=row.state, command=row.command, elapsed_s=row.elapsed_s,
        cpu_percent=row.cpu_percent, rss_kib=row.rss_kib, wchan=row.wchan, tracer_pid=before[1].tracer_pid,
    )  # fmt: skip


def _joined(rank: int, listed: tuple[str | None, ProcessRow, Origin] | None, threads: ThreadTable | None) -> Process:
    states: list[tuple[str, Origin]] = []
    if listed is not None:
        states.append((listed[1].state[:1], listed[2]))
    if threads is not None:
        main = next((thread for thread in threads.threads if thread.tid == threads.pid), None)
        if main is not None and main.state != "?":
            states.append((main.state, threads.origin))
    state, origin = max(states, key=lambda pair: _SEVERITY.get(pair[0], 0), default=("?", None))
    if origin is None:
        origin = threads.origin if threads is not None else Origin("")
    host = listed[0] if listed is not None else threads.host if threads is not None else None
    pid = listed[1].pid if listed is not None else (threads.pid or 0) if threads is not None else 0
    return Process(
        rank=rank, host=host, pid=pid, state=state, origin=origin, row=listed[1] if listed else None, threads=threads
    )


def newest_tables(picture: Picture) -> dict[str | None, ProcessTable]:
    """The newest whole process table of each host."""
    found: dict[str | None, ProcessTable] = {}
    for table in in_order(picture, picture.all(ProcessTable)):
        if table.complete and len(table.rows) > 1:
            found[table.host] = table
    return found


def compilers(picture: Picture) -> list[tuple[int | None, str | None, ProcessRow, Origin]]:
    """Compiler processes at work: (rank that started it, host, row, where); the rank is None when no parent is one.

    An idle pool of compile workers exists in every engine that ever used one, so its members count only while running.
    """
    found: list[tuple[int | None, str | None, ProcessRow, Origin]] = []
    for table in picture.all(ProcessTable):
        by_pid = {row.pid: row for row in table.rows}
        for row in table.rows:
            tool = _COMPILER.search(row.command[:400]) is not None and row.state[:1] not in ("Z", "X", "T")
            worker = _POOL.search(row.command[:400]) is not None and row.state[:1] in ("R", "D")
            if tool or worker:
                found.append((_ancestor_rank(picture, table.host, row, by_pid), table.host, row, table.origin))
    return found


def _ancestor_rank(picture: Picture, host: str | None, row: ProcessRow, by_pid: dict[int, ProcessRow]) -> int | None:
    stated = _PARENT.search(row.command)
    step: ProcessRow | None = row
    for _ in range(16):
        if step is None:
            break
        if step is not row and (rank := rank_of_row(picture, host, step)) is not None:
            return rank
        if step.ppid is not None and (rank := rank_of_pid(picture, host, step.ppid)) is not None:
            return rank
        step = by_pid.get(step.ppid) if step.ppid is not None else None
    return rank_of_pid(picture, host, int(stated[1])) if stated else None


def frontends(picture: Picture) -> dict[tuple[str | None, int], tuple[ProcessRow, Origin]]:
    """Processes that answer requests: by command, or as the parent of ranks, when they are no rank themselves."""
    found: dict[tuple[str | None, int], tuple[ProcessRow, Origin]] = {}
    known = picture.memo(processes)
    for table in in_order(picture, picture.all(ProcessTable)):
        parents = {row.ppid for row in table.rows if rank_of_row(picture, table.host, row) is not None}
        for row in table.rows:
            if rank_of_row(picture, table.host, row) is not None or "EngineCore" in row.command or row.state == "?":
                continue
            if FRONTEND.search(row.command[:400]) or (row.pid in parents and row.pid > 1):
                found[table.host, row.pid] = (row, table.origin)
    return {key: value for key, value in found.items() if key not in known}


def cores(picture: Picture) -> dict[tuple[str | None, int], tuple[ProcessRow, Origin]]:
    """Processes that drive ranks and are none themselves: vLLM's EngineCore where workers run the model."""
    found: dict[tuple[str | None, int], tuple[ProcessRow, Origin]] = {}
    for table in in_order(picture, picture.all(ProcessTable)):
        for row in table.rows:
            if "EngineCore" in row.command[:400] and row.state != "?" and rank_of_row(picture, table.host, row) is None:
                found[table.host, row.pid] = (row, table.origin)
    return found
