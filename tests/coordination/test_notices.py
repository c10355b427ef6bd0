"""Telling people: once, bounded, and without giving the address away."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from sentinel.bus.memory import MemoryBus
from sentinel.coordinator.names import NOTICES
from sentinel.coordinator.notices import QUEUE_MAX, Notifier, alertmanager, post
from sentinel.groups import Coordinator, Notify
from sentinel.model.cluster import Severity, Told


class Place(ThreadingHTTPServer):
    """A receiver on loopback; `refuse` requests are answered 500 first."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Receiver)
        self.got: list[Any] = []
        self.asked = 0
        self.refuse = 0
        self.moved = ""
        self.changed = threading.Condition()

    def wait_for(self, count: int) -> bool:
        with self.changed:
            return self.changed.wait_for(lambda: len(self.got) >= count, timeout=20)


class _Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        place = self.server
        assert isinstance(place, Place)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with place.changed:
            place.asked += 1
            if place.moved:
                self.send_response(302)
                self.send_header("Location", place.moved)
                self.end_headers()
            elif place.asked <= place.refuse:
                self.send_error(500)
            else:
                place.got.append(json.loads(body))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()
            place.changed.notify_all()

    def log_message(self, *_: object) -> None:
        """A test's output is not a log."""


@pytest.fixture
def place() -> Iterator[Place]:
    server = Place()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def address(place: Place, folder: Path) -> str:
    path = folder / "address"
    path.write_text(f"http://127.0.0.1:{place.server_port}/hook/sEcReT\n")
    return str(path)


def told(key: str, what: str = "verdict", severity: Severity = "critical") -> Told:
    return Told(
        what=what, key=key, severity=severity, words="rank 1 <hangs> & waits", group="chat", incident="chat-1.1"
    )


def put(bus: MemoryBus, notice: Told) -> None:
    bus.append(NOTICES, msgspec.json.encode(notice), notice.key)


@pytest.mark.parametrize("kind", ["webhook", "slack", "alertmanager"])
def test_each_change_is_told_once_even_after_a_restart(place: Place, tmp_path: Path, kind: str) -> None:
    """False: people are woken twice for one thing and learn to ignore it."""
    bus = MemoryBus()
    where = Notify(kind=kind, url_file=address(place, tmp_path))  # type: ignore[arg-type]
    first = Notifier(bus, Coordinator(notify=(where,)))
    put(bus, told("a"))
    put(bus, told("a"))
    put(bus, told("small", severity="info"))
    first.turn(0.0)
    assert place.wait_for(1)
    first.close()
    second = Notifier(bus, Coordinator(notify=(where,)))
    put(bus, told("b", what="closed", severity="info"))
    second.turn(1.0)
    assert place.wait_for(2)
    second.close()

    assert len(place.got) == 2 and second.failed == 0
    text = json.dumps(place.got[0])
    assert "chat" in text and ("&lt;hangs&gt;" in text) == (kind == "slack")


def test_retries_are_bounded_and_secrets_stay_out_of_the_log(place: Place, tmp_path: Path) -> None:
    """False: a dead receiver is called for ever, and the address of the webhook can be read in the journal."""
    place.refuse = 100
    bus = MemoryBus()
    where = Notify(kind="webhook", url_file=address(place, tmp_path))
    notifier = Notifier(bus, Coordinator(notify=(where,)), tries=3, backoff_s=0.01)
    put(bus, told("a"))
    with capture_logs() as logs:
        notifier.turn(0.0)
        notifier.close()

    assert place.asked == 3 and notifier.failed == 1
    assert "sEcReT" not in repr(logs) and any(log["event"] == "notice_not_sent" for log in logs)


def test_a_receiver_that_is_away_does_not_keep_the_process_from_ending(place: Place, tmp_path: Path) -> None:
    """False: with a full queue a stopped agent hangs until systemd kills it, in the middle of what else it closes."""
    place.refuse = 10_000
    bus = MemoryBus()
    where = Notify(kind="webhook", url_file=address(place, tmp_path))
    notifier = Notifier(bus, Coordinator(notify=(where,)), backoff_s=3600.0)
    for number in range(QUEUE_MAX + 10):
        put(bus, told(f"{number}"))
    while notifier.failed == 0:
        notifier.turn(0.0)
    notifier.close()

    assert place.asked == 1


def test_a_redirect_is_not_followed(place: Place, tmp_path: Path) -> None:
    """False: whoever controls the receiver can send our incidents, and our requests, elsewhere."""
    place.moved = f"http://127.0.0.1:{place.server_port}/elsewhere"

    assert post(Path(address(place, tmp_path)), b"{}") == "status 302"
    assert place.asked == 1


def test_an_alert_is_resolved_by_the_labels_it_was_raised_with() -> None:
    """False: an alert stays on the board for ever after its incident was closed."""
    (raised,), (closed,) = alertmanager(told("a")), alertmanager(told("b", what="closed", severity="info"))

    assert raised["labels"] == closed["labels"] and "endsAt" in closed and "endsAt" not in raised
