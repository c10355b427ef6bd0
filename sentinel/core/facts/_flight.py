"""Facts from torch's flight recorder. It sees only what torch itself enqueued: engines' own NCCL wrappers bypass it."""

from collections import Counter, defaultdict
from collections.abc import Mapping

from sentinel.core.fact import Cite, Fact, unknown
from sentinel.core.picture import Picture
from sentinel.model.observation import FlightEntry, FlightGroup, FlightTrace, GpuKernels, Notice

DUMPS = "flight-recorder dumps of at least two ranks"
_UNIFORM = (
    "all_reduce",
    "all_gather",
    "_all_gather_base",
    "reduce_scatter",
    "_reduce_scatter_base",
    "broadcast",
    "barrier",
)
"""Operations whose sizes must agree on all ranks; all-to-all and scatter forms may differ."""

GroupKey = tuple[str, tuple[int, ...]]


def traces(picture: Picture) -> dict[int, FlightTrace]:
    """The newest dump of each known rank."""
    return {
        rank: max(found, key=lambda seen: (seen.at_s or 0.0, seen.origin))
        for rank, found in picture.by_rank(FlightTrace).items()
    }


def _sides(picture: Picture) -> dict[GroupKey, dict[int, FlightGroup]]:
    """Process groups that at least two dumps describe."""
    found: dict[GroupKey, dict[int, FlightGroup]] = defaultdict(dict)
    for rank, trace in picture.memo(traces).items():
        for group in trace.groups:
            if group.last_enqueued is not None:
                found[group.name, group.ranks][rank] = group
    return {key: sides for key, sides in found.items() if len(sides) >= 2}


def told(picture: Picture) -> dict[int, tuple[int, int, Notice]]:
    """(last enqueued, last completed, line) per rank, as torch prints them for its default group on a time-out."""
    found: dict[int, tuple[int, int, Notice]] = {}
    for notice in picture.all(Notice):
        queued, done = notice.fields.get("enq", ""), notice.fields.get("done", "")
        rank = picture.rank_of(notice)
        default = "PG ID" not in notice.text or "PG ID 0 " in notice.text
        if rank is not None and default and queued.lstrip("-").isdecimal() and done.lstrip("-").isdecimal():
            found[rank] = (int(queued), int(done), notice)
    return found


def _told_behind(picture: Picture) -> Fact:
    """The same comparison from the lines that torch prints when a collective times out."""
    found = picture.memo(told)
    if len(found) < 2:
        return unknown(DUMPS)
    numbers = {rank: queued for rank, (queued, _, _) in found.items()}
    cites = [
        Cite(f"rank {rank} last enqueued operation {queued}", notice.origin)
        for rank, (queued, _, notice) in sorted(found.items())
    ]
    return Fact(value=_lower(numbers), cites=tuple(cites[:8]))


def _lower(numbers: Mapping[int, int]) -> tuple[int, ...]:
    """Ranks below what most have, or below the highest when no number is common to most."""
    usual, times = Counter(numbers.values()).most_common(1)[0]
    limit = usual if times * 2 > len(numbers) else max(numbers.values())
    return tuple(sorted(rank for rank, number in numbers.items() if number < limit))


def flight_behind(picture: Picture) -> Fact:
    """Ranks whose last enqueued sequence number is lower than that of most others, or of the only other one."""
    sides = _sides(picture)
    if not sides:
        return _told_behind(picture)
    ranks: set[int] = set()
    cites: list[Cite] = []
    for (name, _), members in sorted(sides.items()):
        numbers = {rank: group.last_enqueued or 0 for rank, group in members.items()}
        ranks.update(_lower(numbers))
        cites += [
            Cite(f"rank {rank} last enqueued operation {number} of group {name}", picture.memo(traces)[rank].origin)
            for rank, number in sorted(numbers.items())
        ]
    return Fact(value=tuple(sorted(ranks)), cites=tuple(cites[:8]))


def flight_mismatch(picture: Picture) -> Fact:
    """Whether two ranks recorded another operation or other sizes under one sequence number."""
    if not _sides(picture):
        return unknown(DUMPS)
    seen: dict[tuple[str, int], tuple[int, FlightEntry]] = {}
    for rank, trace in sorted(picture.memo(traces).items()):
        for entry in trace.entries:
            if not _is_uniform(entry.op):
                continue
            key = (entry.group, entry.seq)
            other = seen.setdefault(key, (rank, entry))
            if _shape(other[1]) != _shape(entry):
                cites = [
                    Cite(
                        f"rank {who}: {one.op} {one.in_sizes} as operation {one.seq}", picture.memo(traces)[who].origin
                    )
                    for who, one in (other, (rank, entry))
                ]
                return Fact(value=True, cites=tuple(cites))
    cites = [Cite("same operations under the same numbers", trace.origin) for trace in picture.memo(traces).values()]
    return Fact(value=False, cites=tuple(cites[:4]))


def _is_uniform(op: str) -> bool:
    return op.partition(":")[2].startswith(_UNIFORM)


def _shape(entry: FlightEntry) -> tuple[object, ...]:
    return (entry.op, entry.in_sizes, entry.dtypes)


def pending(picture: Picture) -> Fact:
    """A resident NCCL kernel or an operation that a dump shows as not completed proves it.

    The reverse needs a device debugger: a dump in which all is complete leaves out what bypasses torch.
    """
    cites = [
        Cite("an NCCL kernel is resident", seen.origin)
        for seen in picture.all(GpuKernels)
        if any(is_nccl_kernel(kernel) for kernel in seen.kernels)
    ]
    for rank, trace in sorted(picture.memo(traces).items()):
        for group in trace.groups:
            done, queued = group.last_completed, group.last_enqueued
            if done is not None and queued is not None and queued > done:
                cites.append(Cite(f"rank {rank}: operations {done + 1} to {queued} of {group.name} open", trace.origin))
    cites += [
        Cite(f"rank {rank}: operations {done + 1} to {queued} open", notice.origin)
        for rank, (queued, done, notice) in sorted(picture.memo(told).items())
        if queued > done
    ]
    if cites:
        return Fact(value=True, cites=tuple(cites[:8]))
    shown = [seen for seen in picture.all(GpuKernels) if seen.kernels]
    if shown:
        return Fact(
            value=False, cites=(Cite(f"resident: {shown[0].kernels[0][:80]}, no NCCL kernel", shown[0].origin),)
        )
    return unknown("flight-recorder dumps, or the kernels resident on the GPUs")


def is_nccl_kernel(kernel: str) -> bool:
    """Device functions of NCCL are named so in every version (`ncclDevKernel_…`, before 2.19 `ncclKernel_…`)."""
    return "nccldevkernel" in kernel.lower() or "ncclkernel" in kernel.lower()
