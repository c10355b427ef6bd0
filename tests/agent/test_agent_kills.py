"""The agent is killed again and again, wherever it happens to be, while an engine hangs."""

import os
import signal
from collections import Counter
from pathlib import Path
from random import Random

import msgspec
import pytest

from sentinel.agent.incidents import Incidents, Note
from sentinel.core.facts import NAMES
from sentinel.model.effect import Judged, Recovered, StartCapture, WriteBundle
from sentinel.record.journal import entries
from sentinel.record.replay import replay
from sentinel.rulebook import load_rules
from tests.agent.engines import rehearsal
from tests.agent.targets import eventually, stop
from tests.agent.watchers import Watcher, journalled, watcher, watching

pytestmark = pytest.mark.timeout(600)
KILLS = 4
RECORDS_MAX = 120
"""Records that an agent writes at most before it is killed: a few seconds of its life."""


def records(state: Path) -> list[tuple[int, object, object]]:
    return [(entry.n, entry.e, entry.f) for entry in entries(state / "journal")]


def wrote(agent: Watcher, count: int) -> bool:
    """Whether it has written that many records, or has done all there was to do."""
    return sum(1 for _ in entries(agent.state / "journal")) >= count


def notes(home: Path) -> list[Note]:
    """An incident's own record: what was carried out, in order."""
    return [msgspec.json.decode(line, type=Note) for line in (home / "incident.jsonl").read_bytes().splitlines()]


def captured(incidents: Path) -> dict[Path, int]:
    """By incident that has evidence: how often its capture has been begun. That may not become more."""
    homes = {path.parent.parent for path in incidents.glob("*/evidence/pass*")}
    return {home: sum(type(note.effect) is StartCapture for note in notes(home)) for home in homes}


def kind(agent: Watcher, root_pid: int) -> str:
    """The class of the verdict that stands."""
    seen = agent.sees(root_pid)
    return "" if seen is None or seen.verdict is None else seen.verdict.kind


@pytest.mark.parametrize("seed", range(2))
def test_an_agent_killed_at_random_points_finishes_one_incident(tmp_path: Path, seed: int) -> None:
    """If false, a machine that kills the agent in the incident, too, would lose evidence or have it taken again."""
    dice, state = Random(seed), tmp_path / "state"
    with rehearsal(tmp_path / "engine") as engine:
        root = engine.launcher.pid
        with watcher(state) as agent:
            watching(agent, root)
            frozen = engine.engine().ranks[1].id.pid
            stop(frozen)
        known, captures = records(state), dict[Path, int]()
        for _ in range(KILLS):
            with watcher(state) as agent:
                wanted = len(known) + dice.randint(2, RECORDS_MAX)
                eventually(lambda enough=wanted, agent=agent: wrote(agent, enough))  # type: ignore[misc]
            found = records(state)
            assert found[: len(known)] == known
            known = found
            captures = captured(state / "incidents") | captures
        with watcher(state) as agent:
            journalled(agent, root, WriteBundle)
            # A capture that a kill cut short may not decide; what the sources say afterwards does.
            eventually(lambda: kind(agent, root) == "hang.stopped")
            os.kill(frozen, signal.SIGCONT)
            journalled(agent, root, Recovered)
            effects = agent.effects(root)

    incident = next(effect.incident for effect in effects if isinstance(effect, WriteBundle))
    effects = [effect for effect in effects if effect.incident == incident]
    # An agent killed before it carried out what it had journalled wants it once more; done it is once.
    home = Incidents(state / "incidents", kept=1, bytes_max=1).folder_of(incident).parent
    done = Counter(type(note.effect) for note in notes(home))
    assert done[StartCapture] == captures.get(home, done[StartCapture])
    assert done[WriteBundle] == done[Recovered] == 1
    verdicts = [effect.verdict for effect in effects if isinstance(effect, Judged)]
    assert verdicts[-1].culprits.ranks == (1,)
    assert {verdict.kind for verdict in verdicts} <= {"hang.stopped", "unknown"}
    assert replay(state / "journal", load_rules(NAMES)).same
