"""The API over TCP: who may look, who may order, and what becomes of those who may not. Real sockets throughout."""

import contextlib
import http.client
import json
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from sentinel.agent.loop import AgentLoop
from sentinel.bus.embedded import EmbeddedBus
from sentinel.config import Config, Folders, Metrics
from sentinel.coordinator.access import BAD_BURST, BAD_EVERY_S, FILE_BYTES_MAX, TOLD_BURST, Tokens, TokensError
from sentinel.coordinator.api import OPEN_MAX, Api, on_port
from sentinel.coordinator.asking import notices
from sentinel.coordinator.embed import coordinating
from sentinel.groups import Coordination, Coordinator, Group, GroupError, coordination
from sentinel.plumbing.clock import Clock, SystemClock
from sentinel.testing.ports import free_port
from sentinel.testing.virtual import VirtualClock
from tests.agent.targets import eventually
from tests.coordination.cluster_world import RULES
from tests.coordination.led import answering

WITHIN_S = 30.0
OPERATOR, VIEWER = "operator-" + "o" * 32, "viewer-" + "v" * 32
PAUSE = {"verb": "pause", "seconds": 60.0, "reason": "test"}


def written(folder: Path, *lines: str, mode: int = 0o640) -> Path:
    """A file of tokens."""
    path = folder / "api.tokens"
    path.write_text("# who may ask\n" + "".join(f"{line}\n" for line in lines))
    path.chmod(mode)
    return path


def both(folder: Path) -> Path:
    """A file with one of each role."""
    return written(folder, f"operator alice {OPERATOR}", f"viewer bob {VIEWER}")


@dataclass
class Client:
    """One request at a time."""

    port: int
    bus: EmbeddedBus

    def call(
        self, method: str, where: str, token: str = "", body: object = None, **headers: str
    ) -> tuple[int, Any, "http.client.HTTPResponse"]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WITHIN_S)
        given = {"Content-Type": "application/json", **headers}
        if token:
            given["Authorization"] = f"Bearer {token}"
        try:
            connection.request(method, where, None if body is None else json.dumps(body), given)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"null"), answer
        finally:
            connection.close()

    def told(self) -> list[str]:
        """Everything that was kept about refusals."""
        return [told.words for told in notices(self.bus) if told.what == "api_refused"]


@contextlib.contextmanager
def served(folder: Path, clock: Clock, **settings: Any) -> Iterator[Client]:
    """The API on a port of the kernel's choice."""
    bus = EmbeddedBus(folder / "bus")
    given = Coordinator(listen="127.0.0.1:0", **settings)
    with on_port(Api(bus, clock, "nobody"), given) as port:
        yield Client(port, bus)
    bus.close()


def test_a_viewer_looks_an_operator_orders_and_nobody_else_does_anything(tmp_path: Path) -> None:
    """False: whoever reaches the port can restart engines, or an order is kept under no name."""
    with (
        capture_logs() as logged,
        served(tmp_path, SystemClock(), tokens_file=str(both(tmp_path))) as client,
        answering(client.bus),
    ):
        status, _, answer = client.call("GET", "/v1/state")
        assert (status, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
        assert client.call("GET", "/v1/state", "x" * 40)[0] == 401
        assert client.call("GET", "/v1/state", OPERATOR[:-1])[0] == 401
        assert client.call("GET", "/v1/state", Authorization=f"Basic {OPERATOR}")[0] == 401
        assert client.call("POST", "/v1/orders", "", PAUSE)[0] == 401
        assert client.call("GET", "/v1/state", VIEWER)[0] == 200
        assert client.call("POST", "/v1/orders", VIEWER, PAUSE)[0] == 403
        assert client.call("GET", "/v1/state", VIEWER)[1].get("paused_why", "") == ""
        assert client.call("POST", "/v1/orders", OPERATOR, PAUSE)[0] == 200
        state = client.call("GET", "/v1/state", OPERATOR)[1]
        refused, kept = client.told(), [told.words for told in notices(client.bus)]

    assert "alice (operator over the API)" in state["paused_why"]
    assert any("alice (operator over the API)" in words for words in kept)
    assert [words for words in refused if words.startswith("bob is a viewer")] == [
        "bob is a viewer and asked for POST /v1/orders"
    ]
    assert sum("without a right token" in words for words in refused) == 5
    everything = json.dumps(logged, default=str) + msgspec.json.encode(kept).decode()
    assert OPERATOR[:-1] not in everything and VIEWER not in everything and "x" * 40 not in everything


def test_wrong_tries_are_bounded_and_lock_nobody_out(tmp_path: Path) -> None:
    """False: a script with an old token fills the log of notices, or keeps the operators out in an incident."""
    clock = VirtualClock()
    with served(tmp_path, clock, tokens_file=str(both(tmp_path))) as client:
        answers = [client.call("GET", "/v1/state", "wrong" * 8)[0] for _ in range(BAD_BURST + 20)]
        told = client.told()
        assert client.call("GET", "/v1/state", OPERATOR)[0] == 200
        assert client.call("GET", "/v1/state", "wrong" * 8)[2].headers["Retry-After"] == str(int(BAD_EVERY_S))
        clock.run_until(clock.now().mono_s + BAD_EVERY_S + 0.1)
        later = [client.call("GET", "/v1/state", "wrong" * 8)[0] for _ in range(3)]

    assert answers == [401] * BAD_BURST + [429] * 20
    assert len(told) == BAD_BURST + 1 and "more of it is not told" in told[-1]
    assert later == [401, 429, 429]


def test_refusals_do_not_push_incidents_out_of_the_log(tmp_path: Path) -> None:
    """False: a viewer, or somebody without a token and with patience, makes the notices of an incident vanish."""
    clock = VirtualClock()
    with served(tmp_path, clock, tokens_file=str(both(tmp_path))) as client:
        assert [client.call("POST", "/v1/orders", VIEWER, PAUSE)[0] for _ in range(TOLD_BURST + 5)] == [403] * 25
        told = client.told()
        for minute in range(1, 61):
            clock.run_until(60.0 * minute)
            assert client.call("GET", "/v1/state", "wrong" * 8)[0] == 401
        later = client.told()

    assert len(told) == TOLD_BURST and "less often" in told[-1]
    assert len(later) - len(told) <= 6


def test_silence_keeps_nobody_out(tmp_path: Path) -> None:
    """False: a few connections that never ask, without any token, take the API from the operators in an incident."""
    with served(tmp_path, SystemClock(), tokens_file=str(both(tmp_path))) as client, contextlib.ExitStack() as stack:
        silent = [
            stack.enter_context(socket.create_connection(("127.0.0.1", client.port), timeout=WITHIN_S))
            for _ in range(OPEN_MAX + 8)
        ]
        with contextlib.suppress(ConnectionError):
            for number, one in enumerate(silent):
                one.sendall(b"GET /v1/state HTTP/1.1\r\n"[: 24 * (number % 2)])
        for one in silent:
            with contextlib.suppress(ConnectionError):
                assert one.recv(1) == b"", "shown out without a word"
        status, _, answer = client.call("GET", "/v1/state", OPERATOR)
        refused = client.call("GET", "/v1/state")[2]

    assert (status, answer.headers["Connection"], refused.headers["Connection"]) == (200, "close", "close")


def test_a_token_that_is_taken_out_of_the_file_is_out_at_once(tmp_path: Path) -> None:
    """False: somebody who has left the site can order restarts until the next upgrade."""
    path = both(tmp_path)
    with capture_logs() as logged, served(tmp_path, SystemClock(), tokens_file=str(path)) as client:
        assert client.call("GET", "/v1/state", VIEWER)[0] == 200
        written(tmp_path, f"operator alice {OPERATOR}")
        assert [client.call("GET", "/v1/state", token)[0] for token in (VIEWER, OPERATOR)] == [401, 200]
        path.chmod(0o644)
        assert client.call("GET", "/v1/state", OPERATOR)[0] == 401
        path.chmod(0o600)
        assert client.call("GET", "/v1/state", OPERATOR)[0] == 200
        path.unlink()
        assert client.call("GET", "/v1/state", OPERATOR)[0] == 401

    why = [entry["why"] for entry in logged if entry["event"] == "api_tokens_unusable"]
    assert len(why) == 2 and "chmod 0640" in why[0]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("", "holds no token"),
        ("operator alice short", "needs 32 to 256 characters"),
        (f"admin alice {OPERATOR}", "line 2 is not"),
        (f"operator {OPERATOR}", "line 2 is not"),
        (f"operator a {OPERATOR}\nviewer b {OPERATOR}", "line 3 repeats"),
        (f"operator a/../b {OPERATOR}", "line 2 is not"),
        (f"{'#' * FILE_BYTES_MAX}\noperator a {OPERATOR}", "is longer than"),
    ],
)
def test_a_file_that_says_something_else_is_refused_and_not_quoted(tmp_path: Path, line: str, complaint: str) -> None:
    """False: a typing mistake makes a token that is easy to guess, or puts one into the log."""
    with pytest.raises(TokensError, match=complaint) as told:
        Tokens(written(tmp_path, line))
    assert OPERATOR not in str(told.value) and "short" not in str(told.value)


@pytest.mark.parametrize("mode", [0o644, 0o606, 0o660])
def test_a_file_that_others_may_read_or_change_is_refused(tmp_path: Path, mode: int) -> None:
    """False: every user of the host can read or add a token."""
    with pytest.raises(TokensError, match="chmod 0640"):
        Tokens(written(tmp_path, f"operator alice {OPERATOR}", mode=mode))


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"listen": "127.0.0.1:9471"}, "needs coordinator.tokens_file"),
        ({"listen": "9471", "tokens_file": "t"}, "is not HOST:PORT"),
        ({"listen": "0.0.0.0:9471", "tokens_file": "t"}, "is not loopback"),
        ({"listen": "0.0.0.0:9471", "tokens_file": "t", "beyond_loopback": True}, "needs coordinator.certificate_file"),
        ({"key_file": "k"}, "belong together"),
    ],
)
def test_an_api_that_would_be_open_to_all_is_refused(settings: dict[str, Any], complaint: str) -> None:
    """False: one line of configuration lets the network restart engines."""
    with pytest.raises(GroupError, match=complaint):
        coordination({"coordinator": settings})


def test_beyond_loopback_is_possible_and_has_to_be_said() -> None:
    """False: a site with a management network has to give up the API or its protection."""
    found = coordination({
        "coordinator": {"listen": "[::]:9471", "tokens_file": "t", "beyond_loopback": True, "certificate_file": "c",
                        "key_file": "k"}
    })  # fmt: skip
    assert found.coordinator.beyond_loopback


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make a certificate")
def test_with_a_certificate_the_api_speaks_nothing_but_tls(tmp_path: Path) -> None:
    """False: tokens travel readable over a network."""
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-keyout", key, "-out", certificate, "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"],
        check=True, capture_output=True,
    )  # fmt: skip
    files = {"certificate_file": str(certificate), "key_file": str(key), "tokens_file": str(both(tmp_path))}
    trusting = ssl.create_default_context(cafile=str(certificate))
    older = ssl.create_default_context(cafile=str(certificate))
    older.maximum_version = ssl.TLSVersion.TLSv1_2
    with served(tmp_path, SystemClock(), **files) as client:
        over_tls = http.client.HTTPSConnection("localhost", client.port, timeout=WITHIN_S, context=trusting)
        over_tls.request("GET", "/v1/state", headers={"Authorization": f"bearer {VIEWER}"})
        assert over_tls.getresponse().status == 200
        over_tls.close()
        with pytest.raises((OSError, http.client.HTTPException)):
            client.call("GET", "/v1/state", VIEWER)
        with pytest.raises(ssl.SSLError):
            http.client.HTTPSConnection("localhost", client.port, timeout=WITHIN_S, context=older).request("GET", "/")


def test_the_watch_serves_it_and_goes_on_without_it(tmp_path: Path) -> None:
    """False: the configured API is not there, or a port in use keeps the host from being watched."""
    state, port = tmp_path / "state", free_port()
    config = Config(folders=Folders(state=str(state)), metrics=Metrics(listen=""))
    settings = Coordinator(listen=f"127.0.0.1:{port}", tokens_file=str(both(tmp_path)))
    groups = Coordination(groups={"chat": Group()}, coordinator=settings)
    loop = AgentLoop(config, RULES, SystemClock())
    with coordinating(loop, groups, RULES) as together:
        assert together is not None
        eventually(lambda: together.leader.leading)
        client = Client(port, together.bus)
        assert client.call("POST", "/v1/orders", OPERATOR, PAUSE)[0] == 200
    with (
        socket.create_server(("127.0.0.1", port)),
        capture_logs() as logged,
        coordinating(loop, groups, RULES) as together,
    ):
        assert together is not None
    loop.close()

    assert [e["event"] for e in logged if e["log_level"] == "error"] == ["api_unavailable"]
