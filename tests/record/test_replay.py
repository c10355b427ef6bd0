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


def cut(folder: Path, into: Path, *, then: int = 0) -> Path:
    """The journal up to the first event with a verdict, without its effects, and `then` further events."""
    kept = [entry for entry in entries(folder) if entry.e is not None or entry.f is not None]
    verdict = next(n for n, entry in enumerate(kept) if isinstance(entry.f, Judged))
    last = max(n for n in range(verdict) if kept[n].e is not None)
    after = [entry for entry in kept[verdict:] if entry.e is not None][:then]
    journal = Journal(into).open()
    for entry in (*kept[: last + 1], *after):
        if entry.e is not None:
            journal.event(entry.e)
        if entry.f is not None:
            journal.effect(entry.f)
    journal.close()
    return into


def test_a_kill_between_an_event_and_its_effects_is_no_difference(tmp_path: Path) -> None:
    """If false, a journal of an agent that was killed while it judged could never be replayed as the same."""
    assert replay(cut(journalled(tmp_path / "whole", 1), tmp_path / "cut"), RULES).same


def test_effects_missing_while_the_agent_lived_on_are_noticed(tmp_path: Path) -> None:
    """If false, an agent that swallowed a verdict would be called faithful."""
    assert not replay(cut(journalled(tmp_path / "whole", 1), tmp_path / "cut", then=1), RULES).same


def test_verdicts_come_with_the_time_of_their_cause(tmp_path: Path) -> None:
    """If false, the sequence could not be laid beside the engine's log."""
    lines = list(verdict_lines(journalled(tmp_path, 1), RULES))

    assert [at for at, _ in lines] == sorted(at for at, _ in lines)
    assert msgspec.json.encode([effect for _, effect in lines]) == msgspec.json.encode(replay(tmp_path, RULES).computed)
