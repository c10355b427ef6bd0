"""Which rank a pid or a GPU belongs to: identity first, then what tables of processes and devices imply."""

import re
from collections import defaultdict
from collections.abc import Iterator

from sentinel.core.identity import Process, tags_of
from sentinel.core.picture import Picture
from sentinel.core.timeline import world
from sentinel.model.observation import GpuSample, NcclComm, ProcessRow, ProcessTable

Device = tuple[str | None, int]
"""(host, index of the GPU as nvidia-smi counts)."""

_PCI = re.compile(r"^(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-7]))?$", re.IGNORECASE)


def bus_number(pci: str | None) -> int | None:
    """A PCI address as the number that NCCL prints as busId (domain, bus, device, function); None when it is none.

    >>> hex(bus_number("00000000:1B:00.0"))
    '0x1b000'
    """
    if pci is None:
        return None
    found = _PCI.match(pci.strip())
    if found is not None:
        domain, bus, device, function = (int(part or "0", 16) for part in found.groups())
        return (domain << 20) | (bus << 12) | (device << 4) | function
    bare = pci.strip().lower().removeprefix("0x")
    return int(bare, 16) if re.fullmatch(r"[0-9a-f]{1,10}", bare) else None


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
    identity = picture.identity
    keys: set[Process] = {*identity.by_comm, *identity.by_tags, *identity.stated}
    found = {key: rank for key in keys if (rank := identity.rank_of(*key)) is not None}
    return {**picture.memo(_implied), **found}


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
    return found


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


def devices(picture: Picture) -> dict[Device, list[GpuSample]]:
    """Samples of each GPU; those that name no index are joined by bus address or UUID."""
    by_id: dict[tuple[str | None, str], int] = {}
    for sample in picture.all(GpuSample):
        if sample.index >= 0:
            for key in _ids(sample):
                by_id.setdefault((sample.host, key), sample.index)
    found: dict[Device, list[GpuSample]] = defaultdict(list)
    for sample in picture.all(GpuSample):
        index = sample.index
        if index < 0:
            index = next((by_id[sample.host, key] for key in _ids(sample) if (sample.host, key) in by_id), -1)
        if index >= 0:
            found[sample.host, index].append(sample)
    return dict(found)


def _ids(sample: GpuSample) -> Iterator[str]:
    if sample.uuid:
        yield sample.uuid
    if (bus := bus_number(sample.pci)) is not None:
        yield hex(bus)


def rank_of_bus(picture: Picture, host: str | None, pci: str | None) -> int | None:
    """Rank that uses the GPU at a PCI address: by NCCL's bus id, else by the GPU's index when a sample names both."""
    bus = bus_number(pci)
    if bus is None:
        return None
    known = picture.memo(_ranks_by_bus)
    for key in (host, None):
        if (rank := known.get((key, bus))) is not None:
            return rank
    if host is None and len(hits := {rank for (_, at), rank in known.items() if at == bus}) == 1:
        return next(iter(hits))
    for (owner, index), samples in picture.memo(devices).items():
        if owner == host and any(bus_number(sample.pci) == bus for sample in samples):
            return picture.memo(ranks_of_devices).get((owner, index))
    return _rank_by_position(picture, host, bus)


def _rank_by_position(picture: Picture, host: str | None, bus: int) -> int | None:
    """Rank of a bus address by its position among all bus addresses that the host's tools listed."""
    listed = sorted(
        {
            number
            for (owner, _), samples in picture.memo(devices).items()
            if owner == host
            for sample in samples
            if (number := bus_number(sample.pci)) is not None
        }
    )
    ranks = picture.memo(ranks_by_host).get(host, ())
    return ranks[listed.index(bus)] if bus in listed and len(listed) == len(ranks) else None


def _ranks_by_bus(picture: Picture) -> dict[tuple[str | None, int], int]:
    found: dict[tuple[str | None, int], int] = {}
    for comm in picture.all(NcclComm):
        bus, rank = bus_number(comm.bus_id), picture.rank_of(comm)
        if bus is not None and rank is not None:
            found[comm.host, bus] = rank
    return found


def ranks_of_devices(picture: Picture) -> dict[Device, int]:
    """Rank of each GPU that the evidence places: bus address, then pids in the tables, then NCCL's device number, then
    position on the host when the numbers of GPUs and ranks agree."""
    found: dict[Device, int] = {}
    known = picture.memo(devices)
    buses = picture.memo(_ranks_by_bus)
    for device, samples in known.items():
        for sample in samples:
            bus = bus_number(sample.pci)
            rank = buses.get((device[0], bus)) if bus is not None else None
            for pid in sample.pids if rank is None else ():
                rank = rank if rank is not None else rank_of_pid(picture, device[0], pid)
            if rank is not None:
                found[device] = rank
                break
    for host in {host for host, _ in known}:
        indices = sorted(index for owner, index in known if owner == host)
        if not any((host, index) in found for index in indices):
            found.update(_by_number(picture, host, indices))
    return found


def _by_number(picture: Picture, host: str | None, indices: list[int]) -> dict[Device, int]:
    """Place a host's GPUs by NCCL's device numbers or by position; nothing when neither is certain."""
    numbers: dict[int, set[int]] = defaultdict(set)
    for comm in picture.all(NcclComm):
        rank = picture.rank_of(comm)
        if rank is not None and comm.cuda_dev is not None and (host is None or comm.host in (host, None)):
            numbers[comm.cuda_dev].add(rank)
    ranks = _ranks_on(picture, host)
    distinct = {rank for found in numbers.values() for rank in found}
    if len(ranks) == len(indices):
        return {(host, index): rank for index, rank in zip(indices, ranks, strict=True)}
    if all(len(found) == 1 for found in numbers.values()) and len(distinct) == len(ranks) and numbers:
        return {(host, index): next(iter(numbers[index])) for index in indices if index in numbers}
    return {}


def _ranks_on(picture: Picture, host: str | None) -> tuple[int, ...]:
    """Ranks of a host; of the only host with GPUs all ranks; of the last unknown host the ranks that are left."""
    placed = picture.memo(ranks_by_host)
    everyone = picture.memo(world)
    hosts = {owner for owner, _ in picture.memo(devices)}
    if host in placed and (host is not None or len(placed) == 1) and len(hosts | set(placed)) > 1:
        return placed[host]
    if len(hosts) == 1 and len(set(placed) - {host, None}) == 0:
        return everyone
    others = [other for other in hosts if other != host]
    if all(other in placed for other in others):
        taken = {rank for other in others for rank in placed[other]}
        return tuple(rank for rank in everyone if rank not in taken)
    return ()
