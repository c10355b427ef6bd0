"""A real Prometheus beside a real coordinator that brings a hung group back."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from sentinel.agent.discovery import NAME_MARK
from sentinel.testing.life import ask
from sentinel.testing.ports import free_port
from sentinel.testing.rehearsal.clients import coming_back
from tests.agent.engines import NAME
from tests.agent.targets import eventually
from tests.dashboards.test_live import NEEDED, Monitoring, monitoring, own_queries

pytestmark = [
    pytest.mark.timeout(420),
    pytest.mark.skipif(
        any(shutil.which(name) is None for name in NEEDED),
        reason="needs Prometheus and Alertmanager (Debian packages prometheus and prometheus-alertmanager)",
    ),
]
SCALE = 5.0
OWNER = (sys.executable, "-m", "sentinel.testing.rehearsal.detached")
WITHIN_S = 150.0


@contextlib.contextmanager
def engine(folder: Path, start: tuple[str, ...], stop: tuple[str, ...]) -> Iterator[None]:
    """The group's engine, with clients on every incarnation of it."""
    subprocess.run(start, check=True, timeout=60, env={**os.environ, NAME_MARK: NAME})
    try:
        with coming_back(folder, 8):
            yield
    finally:
        subprocess.run(stop, check=False, timeout=60)


def sentinel(config: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """A verb of the command line."""
    argv = [sys.executable, "-m", "sentinel", *words, "--config", str(config)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


@contextlib.contextmanager
def watch(config: Path, log: Path) -> Iterator[None]:
    """`sentinel watch` of this test's engine, also of the one that it starts itself; ended with the block."""
    with log.open("ab") as file:
        argv = [sys.executable, "-m", "sentinel", "watch", "--only-named", NAME, "--config", str(config)]
        process = subprocess.Popen(argv, stdout=file, stderr=file, env={**os.environ, NAME_MARK: NAME})
    try:
        yield
    finally:
        process.kill()
        process.wait()


def counted(monitored: Monitoring, expression: str) -> float:
    """The value of an expression; 0 without one."""
    found = monitored.result(expression)
    return float(found[0]["value"][1]) if found else 0.0


def test_every_query_about_groups_has_data_after_a_restart_by_itself(tmp_path: Path) -> None:
    """False: the boards of those who let Sentinel act are empty, and nobody sees what it did."""
    port, engine_port, home = free_port(), free_port(), tmp_path / "engine"
    start = (*OWNER, "start", "--folder", str(home), "--ranks", "2", "--port", str(engine_port), "--step-s", "0.005",
             "--watchdog-timeout", "60")  # fmt: skip
    stop = (*OWNER, "stop", "--folder", str(home))
    owner = {"kind": "command", "start": list(start), "stop": list(stop)}
    config = tmp_path / "sentinel.yaml"
    config.write_text(yaml.safe_dump({
        "timing": {"time_scale": SCALE, "capture_budget_s": 20.0 * SCALE},
        "folders": {"state": str(tmp_path / "state")},
        "metrics": {"listen": f"127.0.0.1:{port}"},
        "groups": {"chat": {"hosts": ["here"], "port": engine_port, "supervisor": owner, "term_s": 3.0}},
        "policy": {"mode": "auto", "hold_s": 60.0},
        "coordinator": {"host": "here"},
    }))  # fmt: skip
    rules = tmp_path / "prometheus"
    rules.mkdir()
    with (
        engine(home, start, stop),
        watch(config, tmp_path / "watch.log"),
        monitoring(rules, port) as monitored,
    ):
        eventually(lambda: counted(monitored, "sentinel_coordinator_leader") == 1, WITHIN_S)
        eventually(lambda: counted(monitored, 'sentinel_nodes{state="healthy"}') == 1, WITHIN_S)
        eventually(lambda: counted(monitored, 'sentinel_engine_state{state="working"}') == 1, WITHIN_S)
        eventually(lambda: counted(monitored, "time() - sentinel_agent_start_timestamp_seconds") > 40 / SCALE, WITHIN_S)
        ask(home / (home / "current").read_text() / "fault.1", "deadlock")
        eventually(lambda: counted(monitored, "sentinel_group_incident_duration_seconds_count") >= 1, WITHIN_S)
        (incident,) = json.loads(sentinel(config, "incidents", "--json").stdout)
        told = sentinel(config, "verdict", incident["incident"], "confirmed", "--reason", "test")
        eventually(
            lambda: counted(monitored, 'sentinel_verdict_feedback_total{verdict="confirmed"}') == 1 or told.returncode,
            WITHIN_S,
        )
        queries = own_queries(of_groups=True)
        empty = [written for written, sent in queries.items() if not monitored.result(sent)]
        restarts = counted(monitored, 'sentinel_restarts_total{group="chat", reason="hang"}')
        stops = counted(monitored, 'sentinel_restart_phase_duration_seconds_count{phase="stop"}')

    assert told.returncode == 0, told.stdout + told.stderr
    assert len(queries) > 25 and empty == []
    assert restarts == 1 and stops == 1
