"""Clocks of several hosts are corrected only when shared moments prove that they differ."""

import msgspec

from sentinel.evidence.align import align
from sentinel.model.observation import NcclComm, Observation, Origin, Phase

ORIGIN = Origin("log", 1)


def start(host: str, at_s: float, *, capture_s: float | None = 60.0) -> list[Observation]:
    """One start of an engine on one host: the rendezvous of two ranks, then graph capture."""
    first: list[Observation] = [
        Phase(origin=ORIGIN, at_s=at_s + lag, host=host, engine="sglang", phase="dist_init", edge="end")
        for lag in (0, 1)
    ]
    if capture_s is None:
        return first
    return [
        *first,
        Phase(origin=ORIGIN, at_s=at_s + capture_s, host=host, engine="sglang", phase="capture", edge="end"),
    ]


def test_hosts_whose_clocks_agree_are_left_alone() -> None:
    """Else the usual second between two hosts would be taken for a wrong clock."""
    aligned = align([*start("a", 1000), *start("b", 1001)])
    assert (aligned.shifts, aligned.error_s, aligned.notes) == ({}, 0.0, ())


def test_two_moments_that_agree_prove_a_clock_that_differs() -> None:
    """Else the host whose clock runs behind would seem to have stopped first."""
    aligned = align([*start("a", 1000), *start("b", 1095), *start("c", 1000)])
    assert aligned.shifts == {"b": -95.0} and "b is 95 s ahead of that of a" in aligned.notes[0]


def test_one_moment_proves_a_zone_but_not_a_minute() -> None:
    """Else a host that joined a minute late would have all of its evidence moved."""
    assert align([*start("a", 1000, capture_s=None), *start("b", 8202, capture_s=None)]).shifts == {"b": -7200.0}
    late = align([*start("a", 1000, capture_s=None), *start("b", 1047, capture_s=None)])
    assert late.shifts == {} and late.error_s == 47.0


def test_a_slow_capture_on_one_host_is_no_clock() -> None:
    """Else a cold compile cache would be read as a wrong clock, or widen the error of everything."""
    aligned = align([*start("a", 1000), *start("b", 1000, capture_s=400.0)])
    assert (aligned.shifts, aligned.error_s) == ({}, 0.0)


def test_a_restart_that_only_one_host_logged_is_not_compared() -> None:
    """Else two starts an hour apart would be laid over each other."""
    aligned = align([*start("a", 1000), *start("a", 4600), *start("b", 1000)])
    assert aligned.shifts == {}


def test_a_communicator_that_both_hosts_complete_is_a_shared_moment() -> None:
    """Else hosts without an engine log of their own could not be aligned at all."""

    def complete(host: str, at_s: float, comm_id: str) -> Observation:
        made = NcclComm(origin=ORIGIN, comm="0x1", comm_id=comm_id, comm_rank=0, nranks=2, event="init_complete")
        return msgspec.structs.replace(made, at_s=at_s, host=host)

    seen = [complete("a", 10, "x"), complete("b", 40, "x"), complete("a", 20, "y"), complete("b", 51, "y")]
    assert align(seen).shifts == {"b": -30.5}
    assert align([complete("a", 10, "x"), complete("b", 40, "z")]).shifts == {}


def test_evidence_without_times_or_hosts_is_fine() -> None:
    """Else the commonest evidence, one host without any rendezvous line, would fail."""
    assert align([]).shifts == {}
    assert align([Phase(origin=ORIGIN, engine="x", phase="dist_init", edge="end")]).shifts == {}
