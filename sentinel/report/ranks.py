"""All ranks at a glance: where each lives, what its process, its host code, its GPU and its collectives do."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from sentinel.core import timeline
from sentinel.core.fact import Fact
from sentinel.core.picture import Picture
from sentinel.core.stack_views import views
from sentinel.core.whereabouts import hosts_of, pids_of
from sentinel.model.verdict import Verdict
from sentinel.report.words import span

ROWS_MAX = 128

Role = Literal["culprit", "victim", ""]
_PROCESS = {
    "process.stopped_ranks": "stopped",
    "process.traced_ranks": "traced",
    "process.gone_ranks": "gone",
    "process.killed_ranks": "killed",
    "process.dstate_ranks": "uninterruptible sleep",
    "process.compiler_ranks": "compilers at work",
    "process.main_mutex_ranks": "main thread waits for a mutex",
    "process.callback_wait_ranks": "callback thread waits",
    "memory.reclaim_ranks": "reclaims memory",
    "process.quiet_ranks": "quiet",
    "process.spinning_ranks": "spins on the CPU",
}
_HOST_CODE = {"stack.callback_blocked_ranks": "callback blocked", "stack.gil_holder_ranks": "holds the interpreter"}
_GPU = {
    "gpu.lost_ranks": "lost",
    "kernel.gpu_fault_ranks": "fault in the kernel log",
    "gpu.reset_ranks": "asks for a reset",
    "gpu.throttled_ranks": "throttled",
    "gpu.spinning_ranks": "spins",
    "gpu.computing_ranks": "computes",
    "gpu.idle_ranks": "idle",
    "stack.kernel_spin_ranks": "resident kernel, not NCCL's",
    "stack.nccl_kernel_ranks": "resident NCCL kernel",
}
_COLLECTIVES = {
    "collective.behind_ranks": "behind",
    "collective.extra_ranks": "extra call",
    "collective.ahead_ranks": "ahead",
    "collective.mismatch_ranks": "other calls",
    "collective.graph_gap_ranks": "graph replay skipped",
    "ras.mismatch_ranks": "RAS: mismatch",
    "ras.missing_ranks": "RAS: no data",
    "comm.init_absent_ranks": "never began init",
    "network.peer_closed_ranks": "peer closed",
}
"""Fact -> what it says of its ranks, strongest first. A rank that no fact names gets no word: unknown, not well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRow:
    """Ranks of one role of which the evidence says the same. `pids` only where there are few."""

    ranks: frozenset[int]
    role: Role
    hosts: str
    pids: str
    process: str
    host_code: str
    gpu: str
    collectives: str

    @property
    def who(self) -> str:
        """`0-3, 7`."""
        return span(self.ranks)


def table(verdict: Verdict, picture: Picture, facts: Mapping[str, Fact]) -> tuple[RankRow, ...]:
    """Culprits first, then victims, then the others; empty when the evidence names no ranks."""
    alike: dict[tuple[Role, str, str, str, str], set[int]] = defaultdict(set)
    known = {name: frozenset(_ranks(facts.get(name))) for group in _ALL for name in group}
    traced = frozenset(_ranks(facts.get("collective.traced_ranks")))
    for rank in timeline.world(picture):
        key = (
            _role(verdict, rank),
            _words(_PROCESS, known, rank),
            _stands(picture, known, rank),
            _words(_GPU, known, rank),
            _words(_COLLECTIVES, known, rank) or ("in step" if rank in traced else "no trace" if traced else ""),
        )
        alike[key].add(rank)
    order: dict[Role, int] = {"culprit": 0, "victim": 1, "": 2}
    rows = sorted(alike.items(), key=lambda item: (order[item[0][0]], min(item[1])))
    return tuple(_row(picture, key, ranks) for key, ranks in rows[:ROWS_MAX])


_ALL = (_PROCESS, _HOST_CODE, _GPU, _COLLECTIVES)


def _row(picture: Picture, key: tuple[Role, str, str, str, str], ranks: set[int]) -> RankRow:
    role, process, host_code, gpu, collectives = key
    pids = pids_of(picture, ranks)
    return RankRow(
        ranks=frozenset(ranks),
        role=role,
        hosts=", ".join(hosts_of(picture, ranks)),
        pids=", ".join(map(str, pids)) if len(pids) <= 4 else "",
        process=process,
        host_code=host_code,
        gpu=gpu,
        collectives=collectives,
    )


def _ranks(fact: Fact | None) -> Iterator[int]:
    if fact is not None and isinstance(fact.value, tuple):
        yield from (rank for rank in fact.value if isinstance(rank, int))


def _role(verdict: Verdict, rank: int) -> Role:
    if rank in verdict.culprits.ranks:
        return "culprit"
    return "victim" if rank in verdict.victims.ranks else ""


def _words(words: Mapping[str, str], known: Mapping[str, frozenset[int]], rank: int) -> str:
    return ", ".join(word for name, word in words.items() if rank in known[name])


def _stands(picture: Picture, known: Mapping[str, frozenset[int]], rank: int) -> str:
    view = picture.memo(views).ranks.get(rank)
    place: Iterable[str] = () if view is None else (view.place.replace("_", " "),)
    return ", ".join(filter(None, (*place, _words(_HOST_CODE, known, rank))))
