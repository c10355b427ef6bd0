"""A few fire drills for real, scaled; the whole catalogue is run by `sentinel drill --all`."""

from pathlib import Path

import pytest

from sentinel.core.facts import NAMES
from sentinel.plumbing.clock import SystemClock
from sentinel.rulebook import load_rules
from sentinel.testing.drill import Drill
from sentinel.testing.scenarios import named

SCALE = 5.0


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["stopped", "killed", "idle"])
def test_a_drill_passes(tmp_path: Path, name: str) -> None:
    """If false, the agent as a whole does not do what its parts are tested for."""
    scenario = named(name)
    assert scenario is not None
    outcome = Drill(scenario, load_rules(NAMES), SystemClock(), tmp_path / name, SCALE).run()

    assert outcome.complaints == ()
