"""The verdict: what a judgement says, as data. Field names and words are the contract of `docs/taxonomy.md`."""

from typing import Literal

import msgspec

Confidence = Literal["high", "medium", "low"]
Weight = Literal["strong", "medium", "weak"]

ActionName = Literal[
    "none", "wait", "capture_more", "unblock_lane", "resume", "continue_process", "abort_request", "restart_engine",
    "restart_frontend", "rowstore_mode", "drain_node", "page_human", "change_setting",
]  # fmt: skip

CLASSES: tuple[str, ...] = (
    "none", "quiet.idle", "quiet.paused", "busy.boot", "busy.graph_capture", "busy.jit", "busy.prefill",
    "hang.host_callback", "hang.storage", "hang.python", "hang.stopped", "hang.memory", "hang.rank_divergence",
    "hang.collective_stuck", "hang.network", "hang.device_spin", "hang.comm_init", "hang.scheduler", "hang.kv_pool",
    "hang.kv_transfer", "hang.grammar", "hang.frontend", "crash.oom", "crash.rank_exit", "fault.gpu", "fault.nic",
    "slow.straggler", "slow.recovered", "unknown",
)  # fmt: skip


class Culprits(msgspec.Struct, frozen=True, kw_only=True):
    """Who caused it; empty lists when nobody can be named."""

    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    pids: tuple[int, ...] = ()
    requests: tuple[str, ...] = ()


class Victims(msgspec.Struct, frozen=True, kw_only=True):
    """Who only waits for the culprit."""

    ranks: tuple[int, ...] = ()


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """One fact cited for or against the verdict's class; `source` is file:line or a live source's name."""

    fact: str
    says: str
    source: str
    weight: Weight
    supports: bool


class RuledOut(msgspec.Struct, frozen=True, kw_only=True, rename={"kind": "class"}):
    """A class that was considered and the observation that excludes it."""

    kind: str
    because: str


class Alternative(msgspec.Struct, frozen=True, kw_only=True, rename={"kind": "class"}):
    """A class that the evidence does not exclude."""

    kind: str
    confidence: Confidence


class Action(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something to do, or not to do, with the reason. `to` only for `rowstore_mode` and `change_setting`."""

    action: ActionName
    why: str = ""
    to: str | None = None


class Skipped(msgspec.Struct, frozen=True, kw_only=True):
    """A file that could not be used, and why."""

    file: str
    why: str


class GraphCoverage(msgspec.Struct, frozen=True, kw_only=True):
    """How much of the traffic enqueue traces cannot see, because graph replays log nothing."""

    coverage: Literal["none", "partial", "full", "unknown"]
    why: str


class Verdict(msgspec.Struct, frozen=True, kw_only=True, rename={"kind": "class"}):
    """One judgement. Serialises to the JSON contract `sentinel.verdict/1`."""

    schema: str = "sentinel.verdict/1"
    kind: str
    stalled: bool | None
    confidence: Confidence
    culprits: Culprits = Culprits()
    victims: Victims = Victims()
    t0: str | None = None
    clock_error_s: float | None = None
    summary: str
    evidence: tuple[Evidence, ...] = ()
    ruled_out: tuple[RuledOut, ...] = ()
    missing: tuple[str, ...] = ()
    decides: str | None = None
    alternatives: tuple[Alternative, ...] = ()
    actions: tuple[Action, ...] = ()
    do_not: tuple[Action, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    graph_coverage: GraphCoverage | None = None
    rule: str | None = None
