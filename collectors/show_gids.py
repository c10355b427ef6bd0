"""RoCE GID tables: `show_gids` of MLNX_OFED/DOCA, and `/sys/class/infiniband/DEV/ports/P/gids/I: GID` dumps."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from sentinel.collector import Blob, Context, DocumentParser, Line, Sample
from sentinel.model.observation import NicGids, Origin

TEXT_CAP = 512
MAX_DEVICES = 1024

_HEADER = re.compile(r"^\s*DEV\s+PORT\s+INDEX\s+GID\b")
_ROW = re.compile(
    r"^\s*(?P<dev>[\w.-]{1,64})\s+(?P<port>\d{1,3})\s+(?P<index>\d{1,5})\s+(?P<gid>[0-9a-fA-F:]{15,64})\b"
)
_SYSFS = re.compile(
    r"infiniband/(?P<dev>[\w.-]{1,64})/ports/\d{1,3}/gids/(?P<index>\d{1,5})\s*[:=\s]\s*(?P<gid>[0-9a-fA-F:]{15,64})"
)
_EMPTY = re.compile(r"^(?:0+:)*0+$|^::$")


def read(lines: Iterable[Line]) -> tuple[dict[str, tuple[int, ...]], int | None]:
    """Indices present per device, and the first line that says so; an all-zero GID is an empty slot."""
    found: dict[str, set[int]] = defaultdict(set)
    first = None
    for line in lines:
        row = _ROW.match(line.text[:TEXT_CAP]) or _SYSFS.search(line.text[:TEXT_CAP])
        if row is None or (row["dev"] not in found and len(found) >= MAX_DEVICES):
            continue
        first = first or line.number
        if not _EMPTY.match(row["gid"]):
            found[row["dev"]].add(int(row["index"]))
        else:
            found[row["dev"]].update(())
    return {device: tuple(sorted(indices)) for device, indices in found.items()}, first


def _recognise(sample: Sample) -> bool:
    lines = [line[:TEXT_CAP] for line in sample.head[:8192].split("\n")]
    return any(_HEADER.match(line) for line in lines) or sum(1 for line in lines if _SYSFS.search(line)) >= 1


def _parse(blob: Blob, context: Context) -> Iterator[NicGids]:
    gids, first = read(blob.lines())
    if gids:
        yield NicGids(origin=Origin(context.name, first), host=context.host, gids=gids)


PARSER = DocumentParser(name="show_gids", recognise=_recognise, parse=_parse)
