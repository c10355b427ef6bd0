"""Hand-made judgements for the renderers: small worlds whose every value a test can name."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sentinel.core.fact import Cite, Fact, unknown
from sentinel.core.picture import Picture
from sentinel.model.observation import Origin
from sentinel.model.verdict import (
    Action,
    Alternative,
    Culprits,
    Evidence,
    GraphCoverage,
    RuledOut,
    Skipped,
    Verdict,
    Victims,
)
from tests.unit import report_pictures as pictures


@dataclass(frozen=True, kw_only=True)
class Case:
    """What `sentinel.report.html.render` takes."""

    verdict: Verdict
    picture: Picture = field(default_factory=Picture)
    facts: Mapping[str, Fact] = field(default_factory=dict)


def callback_stall() -> Case:
    """Two ranks: rank 1's stream waits for a host callback, rank 0 spins in the next collective."""
    return Case(
        verdict=Verdict(
            kind="hang.host_callback",
            stalled=True,
            confidence="high",
            culprits=Culprits(ranks=(1,), hosts=("node2",), pids=(783,)),
            victims=Victims(ranks=(0,)),
            t0="2026-11-29T17:30:34Z",
            clock_error_s=1.0,
            summary="Rank 1's GPU stream waits for a row-store callback that waits for a lock; rank 0 spins.",
            evidence=(
                Evidence(
                    fact="gpu.mixed",
                    says="GPU 0 spins at 100 % and 118 W while GPU 1 is idle at 0 %",
                    source="gpu.csv:212",
                    weight="medium",
                    supports=True,
                ),
                Evidence(
                    fact="collective.counts_equal",
                    says="897 enqueues on every rank, same tail",
                    source="nccl.node2.783.log:1434",
                    weight="strong",
                    supports=True,
                ),
                Evidence(
                    fact="kernel.readable",
                    says="no kernel log of node2, so a disk fault cannot be excluded",
                    source="dmesg.txt",
                    weight="weak",
                    supports=False,
                ),
            ),
            ruled_out=(
                RuledOut(kind="hang.rank_divergence", because="counts, sizes and order equal on all ranks"),
                RuledOut(kind="quiet.idle", because="8 requests are running"),
                RuledOut(kind="hang.network", because="one host, no network transport"),
            ),
            missing=("kernel log of node2",),
            decides="eu-stack of pid 783: which lock the callback thread holds",
            alternatives=(Alternative(kind="hang.storage", confidence="low"),),
            actions=(
                Action(action="unblock_lane", why="the lane is stuck behind one lock; a release costs no restart"),
                Action(action="restart_engine", why="if the lane does not open"),
                Action(action="rowstore_mode", to="ram", why="takes the callback out of the decode path"),
            ),
            do_not=(Action(action="drain_node", why="nothing points to the hardware"),),
            skipped=(Skipped(file="core.783", why="binary"),),
            graph_coverage=GraphCoverage(coverage="partial", why="one captured all-reduce a step logs nothing"),
            rule="hang.host_callback",
        ),
        picture=pictures.picture_of(pictures.callback_observations()),
        facts={
            "collective.counts_equal": Fact(value=True, cites=(Cite("897 on both ranks", Origin("nccl.0.log", 1434)),)),
            "gpu.idle_ranks": Fact(value=(1,), cites=(Cite("GPU 1 at 0 %", Origin("gpu.csv", 212)),)),
            "kernel.readable": unknown("kernel log of node2"),
        },
    )


def divergence(nranks: int = 16) -> Case:
    """Many ranks on two hosts: one is behind on the tensor group, one has no trace, one has no stack."""
    return Case(
        verdict=Verdict(
            kind="hang.rank_divergence",
            stalled=True,
            confidence="medium",
            culprits=Culprits(ranks=(5,), hosts=("node1",)),
            victims=Victims(ranks=tuple(rank for rank in range(nranks) if rank != 5)),
            t0="2026-11-29T17:30:34Z",
            summary="Rank 5 enqueued one all-reduce fewer than its peers and went on with an all-gather.",
            actions=(Action(action="restart_engine", why="ranks out of step cannot recover"),),
            graph_coverage=GraphCoverage(coverage="none", why="eager mode"),
        ),
        picture=pictures.picture_of(pictures.divergence_observations(nranks)),
    )


def blind() -> Case:
    """Nothing readable at all."""
    return Case(
        verdict=Verdict(
            kind="unknown",
            stalled=None,
            confidence="low",
            summary="The evidence shows neither progress nor a stall; nothing can be said about the engine.",
            missing=("an engine log",),
            actions=(Action(action="capture_more", why="no source that shows progress could be read"),),
            skipped=(Skipped(file="core.1", why="binary"), Skipped(file="data.tar", why="truncated archive")),
        )
    )


def hostile(payload: str) -> Case:
    """Every text that evidence can reach carries the payload."""
    verdict = Verdict(
        kind="unknown",
        stalled=None,
        confidence="low",
        culprits=Culprits(hosts=(payload,), requests=(payload,)),
        summary=payload,
        evidence=(Evidence(fact=payload, says=payload, source=payload, weight="weak", supports=True),),
        ruled_out=(RuledOut(kind="none", because=payload),),
        missing=(payload,),
        decides=payload,
        actions=(Action(action="change_setting", to=payload, why=payload),),
        do_not=(Action(action="restart_engine", why=payload),),
        skipped=(Skipped(file=payload, why=payload),),
        graph_coverage=GraphCoverage(coverage="unknown", why=payload),
    )
    facts = {payload: Fact(value=payload, cites=(Cite(payload, Origin(payload, 1)),)), "u": unknown(payload)}
    return Case(verdict=verdict, picture=pictures.picture_of(pictures.hostile_observations(payload)), facts=facts)
