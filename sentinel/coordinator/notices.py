"""Telling people: each notice once, to every place that is configured, with bounded retries, on a thread of its own.

The log of notices on the bus is the queue; how far each place has been told is a slot beside it, so that a restart
neither repeats nor loses one. Addresses are secrets: they are read from files and never logged.
"""

import contextlib
import html
import json
import queue
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import structlog

from sentinel.bus.bus import Bus, BusError
from sentinel.coordinator.names import NOTICES
from sentinel.coordinator.wire import read
from sentinel.groups import Coordinator, Notify
from sentinel.model.cluster import Told
from sentinel.model.group import Count

TRIES = 4
TRY_S = 5.0
BACKOFF_S = 2.0
RANK = {"info": 0, "warning": 1, "critical": 2}
COLOURS = {"info": "#439FE0", "warning": "#DAA038", "critical": "#D00000"}
ADDRESS_BYTES_MAX = 4096
QUEUE_MAX = 1_000


def webhook(told: Told) -> Mapping[str, Any]:
    """The notice as it is."""
    return {"schema": "sentinel.notice/1", **msgspec.to_builtins(told)}


def slack(told: Told) -> Mapping[str, Any]:
    """An incoming webhook of Slack and its relatives: https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks"""
    title = " ".join(filter(None, [told.what.replace("_", " "), told.group, told.incident and f"({told.incident})"]))
    text = html.escape(told.words, quote=False)
    return {"text": title, "attachments": [{"color": COLOURS[told.severity], "text": text, "fallback": title}]}


def alertmanager(told: Told) -> list[Mapping[str, Any]]:
    """Alertmanager's API v2, POST /api/v2/alerts: one alert an incident, resolved when it closes.

    An alert is its labels, so they are the same from the first notice to the last.
    """
    labels = {"alertname": "SentinelIncident", "severity": "critical", "group": told.group}
    alert: dict[str, Any] = {
        "labels": {name: value for name, value in {**labels, "incident": told.incident}.items() if value},
        "annotations": {"summary": told.what.replace("_", " "), "description": told.words},
    }
    if told.what == "closed":
        alert |= {"startsAt": "1970-01-01T00:00:00Z", "endsAt": "1970-01-01T00:00:01Z"}
    return [alert]


PAYLOADS: Mapping[str, Callable[[Told], Any]] = {"webhook": webhook, "slack": slack, "alertmanager": alertmanager}


@dataclass(slots=True)
class Notifier:
    """Call `turn` every tick; sending happens on one thread, and a place that does not answer delays only itself.

    Of several processes over one bus only the one that leads tells anybody.
    """

    bus: Bus
    settings: Coordinator
    tries: int = TRIES
    backoff_s: float = BACKOFF_S
    sent: int = 0
    failed: int = 0
    _after: int | None = None
    _jobs: "queue.Queue[tuple[Notify, Told] | None]" = field(default_factory=lambda: queue.Queue(QUEUE_MAX))
    _thread: threading.Thread | None = None
    _stop: threading.Event = field(default_factory=threading.Event)
    _beat_due_s: float = 0.0

    def turn(self, now_s: float, leading: bool = True) -> None:
        """Queue what is new; ping the dead-man's switch when it is due."""
        if not leading:
            self._after = None
            return
        if self.settings.heartbeat_url_file and now_s >= self._beat_due_s:
            self._beat_due_s = now_s + self.settings.heartbeat_every_s
            threading.Thread(target=self._ping, name="heartbeat", daemon=True).start()
        try:
            if self._after is None:
                slot = self.bus.read(SLOT)
                # A place that cannot be read: what was told is told again rather than not at all.
                self._after = (read(slot.data, Count) or 0) if slot is not None else 0
            records = self.bus.follow(NOTICES, self._after, limit=QUEUE_MAX // 4)
            for record in records:
                self._after = record.number
                if (told := read(record.data, Told)) is None:
                    continue
                structlog.get_logger().info("notice", what=told.what, group=told.group, incident=told.incident,
                                            severity=told.severity, words=told.words)  # fmt: skip
                self._queue(told)
            if records:
                known = self.bus.read(SLOT)
                self.bus.write(SLOT, str(self._after).encode(), 0 if known is None else known.revision)
        except BusError:
            return

    def close(self) -> None:
        """Send what is queued, as long as that takes a few seconds."""
        if self._thread is not None:
            with contextlib.suppress(queue.Full):
                self._jobs.put_nowait(None)
            self._thread.join(timeout=TRY_S)
        self._stop.set()

    def _queue(self, told: Told) -> None:
        for place in self.settings.notify:
            if RANK[told.severity] < RANK[place.at_least] and told.what != "closed":
                continue
            if self._jobs.full():
                self.failed += 1
                continue
            self._jobs.put((place, told))
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="notifier", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        while not self._stop.is_set() and (job := self._jobs.get()) is not None:
            place, told = job
            self._send(place, told)

    def _send(self, place: Notify, told: Told) -> None:
        body = json.dumps(PAYLOADS[place.kind](told)).encode()
        for attempt in range(self.tries):
            why = post(Path(place.url_file), body)
            if not why:
                self.sent += 1
                return
            if self._stop.wait(self.backoff_s * 2**attempt):
                break
        self.failed += 1
        structlog.get_logger().error("notice_not_sent", kind=place.kind, file=place.url_file, why=why, key=told.key)

    def _ping(self) -> None:
        why = post(Path(self.settings.heartbeat_url_file), None)
        if why:
            structlog.get_logger().warning("heartbeat_not_sent", file=self.settings.heartbeat_url_file, why=why)


SLOT = "told/after"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the notice to a place that nobody configured."""

    def redirect_request(self, *args: object, **kwargs: object) -> None:
        """Refuse."""


def post(url_file: Path, body: bytes | None) -> str:
    """POST (or GET without a body) to the address in a file; why that failed, or nothing. Never names the address."""
    try:
        with url_file.open() as file:
            url = file.read(ADDRESS_BYTES_MAX).strip()
    except OSError as error:
        return f"cannot read the address: {error.strerror}"
    if not url.startswith(("http://", "https://")):
        return "the file holds no http address"
    try:
        request = urllib.request.Request(url, data=body, headers={"Content-Type": "application/json"})
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=TRY_S) as answer:
            answer.read(1024)
    except urllib.error.HTTPError as error:
        return f"status {error.code}"
    except (OSError, ValueError) as error:
        return type(error).__name__
    return ""
