"""Who differs: counts, shapes and order of enqueued operations compared across the ranks of each communicator.

With three or more ranks the majority decides. With two, the one whose last step breaks its own rhythm is the odd one;
else only "these two differ" is known, and the one with fewer calls is the one that is behind.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from sentinel.core.call_order import agrees, breaks_rhythm, first_parting, sequences, shared
from sentinel.core.collectives import Group, Member, Process, first_difference, frozen, groups
from sentinel.core.picture import Picture

FEW_CALLS = 2
FAR_CALLS = 256
"""Calls that a host may still enqueue after one that its peers answered with another."""


@dataclass(slots=True)
class Finding:
    """What one communicator shows. Members, not ranks: a process without a known rank still counts as a peer."""

    group: Group
    compared: tuple[Member, ...]
    equal: bool | None
    behind: tuple[Member, ...] = ()
    ahead: tuple[Member, ...] = ()
    extra: tuple[Member, ...] = ()
    mismatched: tuple[Member, ...] = ()
    pairs: tuple[tuple[Member, Member, int], ...] = ()

    @property
    def odd(self) -> tuple[Member, ...]:
        """Everybody that this communicator singles out."""
        return (*self.extra, *self.mismatched, *self.behind)


@dataclass(slots=True)
class Findings:
    """All communicators together. `settled` None: it is not known whether differences are in flight."""

    settled: bool | None
    each: list[Finding] = field(default_factory=list)

    @property
    def comparable(self) -> list[Finding]:
        """Communicators with at least two ranks whose counts begin at the same place."""
        return [finding for finding in self.each if finding.compared]


def findings(picture: Picture) -> Findings:
    """Compare every communicator; see the module docstring for who is named."""
    settled = frozen(picture)
    each = [_compare(picture, group, frozen(picture, group.ranks)) for group in picture.memo(groups)]
    behind = {member.process for finding in each for member in finding.behind}
    for finding in each:
        # A rank that lags on another communicator made its calls in another order, not one too many.
        finding.extra = tuple(member for member in finding.extra if member.process not in behind)
    return Findings(settled, each)


def _compare(picture: Picture, group: Group, settled: bool | None) -> Finding:
    members = group.countable()
    certain = tuple(member for member in members if not member.is_cut)
    totals = sorted({member.total for member in certain})
    finding = Finding(group, members, equal=len(totals) == 1 if len(certain) >= 2 else None)
    if len(members) < 2:
        return finding
    finding.pairs = _mismatches(members)
    if group.key[0] != "id" and any(_early(*pair) for pair in finding.pairs):
        # Joined by guess, and apart long before the end: these are two communicators, not one that diverged.
        return Finding(group, (), equal=None)
    finding.mismatched = _minority(members, finding.pairs)
    if len(totals) < 2:
        return finding
    if settled is False:
        finding.equal = None
        return finding
    _place(picture, finding, certain, totals)
    if settled is None and len(certain) == 2 and not finding.extra and not finding.pairs:
        finding.behind = finding.ahead = ()
        finding.equal = None
    return finding


def _place(picture: Picture, finding: Finding, certain: Sequence[Member], totals: list[int]) -> None:
    """Against the count that most ranks share; without one, at the widest gap between counts."""
    usual, times = Counter(member.total for member in certain).most_common(1)[0]
    if times * 2 > len(certain):
        finding.behind = tuple(member for member in certain if member.total < usual)
        finding.ahead = tuple(member for member in certain if member.total > usual)
        if not finding.behind:
            finding.extra = tuple(member for member in finding.ahead if _is_extra(picture, member, usual))
        return
    low, high = _clusters(certain, totals)
    if len(low) == len(high):
        _decide_even(picture, finding, low, high)
    elif len(low) < len(high):
        finding.behind = low
    else:
        finding.ahead = high


def _is_extra(picture: Picture, member: Member, usual: int) -> bool:
    """A call too many, not a host that ran ahead: it breaks the rhythm or, without one, is a single call or two."""
    broken = breaks_rhythm(sequence) if (sequence := picture.memo(sequences).get(member.process)) else None
    return member.total - usual <= FEW_CALLS if broken is None else broken


def _clusters(members: Sequence[Member], totals: list[int]) -> tuple[tuple[Member, ...], tuple[Member, ...]]:
    """Split at the widest gap between counts: hosts run ahead of their GPUs by different, smaller amounts."""
    gaps = [later - earlier for earlier, later in pairwise(totals)]
    limit = totals[gaps.index(max(gaps))]
    low = tuple(member for member in members if member.total <= limit)
    return low, tuple(member for member in members if member.total > limit)


def _decide_even(picture: Picture, finding: Finding, low: tuple[Member, ...], high: tuple[Member, ...]) -> None:
    """As many below as above: the side that parted from the common order by breaking its own rhythm is the odd one."""
    order = picture.memo(sequences)
    first, second = order.get(low[0].process), order.get(high[0].process)
    parted = first is not None and second is not None and first_parting(first, second) is not None
    if parted and first is not None and second is not None and breaks_rhythm(second) and not breaks_rhythm(first):
        finding.ahead = finding.extra = high
    else:
        finding.behind = low


def _early(one: Member, other: Member, place: int) -> bool:
    """Whether calls go on for long past the first that differs: ranks that disagree do not get far."""
    return min(one.total, other.total) - place > FAR_CALLS


def _mismatches(members: Sequence[Member]) -> tuple[tuple[Member, Member, int], ...]:
    """Pairs of members whose calls differ at the same position, and that position."""
    found = []
    usable = [member for member in members if member.calls is not None and not member.is_mixed]
    for at, one in enumerate(usable):
        for other in usable[at + 1 :]:
            if one.calls is not None and other.calls is not None:
                place = first_difference(one.calls, other.calls)
                if place is not None:
                    found.append((one, other, place))
    return tuple(found)


def _minority(members: Sequence[Member], pairs: Sequence[tuple[Member, Member, int]]) -> tuple[Member, ...]:
    """Members that differ from the largest set of alike ones; nobody when that set is not a majority."""
    if not pairs:
        return ()
    apart = {frozenset((one.process, other.process)) for one, other, _ in pairs}
    usable = [member for member in members if member.calls is not None and not member.is_mixed]
    alike = [[other for other in usable if frozenset((one.process, other.process)) not in apart] for one in usable]
    most = max(alike, key=len)
    return tuple(member for member in usable if member not in most) if len(most) * 2 > len(usable) else ()


def order_differs(picture: Picture) -> tuple[Process, Process, int] | None:
    """Two processes with equal counts everywhere that made their calls in another order, and where; None otherwise."""
    order = picture.memo(sequences)
    processes = sorted(order)
    for at, one in enumerate(processes):
        for other in processes[at + 1 :]:
            common = shared(picture, one, other)
            if len(common) >= 2 and all(_same_total(group, one, other) for group in common):
                place = first_parting(order[one], order[other])
                if place is not None:
                    return one, other, place
    return None


def _same_total(group: Group, one: Process, other: Process) -> bool:
    totals = {member.total for member in group.countable() if member.process in (one, other)}
    return len(totals) == 1


def merely_stopped(picture: Picture, process: Process, found: Findings) -> bool | None:
    """Whether a process that is behind has simply not gone on: behind or level everywhere, and in the peers' order.

    False: it went on past the missing call (ahead elsewhere, other shapes, another order). None when it is behind on
    no communicator or nothing can be compared.
    """
    mine = [finding for finding in found.comparable if process in {m.process for m in finding.compared}]
    if not any(process in {member.process for member in finding.behind} for finding in mine):
        return None
    for finding in mine:
        peers = [m for m in finding.compared if m.process != process and not m.is_cut]
        own = next(m for m in finding.compared if m.process == process)
        if process in {m.process for m in finding.ahead} or (peers and own.total > max(p.total for p in peers)):
            return False
        if any(process in (one.process, other.process) for one, other, _ in finding.pairs):
            return False
    return not _parted(picture, process)


def _parted(picture: Picture, process: Process) -> bool:
    """Whether its order of calls parts from that of every peer with which it can be compared."""
    order = picture.memo(sequences)
    if process not in order:
        return False
    peers = [other for other in order if other != process and len(shared(picture, process, other)) >= 2]
    known = [agreed for other in peers if (agreed := agrees(order[process], order[other])) is not None]
    parting = [other for other in peers if first_parting(order[process], order[other]) is not None]
    return bool(known) and len(parting) * 2 > len(peers)
