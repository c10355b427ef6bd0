"""The collective wavefront: per communicator, how far each rank has enqueued, and who is behind or ahead.

Three sources show it: NCCL's enqueue lines, NCCL's RAS service and torch's flight recorder. An enqueue line proves
*enqueued*, never started, and graph replays log nothing; the verdict's graph coverage says how much that hides.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from sentinel.core.picture import Picture
from sentinel.model.observation import Enqueues, FlightEntry, FlightTrace, NcclComm, Op, Ras, RasComm
from sentinel.report.words import many, span

COMMS_MAX = 24
ROWS_MAX = 32
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


@dataclass(frozen=True, slots=True)
class _Member:
    comm_rank: int | None
    rank: int | None
    enqueues: Enqueues


def fronts(picture: Picture) -> tuple[tuple[Front, ...], int]:
    """Communicators that were traced, largest and busiest first, and how many were left out."""
    groups = _join(picture)
    order = sorted(groups, key=lambda key: (-groups[key][0].enqueues.nranks, -_most(groups[key]), key))
    return tuple(_front(key, groups[key]) for key in order[:COMMS_MAX]), max(len(order) - COMMS_MAX, 0)


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


def sequences(picture: Picture) -> tuple[Sequence, ...]:
    """Process groups of the flight recorder, ranks that agree folded together."""
    places: dict[tuple[str, int | None, int | None, int | None, str], set[int]] = defaultdict(set)
    labels: dict[str, str] = {}
    for rank, traces in picture.by_rank(FlightTrace).items():
        trace = traces[-1]
        for group in trace.groups:
            labels[group.name] = f"{group.name} ({group.desc})" if group.desc else group.name
            last = next((entry for entry in reversed(trace.entries) if entry.group == group.name), None)
            told = "" if last is None else _entry(last)
            places[group.name, group.last_enqueued, group.last_started, group.last_completed, told].add(rank)
    front: dict[str, int] = {}
    for name, enqueued, *_ in places:
        front[name] = max(front.get(name, -1), -1 if enqueued is None else enqueued)
    return tuple(
        Sequence(
            group=labels[name],
            who=many("rank", ranks),
            enqueued=enqueued,
            started=started,
            completed=completed,
            last=told,
            tone="behind" if enqueued is not None and enqueued < front[name] else "front",
        )
        for (name, enqueued, started, completed, told), ranks in sorted(
            places.items(), key=lambda place: (place[0][0], min(place[1]))
        )
    )


def _entry(entry: FlightEntry) -> str:
    sizes = ", ".join("x".join(map(str, size)) for size in entry.in_sizes[:2])
    return f"#{entry.seq} {entry.op} {f'[{sizes}] ' if sizes else ''}{entry.state}"


def _join(picture: Picture) -> dict[str, list[_Member]]:
    """Enqueue counts per communicator. Pointers are local to a process; the init lines name what they share."""
    lives: dict[tuple[str | None, int | None, str], NcclComm] = {}
    for life in picture.all(NcclComm):
        if life.comm_id is not None or (life.host, life.pid, life.comm) not in lives:
            lives[life.host, life.pid, life.comm] = life
    groups: dict[str, list[_Member]] = defaultdict(list)
    unjoined: Counter[tuple[str | None, int | None, int]] = Counter()
    newest: dict[tuple[str | None, int | None, str], Enqueues] = {}
    for enqueues in picture.all(Enqueues):
        newest[enqueues.host, enqueues.pid, enqueues.comm] = enqueues
    for (host, pid, comm), enqueues in newest.items():
        joined = lives.get((host, pid, comm)) or lives.get((None, pid, comm))
        if joined is not None and joined.comm_id is not None:
            key = joined.comm_id
        else:
            unjoined[host, pid, enqueues.nranks] += 1
            key = f"not joined, {enqueues.nranks} ranks, no. {unjoined[host, pid, enqueues.nranks]}"
        rank = joined.comm_rank if joined is not None else None
        groups[key].append(_Member(rank, picture.rank_of(enqueues), enqueues))
    return dict(groups)


def _most(members: list[_Member]) -> int:
    return max(member.enqueues.total for member in members)


def _front(key: str, members: list[_Member]) -> Front:
    nranks = members[0].enqueues.nranks
    usual = _usual([member.enqueues.total for member in members])
    rows = sorted(_rows(members, usual), key=lambda row: (row.tone == "front", row.total, row.who))
    return Front(
        label=key,
        nranks=nranks,
        cells=tuple(_cells(members, nranks, usual)),
        rows=tuple(rows[:ROWS_MAX]),
        blind=_blind(members, nranks),
        cut=max(len(rows) - ROWS_MAX, 0),
    )


def _usual(totals: list[int]) -> int:
    """Where most ranks stand; the furthest place when no place has a majority."""
    place, votes = Counter(totals).most_common(1)[0]
    return place if votes * 2 > len(totals) else max(totals)


def _tone(total: int, usual: int) -> Tone:
    return "front" if total == usual else "behind" if total < usual else "ahead"


def _rows(members: list[_Member], usual: int) -> Iterator[Row]:
    alike: dict[tuple[int, tuple[str, ...], str], list[_Member]] = defaultdict(list)
    for member in members:
        traced = member.enqueues
        alike[traced.total, _tail(traced.tail), traced.digest].append(member)
    most_alike = max(alike.values(), key=len)
    for (total, tail, digest), group in alike.items():
        shown = group[0].enqueues
        other = digest and group is not most_alike and total == most_alike[0].enqueues.total
        yield Row(
            who=_who(group),
            tone=_tone(total, usual),
            total=total,
            delta=total - usual,
            by_op=_by_op(shown.by_op),
            tail=tail,
            unlogged=shown.unlogged_ops,
            note="same number, other sequence" if other else "",
            origin=str(shown.origin),
        )


def _cells(members: list[_Member], nranks: int, usual: int) -> Iterator[Cell]:
    known = {member.comm_rank: member for member in members if member.comm_rank is not None}
    for comm_rank in range(min(nranks, 1024)) if known else ():
        member = known.get(comm_rank)
        if member is None:
            yield Cell(comm_rank, "blind", f"communicator rank {comm_rank}: no trace")
            continue
        total = member.enqueues.total
        rank = "" if member.rank in (None, comm_rank) else f" (rank {member.rank})"
        title = f"communicator rank {comm_rank}{rank}: {total} enqueued, {total - usual:+d}"
        yield Cell(comm_rank, _tone(total, usual), title)


def _blind(members: list[_Member], nranks: int) -> str:
    known = {member.comm_rank for member in members if member.comm_rank is not None}
    if not known:
        return f"{nranks - len(members)} ranks" if nranks > len(members) else ""
    return span(set(range(nranks)) - known)


def _who(group: list[_Member]) -> str:
    ranks = [member.rank for member in group if member.rank is not None]
    others = [f"pid {member.enqueues.pid}" for member in group if member.rank is None]
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
