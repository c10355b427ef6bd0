"""The page that Prometheus scrapes: the last snapshot, and whether the agent's loops turn and are ready.

A scrape asks nobody: a hung GPU, disk or engine cannot hang it. Connections are few and short. Off the loopback device
the page needs TLS and a token, see `config.Metrics`.
"""

import contextlib
import hmac
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import socket
from typing import Any

from sentinel.metrics.exposition import encode
from sentinel.metrics.tally import Snapshot

CONNECTIONS_MAX = 4
CONNECTION_S = 5.0


@dataclass(frozen=True, slots=True)
class Health:
    """An answer to `/healthz` or `/readyz`."""

    ok: bool
    says: str


@dataclass(slots=True, kw_only=True)
class Pages:
    """What is served. `snapshot` None: not yet. The callables run on the server's threads and must not block."""

    snapshot: Callable[[], Snapshot | None]
    healthy: Callable[[], Health]
    ready: Callable[[], Health]


class _Server(ThreadingHTTPServer):
    """A server with a bound on connections; what comes on top of it is closed at once."""

    daemon_threads = True
    request_queue_size = 16

    def __init__(self, address: tuple[str, int], pages: Pages, token: str, tls: ssl.SSLContext | None) -> None:
        self.pages, self.token, self.tls = pages, token, tls
        self._free = threading.BoundedSemaphore(CONNECTIONS_MAX)
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve on a thread of its own, if there is room."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve, and make room again."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away, or speaks no TLS, is no event."""
        del request, client_address


@dataclass(slots=True)
class Exporter:
    """Serves `pages` on its own threads from `open` to `close`."""

    pages: Pages
    host: str
    port: int
    token: str = ""
    tls: ssl.SSLContext | None = None
    _server: _Server | None = field(default=None)

    def open(self) -> int:
        """Listen; returns the port (chosen by the kernel when 0 was given). Raises OSError."""
        self._server = _Server((self.host, self.port), self.pages, self.token, self.tls)
        threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()
        return self._server.server_address[1]

    def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


def write_textfile(path: Path, snapshot: Snapshot) -> str:
    """Replace a file for node_exporter's textfile collector, for hosts that are not scraped; returns why it failed."""
    beside = path.with_name(f".{path.name}.new")
    try:
        beside.write_bytes(encode(snapshot)[0])
        beside.chmod(0o644)
        beside.replace(path)
    except OSError as error:
        return f"{path}: {error.strerror}"
    return ""


def tls_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """TLS 1.3 for the page. Raises OSError (ssl.SSLError included) when the files are unusable."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(certificate, key)
    return context


class _Handler(BaseHTTPRequestHandler):
    """Answers GET of three paths."""

    server_version, sys_version = "sentinel", ""
    timeout = CONNECTION_S
    server: _Server

    def setup(self) -> None:
        """Shake hands on the connection's own thread, where only it can wait."""
        if self.server.tls is not None:
            plain: socket = self.request
            plain.settimeout(CONNECTION_S)
            self.request = self.server.tls.wrap_socket(plain, server_side=True)
        super().setup()

    def finish(self) -> None:
        """Close the connection; one that TLS took over is closed here."""
        with contextlib.suppress(OSError):
            super().finish()
        if self.server.tls is not None:
            self.request.close()

    def do_GET(self) -> None:
        if self.path == "/metrics":
            self._metrics()
        elif self.path == "/healthz":
            self._health(self.server.pages.healthy())
        elif self.path == "/readyz":
            self._health(self.server.pages.ready())
        else:
            self._answer(404, b"/metrics, /healthz or /readyz\n")

    def _metrics(self) -> None:
        given = self.headers.get("Authorization", "")
        if self.server.token and not hmac.compare_digest(given.encode(), f"Bearer {self.server.token}".encode()):
            self._answer(401, b"a bearer token is needed\n")
            return
        snapshot = self.server.pages.snapshot()
        if snapshot is None:
            self._answer(503, b"nothing has been measured yet\n")
            return
        self._answer(200, *encode(snapshot, self.headers.get("Accept", "")))

    def _health(self, health: Health) -> None:
        self._answer(200 if health.ok else 503, f"{health.says}\n".encode())

    def _answer(self, status: int, body: bytes, content_type: str = "text/plain; charset=utf-8") -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
        del format, args
