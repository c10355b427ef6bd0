"""Which ranks made their calls in another order than most of their peers, across communicators."""

from sentinel.core.call_order import first_parting, sequences
from sentinel.core.collectives import Process
from sentinel.core.fact import Cite, Fact, FactSpec, unknown
from sentinel.core.picture import Picture
from sentinel.model.observation import Enqueues, Origin

FEWEST = 3
"""Of two ranks that differ neither can be named."""


def _order_ranks(picture: Picture) -> Fact:
    traced = {process: found for process, found in picture.memo(sequences).items() if found.tokens}
    if len(traced) < FEWEST:
        return unknown("NCCL debug logs of at least three ranks on two communicators")
    partings = {
        one: sum(first_parting(traced[one], traced[other]) is not None for other in traced if other != one)
        for one in traced
    }
    odd = [process for process, count in partings.items() if 2 * count > len(traced) - 1]
    # When half of all part from the other half, no side is the odd one.
    named = odd if 2 * len(odd) < len(traced) else []
    ranks = {process: picture.identity.rank_of(*process) for process in named}
    cites = tuple(
        Cite(f"rank {ranks[process]} parts in order from {partings[process]} of {len(traced) - 1} peers",
             _origin(picture, process))
        for process in named
    )  # fmt: skip
    return Fact(value=tuple(sorted(rank for rank in ranks.values() if rank is not None)), cites=cites)


def _origin(picture: Picture, process: Process) -> Origin:
    seen = next((one for one in picture.all(Enqueues) if (one.host, one.pid) == process), None)
    return Origin("derived") if seen is None else Origin(seen.origin.file, seen.last_line)


FACTS: tuple[FactSpec, ...] = (
    FactSpec(
        name="collective.order_ranks",
        unit="ranks",
        about="Ranks whose calls across communicators come in another order than those of most peers.",
        compute=_order_ranks,
    ),
)
