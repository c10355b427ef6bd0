"""A journal judged again gives what was done, byte for byte; a journal that was changed does not."""

from pathlib import Path

import msgspec

from sentinel.core.facts import NAMES
from sentinel.model.effect import Judged
from sentinel.record.journal import Journal, entries
from sentinel.record.replay import replay, verdict_lines
from sentinel.rulebook import load_rules
from sentinel.testing.simulation import Simulation

RULES = load_rules(NAMES)


def journalled(folder: Path, *seeds: int) -> Path:
    """The journal of an agent that was started once a seed; in each life a rank freezes."""
    journal = Journal(folder).open()
    for seed in seeds:
        life = Simulation(RULES, seed, keep_events=True)
        life.freeze(seed % 2, in_s=30.0)
        life.run(150.0)
        effects = iter(life.log.effects)
        for event, count in zip(life.events, life.effects_per_event, strict=True):
            journal.event(event)
            for _ in range(count):
                journal.effect(next(effects)[1])
    journal.close()
    return folder


def test_the_same_events_give_the_same_effects(tmp_path: Path) -> None:
    """If false, an incident could not be explained afterwards, and a rule change not be checked against the past."""
    again = replay(journalled(tmp_path, 1), RULES)

    assert again.same and again.events > 100
    assert any(isinstance(effect, Judged) for effect in again.computed)


def test_each_start_of_the_agent_begins_afresh(tmp_path: Path) -> None:
    """If false, what one life of the agent learned would leak into the replay of the next."""
    assert replay(journalled(tmp_path, 1, 2, 3), RULES).same


def test_a_verdict_that_the_events_do_not_give_is_noticed(tmp_path: Path) -> None:
    """If false, `same` would be true whatever the journal says."""
    journal = Journal(journalled(tmp_path, 1)).open()
    judged = next(entry.f for entry in entries(tmp_path) if isinstance(entry.f, Judged))
    journal.effect(judged)
    journal.close()

    assert not replay(tmp_path, RULES).same


def test_verdicts_come_with_the_time_of_their_cause(tmp_path: Path) -> None:
    """If false, the sequence could not be laid beside the engine's log."""
    lines = list(verdict_lines(journalled(tmp_path, 1), RULES))

    assert [at for at, _ in lines] == sorted(at for at, _ in lines)
    assert msgspec.json.encode([effect for _, effect in lines]) == msgspec.json.encode(replay(tmp_path, RULES).computed)
