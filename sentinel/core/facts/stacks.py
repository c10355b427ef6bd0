"""Facts from process stacks: who was seen, where each rank stands, who moves between two dumps."""

from collections.abc import Callable, Iterable

from sentinel.core.fact import Cite, Fact, FactSpec, unknown
from sentinel.core.picture import Picture
from sentinel.core.stack_views import RankView, StackViews, views
from sentinel.core.timeline import world

CITED = 6
PLACES: dict[str, str] = {
    "idle_loop": "wait for the next request or step",
    "gpu_wait": "wait on the host for their GPU",
    "collective": "are in the host code of a collective",
    "control_broadcast": "are in the scheduler's request broadcast",
    "nccl_host": "are in a host-side NCCL call that is no collective",
    "comm_init": "are in rendezvous or communicator set-up",
    "lock": "wait for a lock of the host",
    "file_io": "are in a file operation",
    "socket": "wait for a socket in the middle of a step",
    "native_call": "are in a driver or native call that blocks their interpreter",
    "compile": "compile a kernel or graph",
    "gc": "are in the garbage collector",
    "grammar": "compile or apply a grammar",
    "kv_transfer": "wait in a KV-cache transfer or lookup",
    "load": "load weights",
    "step": "run or launch a step",
    "sleep": "sleep",
    "pause": "are paused",
}
NO_STACK = "a stack of every rank (py-spy dump, pystack, eu-stack)"


def cites(found: Iterable[RankView]) -> tuple[Cite, ...]:
    """The first few views as citations."""
    return tuple(view.cite() for view in list(found)[:CITED])


def ranks_fact(joined: StackViews, chosen: Iterable[RankView]) -> Fact:
    """Ranks of the chosen views; unknown when no rank has a stack. A known "none" cites what was looked at."""
    kept = list(chosen)
    if not joined.ranks:
        return unknown(NO_STACK)
    return Fact(value=tuple(sorted(view.rank for view in kept)), cites=cites(kept or joined.ranks.values()))


def _at(place: str) -> Callable[[Picture], Fact]:
    def compute(picture: Picture) -> Fact:
        joined = picture.memo(views)
        return ranks_fact(joined, (view for view in joined.ranks.values() if stands(view, place)))

    return compute


def stands(view: RankView, place: str) -> bool:
    """Whether a rank stands at a place: its deciding thread, or a helper thread for places that matter there too."""
    return view.place == place or any(place in reading.sides for reading in view.readings)


def _known_ranks(picture: Picture) -> Fact:
    joined = picture.memo(views)
    return ranks_fact(joined, joined.ranks.values())


def _failed_ranks(picture: Picture) -> Fact:
    joined = picture.memo(views)
    if not joined.ranks and not joined.failed:
        return unknown(NO_STACK)
    said = [Cite(f"rank {rank}: {stack.error}", stack.origin) for rank, stack in joined.failed.items()]
    return Fact(value=tuple(joined.failed), cites=tuple(said[:CITED]) or cites(joined.ranks.values()))


def _coverage(picture: Picture) -> Fact:
    joined = picture.memo(views)
    everyone = {*world(picture), *joined.ranks}
    shown = cites(joined.ranks.values()) or _failed_ranks(picture).cites
    if not shown or not everyone:
        return unknown(NO_STACK)
    return Fact(value=len(joined.ranks) / len(everyone), cites=shown)


def _waiting_ranks(picture: Picture) -> Fact:
    joined = picture.memo(views)
    return ranks_fact(joined, (view for view in joined.ranks.values() if view.waits))


def _frozen_ranks(picture: Picture) -> Fact:
    return _compared(picture, frozen=True)


def _moving_ranks(picture: Picture) -> Fact:
    return _compared(picture, frozen=False)


def _compared(picture: Picture, *, frozen: bool) -> Fact:
    joined = picture.memo(views)
    compared = [view for view in joined.ranks.values() if view.frozen is not None]
    if not compared:
        return unknown("two stacks of the same process, some seconds apart")
    kept = [view for view in compared if view.frozen is frozen]
    return Fact(value=tuple(sorted(view.rank for view in kept)), cites=cites(kept or compared))


FACTS: tuple[FactSpec, ...] = (
    FactSpec(name="stack.known_ranks", unit="ranks", about="Ranks with at least one stack.", compute=_known_ranks),
    FactSpec(
        name="stack.failed_ranks", unit="ranks", compute=_failed_ranks,
        about="Ranks of which a stack was tried and none came.",
    ),
    FactSpec(name="stack.coverage", unit="ratio", about="Share of the ranks that have a stack.", compute=_coverage),
    FactSpec(
        name="stack.waiting_ranks", unit="ranks", compute=_waiting_ranks,
        about="Ranks that wait for other ranks or for their GPU.",
    ),
    FactSpec(
        name="stack.frozen_ranks", unit="ranks", compute=_frozen_ranks,
        about="Ranks whose deciding thread shows the same Python frames in every dump of a tool.",
    ),
    FactSpec(
        name="stack.moving_ranks", unit="ranks", compute=_moving_ranks,
        about="Ranks whose deciding thread shows different Python frames in two dumps of a tool.",
    ),
    *(
        FactSpec(name=f"stack.place_{place}_ranks", unit="ranks", about=f"Ranks that {says}.", compute=_at(place))
        for place, says in PLACES.items()
    ),
)  # fmt: skip
