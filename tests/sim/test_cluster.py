"""A whole cluster under faults: invariants hold in every life, and every stalled group is served again."""

import pytest

from sentinel.testing.cluster_sim import ClusterSim
from tests.sim.cluster import rules, sequence, wrong

ONCE_WRONG = (1826, 4033)
"""Lives that ended wrong once. 1826: the first host of a broken restart came up late, alone. 4033: a report that was
long under way made an old line look like progress since."""


@pytest.mark.parametrize("seed", [*range(9001, 9007), *ONCE_WRONG])
def test_a_life_full_of_faults_breaks_no_invariant_and_ends_served(seed: int) -> None:
    """False: a crash, a partition or a lost message makes a second kill, or leaves a group standing for ever."""
    world = sequence(seed)

    assert wrong(world) == []


@pytest.mark.parametrize("seed", range(5))
def test_without_faults_a_broken_group_is_restarted_once(seed: int) -> None:
    """False: a plain stall is not recovered, or a recovered one is restarted again."""
    world = ClusterSim(seed, rules(), faults=False)
    world.break_rank("group0", in_s=100.0)
    world.run(600.0)

    spec = world.specs[0]
    assert world.progresses("group0")
    assert sorted(host for _, host, group, _ in world.kills if group == "group0") == sorted(spec.hosts)
    assert next(host for _, host, group in world.starts if group == "group0") == spec.hosts[0]


@pytest.mark.parametrize("seed", range(200, 205))
def test_faults_around_healthy_engines_kill_nothing(seed: int) -> None:
    """False: a crash of the watcher costs the watched."""
    world = ClusterSim(seed, rules())
    world.trouble(30.0, 630.0)
    world.run(900.0)

    assert world.kills == [] and world.starts == []


@pytest.mark.parametrize("seed", range(400, 405))
def test_a_group_with_a_host_that_nobody_hears_is_never_touched(seed: int) -> None:
    """False: what cannot be seen is taken for stalled, and a whole engine dies for a broken management network."""
    world = ClusterSim(seed, rules())
    deaf = world.hosts["host0"]
    world.clock.call_in(90.0, lambda: setattr(deaf.line, "cut", True))
    for spec in world.specs:
        world.break_rank(spec.name, in_s=100.0)
    world.run(1500.0)

    assert world.kills == []
    told = [record.data for record in world.bus.follow("told", 0, limit=10_000)]
    assert any(b"agent_silent" in words for words in told)
