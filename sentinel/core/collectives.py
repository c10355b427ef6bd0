"""Matches communicators and their operations across ranks, from enqueue traces.

A pointer names a communicator inside one process only. Across processes it is joined by the hash that its init line
prints; a split prints none and is joined by its parent, its color and which of several alike splits it is. Without
init lines (a log whose start is gone) communicators of one size are joined by the order in which they first appear,
and only when that fits: as many of them in every process.

Enqueued is not started and not finished: a host may run ahead of its GPU by many operations, so a difference counts
only when progress has ended (`frozen`).
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from sentinel.core.picture import Picture
from sentinel.core.timeline import end_s, progress
from sentinel.model.observation import Enqueues, NcclComm, Op, Origin, Stack

Process = tuple[str, int]
POINT_TO_POINT = frozenset(("Send", "Recv", "PutSignal", "Signal", "WaitSignal"))
"""Calls that each rank makes for itself: neither their number nor their sizes agree across ranks."""
SETTLED_S = 8.0
"""A newest call older than this, seen from the end of the evidence, is not in flight any more."""


@dataclass(frozen=True, slots=True)
class Life:
    """One communicator of one process from its init lines to its end."""

    process: Process
    comm: str
    file: str
    rank: int
    nranks: int
    comm_id: str | None
    parent: str | None
    color: int | None
    started: NcclComm
    completed: bool
    ended: bool


@dataclass(frozen=True, slots=True)
class Member:
    """One process in a communicator. `calls` None: traced, but it enqueued nothing on this communicator.

    `rank` is its global rank where known, else None.
    """

    process: Process
    rank: int | None
    comm: str
    calls: Enqueues | None
    origin: Origin

    @property
    def total(self) -> int:
        """Calls seen, without point-to-point ones."""
        if self.calls is None:
            return 0
        return self.calls.total - sum(count for op, count in self.calls.by_op.items() if op in POINT_TO_POINT)

    @property
    def is_cut(self) -> bool:
        """Whether the end of this log is missing, so that there may be more calls than seen."""
        return self.calls is not None and "tail" in self.calls.missing

    @property
    def start(self) -> tuple[str, int] | None:
        """Where the count begins; only members that begin at the same place can be counted against each other."""
        if self.calls is None:
            return ("begin", 0)
        if "middle" in self.calls.missing:
            return None
        if "head" not in self.calls.missing:
            return ("begin", 0)
        return ("op", self.calls.first_op_count) if self.calls.first_op_count > 0 else None

    @property
    def is_mixed(self) -> bool:
        """Whether point-to-point calls stand between the others, so that positions cannot be compared."""
        return self.calls is not None and any(op in POINT_TO_POINT for op in self.calls.by_op)


@dataclass(frozen=True, slots=True)
class Group:
    """One communicator with its traced members in rank order."""

    key: tuple[object, ...]
    nranks: int
    members: tuple[Member, ...]

    @property
    def label(self) -> str:
        """How a person may call it."""
        return str(self.key[1]) if self.key[0] == "id" else f"a communicator of {self.nranks}"

    @property
    def ranks(self) -> frozenset[int]:
        """Known global ranks of the traced members."""
        return frozenset(member.rank for member in self.members if member.rank is not None)

    def countable(self) -> tuple[Member, ...]:
        """The largest set of members whose counts begin at the same place; empty when there are not two."""
        classes: dict[tuple[str, int], list[Member]] = defaultdict(list)
        for member in self.members:
            if (start := member.start) is not None:
                classes[start].append(member)
        best = max(classes.values(), key=len, default=[])
        return tuple(best) if len(best) >= 2 else ()


def lives(picture: Picture) -> dict[tuple[Process, str, str], Life]:
    """The newest life of every communicator pointer, by (process, pointer, file)."""
    events: dict[tuple[Process, str, str], list[NcclComm]] = defaultdict(list)
    for seen in picture.all(NcclComm):
        if seen.pid is not None:
            events[(seen.host or "", seen.pid), seen.comm, seen.origin.file].append(seen)
    return {key: _life(key, sorted(seen, key=lambda one: one.origin.line or 0)) for key, seen in events.items()}


def _life(key: tuple[Process, str, str], seen: list[NcclComm]) -> Life:
    starts = [at for at, one in enumerate(seen) if one.event == "init_start"]
    begin = starts[-1] if starts else 0
    first, rest = seen[begin], seen[begin:]
    comm_id = next((one.comm_id for one in rest if one.comm_id), None)
    parents = [one for one in rest if one.parent is not None]
    return Life(
        process=key[0],
        comm=key[1],
        file=key[2],
        rank=first.comm_rank,
        nranks=first.nranks,
        comm_id=comm_id,
        parent=parents[0].parent if parents else None,
        color=parents[0].color if parents else None,
        started=first,
        completed=any(one.event == "init_complete" for one in rest),
        ended=any(one.event in ("destroy", "abort", "revoke") for one in rest),
    )


def keys_of(known: dict[tuple[Process, str, str], Life]) -> dict[tuple[Process, str, str], tuple[object, ...]]:
    """A name for each life that is the same on all its ranks."""
    order = sorted(known, key=lambda key: (key[0], key[2], known[key].started.origin.line or 0))
    names: dict[tuple[Process, str, str], tuple[object, ...]] = {}
    alike: Counter[tuple[object, ...]] = Counter()
    for key in order:
        life = known[key]
        if life.comm_id is not None:
            names[key] = ("id", life.comm_id, life.nranks)
            continue
        parent = names.get((life.process, life.parent or "", life.file), ("unknown",))
        base = (life.process, life.file, parent, life.color, life.nranks)
        names[key] = ("split", parent, life.color, life.nranks, alike[base])
        alike[base] += 1
    return names


def newest_calls(picture: Picture) -> dict[tuple[Process, str, str], Enqueues]:
    """The last snapshot of each stream, without those of a pointer's earlier life."""
    known = picture.memo(lives)
    newest: dict[tuple[Process, str, str], Enqueues] = {}
    for seen in picture.all(Enqueues):
        if seen.pid is None:
            continue
        key = ((seen.host or "", seen.pid), seen.comm, seen.origin.file)
        old = newest.get(key)
        if old is None or (seen.last_line or 0) >= (old.last_line or 0):
            newest[key] = seen
    return {
        key: seen
        for key, seen in newest.items()
        if key not in known or (known[key].started.origin.line or 0) <= (seen.last_line or 0)
    }


def groups(picture: Picture) -> tuple[Group, ...]:
    """Communicators of which at least one member's calls were traced, largest first."""
    known, calls = picture.memo(lives), picture.memo(newest_calls)
    names = keys_of(known)
    found: dict[tuple[object, ...], dict[Process, Member]] = defaultdict(dict)
    tracing = {(process, file) for process, _, file in calls}
    loose: list[Enqueues] = []
    for key, seen in calls.items():
        where = key if key in names else _elsewhere(key, names)
        if where is None:
            loose.append(seen)
        else:
            _join(found[names[where]], picture, key, seen, seen.origin)
    for key, life in known.items():
        if (life.process, life.file) in tracing and life.completed and key not in calls:
            _join(found[names[key]], picture, key, None, life.started.origin)
    sizes = {names[key]: life.nranks for key, life in known.items()}
    made = [_group(name, sizes[name], members.values()) for name, members in found.items()]
    made += _by_order(picture, loose)
    fitting = [group for group in made if len(group.members) <= group.nranks and any(m.calls for m in group.members)]
    return tuple(sorted(fitting, key=lambda group: (-group.nranks, str(group.key))))


def _elsewhere(
    key: tuple[Process, str, str], names: dict[tuple[Process, str, str], tuple[object, ...]]
) -> tuple[Process, str, str] | None:
    """The init lines of a pointer when they stand in another file (an engine's log, a rotated part), if unique."""
    same = [other for other in names if other[:2] == key[:2]]
    return same[0] if len(same) == 1 else None


def _join(
    members: dict[Process, Member],
    picture: Picture,
    key: tuple[Process, str, str],
    calls: Enqueues | None,
    origin: Origin,
) -> None:
    """Of two logs of one process on one communicator the longer one counts."""
    process, comm, _ = key
    member = Member(process, picture.identity.rank_of(process[0] or None, process[1]), comm, calls, origin)
    old = members.get(process)
    if old is None or (member.total, old.origin.file) > (old.total, member.origin.file):
        members[process] = member


def _group(name: tuple[object, ...], nranks: int, members: Iterable[Member]) -> Group:
    return Group(name, nranks, tuple(sorted(members, key=lambda m: (m.rank is None, m.rank or 0, m.process))))


def _by_order(picture: Picture, loose: list[Enqueues]) -> list[Group]:
    """Communicators without init lines, joined by size and order of appearance."""
    per_process: dict[tuple[int, Process], list[Enqueues]] = defaultdict(list)
    for seen in loose:
        per_process[seen.nranks, (seen.host or "", seen.pid or 0)].append(seen)
    made = []
    for nranks in {size for size, _ in per_process}:
        streams = {process: seen for (size, process), seen in per_process.items() if size == nranks}
        if len({len(seen) for seen in streams.values()}) != 1 or len(streams) > nranks:
            continue
        for at in range(len(next(iter(streams.values())))):
            members: dict[Process, Member] = {}
            for process, calls in streams.items():
                key = (process, calls[at].comm, calls[at].origin.file)
                _join(members, picture, key, calls[at], calls[at].origin)
            made.append(_group(("order", nranks, at), nranks, members.values()))
    return made


def frozen(picture: Picture, ranks: frozenset[int] = frozenset()) -> bool | None:
    """Whether enqueuing has ended for good: progress stopped, or the newest stamped call is old. None = cannot tell.

    With several printers of progress (data parallelism) one part of the engine can hang while others go on: then the
    progress of these `ranks` counts, when any of them prints.
    """
    seen, end = picture.memo(progress), end_s(picture)
    if seen.t0 is not None and end is not None:
        own = [mark.at_s for mark in seen.marks if mark.rank in ranks] if ranks else []
        several = len({mark.rank for mark in seen.marks if mark.rank is not None}) > 1
        last = max(own) if own and several else seen.t0.at_s
        if end <= last and picture.has(Stack):
            # Nothing timed follows the last progress, but somebody had a reason to look at stacks.
            return None
        return end - last > seen.limit_s
    stamps = [op.at_s for calls in picture.memo(newest_calls).values() for op in calls.tail[-1:] if op.at_s is not None]
    if stamps and end is not None:
        return end - max(stamps) > SETTLED_S + picture.clock_error_s or None
    return None


# --- comparing two members ---------------------------------------------------------------------------------------


def first_difference(one: Enqueues, other: Enqueues) -> int | None:
    """Index at or shortly before which two call sequences differ on their common length; None where they agree.

    Exact inside the kept tails, else the start of the digested stretch. Both must begin at the same place.
    """
    length = min(one.total, other.total)
    every = max(one.digest_every, other.digest_every)
    boundary = length // every * every
    if _prefix(one, boundary) != _prefix(other, boundary):
        return _first_boundary(one, other, every, boundary) - every
    if one.total == other.total and one.digest == other.digest:
        return None
    first, second = _by_position(one), _by_position(other)
    for at in range(boundary, length):
        if at in first and at in second and first[at].shape != second[at].shape:
            return at
    return None


def _first_boundary(one: Enqueues, other: Enqueues, every: int, boundary: int) -> int:
    """First digest boundary at which the running digests differ; once apart they stay apart."""
    low, high = 0, boundary // every
    while high - low > 1:
        middle = (low + high) // 2
        if _prefix(one, middle * every) == _prefix(other, middle * every):
            low = middle
        else:
            high = middle
    return high * every


def _prefix(calls: Enqueues, length: int) -> str:
    return calls.digests[length // calls.digest_every - 1] if length else ""


def _by_position(calls: Enqueues) -> dict[int, Op]:
    begin = calls.total - len(calls.tail)
    return {begin + at: op for at, op in enumerate(calls.tail)}


def same_tail(members: Iterable[Member]) -> bool | None:
    """Whether the last calls of all members are alike; None when there are fewer than two with calls."""
    tails = [tuple(op.shape for op in member.calls.tail) for member in members if member.calls is not None]
    if len(tails) < 2:
        return None
    shortest = min(len(tail) for tail in tails)
    return len({tail[-shortest:] for tail in tails}) == 1
