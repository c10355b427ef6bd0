"""Which rank a process belongs to: identity first, then what tables of processes imply."""

from collections import defaultdict

from sentinel.core.identity import Process, tags_of
from sentinel.core.picture import Picture
from sentinel.core.timeline import world
from sentinel.model.observation import ProcessRow, ProcessTable


def rank_of_pid(picture: Picture, host: str | None, pid: int | None) -> int | None:
    """Global rank of a process, by identity or by its place among its siblings in a process table."""
    if pid is None:
        return None
    found = picture.identity.rank_of(host, pid)
    if found is None:
        implied = picture.memo(_implied)
        found = implied.get((host, pid), implied.get((None, pid)))
    return found


def processes(picture: Picture) -> dict[Process, int]:
    """Every known process of a rank."""
    return {**picture.memo(_implied), **picture.memo(_named)}


def _named(picture: Picture) -> dict[Process, int]:
    """Processes whose rank the evidence names."""
    identity = picture.identity
    keys: set[Process] = {*identity.by_comm, *identity.by_tags, *identity.stated, *identity.by_ras}
    return {key: rank for key in keys if (rank := identity.rank_of(*key)) is not None}


def ranks_by_host(picture: Picture) -> dict[str | None, tuple[int, ...]]:
    """Ranks known to live on each host; processes without a host count for the only host there is, else for None."""
    ranks: dict[str | None, set[int]] = defaultdict(set)
    for (host, _), rank in picture.memo(processes).items():
        ranks[host].add(rank)
    named = [host for host in ranks if host is not None]
    if None in ranks and len(named) == 1:
        ranks[named[0]] |= ranks.pop(None)
    elif None in ranks and named:
        ranks[None] -= set().union(*(ranks[host] for host in named))
    return {host: tuple(sorted(found)) for host, found in ranks.items() if found}


def _implied(picture: Picture) -> dict[Process, int]:
    """Ranks of processes that lost their title (a zombie keeps only its short name).

    When the titled siblings of one parent are all ranks but k of a gap-free range, and k untitled siblings are gone,
    these are the missing ranks, in order of pid.
    """
    found: dict[Process, int] = {}
    for table in picture.all(ProcessTable):
        by_parent: dict[int, list[ProcessRow]] = defaultdict(list)
        for row in table.rows:
            if row.ppid is not None and row.ppid > 1:
                by_parent[row.ppid].append(row)
        for siblings in by_parent.values():
            found.update(_untitled(picture, table, siblings))
    missing = set(picture.memo(world)) - {*picture.memo(_named).values(), *found.values()}
    rest = {process for table in picture.all(ProcessTable) for process in _unnamed(picture, table)} - found.keys()
    # The one rank that nothing names is the one process, of all hosts, that nothing names.
    return {**found, rest.pop(): missing.pop()} if len(rest) == len(missing) == 1 else found


def _unnamed(picture: Picture, table: ProcessTable) -> set[Process]:
    """Processes without a rank that run what their siblings of known rank run."""
    ranks = {row.pid: picture.identity.rank_of(table.host, row.pid) for row in table.rows}
    alike = {(row.ppid, row.command) for row in table.rows if ranks[row.pid] is not None}
    return {(table.host, row.pid) for row in table.rows if ranks[row.pid] is None and (row.ppid, row.command) in alike}


def _untitled(picture: Picture, table: ProcessTable, siblings: list[ProcessRow]) -> dict[Process, int]:
    titled: dict[int, int] = {}
    dead: list[int] = []
    for row in siblings:
        tags = tags_of(row.command) if "::" in row.command else None
        rank = picture.identity.global_rank(tags) if tags is not None else None
        if rank is not None:
            titled[rank] = row.pid
        elif row.state[:1] in ("Z", "X") and picture.identity.rank_of(table.host, row.pid) is None:
            dead.append(row.pid)
    if not titled or not dead:
        return {}
    expected = range(min(titled), max(titled) + 1)
    missing = [rank for rank in expected if rank not in titled]
    if len(missing) != len(dead):
        # A missing first or last rank leaves no gap: the size of the world then says who is missing.
        missing = [rank for rank in picture.memo(world) if rank not in titled]
    if len(missing) != len(dead):
        return {}
    return {(table.host, pid): rank for pid, rank in zip(sorted(dead), missing, strict=True)}
