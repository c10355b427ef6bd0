"""The local HTTP API: what the command line shows and asks, on a unix socket that only its owner can open, and over TCP
for bearers of a token (`access.py`). A connection is for one question, and whoever does not ask it is shown out:
silence holds neither the places of those who have a token nor the descriptors of this process.

No cookies, no scripts, JSON in and out; one HTML page an incident, everything in it escaped, loading nothing. Orders go
through the bus like those of the command line and are answered by whoever coordinates.
"""

import asyncio
import contextlib
import os
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from sentinel.bus.bus import Bus, BusError
from sentinel.config import address
from sentinel.coordinator.access import HEADERS, App, Caller, Guard, Tokens, answer
from sentinel.coordinator.asking import ask, notices, state_of
from sentinel.groups import Coordinator
from sentinel.model.cluster import Order, OrderVerb, Told
from sentinel.plumbing.clock import Clock
from sentinel.report.clean import printable_lines

BODY_BYTES_MAX = 16 << 10
OPEN_MAX = 32
"""Connections that are open at once, those that still shake hands included."""
ASK_S, LIFE_S = 5.0, 60.0
"""Within these a connection has to have asked, and to be over."""
PAGE = jinja2.Environment(autoescape=True).from_string("""<!doctype html><meta charset="utf-8">
<title>{{ incident }}</title>
<style>body{font:15px/1.5 sans-serif;max-width:60em;margin:2em auto}pre{white-space:pre-wrap}td{padding:.2em 1em .2em 0;
vertical-align:top}.critical{color:#a00}</style>
<h1>Incident {{ incident }}</h1><p>Group {{ group }}{% if phase %}, now {{ phase }}{% endif %}</p>
{% if against %}<p>Against acting: {{ against }}</p>{% endif %}
<table>{% for told in notices %}<tr><td class="{{ told.severity }}">{{ told.what }}</td><td><pre>{{ told.words }}</pre>
</td></tr>{% endfor %}</table>
{% if verdict %}<h2>{{ verdict.kind }} ({{ verdict.confidence }})</h2><p>{{ verdict.summary }}</p>
<table>{% for piece in verdict.evidence %}<tr><td>{{ "for" if piece.supports else "against" }}</td>
<td>{{ piece.says }}</td><td>{{ piece.source }}</td></tr>{% endfor %}</table>{% endif %}
""")


class Asked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `POST /v1/orders`."""

    verb: OrderVerb
    reason: str
    group: str = ""
    value: str = ""
    seconds: float = 0.0
    dry_run: bool = False


def asked_in(body: bytes) -> Asked | str:
    """What a body asks for, or what is wrong with it."""
    try:
        return msgspec.json.decode(body, type=Asked)
    except msgspec.MsgspecError as error:
        return str(error)
    except RecursionError:
        return "nested too deeply"


@dataclass(slots=True)
class Api:
    """The application over one bus. `by`: who asks where no guard says it."""

    bus: Bus
    clock: Clock
    by: str

    def app(self) -> Starlette:
        """All routes."""
        return Starlette(
            routes=[
                Route("/v1/state", self.state),
                Route("/v1/incidents", self.incidents),
                Route("/v1/incidents/{incident}", self.incident),
                Route("/v1/orders", self.order, methods=["POST"]),
                Route("/incidents/{incident}", self.page),
            ],
            exception_handlers={BusError: lambda _request, error: answer({"error": str(error)}, 503)},
        )

    def state(self, _request: Request) -> Response:
        """`GET /v1/state`: what the coordinator saved last."""
        return answer(state_of(self.bus))

    def incidents(self, _request: Request) -> Response:
        """`GET /v1/incidents`: every notice about an incident, by incident."""
        found: dict[str, list[Told]] = {}
        for told in notices(self.bus):
            if told.incident:
                found.setdefault(told.incident, []).append(told)
        return answer(found)

    def incident(self, request: Request) -> Response:
        """`GET /v1/incidents/ID`."""
        found = self._of(request)
        return answer(found) if found else answer({"error": "no such incident"}, 404)

    async def order(self, request: Request) -> Response:
        """`POST /v1/orders`: 200 done or begun, 403 refused with the reasons, 504 no answer in time."""
        data = b""
        async for chunk in request.stream():
            data += chunk
            if len(data) > BODY_BYTES_MAX:
                return answer({"error": f"more than {BODY_BYTES_MAX} bytes"}, 413)
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            return answer({"error": "Content-Type: application/json is needed"}, 415)
        asked = asked_in(data)
        if isinstance(asked, str):
            return answer({"error": asked}, 400)
        caller: Caller | None = request.scope.get("caller")
        by = self.by if caller is None else f"{caller.name} ({caller.role} over the API)"
        order = Order(id=os.urandom(8).hex(), by=by, **msgspec.structs.asdict(asked))
        answered = await run_in_threadpool(ask, self.bus, order, self.clock)
        if answered is None:
            return answer({"error": "no answer in time; it may still be obeyed"}, 504)
        return answer({"ok": answered.ok, "says": answered.says}, 200 if answered.ok else 403)

    def page(self, request: Request) -> Response:
        """`GET /incidents/ID`: one incident for a person."""
        found = self._of(request)
        if not found:
            return answer({"error": "no such incident"}, 404)
        state = state_of(self.bus)
        group = None if state is None else state.groups.get(found[0].group)
        current = group is not None and group.incident == found[0].incident
        verdicts = [told.verdict for told in found if told.verdict is not None]
        clean = [msgspec.structs.replace(told, words=printable_lines(told.words)) for told in found]
        text = PAGE.render(
            incident=found[0].incident,
            group=found[0].group,
            phase=group.phase if group is not None and current else "",
            against="; ".join(group.refusals) if group is not None and current else "",
            notices=clean,
            verdict=verdicts[-1] if verdicts else None,
        )  # fmt: skip
        return Response(text, headers=HEADERS, media_type="text/html")

    def _of(self, request: Request) -> list[Told]:
        wanted = request.path_params["incident"]
        return [told for told in notices(self.bus) if told.incident == wanted]


class Listener(socket.socket):
    """A socket that listens and never has more than `OPEN_MAX` connections open; what comes beyond is closed."""

    def __init__(self, listener: socket.socket) -> None:
        super().__init__(fileno=listener.detach())
        self._open: list[socket.socket] = []

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection. Raises ConnectionAbortedError for one too many."""
        connection, peer = super().accept()
        self._open = [each for each in self._open if each.fileno() >= 0]
        if len(self._open) >= OPEN_MAX:
            connection.close()
            raise ConnectionAbortedError
        self._open.append(connection)
        return connection, peer


class Asking(H11Protocol):
    """One connection, with limits on how long it may be silent and how long it may last."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """It begins."""
        super().connection_made(transport)
        self._limits = (
            self.loop.call_later(ASK_S, self._has_asked),
            self.loop.call_later(LIFE_S, transport.abort),
        )

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over; what is left of its limits must not keep it in memory."""
        for limit in self._limits:
            limit.cancel()
        super().connection_lost(exc)

    def _has_asked(self) -> None:
        if self.cycle is None:
            self.transport.abort()


@dataclass(frozen=True, slots=True)
class Door:
    """Where an application listens, and with which certificate and key (TLS 1.3)."""

    app: App
    listener: socket.socket
    certificate_file: str = ""
    key_file: str = ""


@contextlib.contextmanager
def serving(door: Door) -> Iterator[None]:
    """Serve while the block runs. Raises OSError (ssl.SSLError included) when certificate or key cannot be used."""
    config = uvicorn.Config(
        door.app, loop="asyncio", http=Asking, log_config=None, access_log=False, lifespan="off", server_header=False,
        ssl_certfile=door.certificate_file or None, ssl_keyfile=door.key_file or None,
    )  # fmt: skip
    config.load()
    if config.ssl is not None:
        config.ssl.minimum_version = ssl.TLSVersion.TLSv1_3
    server, listener = uvicorn.Server(config), Listener(door.listener)
    # Signals belong to the watch.
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="api", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(timeout=5.0)
        listener.close()


@contextlib.contextmanager
def on_socket(api: Api, path: Path) -> Iterator[None]:
    """Serve on a socket of mode 0600. Raises OSError when it cannot be made."""
    with serving(Door(api.app(), _private_socket(path))):
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def on_port(api: Api, settings: Coordinator) -> Iterator[int]:
    """Serve bearers of a token at `listen`; yields the port. Raises OSError when address or tokens cannot be used."""
    host, port = address("coordinator.listen", settings.listen)
    guard = Guard(api.app(), Tokens(Path(settings.tokens_file)), api.bus, api.clock)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family, backlog=16) as listener:
        served = int(listener.getsockname()[1])
        with serving(Door(guard, listener, settings.certificate_file, settings.key_file)):
            yield served


def _private_socket(path: Path) -> socket.socket:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
    if path.is_socket():
        path.unlink()
    listener = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    try:
        listener.bind(str(path))
        listener.listen(16)
    finally:
        os.umask(before)
    return listener
