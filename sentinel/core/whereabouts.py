"""Where ranks live: rank to hosts and pids, from the most direct source that names them."""

from collections.abc import Iterable

from sentinel.core.picture import Picture
from sentinel.model.observation import (
    Decode,
    Enqueues,
    NcclComm,
    Notice,
    Observation,
    Phase,
    Prefill,
    Stack,
    ThreadTable,
)

_DIRECT: tuple[type[Observation], ...] = (NcclComm, Enqueues, Stack, ThreadTable)
_RELAYED: tuple[type[Observation], ...] = (Decode, Prefill, Phase, Notice)
"""Log lines may be relayed to another host's console (Ray, a launcher), so they are asked last."""


def hosts_of(picture: Picture, ranks: Iterable[int]) -> tuple[str, ...]:
    """Hosts of the given ranks, sorted; ranks whose host nothing names are left out."""
    known = picture.memo(_hosts)
    return tuple(sorted({known[rank] for rank in ranks if rank in known}))


def pids_of(picture: Picture, ranks: Iterable[int]) -> tuple[int, ...]:
    """Pids of the given ranks, sorted; ranks whose pid nothing names are left out."""
    known = picture.memo(_pids)
    return tuple(sorted({known[rank] for rank in ranks if rank in known}))


def _hosts(picture: Picture) -> dict[int, str]:
    found: dict[int, str] = {}
    for kind in (*_DIRECT, *_RELAYED):
        for rank, seen in picture.by_rank(kind).items():
            host = next((one.host for one in reversed(seen) if one.host is not None), None)
            if host is not None:
                found.setdefault(rank, host)
    return found


def _pids(picture: Picture) -> dict[int, int]:
    found: dict[int, int] = {}
    for kind in (*_DIRECT, *_RELAYED):
        for rank, seen in picture.by_rank(kind).items():
            pid = next((one.pid for one in reversed(seen) if one.pid is not None), None)
            if pid is not None:
                found.setdefault(rank, pid)
    return found
