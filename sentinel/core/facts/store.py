"""Facts of the row store, read from its telemetry page (which stays readable while its process hangs)."""

import re

from sentinel.core.fact import Cite, Fact, FactSpec, unknown
from sentinel.core.facts._row_store import STUCK_S, newest_pages, oldest_s, says
from sentinel.core.picture import Picture
from sentinel.core.stack_reading import callback_of
from sentinel.model.observation import Stack, StoreTelemetry

_NAME = re.compile(r"row[_-]?(?:store|cache)|(?:host|embedding)[_-]?(?:store|cache)", re.IGNORECASE)
"""How libraries that read rows of tables for a model are called."""


def _blocked(picture: Picture) -> Fact:
    latest = picture.memo(newest_pages)
    if not latest:
        return unknown("the row store's telemetry page of every rank")
    stuck = {rank: page for rank, page in latest.items() if oldest_s(page) >= STUCK_S}
    cites = [Cite(says(rank, page), page.origin) for rank, page in sorted(stuck.items())]
    return Fact(value=tuple(sorted(stuck)), cites=tuple(cites))


def _modes_mixed(picture: Picture) -> Fact:
    modes = picture.memo(newest_pages)
    if len(modes) < 2:
        return unknown("the row store's telemetry page of every rank")
    names = sorted({page.mode for page in modes.values()})
    page = next(iter(modes.values()))
    return Fact(value=len(names) > 1, cites=(Cite(f"row-store modes: {', '.join(names)}", page.origin),))


def _seen(picture: Picture) -> Fact:
    """A telemetry page, or a host callback whose own frames bear a store's name; False when they bear none."""
    for page in picture.all(StoreTelemetry):
        return Fact(value=True, cites=(Cite(f"a row store in {page.mode} mode reports", page.origin),))
    other: Cite | None = None
    for stack in picture.all(Stack):
        for thread in stack.threads:
            if (callback := callback_of(thread)) is None or not callback.wait:
                continue
            if any(_NAME.search(f"{frame.function} {frame.file or ''}"[:400]) for frame in thread.frames):
                return Fact(value=True, cites=(Cite(f"host callback {callback.function}", stack.origin),))
            other = other or Cite(f"host callback {callback.function}", stack.origin)
    if other is None:
        return unknown("native stacks of the callback threads, or the row store's telemetry page")
    return Fact(value=False, cites=(other,))


FACTS: tuple[FactSpec, ...] = (
    FactSpec(
        name="store.blocked_ranks",
        unit="ranks",
        about="Ranks whose row store has a gather or a read open for longer than any healthy one.",
        compute=_blocked,
    ),
    FactSpec(
        name="store.seen",
        unit="bool",
        about="The engine keeps rows in a store: it reports, or a blocked host callback is one of a store.",
        compute=_seen,
    ),
    FactSpec(
        name="store.modes_mixed",
        unit="bool",
        about="Ranks of one engine run their row stores in different modes.",
        compute=_modes_mixed,
    ),
)
