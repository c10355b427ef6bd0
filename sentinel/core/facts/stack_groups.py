"""Facts from comparing the ranks' stacks: who stands elsewhere than the others, and whether all are parked."""

from collections import defaultdict
from dataclasses import dataclass

from sentinel.core.fact import Cite, Fact, FactSpec, unknown
from sentinel.core.facts.stacks import NO_STACK, cites
from sentinel.core.picture import Picture
from sentinel.core.stack_reading import Reading
from sentinel.core.stack_views import RankView, StackViews, views, where

MEETING = frozenset({"gpu_wait", "collective", "control_broadcast", "nccl_host", "comm_init"})
"""Places in which a rank can only wait for something that others or its GPU must do."""

FEW_RANKS, FEW_SHARE = 4, 4
"""Ranks in another collective than most are the odd ones when they are few: this many, or this part of all."""

COLLECTIVES = frozenset({"collective", "control_broadcast", "nccl_host", "comm_init"})
APART = frozenset(
    {"lock", "file_io", "socket", "native_call", "sleep", "compile", "gc", "grammar", "kv_transfer", "load", "pause"}
)
"""Places in which a rank waits for nothing that its peers do: against a waiting peer they decide without a majority."""


@dataclass(frozen=True, slots=True)
class Group:
    """Ranks at one place of the host code."""

    place: str
    group: str
    members: tuple[RankView, ...]

    @property
    def ranks(self) -> tuple[int, ...]:
        """Its ranks, sorted."""
        return tuple(sorted(view.rank for view in self.members))


def groups(picture: Picture) -> tuple[Group, ...]:
    """Ranks by place, largest first; dumps that do not show the engine's frame join the largest of their place."""
    by_key: dict[tuple[str, str], list[RankView]] = defaultdict(list)
    for view in picture.memo(views).ranks.values():
        by_key[(view.place, view.group)].append(view)
    for place, group in [key for key in by_key if not key[1]]:
        named = [key for key in by_key if key[0] == place and key[1]]
        if named:
            largest = max(named, key=lambda key: (len(by_key[key]), key))
            by_key[largest] += by_key.pop((place, group))
    made = [Group(place, group, tuple(members)) for (place, group), members in by_key.items()]
    return tuple(sorted(made, key=lambda each: (-len(each.members), each.ranks)))


def odd_views(picture: Picture) -> tuple[RankView, ...] | None:
    """Ranks that stand elsewhere than the ranks that wait; None with fewer than two stacks."""
    found = picture.memo(groups)
    total = sum(len(group.members) for group in found)
    if total < 2:
        return None
    meeting = next((group for group in found if group.place in MEETING), None)
    if meeting is None or len(found) == 1 or _parked(picture.memo(views)):
        return ()
    rest = [view for group in found if group is not meeting for view in group.members]
    telling = [view for view in rest if view.place != "unknown" or view.group]
    if len(meeting.members) * 2 > total:
        return tuple(telling)
    apart = all(view.place in APART or view.place == "unknown" for view in telling)
    return tuple(telling) if apart and len(rest) <= len(meeting.members) else ()


def _odd_ranks(picture: Picture) -> Fact:
    odd = picture.memo(odd_views)
    if odd is None:
        return unknown("stacks of at least two ranks")
    others = [view for view in picture.memo(views).ranks.values() if view not in odd]
    return Fact(value=tuple(sorted(view.rank for view in odd)), cites=(*cites(odd), *cites(others[:2])))


def _same_place(picture: Picture) -> Fact:
    found = picture.memo(groups)
    members = [view for group in found for view in group.members]
    if len(members) < 2:
        return unknown("stacks of at least two ranks")
    if len(found) == 1 and found[0].place == "unknown" and not found[0].group:
        return unknown("stacks that show where in the engine the ranks stand")
    return Fact(value=len(found) == 1, cites=cites([group.members[0] for group in found]))


def split_groups(picture: Picture) -> tuple[Group, ...]:
    """Groups that stand in collectives; a parked engine's request broadcast is none."""
    if _parked(picture.memo(views)):
        return ()
    return tuple(group for group in picture.memo(groups) if group.place in COLLECTIVES)


def _split(picture: Picture) -> Fact:
    found = picture.memo(split_groups)
    everyone = picture.memo(views).ranks
    if len(everyone) < 2:
        return unknown("stacks of at least two ranks")
    shown = [group.members[0] for group in found] or list(everyone.values())
    return Fact(value=len(found) > 1, cites=cites(shown))


def _odd_collective_ranks(picture: Picture) -> Fact:
    found = picture.memo(split_groups)
    if len(picture.memo(views).ranks) < 2:
        return unknown("stacks of at least two ranks")
    apart = sum(len(group.members) for group in found[1:])
    clear = len(found) > 1 and len(found[0].members) > len(found[1].members)
    # Half of a large world that stands elsewhere names nobody.
    clear = clear and (apart <= FEW_RANKS or apart * FEW_SHARE <= apart + len(found[0].members))
    odd = [view for group in found[1:] for view in group.members] if clear else []
    shown = [*odd, *(group.members[0] for group in found[:1])] or list(picture.memo(views).ranks.values())
    return Fact(value=tuple(sorted(view.rank for view in odd)), cites=cites(shown))


def _engine_idle(picture: Picture) -> Fact:
    joined = picture.memo(views)
    shown = list(joined.ranks.values())
    if not shown and not joined.cores:
        return unknown(NO_STACK)
    return Fact(value=_parked(joined), cites=cites(shown) or tuple(_cite_core(core) for core in joined.cores[:1]))


def _core_place(picture: Picture) -> Fact:
    cores = picture.memo(views).cores
    if not cores:
        return unknown("a stack of the EngineCore process")
    return Fact(value=cores[-1].place, cites=(_cite_core(cores[-1]),))


def _cite_core(core: Reading) -> Cite:
    return Cite(f"EngineCore is in {where(core)} ({core.place})", core.stack.origin)


def _parked(joined: StackViews) -> bool:
    """Every process that was seen waits for work; while one scheduler is parked, the others await its broadcast."""
    places = {view.place for view in joined.ranks.values()}
    if any(core.place != "idle_loop" for core in _latest(joined.cores)):
        return False
    if not places:
        return bool(joined.cores)
    if places == {"sleep"}:
        return len({view.group for view in joined.ranks.values()}) == 1 and len(joined.ranks) > 1
    return "idle_loop" in places and places <= {"idle_loop", "control_broadcast"}


def _latest(cores: list[Reading]) -> list[Reading]:
    return list({(core.stack.host, core.stack.pid): core for core in cores}.values())


FACTS: tuple[FactSpec, ...] = (
    FactSpec(
        name="stack.odd_ranks", unit="ranks", compute=_odd_ranks,
        about="Ranks at another place of the host code than the ranks that wait together.",
    ),
    FactSpec(name="stack.same_place", unit="bool", about="All ranks stand at one place.", compute=_same_place),
    FactSpec(
        name="stack.split", unit="bool", compute=_split,
        about="Two or more groups of ranks stand in different collectives.",
    ),
    FactSpec(
        name="stack.odd_collective_ranks", unit="ranks", compute=_odd_collective_ranks,
        about="Ranks in another collective than the largest group.",
    ),
    FactSpec(
        name="stack.engine_idle", unit="bool", compute=_engine_idle,
        about="Every scheduler, core and worker that was seen waits for work.",
    ),
    FactSpec(name="stack.core_place", unit="word", about="Place of vLLM's EngineCore.", compute=_core_place),
)  # fmt: skip
