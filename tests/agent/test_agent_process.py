"""The agent as a process: it survives its own death, full disks, missing tools and missing rights."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from sentinel.core.facts import NAMES
from sentinel.model.effect import Judged, Recovered, StartCapture, Suspected, WriteBundle
from sentinel.record.journal import entries
from sentinel.record.replay import replay
from sentinel.rulebook import load_rules
from sentinel.testing.ports import free_port
from tests.agent.engines import Rehearsal, rehearsal
from tests.agent.targets import eventually, stop
from tests.agent.watchers import SCALE, Watcher, cli, journalled, text, watcher, watching

pytestmark = pytest.mark.timeout(300)


def freeze(engine: Rehearsal, rank: int = 1) -> int:
    """Stop a rank; returns its pid."""
    pid = engine.engine().ranks[rank].id.pid
    stop(pid)
    return pid


def readiness_known(agent: Watcher) -> bool:
    """Whether readiness is known of two ranks, and as much of one as of the other."""
    checks = () if agent.status is None else agent.status.readiness
    first, second = ({check.what for check in checks if check.rank == rank} for rank in (0, 1))
    return bool(first) and first == second


def test_status_shows_the_engine_its_ranks_and_what_is_missing(tmp_path: Path) -> None:
    """If false, nobody could tell a watched host from an unwatched one before the incident."""
    with rehearsal(tmp_path / "engine") as engine, watcher(tmp_path / "state") as agent:
        watching(agent, engine.launcher.pid)
        eventually(lambda: readiness_known(agent))
        shown = cli("status", "--state", str(tmp_path / "state"))
        as_json = cli("status", "--json", "--state", str(tmp_path / "state"))

    assert f"packaged:{engine.launcher.pid}" in shown.stdout and "rank 1: pid" in shown.stdout
    # Engines of other tests are on this host too, and may have more ranks.
    assert re.search(r"missing: flight recorder \(ranks 0, 1[, \d]*\): no pipe\n.*TORCH_", shown.stdout)
    assert '"engines":' in as_json.stdout and '"readiness":' in as_json.stdout


def test_status_of_a_dead_agent_says_so(tmp_path: Path) -> None:
    """If false, the last good status would hide that nobody watches."""
    with watcher(tmp_path) as agent:
        eventually(lambda: agent.status)
    gone = cli("status", "--state", str(tmp_path))

    assert gone.returncode == 3 and "no agent is running" in gone.stdout


@pytest.mark.parametrize("moment", [Suspected, StartCapture, Judged, WriteBundle])
def test_an_agent_killed_in_an_incident_goes_on_with_it(tmp_path: Path, moment: type) -> None:
    """If false, a crash of the agent would cost the evidence, or the engine would be dumped twice."""
    with rehearsal(tmp_path / "engine") as engine:
        root = engine.launcher.pid
        with watcher(tmp_path / "state") as agent:
            watching(agent, root)
            frozen = freeze(engine)
            journalled(agent, root, moment)
            before = [(entry.n, entry.e, entry.f) for entry in entries(tmp_path / "state" / "journal")]
        with watcher(tmp_path / "state") as agent:
            journalled(agent, root, WriteBundle)
            eventually(lambda: (found := agent.sees(root)) is not None and found.verdict is not None)
            os.kill(frozen, signal.SIGCONT)
            journalled(agent, root, Recovered)
            effects = agent.effects(root)
    after = [(entry.n, entry.e, entry.f) for entry in entries(tmp_path / "state" / "journal")]

    # A busy machine may have had near misses before, and others after; this is about the one that was kept first. An
    # agent killed before a capture has left anything on disk begins the incident anew, under another name.
    incident = next(effect.incident for effect in effects if isinstance(effect, WriteBundle))
    effects = [effect for effect in effects if effect.incident == incident]
    verdicts = [effect.verdict for effect in effects if isinstance(effect, Judged)]
    counts = Counter(type(effect) for effect in effects)
    assert after[: len(before)] == before
    assert counts[StartCapture] == 1 or moment is StartCapture
    assert counts[Recovered] == 1
    assert verdicts[0].kind == "hang.stopped" and verdicts[0].culprits.ranks == (1,)
    assert replay(tmp_path / "state" / "journal", load_rules(NAMES)).same


def test_an_agent_without_tools_still_detects_and_says_what_is_missing(tmp_path: Path) -> None:
    """If false, a host without py-spy would have no watchdog."""
    bare = tmp_path / "bin"
    bare.mkdir()
    with rehearsal(tmp_path / "engine") as engine:
        root = engine.launcher.pid
        with watcher(tmp_path / "state", PATH=str(bare)) as agent:
            watching(agent, root)
            eventually(lambda: readiness_known(agent))
            assert agent.status is not None
            missing = {check.what for check in agent.status.readiness if not check.ok}
            freeze(engine)
            verdict = journalled(agent, root, Judged)

    assert {"eu-stack", "gdb"} <= missing
    assert isinstance(verdict, Judged) and verdict.verdict.kind == "hang.stopped"


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root and setpriv")
def test_an_agent_without_rights_still_detects_and_says_what_is_missing(tmp_path: Path) -> None:
    """If false, an agent that may not trace would be blind, or would not say why it has no stacks."""
    state = tmp_path / "state"
    prefix = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
    port = str(free_port())
    with rehearsal(tmp_path / "engine", 2, "--port", port) as engine, watcher(state, prefix, ()) as agent:
        root = engine.launcher.pid
        # Without rights the log's place is unknown too; the metrics page is all that tells of work.
        watching(agent, root)
        eventually(lambda: readiness_known(agent))
        assert agent.status is not None
        missing = {(check.what, check.rank) for check in agent.status.readiness if not check.ok}
        freeze(engine)
        verdict = journalled(agent, root, Judged)

    assert {("stacks", 0), ("stacks", 1), ("engine log", None)} <= missing
    assert isinstance(verdict, Judged) and verdict.verdict.stalled and verdict.verdict.kind == "hang.stopped"


def test_a_full_disk_stops_the_journal_and_not_the_detection(tmp_path: Path) -> None:
    """If false, the disk that fills up with the engine's own logs would also blind its watchdog."""
    limit = 256 << 10
    limited = ["prlimit", f"--fsize={limit}"]
    with rehearsal(tmp_path / "engine") as engine, watcher(tmp_path / "state", limited) as agent:
        root = engine.launcher.pid
        watching(agent, root)
        eventually(lambda: agent.status is not None and any("journal" in trouble for trouble in agent.status.troubles))
        freeze(engine)
        eventually(lambda: (found := agent.sees(root)) is not None and found.verdict is not None)
        found = agent.sees(root)

    assert found is not None and found.verdict is not None and found.verdict.kind == "hang.stopped"
    assert all(entry is not None for entry in entries(tmp_path / "state" / "journal"))


def test_an_unreadable_log_is_said_and_the_metrics_page_stands_in(tmp_path: Path) -> None:
    """If false, a log that may not be read would be a silent engine."""
    port = free_port()
    with rehearsal(tmp_path / "engine", 2, "--port", str(port)) as engine:
        engine.log.rename(tmp_path / "engine" / "elsewhere")
        (tmp_path / "engine" / "engine.log").mkdir()
        root = engine.launcher.pid
        with watcher(tmp_path / "state") as agent:
            watching(agent, root)
            freeze(engine)
            verdict = journalled(agent, root, Judged)

    assert isinstance(verdict, Judged) and verdict.verdict.kind == "hang.stopped", text(verdict)


def test_the_scale_of_these_tests_is_the_agents_own() -> None:
    """If false, the tests would measure another agent than the one that ships."""
    shown = subprocess.run(
        [sys.executable, "-m", "sentinel", "config", "show", "timing.time_scale"],
        capture_output=True, text=True, check=True, env={**os.environ, "SENTINEL_TIMING_TIME_SCALE": SCALE},
    )  # fmt: skip

    assert shown.stdout.startswith(f"timing.time_scale = {SCALE}")
