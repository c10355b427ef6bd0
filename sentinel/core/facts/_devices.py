"""Which rank a GPU belongs to, and which samples speak of the same GPU."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator

from sentinel.core.picture import Picture
from sentinel.core.placing import rank_of_pid, ranks_by_host
from sentinel.core.timeline import world
from sentinel.model.observation import (
    Decode,
    GpuSample,
    NcclComm,
    Notice,
    Observation,
    Phase,
    Prefill,
    Stack,
    ThreadTable,
)  # fmt: skip

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
    """Rank of each GPU that the evidence places.

    Strongest first: bus address, pids in the tables, position or NCCL's device number on the host, a constant distance
    between numbers and ranks on the host, equal blocks of ranks a host.
    """
    known = picture.memo(devices)
    found = {device: rank for device in known if (rank := _directly(picture, device)) is not None}
    for host in {host for host, _ in known}:
        indices = sorted(index for owner, index in known if owner == host)
        if not any((host, index) in found for index in indices):
            found.update(_by_number(picture, host, indices))
        found.update(_by_distance(picture, host, indices, found))
    return {**_by_blocks(picture, found), **found}


def _directly(picture: Picture, device: Device) -> int | None:
    """Rank of a GPU by its bus address, else by the processes that the tools list on it."""
    buses = picture.memo(_ranks_by_bus)
    for sample in picture.memo(devices)[device]:
        bus = bus_number(sample.pci)
        rank = buses.get((device[0], bus)) if bus is not None else None
        ranks = [rank, *(rank_of_pid(picture, device[0], pid) for pid in sample.pids)]
        if (placed := next((one for one in ranks if one is not None), None)) is not None:
            return placed
    return None


def _by_distance(picture: Picture, host: str | None, indices: list[int], found: dict[Device, int]) -> dict[Device, int]:
    """The other GPUs of a host, when the placed ones are all the same number of ranks away from their index."""
    placed = {index: found[host, index] for index in indices if (host, index) in found}
    distances = {rank - index for index, rank in placed.items()}
    if len(placed) < 2 or len(distances) != 1:
        return {}
    distance, everyone = distances.pop(), set(picture.memo(world))
    taken = {rank for (owner, _), rank in found.items() if owner != host}
    elsewhere = {
        rank for other, ranks in picture.memo(ranks_by_host).items() if other not in (host, None) for rank in ranks
    }
    whole = {(host, index): index + distance for index in indices}
    if not everyone.issuperset(whole.values()) or (taken | elsewhere).intersection(whole.values()):
        return {}
    return whole


def _by_blocks(picture: Picture, found: dict[Device, int]) -> dict[Device, int]:
    """All hosts have equally many GPUs, together as many as there are ranks: each host then has a block of ranks.

    A rank that is known to live on a host says which block is the host's; one host may be left over.
    """
    counts: dict[str | None, list[int]] = defaultdict(list)
    for host, index in sorted(picture.memo(devices), key=lambda device: (device[0] or "", device[1])):
        counts[host].append(index)
    everyone, size = picture.memo(world), len(next(iter(counts.values()), []))
    if not size or any(len(indices) != size for indices in counts.values()) or len(counts) * size != len(everyone):
        return {}
    blocks: dict[str | None, int] = {}
    for host in counts:
        placed = {rank for (owner, _), rank in found.items() if owner == host}
        direct = {everyone.index(rank) // size for rank in placed | _on(direct_on, picture, host) if rank in everyone}
        relayed = {everyone.index(rank) // size for rank in _on(relayed_on, picture, host) if rank in everyone}
        if len(direct) > 1:
            return {}
        if direct or len(relayed) == 1:
            blocks[host] = (direct or relayed).pop()
    left = set(range(len(counts))) - set(blocks.values())
    unknown = [host for host in counts if host not in blocks]
    if len(set(blocks.values())) != len(blocks) or len(unknown) > 1:
        return {}
    blocks.update(zip(unknown, left, strict=False))
    return {
        (host, index): everyone[blocks[host] * size + position]
        for host, indices in counts.items()
        for position, index in enumerate(indices)
    }


def _on(source: Callable[[Picture], dict[str | None, set[int]]], picture: Picture, host: str | None) -> set[int]:
    return picture.memo(source).get(host, set())


def direct_on(picture: Picture) -> dict[str | None, set[int]]:
    """Ranks whose process is known to run on a host."""
    found = {host: set(ranks) for host, ranks in picture.memo(ranks_by_host).items()}
    for host, ranks in _spoken_of(picture, Stack, ThreadTable, NcclComm).items():
        found[host] = found.get(host, set()) | ranks
    return found


def relayed_on(picture: Picture) -> dict[str | None, set[int]]:
    """Ranks that a log on a host speaks of: a launcher's console also carries lines of other hosts."""
    return _spoken_of(picture, Decode, Prefill, Phase, Notice)


def _spoken_of(picture: Picture, *kinds: type[Observation]) -> dict[str | None, set[int]]:
    found: dict[str | None, set[int]] = defaultdict(set)
    for kind in kinds:
        for rank, observations in picture.by_rank(kind).items():
            for host in {one.host for one in observations if one.host is not None}:
                found[host].add(rank)
    return dict(found)


def _by_number(picture: Picture, host: str | None, indices: list[int]) -> dict[Device, int]:
    """Place a host's GPUs by NCCL's device numbers or by position; nothing when neither is certain."""
    numbers: dict[int, set[int]] = defaultdict(set)
    for comm in picture.all(NcclComm):
        rank = picture.rank_of(comm)
        if rank is not None and comm.cuda_dev is not None and (host is None or comm.host in (host, None)):
            numbers[comm.cuda_dev].add(rank)
    candidates = _ranks_on(picture, host)
    for ranks in candidates:
        if len(ranks) == len(indices):
            return {(host, index): rank for index, rank in zip(indices, ranks, strict=True)}
    distinct = {rank for found in numbers.values() for rank in found}
    complete = any(len(ranks) == len(distinct) for ranks in candidates)
    if numbers and complete and all(len(found) == 1 for found in numbers.values()):
        return {(host, index): next(iter(numbers[index])) for index in indices if index in numbers}
    return {}


def _ranks_on(picture: Picture, host: str | None) -> list[tuple[int, ...]]:
    """What the ranks of a host may be: those whose processes are known there; all, when the evidence is of one host
    only; those that are left, when every other host's are known."""
    placed = picture.memo(ranks_by_host)
    everyone = picture.memo(world)
    candidates = [placed[host]] if host in placed else []
    others = ({owner for owner, _ in picture.memo(devices)} | set(placed)) - {host, None}
    if not others:
        candidates.append(everyone)
    elif all(other in placed for other in others):
        taken = {rank for other in others for rank in placed[other]}
        candidates.append(tuple(rank for rank in everyone if rank not in taken))
    return candidates
