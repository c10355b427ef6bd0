"""All dumps of one incident joined into one view per rank, and the processes that are no ranks."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sentinel.core.fact import Cite
from sentinel.core.picture import Picture
from sentinel.core.places import WAITING
from sentinel.core.placing import rank_of_pid
from sentinel.core.stack_reading import Reading, read_stack
from sentinel.core.timeline import world
from sentinel.model.observation import ProcessTable, Stack, ThreadTable

EXACT = frozenset(
    {"file_io", "lock", "native_call", "comm_init", "nccl_host", "collective", "gpu_wait", "sleep", "gc", "compile"}
)
"""Places that a dump with native frames can add to a Python-only one that says no more than "in a step"."""

_WORKER_TITLES = ("::worker", "rayworkerwrapper")


@dataclass(frozen=True, slots=True)
class RankView:
    """One rank: its chosen reading, the place after joining all its dumps, whether they show the same stack.

    `frozen` is None with fewer than two comparable dumps.
    """

    rank: int
    place: str
    group: str
    chosen: Reading
    readings: tuple[Reading, ...]
    frozen: bool | None

    @property
    def waits(self) -> bool:
        """Whether it waits for other ranks or for its GPU."""
        return self.place in WAITING

    def cite(self) -> Cite:
        """Where a person sees it."""
        return Cite(f"rank {self.rank} is in {where(self.chosen)} ({self.place})", self.chosen.stack.origin)


@dataclass(slots=True)
class StackViews:
    """`cores` are EngineCores (also those that count as ranks), `fronts` front-end processes with their dumps."""

    ranks: dict[int, RankView] = field(default_factory=dict)
    failed: dict[int, Stack] = field(default_factory=dict)
    cores: list[Reading] = field(default_factory=list)
    fronts: list[Reading] = field(default_factory=list)
    unplaced: list[Reading] = field(default_factory=list)
    seen: bool = False

    @property
    def readings(self) -> list[Reading]:
        """Every successful dump of every process."""
        ranked = [reading for view in self.ranks.values() for reading in view.readings]
        cores = [reading for reading in self.cores if all(reading is not other for other in ranked)]
        return [*ranked, *cores, *self.fronts, *self.unplaced]


def where(reading: Reading) -> str:
    """The decisive function and the engine's frame around it, in words."""
    decisive = reading.frame.function.partition("(")[0] if reading.frame is not None else ""
    if decisive and reading.site and not reading.site.startswith(decisive.rpartition(".")[2]):
        return f"{decisive} under {reading.site}"
    return decisive or reading.site or "unknown code"


def views(picture: Picture) -> StackViews:
    """Join all dumps; see `StackViews`."""
    found = StackViews()
    by_rank: dict[int, list[Reading]] = defaultdict(list)
    refused: dict[int, Stack] = {}
    workers = _has_workers(picture)
    for stack in picture.all(Stack):
        found.seen = True
        reading = read_stack(stack)
        rank = _rank(picture, reading, workers)
        if stack.error is not None or not stack.threads:
            if rank is not None:
                refused[rank] = stack
            continue
        if reading.role == "core":
            found.cores.append(reading)
        if rank is not None:
            by_rank[rank].append(reading)
        elif reading.role == "frontend":
            found.fronts.append(reading)
        elif reading.role != "core":
            found.unplaced.append(reading)
    if (rank := _last_sibling(picture, by_rank, found.unplaced)) is not None:
        by_rank[rank], found.unplaced = found.unplaced, []
    found.ranks = {rank: _view(rank, readings) for rank, readings in sorted(by_rank.items())}
    found.failed = {rank: stack for rank, stack in sorted(refused.items()) if rank not in by_rank}
    return found


def stopped_processes(picture: Picture) -> frozenset[tuple[str | None, int]]:
    """Processes seen stopped, traced or dead (state T, t, Z, X): what their threads hold proves nothing."""
    states: dict[tuple[str | None, int], str] = {}
    for table in picture.all(ProcessTable):
        states.update({(table.host, row.pid): row.state[:1] for row in table.rows})
    for threads in picture.all(ThreadTable):
        if threads.pid is not None and threads.threads:
            states[(threads.host, threads.pid)] = threads.threads[0].state[:1]
    for stack in picture.all(Stack):
        if stack.pid is not None and stack.error is not None and "SIGSTOP" in stack.error:
            states[(stack.host, stack.pid)] = "T"
    return frozenset(key for key, state in states.items() if state in tuple("TtZX"))


def _has_workers(picture: Picture) -> bool:
    """Whether vLLM worker processes exist beside its EngineCore: then the core is not a rank."""
    for stack in picture.all(Stack):
        if any(mark in (stack.title or "").lower() for mark in _WORKER_TITLES):
            return True
    for table in picture.all(ProcessTable):
        if any(mark in row.command.lower() for row in table.rows for mark in _WORKER_TITLES):
            return True
    cores = {(stack.host, stack.pid) for stack in picture.all(Stack) if "::enginecore" in (stack.title or "").lower()}
    return bool(cores) and any(
        tags.tp is not None for key, tags in picture.identity.by_tags.items() if key not in cores
    )


def _rank(picture: Picture, reading: Reading, workers: bool) -> int | None:
    stack = reading.stack
    if reading.role == "frontend" or (reading.role == "core" and workers):
        return None
    known = picture.rank_of(stack)
    if known is None:
        known = rank_of_pid(picture, stack.host, stack.pid)
    if known is not None:
        return known
    untagged = "::" in (stack.title or "") and stack.tags is None
    return 0 if reading.role in ("rank", "core") and untagged and "ray" not in (stack.title or "").lower() else None


def _last_sibling(picture: Picture, by_rank: dict[int, list[Reading]], unplaced: list[Reading]) -> int | None:
    """The one rank without a stack, when one process of the same command as all the others is left over."""
    missing = set(world(picture)) - set(by_rank)
    left = {(reading.stack.host, reading.stack.pid) for reading in unplaced}
    titles = {reading.stack.title for readings in by_rank.values() for reading in readings}
    alike = {reading.stack.title for reading in unplaced} == titles and titles != {None}
    return missing.pop() if len(missing) == len(left) == 1 and alike else None


def _view(rank: int, readings: Sequence[Reading]) -> RankView:
    chosen = _choose(readings)
    place = chosen.place
    if not chosen.stack.native and place in ("step", "unknown"):
        exact = [reading for reading in readings if reading.stack.native and reading.place in EXACT]
        place = exact[-1].place if exact else place
        chosen = exact[-1] if exact and exact[-1].has_python else chosen
    return RankView(rank, place, chosen.group, chosen, tuple(readings), _frozen(readings))


def _choose(readings: Sequence[Reading]) -> Reading:
    """Merged frames say most, then Python, then native ones; of one kind, the newest that says anything.

    Where merged dumps disagree, the place that most dumps with native frames show is not the passing one.
    """
    merged, python, native = (
        _in_time(reading for reading in readings if reading.has_python and reading.stack.native),
        _in_time(reading for reading in readings if reading.has_python and not reading.stack.native),
        _in_time(reading for reading in readings if not reading.has_python),
    )
    votes = Counter(reading.place for reading in (*merged, *native))
    merged.sort(key=lambda reading: votes[reading.place])
    for kind in (merged, python, native):
        for reading in reversed(kind):
            if reading.place != "unknown":
                return reading
    return next(kind[-1] for kind in (merged, python, native) if kind)


def _in_time(readings: Iterable[Reading]) -> list[Reading]:
    return sorted(readings, key=lambda reading: reading.stack.at_s or 0.0)


def _frozen(readings: Sequence[Reading]) -> bool | None:
    """Whether dumps of one tool show the same Python frames and lines in the deciding thread."""
    by_tool: dict[tuple[str, int | None], list[Reading]] = defaultdict(list)
    for reading in readings:
        if reading.trail:
            by_tool[(reading.stack.tool, reading.stack.pid)].append(reading)
    pairs = [kept for kept in by_tool.values() if len(kept) > 1]
    if not pairs:
        return None
    return all(reading.trail == kept[0].trail for kept in pairs for reading in kept)
