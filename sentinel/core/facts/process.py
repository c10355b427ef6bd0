"""Facts of processes and threads: stopped, gone, blocked, compiling, spinning; from process and thread tables."""

import re
from collections.abc import Callable

from sentinel.core.fact import Cite, Fact, FactSpec, unknown
from sentinel.core.facts._process_ends import absent_ranks, killed, living
from sentinel.core.facts._processes import Process, compilers, cores, frontends, newest_tables, rank_of_row, ranks
from sentinel.core.facts._thread_waits import (
    callback_waits,
    main_mutex_waits,
    main_read_waits,
    moving,
    mutex_waits,
    read_waits,
)  # fmt: skip
from sentinel.core.picture import Picture
from sentinel.core.placing import rank_of_pid
from sentinel.core.timeline import world
from sentinel.model.observation import DeviceCounters, ProcessTable, Sockets, Stack, ThreadTable

MISSING = "a process or thread table of the rank's host"
CITED = 8
_STOP_ERROR = re.compile(r"SIGSTOP|tracing stop|process is stopped|state T\b", re.IGNORECASE)
_STOP_WAITS = ("do_signal_stop", "ptrace_stop", "do_freezer_trap", "__refrigerator", "do_jobctl_trap")
BUSY_CPU = 80.0
UNREAD, BACKLOG = 3, 1


def _chosen(picture: Picture, test: Callable[[Process], str | None]) -> Fact:
    """Ranks whose newest view passes a test; the test says what was seen."""
    known = picture.memo(ranks)
    if not known:
        return unknown(MISSING)
    said = {rank: says for rank, process in known.items() if (says := test(process)) is not None}
    cites = [Cite(f"rank {rank}: {says}", known[rank].origin) for rank, says in list(said.items())[:CITED]]
    if not cites:
        cites = [Cite(f"rank {one.rank}: state {one.state}", one.origin) for one in list(known.values())[:CITED]]
    return Fact(value=tuple(sorted(said)), cites=tuple(cites))


def _with(fact: Fact, found: set[int], cites: list[Cite]) -> Fact:
    """The same fact with ranks from another source added."""
    if not found:
        return fact
    known = fact.value if isinstance(fact.value, tuple) else ()
    return Fact(value=tuple(sorted({*(rank for rank in known if isinstance(rank, int)), *found})),
                cites=tuple(cites) + (fact.cites if known else ()))  # fmt: skip


def _is_stopped(process: Process) -> str | None:
    wchan = process.row.wchan if process.row is not None else None
    main = process.main
    if process.state in ("T", "t"):
        return "tracing stop" if process.state == "t" else "stopped by a signal (state T)"
    if (wchan or "").startswith(_STOP_WAITS) or (main is not None and main.wchan.startswith(_STOP_WAITS)):
        return f"frozen ({wchan or (main.wchan if main else '')})"
    return None


def _stopped(picture: Picture) -> Fact:
    fact = _chosen(picture, _is_stopped)
    found: set[int] = set()
    cites: list[Cite] = []
    for stack in picture.all(Stack):
        rank = picture.rank_of(stack)
        if rank is not None and stack.error is not None and _STOP_ERROR.search(stack.error[:400]):
            found.add(rank)
            cites.append(Cite(f"rank {rank}: {stack.tool} met a stopped process: {stack.error[:120]}", stack.origin))
    for counters in picture.all(DeviceCounters):
        if counters.family == "cgroup" and 1.0 in (
            counters.values.get("cgroup.freeze"), counters.values.get("cgroup.events.frozen"),
        ):  # fmt: skip
            inside = {
                one.rank for one in picture.memo(ranks).values() if one.host == counters.host and one.state != "R"
            }
            found |= inside
            cites.append(Cite(f"cgroup {counters.device} is frozen", counters.origin))
    return _with(fact, found, cites[:CITED])


def _held(state: str, wchan: str | None) -> bool:
    return state[:1] in ("T", "t") or (wchan or "").startswith(_STOP_WAITS)


def _stopped_cores(picture: Picture) -> Fact:
    found = picture.memo(cores)
    if not found and not picture.memo(ranks):
        return unknown(MISSING)
    stopped = {pid: (row, origin) for (_, pid), (row, origin) in found.items() if _held(row.state, row.wchan)}
    cites = [Cite(f"{row.command[:60]} (pid {pid}): state {row.state}", at) for pid, (row, at) in stopped.items()]
    cites = cites or [Cite(f"{row.command[:60]}: state {row.state}", origin) for row, origin in found.values()]
    cites = cites or [Cite("the ranks are driven by no process of its own", one.origin)
                      for one in list(picture.memo(ranks).values())[:1]]  # fmt: skip
    return Fact(value=tuple(sorted(stopped)), cites=tuple(cites[:CITED]))


def _frontend_stopped(picture: Picture) -> Fact:
    found = picture.memo(frontends)
    if not found:
        return unknown("a process table with the front end")
    stopped = [(row, origin) for row, origin in found.values() if _held(row.state, row.wchan)]
    shown = stopped or list(found.values())
    cites = tuple(Cite(_says_cpu(row.command, row.state, row.cpu_percent), origin) for row, origin in shown[:CITED])
    return Fact(value=bool(stopped), cites=cites)


def _traced(picture: Picture) -> Fact:
    def test(process: Process) -> str | None:
        tracer = process.row.tracer_pid if process.row is not None else None
        if tracer is not None:
            return f"traced by process {tracer}"
        wchan = process.row.wchan if process.row is not None else None
        return "tracing stop" if process.state == "t" or wchan == "ptrace_stop" else None

    return _chosen(picture, test)


def _gone(picture: Picture) -> Fact:
    def test(process: Process) -> str | None:
        return f"its process is a corpse (state {process.state})" if process.state in ("Z", "X") else None

    fact = _chosen(picture, test)
    absent = picture.memo(absent_ranks)
    return _with(fact, set(absent), [cite for _, cite in sorted(absent.items())][:CITED])


def _killed(picture: Picture) -> Fact:
    found = picture.memo(killed)
    if found is None:
        return unknown("an exit code or a kernel log")
    cites = tuple(cite for _, cite in sorted(found.items()))[:CITED]
    return Fact(value=tuple(sorted(found)), cites=cites)


def _dstate(picture: Picture) -> Fact:
    def test(process: Process) -> str | None:
        if process.state == "D":
            wchan = process.row.wchan if process.row is not None else None
            return f"uninterruptible sleep{f' in {wchan}' if wchan else ''}"
        threads = process.threads.threads if process.threads is not None else ()
        return next(
            (f"thread {row.tid} in uninterruptible sleep in {row.wchan}" for row in threads if row.state == "D"), None
        )

    return _chosen(picture, test)


def _dstate_hosts(picture: Picture) -> Fact:
    if not picture.has(ProcessTable) and not picture.has(ThreadTable):
        return unknown(MISSING)
    cites: dict[str, Cite] = {}
    seen: set[str] = set()
    for table in picture.all(ProcessTable):
        seen |= {table.host} if table.host else set()
        row = next((row for row in table.rows if row.state[:1] == "D"), None)
        if row is not None and table.host:
            cites.setdefault(table.host, Cite(f"{table.host}: {row.command[:60]} is in state D", table.origin))
    for listing in picture.all(ThreadTable):
        seen |= {listing.host} if listing.host else set()
        thread = next((row for row in listing.threads if row.state == "D"), None)
        if thread is not None and listing.host:
            cites.setdefault(
                listing.host, Cite(f"{listing.host}: {thread.comm} is in state D in {thread.wchan}", listing.origin)
            )
    if not seen:
        return unknown("the host of the process tables")
    return Fact(value=tuple(sorted(cites)), cites=tuple(cites.values())[:CITED])


def _compiling(picture: Picture) -> Fact:
    if not picture.has(ProcessTable):
        return unknown("a process table")
    found: dict[int, Cite] = {}
    for rank, _, row, origin in picture.memo(compilers):
        if rank is not None:
            found.setdefault(rank, Cite(f"rank {rank} runs {row.command[:80]}", origin))
    if not found and picture.memo(compilers):
        return unknown("the parents of the compiler processes")
    if not found and not _shows_everything(picture):
        return unknown("a whole process table (from pid 1 on)")
    return Fact(value=tuple(sorted(found)), cites=tuple(found.values())[:CITED])


def _shows_everything(picture: Picture) -> bool:
    """Whether the tables of all hosts are whole: a filtered listing cannot show that something does not run."""
    tables = list(picture.memo(newest_tables).values())
    return bool(tables) and all(any(row.pid == 1 for row in table.rows) for table in tables)


def _compiler(picture: Picture) -> Fact:
    if not picture.has(ProcessTable):
        return unknown("a process table")
    shown = [Cite(f"running: {row.command[:80]}", origin) for _, _, row, origin in picture.memo(compilers)]
    if not shown and not _shows_everything(picture):
        return unknown("a whole process table (from pid 1 on)")
    return Fact(value=bool(shown), cites=tuple(shown[:CITED]))


def _spinning(picture: Picture) -> Fact:
    def test(process: Process) -> str | None:
        cpu = process.row.cpu_percent if process.row is not None else None
        if process.state != "R" or (cpu is not None and cpu < BUSY_CPU):
            return None
        return "its main thread is on a CPU" + (f", {cpu:.0f} %" if cpu is not None else "")

    return _chosen(picture, test)


def _quiet(picture: Picture) -> Fact:
    known = {rank: one for rank, one in picture.memo(ranks).items() if one.state != "?"}
    running = [one for one in known.values() if one.state == "R"]
    if len(known) < 2:
        return unknown("process tables of several ranks")
    if not running:
        return Fact(
            value=(),
            cites=tuple(Cite(f"rank {one.rank}: state {one.state}", one.origin) for one in known.values())[:CITED],
        )

    def test(process: Process) -> str | None:
        others = process.threads.threads if process.threads is not None else ()
        if process.state not in ("S", "D", "T", "t", "I") or any(row.running or row.state == "R" for row in others):
            return None
        return f"state {process.state} while {len(running)} peers run"

    return _chosen(picture, test)


def _all_alive(picture: Picture) -> Fact:
    known, everyone = picture.memo(ranks), picture.memo(world)
    if not known or not everyone:
        return unknown(MISSING)
    dead = [one for one in known.values() if one.state in ("Z", "X")]
    absent = picture.memo(absent_ranks)
    if dead or absent:
        cites = [Cite(f"rank {one.rank}: state {one.state}", one.origin) for one in dead] + list(absent.values())
        return Fact(value=False, cites=tuple(cites[:CITED]))
    if missing := [rank for rank in everyone if rank not in known]:
        return unknown(f"a process table that shows rank {missing[0]}")
    cites = [Cite(f"rank {one.rank}: state {one.state}", one.origin) for one in known.values()]
    return Fact(value=True, cites=tuple(cites[:CITED]))


def _all_gone(picture: Picture) -> Fact:
    """A corpse that nobody can place counts for a rank of which nothing was seen."""
    known, absent = picture.memo(ranks), picture.memo(absent_ranks)
    if alive := picture.memo(living):
        cites = [Cite(f"rank {one.rank}: state {one.state}", one.origin) for one in alive.values()]
        return Fact(value=False, cites=tuple(cites[:CITED]))
    dead = {one.rank for one in known.values() if one.state in ("Z", "X")} | set(absent)
    corpses = [
        (row, table.origin)
        for table in picture.memo(newest_tables).values()
        for row in table.rows
        if row.state[:1] in ("Z", "X") and rank_of_row(picture, table.host, row) is None
    ]
    unseen = set(picture.memo(world)) - dead
    if not dead or len(unseen) > len(corpses):
        return unknown(MISSING)
    cites = [*absent.values(), *(Cite(f"rank {one.rank}: state {one.state}", one.origin) for one in known.values())]
    cites += [Cite(f"process {row.pid}: state {row.state}", origin) for row, origin in corpses]
    return Fact(value=True, cites=tuple(cites[:CITED]))


def _frontend_busy(picture: Picture) -> Fact:
    """A process that answers requests keeps a CPU busy."""
    served = {int(pid) for table in picture.all(Sockets) for pid in (*table.backlog_by_pid, *table.unread_by_pid)}
    found = dict(picture.memo(frontends))
    for table in picture.all(ProcessTable):
        for row in table.rows:
            if row.pid in served and rank_of_row(picture, table.host, row) is None:
                found[table.host, row.pid] = (row, table.origin)
    if not found:
        return unknown("a process table with the front end")
    cites = [Cite(_says_cpu(row.command, row.state, row.cpu_percent), origin) for row, origin in found.values()]
    busy = [
        Cite(_says_cpu(row.command, row.state, row.cpu_percent), origin)
        for row, origin in found.values()
        if row.state[:1] == "R" and (row.cpu_percent is None or row.cpu_percent >= BUSY_CPU)
    ]
    return Fact(value=bool(busy), cites=tuple((busy or cites)[:CITED]))


def _says_cpu(command: str, state: str, cpu: float | None) -> str:
    return f"{command[:60]}: state {state}" + (f", {cpu:.0f} % CPU" if cpu is not None else "")


def _backlog(picture: Picture) -> Fact:
    """Requests wait in the sockets of a process that is no rank."""
    tables = list(picture.all(Sockets))
    if not tables:
        return unknown("a socket table (ss -tnlp)")
    cites: list[Cite] = []
    for table in tables:
        for pid in sorted({*table.backlog_by_pid, *table.unread_by_pid}):
            unread, waiting = table.unread_by_pid.get(pid, 0), table.backlog_by_pid.get(pid, 0)
            if rank_of_pid(picture, table.host, int(pid)) is None and (unread >= UNREAD or waiting >= BACKLOG):
                cites.append(
                    Cite(f"pid {pid}: {unread} connections with unread data, {waiting} not accepted", table.origin)
                )
    shown = cites or [Cite(f"{table.established} connections, nothing unread", table.origin) for table in tables]
    return Fact(value=bool(cites), cites=tuple(shown[:CITED]))


def _spec(name: str, unit: str, about: str, compute: Callable[[Picture], Fact]) -> FactSpec:
    return FactSpec(name=name, unit=unit, about=about, compute=compute)


FACTS: tuple[FactSpec, ...] = (
    _spec("process.stopped_ranks", "ranks", "Ranks whose process is stopped by a signal, traced or frozen.", _stopped),
    _spec("process.stopped_cores", "pids",
          "Processes that drive ranks and are none themselves, stopped by a signal, traced or frozen.", _stopped_cores),
    _spec("process.traced_ranks", "ranks", "Ranks whose process is held or watched by a tracer.", _traced),
    _spec("process.gone_ranks", "ranks", "Ranks whose process is a corpse or missing among its peers.", _gone),
    _spec("process.all_gone", "bool", "No rank has a process left.", _all_gone),
    _spec("process.killed_ranks", "ranks", "Ranks whose process was ended by SIGKILL or the OOM killer.", _killed),
    _spec("process.dstate_ranks", "ranks", "Ranks with a thread in uninterruptible sleep.", _dstate),
    _spec("process.dstate_hosts", "hosts", "Hosts with a process in uninterruptible sleep.", _dstate_hosts),
    _spec("process.compiler_ranks", "ranks", "Ranks that have compiler processes at work.", _compiling),
    _spec("process.compiling", "bool", "Some compiler process is at work.", _compiler),
    _spec("process.spinning_ranks", "ranks", "Ranks whose main thread keeps a CPU busy.", _spinning),
    _spec("process.quiet_ranks", "ranks", "Ranks whose process sleeps while peers keep their CPUs busy.", _quiet),
    _spec("process.mutex_ranks", "ranks", "Ranks with a thread that waits for a mutex held by another.", mutex_waits),
    _spec("process.main_mutex_ranks", "ranks", "Ranks whose main thread waits for a mutex.", main_mutex_waits),
    _spec("process.callback_wait_ranks", "ranks",
          "Ranks where another thread waits for a mutex or a file while the main thread waits for the GPU.",
          callback_waits),
    _spec("process.read_ranks", "ranks", "Ranks with a thread blocked in a file read, open or asynchronous read.",
          read_waits),
    _spec("process.main_read_ranks", "ranks", "Ranks whose main thread is blocked in a file read or open.",
          main_read_waits),
    _spec("process.moving_ranks", "ranks", "Ranks whose CPU time or bytes read advance between two samples.", moving),
    _spec("process.all_alive", "bool", "The process of every rank is seen alive.", _all_alive),
    _spec("process.frontend_busy", "bool", "A process that answers requests keeps a CPU busy.", _frontend_busy),
    _spec("process.frontend_stopped", "bool", "A process that answers requests is stopped, traced or frozen.",
          _frontend_stopped),
    _spec("process.backlog", "bool", "Requests wait unread in the sockets of the front end.", _backlog),
)  # fmt: skip
