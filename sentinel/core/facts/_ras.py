"""Facts from answers of NCCL's RAS service. Its counts leave out graph-captured operations and point-to-point ones.

An answer can be old, can come from another job on the host, and a count that differs may be in flight: a difference
is believed when every answer that lists communicators shows it and progress has not gone on.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from sentinel.core.collectives import frozen
from sentinel.core.fact import Cite, Fact, FactSpec, unknown
from sentinel.core.picture import Picture
from sentinel.model.observation import NcclComm, Ras, RasComm, RasRank

ANSWER = "an answer of NCCL's RAS service (port 28028)"
MONITOR_DEAD = frozenset(("PEER_DEAD", "PEER_TIMEOUT_DEAD"))
_QUIET_STATES = frozenset(("RUNNING", ""))


@dataclass(frozen=True, slots=True)
class Odd:
    """Ranks of one communicator that stand out. `even`: two sides of one size, so that neither is the odd one."""

    ranks: frozenset[int]
    behind: frozenset[int]
    even: bool


def answers(picture: Picture) -> tuple[Ras, ...]:
    """Status answers that list communicators, in a fixed order."""
    found = [seen for seen in picture.all(Ras) if seen.comms and seen.error is None]
    return tuple(sorted(found, key=lambda seen: (seen.at_s or 0.0, seen.origin)))


def _odd(comm: RasComm) -> Odd:
    ranks: set[int] = set()
    behind: set[int] = set()
    even = False
    for counts in comm.mismatch.values():
        usual = _usual(counts)
        named = {int(key): launched for key, launched in counts.items() if key.isdecimal()}
        if usual is None:
            even = True
            behind.update(rank for rank, launched in named.items() if launched == min(named.values()))
        else:
            ranks.update(rank for rank, launched in named.items() if launched != usual)
            behind.update(rank for rank, launched in named.items() if launched < usual)
    return Odd(frozenset(ranks), frozenset(behind), even)


def _usual(counts: Mapping[str, int]) -> int | None:
    """What most ranks launched; None when two counts are equally common."""
    if "others" in counts:
        return counts["others"]
    common = Counter(counts.values()).most_common(2)
    if len(common) == 2 and common[0][1] == common[1][1]:
        return None
    return common[0][0]


def global_rank(picture: Picture, comm: RasComm, who: RasRank) -> int | None:
    """Global rank of a rank in a RAS communicator: by its process, else its own number in the largest communicator."""
    hosts = picture.identity.hosts_of_pid.get(who.pid or -1, set())
    alike = [one for one in (*comm.ranks, *comm.missing) if one.pid == who.pid]
    if who.pid is not None and len(hosts) <= 1 and len(alike) <= 1:
        found = picture.identity.rank_of(next(iter(hosts), None), who.pid)
        if found is not None:
            return found
    return who.rank if (comm.size or 0) >= picture.memo(_largest) else None


def _largest(picture: Picture) -> int:
    sizes = [comm.size or 0 for answer in picture.all(Ras) for comm in answer.comms]
    return max((*sizes, *(seen.nranks for seen in picture.all(NcclComm))), default=0)


def _named(picture: Picture, pick: str) -> tuple[set[int], list[Cite], bool]:
    """Global ranks that every answer singles out, the places, and whether some communicator is split evenly."""
    per_answer: list[set[int]] = []
    cites: list[Cite] = []
    even = False
    for answer in picture.memo(answers):
        ranks: set[int] = set()
        for comm in answer.comms:
            odd = _odd(comm)
            even |= odd.even
            local = odd.ranks if pick == "ranks" else odd.behind
            by_rank = {who.rank: who for who in comm.ranks}
            for number in local:
                rank = global_rank(picture, comm, by_rank.get(number, RasRank(rank=number)))
                if rank is not None:
                    ranks.add(rank)
            if comm.mismatch:
                cites.append(Cite(_says(comm), answer.origin))
        per_answer.append(ranks)
    common = set.intersection(*per_answer) if per_answer else set()
    return common, cites, even


def _says(comm: RasComm) -> str:
    parts = [
        f"{operation} "
        + ", ".join(f"{'rank ' if key.isdecimal() else ''}{key}: {n}" for key, n in sorted(counts.items())[:6])
        for operation, counts in sorted(comm.mismatch.items())
    ]
    return f"RAS: counts differ on {comm.comm_id or 'a communicator'} ({'; '.join(parts)})"[:300]


def _clean(picture: Picture) -> tuple[Cite, ...]:
    return tuple(Cite("RAS: no differing operation counts", answer.origin) for answer in picture.memo(answers)[:2])


def ras_mismatch(picture: Picture) -> Fact:
    """Whether every answer shows ranks with different counts; the ranks need not be nameable."""
    found = picture.memo(answers)
    if not found:
        return unknown(ANSWER)
    shown = [any(comm.mismatch or "MISMATCH" in comm.errors for comm in answer.comms) for answer in found]
    cites = _named(picture, "ranks")[1]
    if all(shown) and frozen(picture) is False:
        return Fact(value=None, cites=tuple(cites), missing=("a second answer of the RAS service, seconds later",))
    return Fact(value=all(shown), cites=tuple(cites) if all(shown) else _clean(picture))


def ras_mismatch_ranks(picture: Picture) -> Fact:
    """Unknown when the ranks differ one against one: which of the two is odd, counts alone do not say."""
    differs = ras_mismatch(picture)
    if not differs.value:
        return Fact(value=None if differs.value is None else (), cites=differs.cites, missing=differs.missing)
    ranks, cites, even = _named(picture, "ranks")
    if not ranks and even:
        return Fact(value=None, cites=tuple(cites), missing=("counts of a third rank",))
    return Fact(value=tuple(sorted(ranks)), cites=tuple(cites))


def ras_behind(picture: Picture) -> Fact:
    """Ranks with lower counts for some operation, also the lower one of two."""
    differs = ras_mismatch(picture)
    if not differs.value:
        return Fact(value=None if differs.value is None else (), cites=differs.cites, missing=differs.missing)
    ranks, cites, _ = _named(picture, "behind")
    return Fact(value=tuple(sorted(ranks)), cites=tuple(cites))


def _missing_ranks(picture: Picture) -> Fact:
    """Ranks of which RAS has no data or that it calls dead; stray memory printed as ranks never gets here."""
    told = [seen for seen in picture.all(Ras) if seen.error is None]
    if not told:
        return unknown(ANSWER)
    ranks: set[int] = set()
    cites: list[Cite] = []
    for answer in told:
        for comm in answer.comms:
            for who in comm.missing:
                if (rank := global_rank(picture, comm, who)) is not None:
                    ranks.add(rank)
                    cites.append(Cite(f"RAS: no data from rank {rank} (process {who.pid})", answer.origin))
        for who in answer.dead:
            rank = picture.identity.rank_of(None, who.pid) if who.pid is not None else None
            if rank is not None and (not who.status.startswith("PEER_") or who.status in MONITOR_DEAD):
                ranks.add(rank)
                cites.append(Cite(f"RAS: the process of rank {rank} is considered dead", answer.origin))
    return Fact(
        value=tuple(sorted(ranks)), cites=tuple(cites[:8]) or (Cite("RAS: every rank answers", told[0].origin),)
    )


def _running_ok(picture: Picture) -> Fact:
    found = picture.memo(answers)
    if not found:
        return unknown(ANSWER)
    bad = [
        (answer, comm)
        for answer in found
        for comm in answer.comms
        if comm.errors or comm.mismatch or comm.missing or comm.status not in _QUIET_STATES
    ]
    garbled = [answer for answer in found if answer.garbled]
    cites = [Cite(f"RAS: {comm.status} {','.join(comm.errors) or 'OK'}", answer.origin) for answer, comm in bad[:4]]
    cites += [Cite("RAS: the answer holds stray memory", answer.origin) for answer in garbled[:1]]
    return Fact(value=not bad and not garbled, cites=tuple(cites) or _clean(picture))


def _silent(picture: Picture) -> Fact:
    """A time-out means that the process behind the port does not run; a refused connection says nothing of the kind."""
    seen = list(picture.all(Ras))
    late = [one for one in seen if one.error is not None and "tim" in one.error.lower() and "out" in one.error.lower()]
    good = picture.memo(answers)
    if late:
        cites = tuple(Cite(f"RAS: {one.error}", one.origin) for one in late[:4])
        return Fact(value=not good, cites=cites)
    if good:
        return Fact(value=False, cites=(Cite("RAS answered", good[0].origin),))
    return unknown(ANSWER)


RAS_FACTS: tuple[FactSpec, ...] = (
    FactSpec(
        name="ras.mismatch",
        unit="bool",
        about="RAS shows different operation counts in every answer.",
        compute=ras_mismatch,
    ),
    FactSpec(
        name="ras.mismatch_ranks",
        unit="ranks",
        about="Ranks whose RAS counts differ from the majority's.",
        compute=ras_mismatch_ranks,
    ),
    FactSpec(
        name="ras.behind_ranks",
        unit="ranks",
        about="Ranks with lower RAS counts than their peers.",
        compute=ras_behind,
    ),
    FactSpec(
        name="ras.missing_ranks",
        unit="ranks",
        about="Ranks of which RAS has no data or that it considers dead.",
        compute=_missing_ranks,
    ),
    FactSpec(
        name="ras.running_ok",
        unit="bool",
        about="RAS calls every communicator running, without errors.",
        compute=_running_ok,
    ),
    FactSpec(
        name="ras.silent",
        unit="bool",
        about="The RAS service did not answer in time.",
        compute=_silent,
    ),
)
