"""Facts about collectives: who enqueued what, as debug logs, the RAS service and the flight recorder show it."""

from collections.abc import Callable, Iterable

from sentinel.core.call_order import sequences
from sentinel.core.collectives import Group, Member, groups, newest_calls, same_tail
from sentinel.core.divergence import Finding, Findings, findings, merely_stopped, order_differs
from sentinel.core.fact import Cite, Fact, FactSpec, Value, unknown
from sentinel.core.facts._comms import COMM_FACTS
from sentinel.core.facts._flight import flight_behind, flight_mismatch, pending
from sentinel.core.facts._graphs import GRAPH_FACTS
from sentinel.core.facts._ras import RAS_FACTS, ras_behind, ras_mismatch_ranks
from sentinel.core.picture import Picture

LOGS = "NCCL debug logs (NCCL_DEBUG_SUBSYS with COLL) of at least two ranks of one communicator"
_MAX_CITES = 8


def _cite_calls(group: Group, member: Member) -> Cite:
    who = f"process {member.process[1]}" if member.rank is None else f"rank {member.rank}"
    if member.calls is None:
        return Cite(f"{who} enqueued nothing on {group.label}", member.origin)
    last = member.calls.tail[-1]
    cut = ", the log is cut" if member.calls.missing else ""
    return Cite(f"{who}: {member.total} calls on {group.label}, the last {last.op} of {last.count}{cut}", member.origin)


def _cites(found: Iterable[Finding]) -> tuple[Cite, ...]:
    made = [_cite_calls(finding.group, member) for finding in found for member in finding.compared]
    return tuple(made[:_MAX_CITES])


def _ranks(members: Iterable[Member]) -> tuple[int, ...]:
    return tuple(sorted({member.rank for member in members if member.rank is not None}))


def _comparable(picture: Picture) -> Fact:
    if not picture.memo(newest_calls):
        return unknown(LOGS)
    found = picture.memo(findings).comparable
    return Fact(value=bool(found), cites=_cites(found), missing=() if found else (LOGS,))


def _traced(picture: Picture) -> Fact:
    calls = picture.memo(newest_calls)
    if not calls:
        return unknown(LOGS)
    members = [member for group in picture.memo(groups) for member in group.members if member.calls is not None]
    cites = [_cite_calls(group, m) for group in picture.memo(groups) for m in group.members][:_MAX_CITES]
    return Fact(value=_ranks(members), cites=tuple(cites))


def _counts_equal(picture: Picture) -> Fact:
    found = picture.memo(findings).comparable
    known = [finding for finding in found if finding.equal is not None]
    if not known:
        return unknown(LOGS)
    unequal = [finding for finding in known if not finding.equal]
    if len(known) < len(found) and not unequal:
        return Fact(value=None, cites=_cites(known), missing=("the end of the cut NCCL logs",))
    return Fact(value=not unequal, cites=_cites(unequal or known))


def _mismatch(picture: Picture) -> Fact:
    found = picture.memo(findings).comparable
    pairs = [(finding.group, *pair) for finding in found for pair in finding.pairs]
    flight = flight_mismatch(picture)
    if not pairs and flight.value:
        return flight
    if not found:
        return flight if flight.value is not None else unknown(LOGS)
    cites = [
        Cite(f"{_name(one)} and {_name(other)} differ on {group.label} from call {place} on", one.origin)
        for group, one, other, place in pairs
    ]
    return Fact(value=bool(pairs), cites=tuple(cites[:_MAX_CITES]) or _cites(found))


def _name(member: Member) -> str:
    return f"process {member.process[1]}" if member.rank is None else f"rank {member.rank}"


def _of_findings(pick: Callable[[Finding], Iterable[Member]]) -> Callable[[Picture], Fact]:
    """A fact that lists the ranks which the communicators single out in one way."""

    def compute(picture: Picture) -> Fact:
        found = picture.memo(findings).comparable
        if not found:
            return unknown(LOGS)
        named = [finding for finding in found if tuple(pick(finding))]
        if not named and all(finding.equal is None for finding in found):
            return unknown("whether the difference between the ranks stays (progress, or a second look)")
        return Fact(value=_ranks(m for finding in named for m in pick(finding)), cites=_cites(named or found))

    return compute


_log_behind = _of_findings(lambda finding: finding.behind)
_log_ahead = _of_findings(lambda finding: finding.ahead)
_log_extra = _of_findings(lambda finding: finding.extra)
_log_mismatched = _of_findings(lambda finding: finding.mismatched)


def _behind(picture: Picture) -> Fact:
    """Logs first; where they cannot tell, RAS counts and flight-recorder sequence numbers."""
    for source in (_log_behind, ras_behind, flight_behind):
        fact = source(picture)
        if fact.value is not None:
            return fact
    return unknown(LOGS, "two answers of the RAS service", "flight-recorder dumps of all ranks")


def _order(picture: Picture) -> Fact:
    """Known False needs processes whose calls on several communicators could be laid side by side."""
    parted = picture.memo(order_differs)
    if parted is not None:
        one, other, place = parted
        cites = [
            Cite(f"process {member.process[1]} makes its call {place} in another order than its peer", member.origin)
            for group in picture.memo(groups)[:1]
            for member in group.members
            if member.process in (one, other)
        ]
        return Fact(value=True, cites=tuple(cites))
    found = picture.memo(findings).comparable
    if len(found) < 2 or len(picture.memo(sequences)) < 2:
        return unknown("NCCL debug logs of at least two ranks on two communicators")
    return Fact(value=False, cites=_cites(found))


def _equal_at_stall(picture: Picture) -> Fact:
    found: Findings = picture.memo(findings)
    checked = [finding for finding in found.each if len(finding.group.members) >= 2]
    if not checked:
        return unknown(LOGS)
    verdicts = [_alike(finding) for finding in checked]
    differs = picture.memo(order_differs) is not None
    value: bool | None = None
    if False in verdicts or differs:
        value = False
    elif None not in verdicts:
        value = True
    return Fact(value=value, cites=_cites(found.comparable), missing=() if value is not None else (LOGS,))


def _alike(finding: Finding) -> bool | None:
    """Equal counts and equal shapes; where counts begin at different places, only a different end is decisive."""
    if finding.pairs or finding.equal is False:
        return False
    if not finding.compared or len(finding.compared) < len(finding.group.members):
        return None
    if finding.group.members and any(member.is_mixed for member in finding.compared):
        return finding.equal
    return finding.equal if same_tail(finding.compared) else None


def _divergent(picture: Picture) -> Fact:
    """The single best answer to "who differs": an extra call, other shapes, fewer calls; logs, then RAS, then torch."""
    for source in (_log_extra, _log_mismatched, _log_behind, ras_mismatch_ranks, flight_behind):
        fact = source(picture)
        if fact.value:
            return fact
    for source in (_log_behind, ras_mismatch_ranks, flight_behind):
        fact = source(picture)
        if fact.value is not None:
            return fact
    return unknown(LOGS, "an answer of the RAS service", "flight-recorder dumps of all ranks")


def _stopped(expected: bool) -> Callable[[Picture], Fact]:
    """`behind_on_all` and `skipped` are the two ways in which a rank can be behind."""

    def compute(picture: Picture) -> Fact:
        found: Findings = picture.memo(findings)
        if not found.comparable:
            return unknown(LOGS)
        behind = {member.process for finding in found.comparable for member in finding.behind}
        told = [merely_stopped(picture, process, found) for process in sorted(behind)]
        named = [finding for finding in found.comparable if finding.behind]
        value: Value = bool(told) and any(one is expected for one in told)
        if not expected and any(finding.extra or finding.mismatched for finding in found.comparable):
            value = True
        return Fact(value=value, cites=_cites(named or found.comparable))

    return compute


def _spec(name: str, unit: str, about: str, compute: Callable[[Picture], Fact]) -> FactSpec:
    return FactSpec(name=f"collective.{name}", unit=unit, about=about, compute=compute)


FACTS: tuple[FactSpec, ...] = (
    _spec(
        "comparable",
        "bool",
        "Calls of at least two ranks on one communicator can be counted against each other.",
        _comparable,
    ),
    _spec(
        "traced_ranks",
        "ranks",
        "Ranks whose enqueued operations a debug log shows.",
        _traced,
    ),
    _spec(
        "counts_equal",
        "bool",
        "All compared ranks enqueued the same number of operations.",
        _counts_equal,
    ),
    _spec(
        "behind_ranks",
        "ranks",
        "Ranks that enqueued fewer operations than their peers and stay behind.",
        _behind,
    ),
    _spec(
        "ahead_ranks",
        "ranks",
        "Ranks that enqueued more operations than most of their peers.",
        _log_ahead,
    ),
    _spec(
        "extra_ranks",
        "ranks",
        "Ranks that enqueued a call that their peers never made.",
        _log_extra,
    ),
    _spec(
        "mismatch",
        "bool",
        "At one position ranks enqueued another operation, size, type or root.",
        _mismatch,
    ),
    _spec(
        "mismatch_ranks",
        "ranks",
        "The minority of ranks with other operations or sizes; empty when it is one to one.",
        _log_mismatched,
    ),
    _spec(
        "order_differs",
        "bool",
        "Equal counts, but another order across communicators.",
        _order,
    ),
    _spec(
        "equal_at_stall",
        "bool",
        "Counts, shapes and order are the same on every traced rank.",
        _equal_at_stall,
    ),
    _spec(
        "divergent_ranks",
        "ranks",
        "The best single answer to who differs from the others.",
        _divergent,
    ),
    _spec(
        "behind_on_all",
        "bool",
        "A rank that is behind is so on every communicator: it merely has not gone on.",
        _stopped(True),
    ),
    _spec(
        "skipped",
        "bool",
        "A rank went on past a call that its peers made, or made another one: a true divergence.",
        _stopped(False),
    ),
    _spec(
        "pending",
        "bool",
        "Some operation was enqueued and has not completed.",
        pending,
    ),
    *GRAPH_FACTS,
    *RAS_FACTS,
    *COMM_FACTS,
)
