"""Writes NCCL debug files of an imaginary engine, call by call, and reads them back into a picture.

`World` gives every rank its communicators; a test lets ranks make calls, leaves some out, and asks for facts.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from sentinel.collector import Context
from sentinel.collectors.nccl_log import NcclReader
from sentinel.core.fact import Value
from sentinel.core.facts import collectives, network
from sentinel.core.picture import Picture
from sentinel.model.observation import Decode, HealthProbe, Observation, Origin

COMPUTE = {spec.name: spec.compute for spec in (*collectives.FACTS, *network.FACTS)}
BEGIN_S = 1_790_000_000.0


@dataclass
class Rank:
    """One process: its lines so far, and the opCount of each communicator."""

    host: str
    pid: int
    lines: list[str] = field(default_factory=list)
    op_counts: dict[str, int] = field(default_factory=dict)

    def say(self, message: str, level: str = "INFO") -> None:
        """Add a line with this process's prefix."""
        self.lines.append(f"{self.host}:{self.pid}:{self.pid} [0] NCCL {level} {message}")


class World:
    """`size` ranks, eight a host. Communicators: `world` (with a hash) and splits of it."""

    def __init__(self, size: int, *, networked: bool = False, same_pids: bool = False, init: bool = True) -> None:
        self.networked = networked
        self.ranks = [Rank(f"box{rank // 8}", 500 + (rank % 8 if same_pids else rank)) for rank in range(size)]
        self.members: dict[str, list[int]] = {}
        self.init = init
        self.open("world", range(size))

    def open(self, name: str, members: Iterable[int], *, split: bool = False, complete: bool = True) -> None:
        """Build a communicator on all its members."""
        ranks = self.members[name] = list(members)
        for number, rank in enumerate(ranks):
            self.ranks[rank].op_counts[name] = 0
            if not self.init:
                continue
            parent = f" parent {self.pointer('world', rank)} splitCount 1 color 77 key {number}" if split else ""
            known = "" if split else f" commId 0xd8b1f0{len(self.members):02x}"
            for event in ("Init START", "Init COMPLETE") if complete else ("Init START",):
                self.ranks[rank].say(
                    f"ncclCommInitRankConfig comm {self.pointer(name, rank)} rank {number} nranks {len(ranks)} "
                    f"cudaDev 0 nvmlDev 0 busId 1b000{parent}{known} - {event}"
                )

    def pointer(self, name: str, rank: int) -> str:
        """Pointers differ between processes and communicators."""
        return f"0x55d0{list(self.members).index(name):02x}{rank:02x}a0"

    def call(self, rank: int, comm: str = "world", op: str = "AllReduce", count: int = 4096, root: int = 0) -> None:
        """One rank enqueues one operation."""
        one = self.ranks[rank]
        one.say(
            f"{op}: opCount {one.op_counts[comm]:x} sendbuff 0x7f21aa000000 recvbuff 0x7f21aa000000 count {count} "
            f"datatype 9 op 0 root {root} comm {self.pointer(comm, rank)} [nranks={len(self.members[comm])}] "
            f"stream 0x55d0c7a1f3c0"
        )
        if self.networked:
            one.op_counts[comm] += 1

    def all(self, comm: str = "world", op: str = "AllReduce", count: int = 4096, *, but: Iterable[int] = ()) -> None:
        """Every member but some enqueues the same operation."""
        for rank in self.members[comm]:
            if rank not in set(but):
                self.call(rank, comm, op, count)

    def replay(self, comm: str = "world", *, but: Iterable[int] = ()) -> None:
        """A graph replay: no line, but opCount goes on."""
        for rank in self.members[comm]:
            if rank not in set(but):
                self.ranks[rank].op_counts[comm] += 1

    def text(self, rank: int) -> str:
        """The debug file of one rank."""
        return "".join(f"{line}\n" for line in self.ranks[rank].lines)

    def observations(self, ranks: Iterable[int] | None = None, edit: Callable[[str], str] = str) -> list[Observation]:
        """What the files of these ranks (default all) give, in rank order."""
        found: list[Observation] = []
        for rank in range(len(self.ranks)) if ranks is None else ranks:
            found += read(edit(self.text(rank)), f"nccl.{rank}.log")
        return found


def read(text: str, name: str = "nccl.log") -> list[Observation]:
    """One debug file, as the analyser reads it."""
    reader = NcclReader(Context(name=name, year=2026))
    return [*reader.feed(text.encode()), *reader.flush(ended=True)]


def stopped() -> list[Observation]:
    """Decode lines every second, then two minutes without one while somebody still probes."""
    return [*_decoding(), HealthProbe(origin=Origin("health.csv", 1), at_s=BEGIN_S + 150.0, url="/health", status=200)]


def going_on() -> list[Observation]:
    """Decode lines to the end of the evidence."""
    return _decoding()


def _decoding() -> list[Observation]:
    return [
        Decode(origin=Origin("engine.log", at + 1), at_s=BEGIN_S + at, engine="sglang", running=4) for at in range(30)
    ]


def picture_of(*parts: Iterable[Observation]) -> Picture:
    """A picture of these observations."""
    picture = Picture()
    for part in parts:
        for seen in part:
            picture.note(seen)
    return picture


def fact(picture: Picture, name: str) -> Value:
    """The value of one fact."""
    return COMPUTE[name](picture).value
