"""`status`, `config`, `replay` and the live view say what is so, and their exit status can be relied on."""

from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from sentinel.agent import status
from sentinel.agent.gather import Gather
from sentinel.agent.readiness import Check
from sentinel.agent.status import Status
from sentinel.agent.status_text import told
from sentinel.agent.view import drawn
from sentinel.cli import sentinel
from sentinel.core.agent import AgentCore
from sentinel.core.facts import NAMES
from sentinel.model.effect import Judged
from sentinel.model.stamp import Stamp
from sentinel.plumbing.clock import SystemClock
from sentinel.record.journal import Journal, entries
from sentinel.rulebook import load_rules
from sentinel.testing.simulation import Simulation

RULES = load_rules(NAMES)


def cli(*words: str) -> Result:
    return CliRunner().invoke(sentinel, words)


@pytest.fixture
def hung() -> Iterator[tuple[AgentCore, Stamp]]:
    """A core that has judged a simulated engine with a frozen rank."""
    life = Simulation(RULES, 3, keep_events=True)
    life.freeze(1, in_s=50.0)
    life.run(200.0)
    core = AgentCore(RULES)
    for event in life.events:
        core.step(event)
    yield core, life.clock.now()


def record(core: AgentCore, at: Stamp) -> Status:
    check = Check(what="eu-stack", ok=False, says="not installed", fix="install the package elfutils")
    seen = status.engines(core.watched(), at)
    return Status(
        at=SystemClock().now(), agent=status.ourselves(), version="0", engines=seen,
        sources=status.sources(Gather(), at), readiness=(check,), near_misses=2, troubles=("journal: no space",),
    )  # fmt: skip


def test_a_stalled_engine_is_shown_and_is_the_exit_status(hung: tuple[AgentCore, Stamp], tmp_path: Path) -> None:
    """If false, a script that asks for the status would restart nothing, or everything."""
    assert status.write(tmp_path, record(*hung)) == ""
    shown = cli("status", "--state", str(tmp_path))

    assert shown.exit_code == 1
    for words in ("verdict hang.stopped", "2 near misses", "journal: no space", "install the package elfutils"):
        assert words in shown.output


def test_an_old_record_is_no_status(hung: tuple[AgentCore, Stamp], tmp_path: Path) -> None:
    """If false, a hung agent would be shown as a healthy one."""
    status.write(tmp_path, record(*hung))
    now = SystemClock().now()
    later = Stamp(mono_ns=now.mono_ns + 60_000_000_000, wall_ns=now.wall_ns, boot_id=now.boot_id)

    assert status.read(tmp_path, now) is not None
    assert status.read(tmp_path, later) is None


def test_a_damaged_record_is_no_status(tmp_path: Path) -> None:
    """If false, a torn file would be a traceback in the middle of an incident."""
    (tmp_path / status.NAME).write_bytes(b'{"at":')

    assert status.read(tmp_path, SystemClock().now()) is None
    assert cli("status", "--state", str(tmp_path)).exit_code == 3


def test_the_view_shows_verdict_and_what_cannot_be_seen(hung: tuple[AgentCore, Stamp]) -> None:
    """If false, the person at the terminal would see less than the log holds."""
    console = Console(width=200, record=True, file=StringIO())
    console.print(drawn(record(*hung), ()))
    text = console.export_text()

    assert "hang.stopped" in text and "elfutils" in text and "do not:" in text


def test_a_status_without_engines_says_so(tmp_path: Path) -> None:
    """If false, an empty host and a blind agent would look alike."""
    empty = record(AgentCore(RULES), SystemClock().now())

    assert "no engine is running on this host" in list(told(empty))


def test_config_shows_values_with_their_origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If false, nobody could tell which of three places a wrong value came from."""
    path = tmp_path / "sentinel.yaml"
    path.write_text("timing:\n  silence_floor_s: 9.5\n")
    monkeypatch.setenv("SENTINEL_LIMITS_INCIDENTS_KEPT", "3")
    shown = cli("config", "check", "--config", str(path))

    assert shown.exit_code == 0
    assert f"timing.silence_floor_s = 9.5  # {path}" in shown.output
    assert "limits.incidents_kept = 3  # SENTINEL_LIMITS_INCIDENTS_KEPT" in shown.output
    assert "timing.tick_s = 0.5  # default" in shown.output


def test_a_wrong_key_is_refused_with_the_nearest_one(tmp_path: Path) -> None:
    """If false, a typing error would silently leave the default in force."""
    path = tmp_path / "sentinel.yaml"
    path.write_text("timing:\n  silence_flor_s: 9.5\n")
    shown = CliRunner().invoke(sentinel, ["config", "check", "--config", str(path)])

    assert shown.exit_code == 2 and "did you mean silence_floor_s" in shown.output


def journal_of(folder: Path) -> Path:
    """The journal of one life with one hang."""
    journal = Journal(folder).open()
    life = Simulation(RULES, 2, keep_events=True)
    life.freeze(1, in_s=30.0)
    life.run(120.0)
    effects = iter(life.log.effects)
    for event, count in zip(life.events, life.effects_per_event, strict=True):
        journal.event(event)
        for _ in range(count):
            journal.effect(next(effects)[1])
    journal.close()
    return folder


def test_replay_prints_the_verdicts_and_that_they_are_the_same(tmp_path: Path) -> None:
    """If false, a rule change could not be tried on the incidents of the past."""
    shown = cli("replay", str(journal_of(tmp_path)))

    assert shown.exit_code == 0
    assert "verdict hang.stopped" in shown.output and "identical: 4 effects" in shown.output


def test_replay_of_a_journal_that_differs_fails(tmp_path: Path) -> None:
    """If false, replay would be green whatever the core has become."""
    journal = Journal(journal_of(tmp_path)).open()
    journal.effect(next(entry.f for entry in entries(tmp_path) if isinstance(entry.f, Judged)))
    journal.close()
    shown = cli("replay", "--json", str(tmp_path))

    assert shown.exit_code == 1 and '"same":false' in shown.output
