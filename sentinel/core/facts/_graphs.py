"""What the logs leave out: operations replayed from CUDA graphs print no line and are not in RAS counts.

On the network transport opCount goes on counting them, so its growth beyond the logged calls shows how many there
were, and a rank on which it is lower at the same logged call lacks one: a replay that it skipped, or one whose host
callback has not run. On a single host opCount stands still and nothing tells.
"""

from collections import Counter

from sentinel.core.collectives import Member, frozen, groups, newest_calls
from sentinel.core.fact import Cite, Fact, FactSpec, unknown
from sentinel.core.picture import Picture
from sentinel.core.timeline import progress
from sentinel.model.observation import Enqueues, Environment, Notice, Origin, Phase

FULL_SHARE = 0.9
SILENT_S = 20.0
"""Eager calls come with every prefill at least; work without any for longer runs in graphs."""
_OFF = ("disable_cuda_graph", "enforce_eager", "disable_decode_cuda_graph")
LOGS = "NCCL debug logs with opCount that advances (network transport), or the engine's graph setting"


def _coverage(picture: Picture) -> Fact:
    """`full`: nearly all operations ran in graphs; `partial`: some did; `none`: all are logged."""
    if (off := _switched_off(picture)) is not None:
        return Fact(value="none", cites=(Cite("CUDA graphs are switched off", off),))
    advancing = [calls for calls in picture.memo(newest_calls).values() if calls.unlogged_ops is not None]
    whole = [calls for calls in advancing if not {"head", "middle"} & set(calls.missing)]
    if whole:
        hidden = sum(calls.unlogged_ops or 0 for calls in whole)
        shown = sum(calls.total for calls in whole)
        busiest = max(whole, key=lambda calls: calls.unlogged_ops or 0)
        says = f"opCount grew {busiest.unlogged_ops} beyond {busiest.total} logged calls"
        word = "none" if hidden == 0 else "full" if hidden > FULL_SHARE * (hidden + shown) else "partial"
        if hidden or not _captured(picture):
            return Fact(value=word, cites=(Cite(says, busiest.origin),))
    if (captured := _captured(picture)) is not None:
        says = "the engine captured CUDA graphs: their replays are in no log"
        word = "full" if _silent_while_working(picture) else "partial" if picture.memo(newest_calls) else "unknown"
        return Fact(value=word, cites=(Cite(says, captured),))
    if calls := picture.memo(newest_calls):
        first = next(iter(calls.values()))
        return Fact(value="unknown", cites=(Cite("opCount stands still here", first.origin),), missing=(LOGS,))
    return unknown(LOGS)


def _silent_while_working(picture: Picture) -> bool:
    """Whether the engine went on working long after the last stamped call."""
    t0 = picture.memo(progress).t0
    stamps = [op.at_s for calls in picture.memo(newest_calls).values() for op in calls.tail[-1:] if op.at_s is not None]
    return t0 is not None and bool(stamps) and t0.at_s - max(stamps) > SILENT_S + picture.clock_error_s


def _switched_off(picture: Picture) -> Origin | None:
    for notice in picture.all(Notice):
        if notice.notice == "server_args" and any(notice.fields.get(name, "").lower() == "true" for name in _OFF):
            return notice.origin
    for setting in picture.all(Environment):
        if any(part.lstrip("-").replace("-", "_") in _OFF for part in setting.argv):
            return setting.origin
    return None


def _captured(picture: Picture) -> Origin | None:
    return next((phase.origin for phase in picture.all(Phase) if phase.phase == "capture"), None)


def _gap_ranks(picture: Picture) -> Fact:
    compared = [
        (group, members)
        for group in picture.memo(groups)
        if len(members := tuple(m for m in group.countable() if m.calls and m.calls.unlogged_ops is not None)) >= 2
    ]
    if not compared:
        return unknown("NCCL debug logs of two ranks on the network transport")
    if frozen(picture) is False:
        return unknown("whether the difference stays: opCount is read while it rises")
    ranks: set[int] = set()
    cites: list[Cite] = []
    for group, members in compared:
        for member, lacking in _lacking(members):
            if member.rank is not None:
                ranks.add(member.rank)
            says = f"opCount of process {member.process[1]} on {group.label} is {lacking} lower at the same logged call"
            cites.append(Cite(says, member.origin))
    first = compared[0][1][0]
    return Fact(
        value=tuple(sorted(ranks)),
        cites=tuple(cites) or (Cite("opCount agrees at the same logged calls", first.origin),),
    )


def _lacking(members: tuple[Member, ...]) -> list[tuple[Member, int]]:
    """Members with fewer unlogged operations at the last plateau of opCount that all members have."""
    plateaus = [(member, _plateaus(member.calls)) for member in members if member.calls is not None]
    common = set.intersection(*(set(found) for _, found in plateaus))
    if not common:
        return []
    last = max(common)
    values = [(member, found[last]) for member, found in plateaus]
    most = Counter(value for _, value in values).most_common(2)
    usual = max(value for _, value in values) if len(most) == 2 and most[0][1] == most[1][1] else most[0][0]
    return [(member, usual - value) for member, value in values if value < usual]


def _plateaus(calls: Enqueues) -> dict[int, int]:
    """Position of each call that begins a run of equal opCounts -> its opCount beyond the calls logged before.

    Within a step opCount may be read while it rises; where two calls in a row read the same it has settled.
    """
    begin = calls.total - len(calls.tail)
    found: dict[int, int] = {}
    for at in range(1, len(calls.tail) - 1):
        before, here, after = (calls.tail[at + step].op_count for step in (-1, 0, 1))
        if before != here == after:
            found[begin + at] = here - calls.first_op_count - (begin + at)
    return found


GRAPH_FACTS: tuple[FactSpec, ...] = (
    FactSpec(
        name="collective.graph_coverage",
        unit="word",
        about="How much of the collective work ran in CUDA graphs and is in no log: none, partial, full or unknown.",
        compute=_coverage,
    ),
    FactSpec(
        name="collective.graph_gap_ranks",
        unit="ranks",
        about="Ranks whose opCount is lower at the same logged call: a graph replay skipped, or not executed.",
        compute=_gap_ranks,
    ),
)
