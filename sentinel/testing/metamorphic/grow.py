"""A two-rank run on one host as a run of more ranks: the healthy rank has more peers that look like it."""

import re
from collections.abc import Callable
from dataclasses import replace

from sentinel.testing.metamorphic.folder import Files, Variant, is_text

_PID_STEP = 7_000
_PREFIX = re.compile(rb"(?m)^\S+:(\d+):\d+ \[([01])\] NCCL ")
_GPU_ROW = re.compile(rb"^\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d+, (\d+),")


def grown(world: int) -> Callable[[Variant], Variant | None]:
    """Applies where one of two ranks is the culprit; the RAS answer, which counts ranks, is left out."""

    def grow(variant: Variant) -> Variant | None:
        ranks = variant.expected.ranks
        pids = _pids(variant.files)
        if ranks is None or len(ranks) != 1 or ranks[0] not in (0, 1) or set(pids) != {0, 1}:
            return None
        healthy = 1 - ranks[0]
        files = {name: _of_world(data, world) for name, data in variant.files.items() if b"SERVER PROTOCOL" not in data}
        for rank in range(2, world):
            peer = _Peer(healthy, rank, pids[healthy], pids[healthy] + _PID_STEP * rank)
            for name, data in list(files.items()):
                if peer.owns(name) and is_text(data):
                    files[peer.renamed(name)] = peer.rewritten(data)
                elif is_text(data) and not peer.owned_by_other(name, pids[1 - healthy]):
                    files[name] = peer.joined(data)
        return replace(variant, files=files)

    return grow


class _Peer:
    """One more rank that looks like the healthy one."""

    def __init__(self, like: int, rank: int, old_pid: int, pid: int) -> None:
        self._like, self._rank = str(like).encode(), str(rank).encode()
        self._old_pid, self._pid = str(old_pid).encode(), str(pid).encode()

    def owns(self, name: str) -> bool:
        """Whether a file is of the healthy rank alone, by its name."""
        return self._named(name, self._like, self._old_pid)

    def owned_by_other(self, name: str, pid: int) -> bool:
        """Whether a file is of the culprit alone, or of a peer made before."""
        return bool(re.search(r"rank\d+\b", name)) or str(pid) in name or name.startswith("nccl")

    def renamed(self, name: str) -> str:
        """The peer's name for a file of the healthy rank."""
        like, rank = self._like.decode(), self._rank.decode()
        return re.sub(rf"rank_?{like}\b", f"rank_{rank}", name).replace(self._old_pid.decode(), self._pid.decode())

    def rewritten(self, data: bytes) -> bytes:
        """The peer's content of a file of the healthy rank: other pid, rank and device, same addresses and times."""
        like, rank = self._like, self._rank
        data = re.sub(rb"(?<![\w.])" + self._old_pid + rb"(?![\w.]|:\d\d\b)", self._pid, data)
        for words in (rb"\bTP%b\b", rb"\brank %b\b", rb"\bRank %b\b", rb"\bcudaDev %b\b", rb"\bnvmlDev %b\b"):
            pattern = words % like
            data = re.sub(pattern, (words % rank).replace(rb"\b", b""), data)
        data = re.sub(rb"(?m)^(\S+:\d+:\d+ \[)%b\]" % like, rb"\g<1>%b]" % rank, data)
        data = re.sub(rb"\[rank%b\]" % like, b"[rank%b]" % rank, data)
        return re.sub(rb"busId [0-9a-f]+", b"busId %x" % (0x1000 * int(rank)), data)

    def joined(self, data: bytes) -> bytes:
        """A table of the whole machine with the peer's rows beside those of the healthy rank."""
        lines = []
        for line in data.splitlines(keepends=True):
            lines.append(line)
            if (row := _GPU_ROW.match(line)) and row[1] == self._like:
                lines.append(line[: row.start(1)] + self._rank + line[row.end(1) :])
            elif re.match(rb"\s*" + self._old_pid + rb"\s", line):
                lines.append(line.replace(self._old_pid, self._pid, 1))
        return b"".join(lines)

    @staticmethod
    def _named(name: str, rank: bytes, pid: bytes) -> bool:
        return bool(re.search(rf"rank_?{rank.decode()}\b", name)) or f".{pid.decode()}." in name


def _pids(files: Files) -> dict[int, int]:
    """Pid of each rank by NCCL prefixes; the device number is the rank on one host."""
    found: dict[int, int] = {}
    for data in files.values():
        if is_text(data) and (first := _PREFIX.search(data[:4096])):
            found[int(first[2])] = int(first[1])
    return found


def _of_world(data: bytes, world: int) -> bytes:
    if not is_text(data):
        return data
    data = re.sub(rb"\bnranks 2\b", b"nranks %d" % world, data)
    data = re.sub(rb"\[nranks=2\]", b"[nranks=%d]" % world, data)
    every = ", ".join(map(str, range(world))).encode()
    return data.replace(b'"ranks": "[0, 1]"', b'"ranks": "[%b]"' % every)
