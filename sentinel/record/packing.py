"""Deterministic archives: the same files give the same bytes, on every machine and at any time.

Names are sorted, times are the incident's, owner and group are 0, modes 0640, headers PAX; zstd runs in one thread at
one level. Limits are kept by cutting the start of the largest files, because the end of a log is where it stopped.
"""

import io
import shutil
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import BinaryIO, cast

import zstandard

LEVEL = 10
MODE = 0o640
_CHUNK = 1 << 16


def write_archive(target: BinaryIO, files: Mapping[str, Path | bytes], mtime_s: int) -> None:
    """Write a `.tar.zst` of the files in the order of their names."""
    compressor = zstandard.ZstdCompressor(level=LEVEL, threads=0, write_checksum=True)
    with (
        compressor.stream_writer(target, closefd=False) as packed,
        tarfile.open(fileobj=cast(BinaryIO, packed), mode="w|", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name in sorted(files):
            content = files[name]
            entry = tarfile.TarInfo(name)
            entry.mtime, entry.mode, entry.uid, entry.gid = mtime_s, MODE, 0, 0
            if isinstance(content, bytes):
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
            else:
                entry.size = content.stat().st_size
                with content.open("rb") as file:
                    tar.addfile(entry, file)


def fair_cap(sizes: Iterable[int], budget: int) -> int | None:
    """The largest size that each file may have so that all fit into the budget; None when they fit as they are.

    >>> fair_cap([10, 50, 100], 110)
    50
    """
    ordered = sorted(sizes)
    if sum(ordered) <= budget:
        return None
    left = budget
    for position, size in enumerate(ordered):
        share = left // (len(ordered) - position)
        if size > share:
            return share
        left -= size
    return 0


def keep_tail(path: Path, cap: int) -> int:
    """Cut a file to its last `cap` bytes, from the start of a line; returns the size that is left."""
    size = path.stat().st_size
    shorter = path.with_name(path.name + ".tail")
    with path.open("rb") as source, shorter.open("wb") as target:
        source.seek(size - cap)
        head = source.read(min(cap, _CHUNK))
        target.write(head[head.find(b"\n") + 1 :])
        shutil.copyfileobj(source, target, _CHUNK)
    shorter.replace(path)
    return path.stat().st_size
