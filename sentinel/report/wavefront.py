"""The collective wavefront: per communicator, how far each rank has enqueued, and who is behind or ahead.

Three sources show it: NCCL's enqueue lines, NCCL's RAS service and torch's flight recorder. An enqueue line proves
*enqueued*, never started, and graph replays log nothing; the verdict's graph coverage says how much that hides.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from sentinel.core import collectives
from sentinel.core.collectives import Group, Member
from sentinel.core.picture import Picture
from sentinel.model.observation import FlightEntry, FlightGroup, FlightTrace, Op, Ras, RasComm
from sentinel.report.words import many, span

COMMS_MAX = 24
ROWS_MAX = 32
CELLS_MAX = 1024
TAIL = 4

Tone = Literal["front", "behind", "ahead", "blind"]
_DTYPES = ("i8", "u8", "i32", "u32", "i64", "u64", "f16", "f32", "f64", "bf16", "f8e4m3", "f8e5m2")
"""NCCL's data type numbers (nccl.h, ncclDataType_t)."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One rank of a communicator in the heat strip."""

    rank: int
    tone: Tone
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Ranks that stand at the same place. `delta` is against the place where most ranks stand."""

    who: str
    tone: Tone
    total: int
    delta: int
    by_op: str
    tail: tuple[str, ...]
    unlogged: int | None
    note: str
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """One communicator."""

    label: str
    nranks: int
    cells: tuple[Cell, ...]
    rows: tuple[Row, ...]
    blind: str
    cut: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequence:
    """One process group of the flight recorder on ranks that agree."""

    group: str
    who: str
    enqueued: int | None
    started: int | None
    completed: int | None
    last: str
    tone: Tone


@dataclass(frozen=True, slots=True, kw_only=True)
class RasRow:
    """One communicator as RAS tells it."""

    comm: str
    size: int | None
    status: str
    says: str
    missing: str
    origin: str


def fronts(picture: Picture, accused: Collection[int] = ()) -> tuple[tuple[Front, ...], int]:
    """Communicators that were traced, largest and busiest first, and how many were left out.

    `accused` are the ranks that the verdict names: the others are what they are measured against.
    """
    groups = picture.memo(collectives.groups)
    order = sorted(groups, key=lambda group: (-group.nranks, -max(member.total for member in group.members)))
    return tuple(_front(picture, group, accused) for group in order[:COMMS_MAX]), max(len(order) - COMMS_MAX, 0)


def ras_rows(picture: Picture) -> tuple[RasRow, ...]:
    """What RAS said in its newest answer, one row per communicator; one row with the reason when it did not answer."""
    answers = list(picture.all(Ras))
    if not answers:
        return ()
    newest = answers[-1]
    if newest.error and not newest.comms:
        reason = (newest.error, str(newest.origin))
        return (RasRow(comm="", size=None, status="no answer", says=reason[0], missing="", origin=reason[1]),)
    return tuple(_ras_row(comm, newest) for comm in newest.comms)


def sequences(picture: Picture, accused: Collection[int] = ()) -> tuple[Sequence, ...]:
    """Process groups of the flight recorder, ranks that agree folded together; `accused` as in `fronts`."""
    places: dict[_Place, set[int]] = defaultdict(set)
    for rank, traces in picture.by_rank(FlightTrace).items():
        for group in traces[-1].groups:
            places[_Place.of(group, traces[-1])].add(rank)
    totals: dict[tuple[str, tuple[int, ...]], list[tuple[int, bool]]] = defaultdict(list)
    for place, ranks in places.items():
        totals[place.name, place.ranks] += [(place.enqueued or 0, rank in accused) for rank in ranks]
    return tuple(
        Sequence(
            group=f"{place.name} ({place.desc})" if place.desc else place.name,
            who=many("rank", ranks),
            enqueued=place.enqueued,
            started=place.started,
            completed=place.completed,
            last=place.last,
            tone="front" if place.enqueued is None else _tone(place.enqueued, _usual(totals[place.name, place.ranks])),
        )
        for place, ranks in sorted(places.items(), key=lambda item: (item[0].name, item[0].ranks, min(item[1])))
    )


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a rank stands in one process group; names of groups repeat, their members tell them apart."""

    name: str
    desc: str
    ranks: tuple[int, ...]
    enqueued: int | None
    started: int | None
    completed: int | None
    last: str

    @classmethod
    def of(cls, group: FlightGroup, trace: FlightTrace) -> "_Place":
        last = next((entry for entry in reversed(trace.entries) if entry.group == group.name), None)
        return cls(
            group.name,
            group.desc,
            group.ranks,
            group.last_enqueued,
            group.last_started,
            group.last_completed,
            "" if last is None else _entry(last),
        )


def _entry(entry: FlightEntry) -> str:
    sizes = ", ".join("x".join(map(str, size)) for size in entry.in_sizes[:2])
    return f"#{entry.seq} {entry.op} {f'[{sizes}] ' if sizes else ''}{entry.state}"


def _front(picture: Picture, group: Group, accused: Collection[int]) -> Front:
    usual = _usual([(member.total, member.rank in accused) for member in group.members])
    rows = sorted(_rows(group, usual, accused), key=lambda row: (row.tone == "front", row.total, row.who))
    seats = _seats(picture, group)
    return Front(
        label=group.label,
        nranks=group.nranks,
        cells=tuple(_cells(seats, group.nranks, usual)),
        rows=tuple(rows[:ROWS_MAX]),
        blind=_blind(seats, group),
        cut=max(len(rows) - ROWS_MAX, 0),
    )


def _usual(totals: list[tuple[int, bool]]) -> int:
    """Where a rank should stand: where most of those that are not accused do; the furthest place without a majority."""
    calm = [total for total, is_accused in totals if not is_accused] or [total for total, _ in totals]
    place, votes = Counter(calm).most_common(1)[0]
    return place if votes * 2 > len(calm) else max(calm)


def _tone(total: int, usual: int) -> Tone:
    return "front" if total == usual else "behind" if total < usual else "ahead"


def _rows(group: Group, usual: int, accused: Collection[int]) -> Iterator[Row]:
    """Members that made the same calls, folded."""
    alike: dict[tuple[int, tuple[str, ...], str], list[Member]] = defaultdict(list)
    for member in group.members:
        calls = member.calls
        alike[member.total, _tail(calls.tail) if calls else (), calls.digest if calls else ""].append(member)
    reference = max(alike.values(), key=lambda members: (members[0].rank not in accused, len(members)))[0]
    for (total, tail, _), members in alike.items():
        calls = members[0].calls
        yield Row(
            who=_who(members),
            tone=_tone(total, usual),
            total=total,
            delta=total - usual,
            by_op=_by_op(calls.by_op) if calls else "",
            tail=tail,
            unlogged=calls.unlogged_ops if calls else None,
            note=_note(members[0], reference),
            origin=str(members[0].origin),
        )


def _note(member: Member, reference: Member) -> str:
    if member.is_cut:
        return "end of the log is missing"
    comparable = member.start is not None and member.start == reference.start and not member.is_mixed
    if member.calls is None or reference.calls is None or not comparable:
        return ""
    differs = collectives.first_difference(member.calls, reference.calls)
    if differs is None:
        return ""
    return f"calls differ after no. {differs}" if differs else "calls differ from the start"


def _seats(picture: Picture, group: Group) -> dict[int, Member]:
    """Members by their rank inside the communicator; by global rank where the trace does not tell."""
    known = picture.memo(collectives.lives)
    by_comm = {(life.process, life.comm): life.rank for life in known.values()}
    seats: dict[int, Member] = {}
    for member in group.members:
        seat = by_comm.get((member.process, member.comm), member.rank)
        if seat is not None:
            seats[seat] = member
    return seats


def _cells(seats: Mapping[int, Member], nranks: int, usual: int) -> Iterator[Cell]:
    for seat in range(min(nranks, CELLS_MAX)) if seats else ():
        member = seats.get(seat)
        if member is None:
            yield Cell(seat, "blind", f"rank {seat} of the communicator: no trace")
            continue
        rank = "" if member.rank in (None, seat) else f" (rank {member.rank})"
        title = f"rank {seat} of the communicator{rank}: {member.total} enqueued, {member.total - usual:+d}"
        yield Cell(seat, _tone(member.total, usual), title)


def _blind(seats: Mapping[int, Member], group: Group) -> str:
    if not seats:
        absent = group.nranks - len(group.members)
        return f"{absent} ranks" if absent > 0 else ""
    return span(set(range(group.nranks)) - set(seats))


def _who(members: list[Member]) -> str:
    ranks = [member.rank for member in members if member.rank is not None]
    others = [f"pid {member.process[1]}" for member in members if member.rank is None]
    return ", ".join(part for part in (many("rank", ranks), *others) if part)


def _tail(ops: tuple[Op, ...]) -> tuple[str, ...]:
    """The last operations in words, runs of the same one folded."""
    runs = [(text, len(list(run))) for text, run in groupby(ops, key=_op)]
    return tuple(f"{text} × {length}" if length > 1 else text for text, length in runs[-TAIL:])


def _op(op: Op) -> str:
    dtype = _DTYPES[op.dtype] if 0 <= op.dtype < len(_DTYPES) else f"dtype {op.dtype}"
    root = f" root {op.root}" if op.op in ("Broadcast", "Reduce", "Send", "Recv") else ""
    return f"{op.op} {op.count} {dtype}{root}"


def _by_op(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items(), key=lambda item: -item[1]))


def _ras_row(comm: RasComm, answer: Ras) -> RasRow:
    mismatch = [
        f"{name}: " + ", ".join(f"{_ras_who(rank)} {count}" for rank, count in counts.items())
        for name, counts in comm.mismatch.items()
    ]
    missing = [member.rank for member in comm.missing if member.rank is not None]
    return RasRow(
        comm=comm.comm_id or "",
        size=comm.size,
        status=comm.status,
        says="; ".join((*comm.errors, *mismatch)),
        missing=span(missing),
        origin=str(answer.origin),
    )


def _ras_who(rank: str) -> str:
    return "the others" if rank == "others" else f"rank {rank}"
