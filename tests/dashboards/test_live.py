"""A real Prometheus and Alertmanager beside a real agent while a rank of a real engine is stopped."""

import contextlib
import http.client
import json
import os
import queue
import shutil
import signal
import struct
import subprocess
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml

from dashboards.build import FOLDER as BOARDS
from sentinel.agent import procfs
from sentinel.collectors.rowstore_page import MAGIC, PAGE_BYTES, VERSION
from sentinel.metrics.registry import COORDINATOR
from sentinel.testing.ports import free_port
from tests.agent.engines import Rehearsal, rehearsal
from tests.agent.targets import eventually, stop
from tests.agent.watchers import watcher, watching
from tests.dashboards.promql import SERIES, filled, selectors
from tests.dashboards.test_boards import expressions
from tests.dashboards.test_rules import ALERTS, RECORDED, RULES
from tests.tidy.sources import ROOT

OF_GROUPS = {sample for metric in COORDINATOR for sample in metric.samples}
NEEDED = ("prometheus", "prometheus-alertmanager")
pytestmark = [
    pytest.mark.timeout(420),
    pytest.mark.skipif(
        any(shutil.which(name) is None for name in NEEDED),
        reason="needs Prometheus and Alertmanager (Debian packages prometheus and prometheus-alertmanager)",
    ),
]


@contextlib.contextmanager
def service(folder: Path, *argv: str) -> Iterator[None]:
    """A daemon that is ended with the block."""
    with (folder / f"{argv[0]}.log").open("wb") as log:
        child = subprocess.Popen(argv, cwd=folder, stdout=log, stderr=log)
    try:
        yield
    finally:
        child.terminate()
        child.wait(timeout=30)


@dataclass(frozen=True)
class Monitoring:
    """Where Prometheus answers, and what its alerts brought to the pager and to the dead man."""

    port: int
    pages: "queue.SimpleQueue[tuple[str, dict[str, Any]]]"

    def ask(self, path: str) -> Any:
        """An answer of Prometheus' API; None while it is not up."""
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            client.request("GET", f"/api/v1/{path}")
            return json.loads(client.getresponse().read())["data"]
        except (OSError, ValueError):
            return None
        finally:
            client.close()

    def result(self, expression: str) -> list[dict[str, Any]]:
        """What an expression gives now."""
        found = self.ask(f"query?query={quote(expression)}")
        return [] if found is None else list(found["result"])


@contextlib.contextmanager
def monitoring(folder: Path, agent_port: int) -> Iterator[Monitoring]:
    """The example configurations as they ship, with this test's addresses and shorter intervals."""
    pages: queue.SimpleQueue[tuple[str, dict[str, Any]]] = queue.SimpleQueue()
    with receiver(pages) as hook:
        own, alerts = free_port(), free_port()
        shutil.copytree(ROOT / "dashboards" / "rules", folder / "rules")
        text = (ROOT / "dashboards" / "prometheus.example.yaml").read_text().replace("15s", "1s")
        text = text.replace("127.0.0.1:9469", f"127.0.0.1:{agent_port}").replace(
            "127.0.0.1:9093", f"127.0.0.1:{alerts}"
        )
        (folder / "prometheus.yaml").write_text(text)
        text = (
            (ROOT / "dashboards" / "alertmanager.example.yaml").read_text().replace("group_wait: 10s", "group_wait: 0s")
        )
        (folder / "alertmanager.yaml").write_text(text.replace("127.0.0.1:9/", f"127.0.0.1:{hook}/"))
        with (
            service(folder, "prometheus-alertmanager", "--config.file=alertmanager.yaml", "--storage.path=am",
                    f"--web.listen-address=127.0.0.1:{alerts}", "--cluster.listen-address="),
            service(folder, "prometheus", "--config.file=prometheus.yaml", "--storage.tsdb.path=tsdb",
                    f"--web.listen-address=127.0.0.1:{own}"),
        ):  # fmt: skip
            yield Monitoring(own, pages)


@contextlib.contextmanager
def receiver(pages: "queue.SimpleQueue[tuple[str, dict[str, Any]]]") -> Iterator[int]:
    """A webhook that keeps what Alertmanager posts."""

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            for alert in body["alerts"]:
                pages.put((self.path, alert))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
            del format, args

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


def row_store_page(folder: Path, pid: int) -> None:
    """What the row store of a rank would show: RAM mode, nothing in flight. Layout: collectors/rowstore_page."""
    identity = procfs.identity(pid)
    assert identity is not None
    header = struct.pack(
        "<8s6I6Q7I",
        MAGIC,
        VERSION,
        PAGE_BYTES,
        pid,
        0,
        2,
        0,
        identity[0].started_ticks,
        0,
        0,
        0,
        1,
        1,
        2,
        2,
        0,
        0,
        0,
        0,
        0,
    )
    (folder / "rank0").write_bytes(header.ljust(PAGE_BYTES, b"\0"))


def own_queries(*, of_groups: bool) -> dict[str, str]:
    """Every expression of boards and recording rules that asks only for what we expose, as it would be sent.

    `of_groups`: those that ask for a series of the coordinator, or those that do not.
    """
    boards = (json.loads(path.read_text()) for path in sorted(BOARDS.iterdir()))
    found = [
        *(rule["expr"] for rule in RULES if "record" in rule),
        *(e for board in boards for e in expressions(board)),
    ]
    asked = {expression: {selector.name for selector in selectors(filled(expression))} for expression in found}
    return {
        expression: filled(expression)
        for expression, names in asked.items()
        if names <= SERIES.keys() | RECORDED
        and bool(names & OF_GROUPS) == of_groups
        and not any(name.startswith("gpu:") for name in RECORDED if name in expression)
    }


def wait_for(monitored: Monitoring, path: str, alert: str, engine: str) -> Mapping[str, Any]:
    """The alert on an engine as it reached a receiver; the agent sees other engines of the host too."""

    def came() -> bool:
        try:
            receiver, page = monitored.pages.get_nowait()
        except queue.Empty:
            return False
        found.append((receiver, page))
        labels = page["labels"]
        return receiver == path and labels["alertname"] == alert and labels.get("engine") == engine

    found: list[tuple[str, dict[str, Any]]] = []
    eventually(came, within_s=120.0)
    return found[-1][1]


def test_every_query_has_data_and_the_alert_reaches_the_pager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """False: on the night of the incident a board is empty or nobody is called."""
    port, engine_port = free_port(), str(free_port())
    runtime, rules = tmp_path / "runtime", tmp_path / "prometheus"
    runtime.mkdir()
    rules.mkdir()
    monkeypatch.setenv("SENTINEL_ENGINE_RUNTIME", str(runtime))
    settings = {"SENTINEL_METRICS_LISTEN": f"127.0.0.1:{port}"}
    with (
        rehearsal(tmp_path / "engine", 2, "--port", engine_port) as engine,
        watcher(tmp_path / "state", **settings) as agent,
        monitoring(rules, port) as monitored,
    ):
        watching(agent, engine.launcher.pid)
        row_store_page(runtime, engine.engine().ranks[0].id.pid)
        name = f"packaged:{engine_port}"
        eventually(lambda: monitored.result(f'sentinel_store_mode{{engine="{name}", mode="ram"}}'))
        first_incident_ends(monitored, engine, name)
        stop(engine.engine().ranks[1].id.pid)
        eventually(lambda: monitored.result(f'sentinel_stall_active{{engine="{name}", cause="hang.stopped"}} == 1'))
        page = wait_for(monitored, "/pager", "SentinelEngineStalled", name)
        empty = [written for written, sent in own_queries(of_groups=False).items() if not monitored.result(sent)]
        loaded = {rule["name"] for group in monitored.ask("rules")["groups"] for rule in group["rules"]}

    assert len(own_queries(of_groups=False)) > 50
    assert empty == []
    assert name in page["annotations"]["summary"]
    assert loaded == ALERTS.keys() | RECORDED


def first_incident_ends(monitored: Monitoring, engine: Rehearsal, name: str) -> None:
    """One stall that is over, so that what counts endings and durations has something to count."""
    rank = engine.engine().ranks[1].id.pid
    stop(rank)
    eventually(lambda: monitored.result(f'sentinel_engine_phase{{engine="{name}", phase="judged"}} == 1'))
    os.kill(rank, signal.SIGCONT)
    eventually(lambda: monitored.result("increase(sentinel_recoveries_total[1m]) > 0"))


@pytest.mark.skipif(shutil.which("amtool") is None, reason="needs amtool")
def test_the_examples_are_valid() -> None:
    """False: the first thing that an operator copies is refused."""
    folder = ROOT / "dashboards"
    for argv in (
        ["promtool", "check", "config", "prometheus.example.yaml"],
        ["amtool", "check-config", "alertmanager.example.yaml"],
    ):
        ran = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr
    routes = yaml.safe_load((folder / "alertmanager.example.yaml").read_text())["route"]["routes"]
    assert "SentinelDeadMansSwitch" in routes[0]["matchers"][0]
