"""The agent's judgement in simulated weeks: silent while all is well, right and in time when it is not."""

import msgspec
import pytest

from sentinel.core.agent import AgentCore
from sentinel.core.facts import NAMES
from sentinel.model.effect import Cleared, Judged, Recovered, StartCapture, Suspected, WriteBundle
from sentinel.model.event import CoreSettings
from sentinel.rulebook import load_rules
from sentinel.testing.simulation import KILL_AFTER_S, Simulation

RULES = load_rules(NAMES)
SEEDS = range(24)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_healthy_engine_is_never_suspected(seed: int) -> None:
    """If false, idle gaps, prefills, pauses and bursts would raise alarms, and people would switch the agent off."""
    log = Simulation(RULES, seed, ranks=1 + seed % 8, scraped=seed % 3 > 0).run(3600.0)

    assert log.effects == []


@pytest.mark.parametrize("seed", SEEDS)
def test_a_frozen_rank_is_found_and_named_before_the_engine_kills_itself(seed: int) -> None:
    """If false, the evidence would die with the engine, or the wrong machine would be drained."""
    life = Simulation(RULES, seed, ranks=2 + seed % 7)
    culprit = seed % life.ranks
    life.freeze(culprit, in_s=20.0 + 13 * seed)
    log = life.run(20.0 + 13 * seed + 200.0)

    assert life.frozen_at_s is not None
    (judged_s, judged), *_ = log.of(Judged)
    assert log.verdicts == ["hang.stopped"] and isinstance(judged, Judged)
    assert judged.verdict.culprits.ranks == (culprit,)
    assert judged_s - life.frozen_at_s < KILL_AFTER_S
    assert [type(effect) for _, effect in log.effects] == [Suspected, StartCapture, Judged, WriteBundle]


@pytest.mark.parametrize("seed", range(8))
def test_a_short_freeze_is_a_near_miss_and_nothing_more(seed: int) -> None:
    """If false, a long garbage collection would cost stack dumps, or be forgotten."""
    life = Simulation(RULES, seed)
    life.freeze(0, in_s=60.0)
    life.thaw(in_s=60.0 + 25.0)
    log = life.run(600.0)

    assert [type(effect) for _, effect in log.effects] == [Suspected, Cleared]
    assert life.near_misses == 1


@pytest.mark.parametrize("seed", range(8))
def test_an_engine_that_comes_back_closes_its_incident_and_can_hang_again(seed: int) -> None:
    """If false, the agent would be good for one incident, or report an engine as hanging for ever."""
    life = Simulation(RULES, seed)
    for begin_s in (50.0, 1000.0):
        life.freeze(1, in_s=begin_s)
        life.thaw(in_s=begin_s + 150.0)
    log = life.run(2000.0)

    assert log.verdicts == ["hang.stopped", "hang.stopped"]
    incidents = [effect.incident for _, effect in log.of(StartCapture)]
    assert [effect.incident for _, effect in log.of(Recovered)] == incidents and len(set(incidents)) == 2


@pytest.mark.parametrize("step_s", [-86400.0, -3600.0, -30.0, 30.0, 3600.0, 86400.0])
def test_a_step_of_the_wall_clock_neither_raises_nor_hides_a_hang(step_s: float) -> None:
    """If false, a time daemon could start an incident, or stop one from being seen."""
    healthy = Simulation(RULES, 5)
    healthy.step_wall_clock(step_s, in_s=600.0)
    assert healthy.run(1800.0).effects == []

    frozen = Simulation(RULES, 6)
    frozen.freeze(1, in_s=300.0)
    frozen.step_wall_clock(step_s, in_s=310.0)
    log = frozen.run(600.0)
    assert [type(effect) for _, effect in log.effects][:3] == [Suspected, StartCapture, Judged]
    assert set(log.verdicts) == {"hang.stopped"}
    assert frozen.frozen_at_s is not None and log.of(StartCapture)[0][0] - frozen.frozen_at_s < KILL_AFTER_S


@pytest.mark.parametrize("seed", SEEDS)
def test_the_limit_that_raised_the_suspicion_is_the_limit_of_the_verdict(seed: int) -> None:
    """If false, an engine that is captured early would be said to make progress: the facts would wait for longer."""
    hasty = CoreSettings(silence_floor_s=2.0, first_token_s=6.0, capture_after_s=4.0, capture_budget_s=5.0)
    life = Simulation(RULES, seed, ranks=2, settings=hasty, scraped=seed % 2 > 0)
    life.freeze(1, in_s=20.0 + 13 * seed)
    log = life.run(20.0 + 13 * seed + 60.0)

    # With a limit this short, a healthy gap may be captured just before the freeze; its stacks do not show the freeze.
    assert life.frozen_at_s is not None
    during = [effect.verdict for at_s, effect in log.effects if isinstance(effect, Judged) and at_s > life.frozen_at_s]
    assert during and {verdict.kind for verdict in during} <= {"hang.stopped", "unknown"}


@pytest.mark.parametrize("seed", range(4))
def test_events_replayed_give_identical_effects(seed: int) -> None:
    """If false, the journal would explain nothing."""
    life = Simulation(RULES, seed, keep_events=True)
    life.freeze(0, in_s=100.0)
    life.thaw(in_s=300.0)
    log = life.run(400.0)

    core = AgentCore(RULES)
    again = [effect for event in life.events for effect in core.step(event)]

    assert msgspec.json.encode(again) == msgspec.json.encode([effect for _, effect in log.effects])


@pytest.mark.parametrize("seed", range(8))
def test_an_incident_is_captured_once(seed: int) -> None:
    """If false, a long hang would be stopped and dumped again and again."""
    life = Simulation(RULES, seed)
    life.freeze(1, in_s=50.0)
    log = life.run(1000.0)

    assert len(log.of(StartCapture)) == 1 and len(log.of(WriteBundle)) == 1


def test_a_capture_that_never_comes_back_is_judged_without_it() -> None:
    """If false, a stuck capture would leave a hang without a verdict."""
    life = Simulation(RULES, 3, captures_return=False)
    life.freeze(1, in_s=50.0)
    log = life.run(400.0)

    assert [type(effect) for _, effect in log.effects][:3] == [Suspected, StartCapture, Judged]
