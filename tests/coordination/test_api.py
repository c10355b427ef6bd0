"""The local API, asked over its real socket."""

import http.client
import json
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sentinel.bus.embedded import EmbeddedBus
from sentinel.coordinator.api import Api, on_socket
from sentinel.coordinator.names import NOTICES
from sentinel.model.cluster import Told
from sentinel.plumbing.clock import SystemClock
from tests.coordination.led import answering

WITHIN_S = 30.0


class OverSocket(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=WITHIN_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(WITHIN_S)
        self.sock.connect(str(self._path))


class Client:
    """One request at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def call(self, method: str, where: str, body: str | None = None, kind: str = "application/json") -> tuple[int, str]:
        connection = OverSocket(self.path)
        connection.request(method, where, body, {"Content-Type": kind})
        answer = connection.getresponse()
        text = answer.read().decode()
        assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
        connection.close()
        return answer.status, text

    def order(self, **fields: Any) -> tuple[int, Any]:
        status, text = self.call("POST", "/v1/orders", json.dumps(fields))
        return status, json.loads(text)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    """An API over a bus whose coordinator turns."""
    bus, clock = EmbeddedBus(tmp_path / "bus"), SystemClock()
    told = Told(what="verdict", key="k", severity="critical", words="<script>alert(1)</script>\x1b[2J", group="chat",
                incident="chat-1.1")  # fmt: skip
    bus.append(NOTICES, msgspec.json.encode(told), told.key)
    with answering(bus), on_socket(Api(bus, clock, "tester"), tmp_path / "api.sock"):
        yield Client(tmp_path / "api.sock")
    bus.close()


def test_an_order_is_answered_with_its_plan_or_the_reasons(client: Client) -> None:
    """False: a script believes that a restart was begun which policy refused."""
    assert client.order(verb="pause", seconds=60, reason="test")[0] == 200
    status, told = client.order(verb="restart", group="chat", reason="test", dry_run=True)
    assert status == 403 and any("no agent has reported" in line for line in told["says"])
    assert client.order(verb="restart", group="chat", reason="")[0] == 403
    state = json.loads(client.call("GET", "/v1/state")[1])
    assert "tester" in state["paused_why"]


def test_what_is_not_an_order_is_refused(client: Client) -> None:
    """False: a forged form of a web page, a huge body or an unknown field reaches the coordinator."""
    assert client.order(verb="reboot", reason="x")[0] == 400
    assert client.order(verb="pause", reason="x", shell="rm")[0] == 400
    assert client.call("POST", "/v1/orders", "{}", kind="text/plain")[0] == 415
    assert client.call("POST", "/v1/orders", " " * 20_000)[0] == 413


def test_an_incident_is_a_page_in_which_nothing_of_the_evidence_is_obeyed(client: Client) -> None:
    """False: a log line runs as a script in the browser of whoever is on call."""
    status, page = client.call("GET", "/incidents/chat-1.1")
    assert status == 200 and "&lt;script&gt;" in page and "<script>" not in page and "\x1b" not in page
    assert client.call("GET", "/incidents/none")[0] == 404
    assert json.loads(client.call("GET", "/v1/incidents/chat-1.1")[1])[0]["what"] == "verdict"


def test_only_the_owner_can_open_the_socket(client: Client) -> None:
    """False: every user of the box can restart engines."""
    assert stat.S_IMODE(client.path.stat().st_mode) == 0o600
