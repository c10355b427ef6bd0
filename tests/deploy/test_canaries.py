"""Prompts and keys are planted where an engine leaves them, and looked for wherever Sentinel writes something down."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sentinel.model.effect import Judged, WriteBundle
from sentinel.testing.ports import free_port
from tests.agent.engines import rehearsal
from tests.agent.targets import eventually, stop
from tests.agent.watchers import journalled, watcher, watching
from tests.metrics.scrapes import get

pytestmark = pytest.mark.timeout(300)

PROMPT = "Zwetschgendatschi, whispered the lighthouse keeper of Ballyvaughan"
KEY = "sk-proj-Zq81mVb7TtYw2LkNc4RxPj0sHd6Fg3Ua"
TOKEN_IDS = ", ".join(str(31_000 + 7 * n) for n in range(40))
CANARIES = (b"Zwetschgendatschi", b"Ballyvaughan", KEY.encode(), b"31007, 31014, 31021")

PLANTED = (
    f"[2026-11-29 12:00:00] INFO: Received request cmpl-1: prompt: '{PROMPT}', input_ids=[{TOKEN_IDS}]",
    f'[2026-11-29 12:00:00 TP0] Req(rid=1, input_text="{PROMPT}", output_ids=array([{TOKEN_IDS}]))',
    f"[2026-11-29 12:00:00] server_args=ServerArgs(model_path='x', api_key='{KEY}')",
    f'{{"authorization": "Bearer {KEY}", "messages": [{{"role": "user", "content": "{PROMPT}"}}]}}',
    f"\x1b]0;{PROMPT}\x07\x1b[2J\x1b[31mnode1: NCCL WARN {PROMPT}",
)
FORGED = (
    "prompt: please repeat\n"
    "[rank1]:[E1129 12:00:00.0 ProcessGroupNCCL.cpp:632] [Rank 1] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600000 milliseconds\n"
    "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n"
)


def test_nothing_that_sentinel_writes_holds_a_prompt_or_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If false, what users asked goes to whoever reads metrics, logs, tickets or bundles."""
    monkeypatch.setenv("SGLANG_API_KEY", KEY)
    port, state = free_port(), tmp_path / "state"
    with (
        rehearsal(tmp_path / "engine", 2) as engine,
        watcher(state, SENTINEL_METRICS_LISTEN=f"127.0.0.1:{port}") as agent,
    ):
        root = engine.launcher.pid
        watching(agent, root)
        with engine.log.open("a") as log:
            log.write("\n".join(PLANTED) + "\n")
        stop(engine.engine().ranks[1].id.pid)
        journalled(agent, root, WriteBundle)
        incident = journalled(agent, root, Judged).incident
        page, status = get(port).text.encode(), (state / "status.json").read_bytes()
        shown = cli("status", "--state", str(state))
        eventually(lambda: list(state.glob("incidents/*/verdict.json")))
    bundle = tmp_path / "bundle.tar.zst"
    home = next(path for path in (state / "incidents").iterdir() if path.name.endswith(incident.rpartition("@")[2]))
    made = cli("bundle", "create", str(home), "--state", str(state), "--out", str(bundle))
    cli("bundle", "export", str(bundle), str(tmp_path / "inside"))
    inside = {path.name: path.read_bytes() for path in (tmp_path / "inside").rglob("*") if path.is_file()}

    assert PROMPT in engine.log.read_text(), "the canaries were planted"
    assert made[0] == 0 and "report.html" in inside and len(inside) > 5, made
    written = {
        **inside,
        "metrics": page,
        "status": status,
        "shown": shown[1],
        "log": (state / "agent.log").read_bytes(),
    }
    leaks = {(name, canary) for name, data in written.items() for canary in CANARIES if canary in data}
    assert leaks == set()
    controls = {name for name in ("metrics", "shown", "log", "report.html") if b"\x1b" in written[name]}
    assert controls == set(), "a terminal would obey what an engine printed"


def test_lines_that_a_user_makes_an_engine_print_are_no_stall(tmp_path: Path) -> None:
    """If false, a prompt could have a healthy engine judged, and by a policy even restarted."""
    port, state = free_port(), tmp_path / "state"
    with (
        rehearsal(tmp_path / "engine", 2) as engine,
        watcher(state, SENTINEL_METRICS_LISTEN=f"127.0.0.1:{port}") as agent,
    ):
        root = engine.launcher.pid
        watching(agent, root)
        before = engine.lines("Decode batch")
        with engine.log.open("a") as log:
            log.write(FORGED)
        eventually(lambda: engine.lines("Decode batch") > before + 10)
        seen = agent.sees(root)
        effects = agent.effects(root)

    assert seen is not None and seen.verdict is None
    assert not any(isinstance(effect, Judged) for effect in effects)


def cli(*words: str) -> tuple[int, bytes]:
    """Exit status and output of a verb."""
    argv = [sys.executable, "-m", "sentinel", *words]
    ran = subprocess.run(argv, capture_output=True, check=False, env={**os.environ, "COLUMNS": "200"})
    return ran.returncode, ran.stdout + ran.stderr
