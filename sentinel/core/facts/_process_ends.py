"""Which ranks' processes ended: missing from a table that shows their peers, or killed."""

from collections import defaultdict

from sentinel.core.fact import Cite
from sentinel.core.facts._devices import direct_on, relayed_on
from sentinel.core.facts._kernel_order import unread_hosts
from sentinel.core.facts._processes import ENGINE, newest_tables, rank_of_row, ranks
from sentinel.core.facts._processes import Process as RankProcess
from sentinel.core.identity import Process
from sentinel.core.picture import Picture
from sentinel.core.placing import processes, rank_of_pid
from sentinel.model.observation import KernelEvent, KernelLog, Notice, ProcessExit, ProcessTable, Stack, ThreadTable

_KILL_CODES = ("-9", "137")


def absent_ranks(picture: Picture) -> dict[int, Cite]:
    """Ranks that should be in the newest whole table of their host and are not, with what shows it.

    A table counts when it lists at least as many of the host's ranks as it lacks (a partial listing lacks most) and
    does not end before them, or when it lists the host's first process and nothing of an engine.
    """
    known: dict[str | None, dict[int, Process]] = defaultdict(dict)
    for process, rank in picture.memo(processes).items():
        known[process[0]][rank] = process
    found: dict[int, Cite] = {}
    for host, table in picture.memo(newest_tables).items():
        present = {found_rank for row in table.rows if (found_rank := rank_of_row(picture, host, row)) is not None}
        mine = known[None] if set(known) == {None} else known.get(host, {})
        expected = set(mine)
        absent = expected - present
        if present and len(present) >= len(absent):
            if len(absent) > 1 and _ends_before(table, [mine[rank] for rank in absent]):
                continue
            says = "is not in a process table that shows its peers"
        elif not present and _is_empty_host(table):
            absent = expected | picture.memo(direct_on).get(host, set()) | picture.memo(relayed_on).get(host, set())
            says = "has no process: the whole table of its host shows no engine"
        else:
            continue
        seen_alive = picture.memo(_dumped_ranks) | _listed_ranks(picture, table)
        found.update({rank: Cite(f"rank {rank} {says}", table.origin) for rank in absent - seen_alive})
    return found


def living(picture: Picture) -> dict[int, RankProcess]:
    """Ranks of which the newest view shows a living process, and that no table lacks."""
    absent = picture.memo(absent_ranks)
    return {
        rank: one
        for rank, one in picture.memo(ranks).items()
        if one.state not in ("Z", "X", "?") and rank not in absent
    }


def _ends_before(table: ProcessTable, absent: list[Process]) -> bool:
    """Whether a listing by pid ends before all of these processes: then it is cut, whatever its last row looks like."""
    pids = [row.pid for row in table.rows]
    return pids == sorted(pids) and all(pid > pids[-1] for _, pid in absent)


def _dumped_ranks(picture: Picture) -> set[int]:
    """Ranks whose stack could be taken: a table that lacks one of these is cut, not the process gone."""
    return {rank for rank, dumps in picture.by_rank(Stack).items() if any(dump.threads for dump in dumps)}


def _listed_ranks(picture: Picture, table: ProcessTable) -> set[int]:
    """Ranks with living threads in a listing that is not known to be older than the table."""

    def is_later(listing: ThreadTable) -> bool:
        return None in (listing.at_s, table.at_s) or listing.at_s >= table.at_s  # type: ignore[operator]

    return {
        rank
        for rank, listings in picture.by_rank(ThreadTable).items()
        if any(is_later(listing) and any(row.state[:1] not in "ZX" for row in listing.threads) for listing in listings)
    }


def _is_empty_host(table: ProcessTable) -> bool:
    """A table that begins with the host's init and lists nothing of an engine."""
    init = any(row.pid == 1 and not ENGINE.search(row.command) and row.command for row in table.rows)
    return init and not any(ENGINE.search(row.command[:400]) for row in table.rows)


def killed(picture: Picture) -> dict[int, Cite] | None:
    """Ranks ended by SIGKILL, by exit codes, the kernel log or the agent; None when nothing could tell."""
    sources = picture.has(ProcessExit) or (picture.has(KernelLog) and not picture.memo(unread_hosts))
    found: dict[int, Cite] = {}
    for event in picture.all(KernelEvent):
        rank = rank_of_pid(picture, event.host, event.pid) if event.event == "oom_kill" else None
        if rank is not None:
            found.setdefault(rank, Cite(f"rank {rank} was killed: {event.text[:120]}", event.origin))
    for note in picture.all(Notice):
        code = note.fields.get("exit_code")
        if note.notice in ("subprocess_exit", "worker_died") and code is not None:
            sources = True
            rank = picture.rank_of(note)
            if rank is not None and code.strip() in _KILL_CODES:
                found.setdefault(rank, Cite(f"rank {rank} ended with exit code {code}", note.origin))
    for ended in picture.all(ProcessExit):
        rank = picture.rank_of(ended)
        if rank is not None and (ended.exit_code in (-9, 137) or "SIGKILL" in ended.how):
            found.setdefault(rank, Cite(f"rank {rank} ended: {ended.how}", ended.origin))
    return found if found or sources else None
