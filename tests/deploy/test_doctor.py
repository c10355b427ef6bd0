"""The doctor: it finds what is wrong, says how to repair it, and is content where nothing is."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner

from sentinel.cli import sentinel
from sentinel.config import Config, Folders, Metrics
from sentinel.deploy.doctor import CHECKS, Case, Finding, examine
from sentinel.testing.ports import free_port
from tests.agent.engines import rehearsal
from tests.agent.targets import eventually, now
from tests.agent.watchers import watcher, watching

pytestmark = pytest.mark.timeout(300)


def found(findings: Iterator[Finding] | list[Finding], check: str) -> Finding:
    return next(finding for finding in findings if finding.check == check)


@pytest.fixture
def service() -> Iterator[str]:
    """What Prometheus and Alertmanager answer, with and without our rules and route."""
    pages = {
        "/api/v1/rules": b'{"data":{"groups":[{"rules":[{"name":"SentinelDeadMansSwitch"}]}]}}',
        "/api/v2/status": b'{"config":{"original":"route: {matchers: [alertname = SentinelDeadMansSwitch]}"}}',
        "/bare/api/v1/rules": b'{"data":{"groups":[]}}',
        "/bare/api/v2/status": b'{"config":{"original":"route: {}"}}',
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = pages.get(self.path, b"")
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
            del format, args

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_a_watched_engine_is_found_and_what_is_missing_is_named(tmp_path: Path, service: str) -> None:
    """If false, the operator learns in the incident that there is no evidence."""
    port = free_port()
    state = tmp_path / "state"
    with (
        rehearsal(tmp_path / "engine", 2, "--watchdog-timeout", "30") as engine,
        watcher(state, SENTINEL_METRICS_LISTEN=f"127.0.0.1:{port}") as agent,
    ):
        watching(agent, engine.launcher.pid)
        eventually(lambda: agent.status is not None and agent.status.readiness)
        ran = subprocess.run(
            [sys.executable, "-m", "sentinel", "doctor", "--json", "--state", str(state), "--prometheus", service,
             "--alertmanager", service],
            capture_output=True, text=True, check=False,
            env={**os.environ, "SENTINEL_METRICS_LISTEN": f"127.0.0.1:{port}"},
        )  # fmt: skip
    told = json.loads(ran.stdout)
    findings = [Finding(**finding) for finding in told["findings"]]

    assert found(findings, "agent").state == "ok" and found(findings, "metrics").says.startswith("the loop turned")
    assert (
        found(findings, "engine watchdog").state == "warn"
        and "ends itself after 30 s" in found(findings, "engine watchdog").says
    )
    assert any(finding.check == "evidence" and "flight recorder" in finding.says for finding in findings)
    assert found(findings, "ptrace").state == "ok" and "ms" in found(findings, "ptrace").says
    assert found(findings, "rules loaded").state == "ok" and found(findings, "dead man").state == "ok"
    assert all(finding.fix for finding in findings if finding.state in ("warn", "fail"))
    assert (ran.returncode == 0) == told["ok"]


def test_a_host_without_an_agent_or_rules_fails_with_the_repair(tmp_path: Path, service: str) -> None:
    """If false, the doctor calls a blind host healthy."""
    config = Config(folders=Folders(state=str(tmp_path)), metrics=Metrics(listen=f"127.0.0.1:{free_port()}"))
    bare = f"{service}/bare"
    findings = list(examine(Case(config=config, now=now(), prometheus=bare, alertmanager=bare)))

    for check in ("agent", "metrics", "rules loaded", "dead man"):
        assert found(findings, check).state == "fail" and found(findings, check).fix, check
    assert {finding.check for finding in findings} >= {
        "clock",
        "disk",
        "kernel log",
        "NVML",
        "NCCL RAS",
        "daemon-reload",
        "yama",
    }
    assert len(findings) >= len(CHECKS)


def test_a_broken_configuration_is_the_first_thing_that_is_said(tmp_path: Path) -> None:
    """If false, every other check is about a configuration that is not in force."""
    (tmp_path / "sentinel.yaml").write_text("timing: {silence_flor_s: 3}")
    shown = CliRunner().invoke(sentinel, ["doctor", "--config", str(tmp_path / "sentinel.yaml")])

    assert shown.exit_code == 1 and "did you mean silence_floor_s" in shown.output


@pytest.mark.parametrize("address", ["file:///etc/passwd", "127.0.0.1:9090", "http://127.0.0.1:1"])
def test_an_address_that_does_not_answer_is_said(tmp_path: Path, address: str) -> None:
    """If false, a mistyped address looks like missing rules, or opens a local file."""
    config = Config(folders=Folders(state=str(tmp_path)), metrics=Metrics(listen=""))
    finding = found(examine(Case(config=config, now=now(), prometheus=address)), "rules loaded")

    assert finding.state == "fail" and address in finding.says
