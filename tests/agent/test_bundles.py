"""What an agent leaves of an incident: one file that can be passed on and judged again, made without being asked."""

import os
import signal
from pathlib import Path

import msgspec
import pytest

from sentinel.agent import bundling
from sentinel.model.effect import WriteBundle
from tests.agent.engines import rehearsal
from tests.agent.targets import eventually, stop
from tests.agent.watchers import Watcher, cli, journalled, watcher, watching

pytestmark = pytest.mark.timeout(300)
PACKED_WITHIN_S = 150.0


def homes(state: Path, root_pid: int, pattern: str) -> list[Path]:
    """Files of this engine's incidents; the agent sees other engines of the host too."""
    return sorted(state.glob(f"incidents/*_{root_pid}_*/{pattern}"))


def packed(state: Path, root_pid: int) -> Path:
    """The bundle, once it is there: it is renamed into place when it is whole."""
    eventually(lambda: homes(state, root_pid, bundling.NAME), PACKED_WITHIN_S)
    return homes(state, root_pid, bundling.NAME)[0]


def test_a_kept_incident_becomes_a_bundle_that_is_judged_alike(tmp_path: Path) -> None:
    """If false, somebody has to log in and pack the evidence by hand, before the next incident replaces it."""
    with rehearsal(tmp_path / "engine") as engine, watcher(tmp_path / "state") as agent:
        watching(agent, engine.launcher.pid)
        stop(engine.engine().ranks[1].id.pid)
        bundle = packed(tmp_path / "state", engine.launcher.pid)

    verified, judged = cli("bundle", "verify", str(bundle)), cli("analyze", "--json", str(bundle))
    inside = cli("bundle", "export", str(bundle), str(tmp_path / "inside"))
    assert verified.returncode == 0, verified.stdout + verified.stderr
    verdict = msgspec.json.decode(judged.stdout)
    assert (verdict["class"], verdict["culprits"]["ranks"]) == ("hang.stopped", [1])
    assert inside.returncode == 0
    lines = (tmp_path / "inside" / "journal.jsonl").read_bytes().splitlines()
    entries = [msgspec.json.decode(line) for line in lines]
    kinds = {next(iter(set(entry) - {"n", "done"}), "done") for entry in entries}
    assert kinds == {"e", "f"} and any((entry.get("f") or {}).get("effect") == "suspected" for entry in entries)
    assert '"kind":"enqueues"' in next((tmp_path / "inside" / "evidence").glob("agent-*.jsonl")).read_text()


def test_an_engine_that_died_before_any_capture_leaves_a_bundle_too(tmp_path: Path) -> None:
    """If false, the incidents that kill fastest would be those without evidence."""
    with rehearsal(tmp_path / "engine") as engine, watcher(tmp_path / "state") as agent:
        watching(agent, engine.launcher.pid)
        os.killpg(engine.launcher.pid, signal.SIGKILL)
        engine.launcher.wait()
        journalled(agent, engine.launcher.pid, WriteBundle)
        bundle = packed(tmp_path / "state", engine.launcher.pid)

    assert "Decode batch" in cli("bundle", "grep", "Decode batch", str(bundle)).stdout
    assert cli("analyze", str(bundle)).returncode in (0, 1, 3)


def test_a_disk_without_room_for_the_bundle_is_said_and_the_evidence_stays(tmp_path: Path) -> None:
    """If false, the disk that fills up in an incident would hide that the bundle is missing, or leave half of one."""
    limit = 48 << 10
    limited = ["prlimit", f"--fsize={limit}"]
    with rehearsal(tmp_path / "engine") as engine, watcher(tmp_path / "state", limited) as agent:
        root = engine.launcher.pid
        watching(agent, root)
        stop(engine.engine().ranks[1].id.pid)
        eventually(lambda: any("bundle" in said and f"_{root}_" in said for said in complaints(agent)), PACKED_WITHIN_S)

    assert homes(tmp_path / "state", engine.launcher.pid, "evidence/pass1-threads-*")
    assert all(
        cli("bundle", "verify", str(made)).returncode == 0 for made in homes(tmp_path / "state", root, bundling.NAME)
    )


def test_what_goes_away_while_it_is_weighed_is_left_out(tmp_path: Path) -> None:
    """If false, a file that is renamed into place or removed at the wrong moment ends the thread that packs bundles."""
    assert bundling.weight(tmp_path / "none") == 0
    (tmp_path / "evidence").mkdir()
    (tmp_path / "evidence" / "kept").write_bytes(b"x" * 300)
    (tmp_path / "verdict.json").write_bytes(b"x" * 7)
    (tmp_path / "gone").symlink_to(tmp_path / "nothing")

    assert bundling.weight(tmp_path) == 307


def complaints(agent: Watcher) -> tuple[str, ...]:
    """What the agent complains of."""
    found = agent.status
    return () if found is None else found.troubles
