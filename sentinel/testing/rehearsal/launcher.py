"""The launcher: starts the ranks, serves `/health`, `/metrics` and the two admin calls that pause and go on, and ends
its whole tree on SIGQUIT or SIGTERM."""

import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import FrameType

from sentinel.testing.rehearsal.prints import access, say
from sentinel.testing.rehearsal.rank import Settings
from sentinel.testing.rehearsal.shared import Shared

_LABELS = '{model_name="rehearsal",tp_rank="0"}'
WATCH_S = 0.2
RESTS_WITHIN_S = 30.0
TOKEN_WITHIN_S = 60.0
PAUSES = {"/pause_generation": 1, "/continue_generation": 0}


def launch(settings: Settings, port: int) -> None:
    """Run the engine until it is ended. The port that was chosen is printed when 0 was given."""
    shared = Shared(settings.folder / "shared")
    server = ThreadingHTTPServer(("127.0.0.1", port), _handler(shared))
    say(
        "",
        f"server_args=ServerArgs(model_path='rehearsal', tp_size={settings.ranks}, "
        f"watchdog_timeout={settings.watchdog_s:g}, decode_log_interval={settings.log_interval})",
    )
    (settings.folder / "port").write_text(str(server.server_port))
    ranks = [_start(settings, rank) for rank in range(settings.ranks)]
    threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
    signal.signal(signal.SIGQUIT, lambda number, frame: _quit(ranks, number, frame))
    signal.signal(signal.SIGTERM, lambda number, frame: _terminate(ranks, number, frame))
    _watch(ranks)


def _start(settings: Settings, rank: int) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-m", "sentinel.testing.rehearsal", "--role", "rank", "--rank", str(rank)]
    argv += ["--ranks", str(settings.ranks), "--folder", str(settings.folder)]
    argv += ["--watchdog-timeout", str(settings.watchdog_s), "--step-s", str(settings.step_s)]
    argv += ["--prefill-tps", str(settings.prefill_tps)]
    return subprocess.Popen([*argv, "--decode-log-interval", str(settings.log_interval)])


def _watch(ranks: list[subprocess.Popen[bytes]]) -> None:
    """A rank that ends takes the engine with it, a while later, as real launchers do."""
    while True:
        for number, rank in enumerate(ranks):
            status = rank.poll()
            if status is not None:
                say("", f"Subprocess scheduler_{number} (pid={rank.pid}) crashed with exit code {status}. "
                        "Triggering SIGQUIT for cleanup...")  # fmt: skip
                threading.Event().wait(6.0)
                _quit(ranks, signal.SIGQUIT, None)
        threading.Event().wait(WATCH_S)


def _quit(ranks: list[subprocess.Popen[bytes]], number: int, frame: FrameType | None) -> None:
    say("", f"SIGQUIT received. signum={number}, frame={frame}. It usually means one child failed.")
    _end(ranks, 131)


def _terminate(ranks: list[subprocess.Popen[bytes]], number: int, frame: FrameType | None) -> None:
    del frame
    say("", f"SIGTERM received. signum={number} Draining requests and shutting down...")
    _end(ranks, 0)


def _end(ranks: list[subprocess.Popen[bytes]], status: int) -> None:
    for rank in ranks:
        rank.kill()
    for rank in ranks:
        rank.wait()
    # The HTTP thread is a daemon; leave without waiting for clients.
    raise SystemExit(status)


def _handler(shared: Shared) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Answers from the shared page, also while every rank hangs."""

        def do_GET(self) -> None:
            if self.path == "/metrics":
                self._answer(_metrics(shared))
            elif self.path == "/health" and shared.get("ready"):
                self._answer("")
            else:
                self.send_error(503 if self.path == "/health" else 404)

        def do_POST(self) -> None:
            if self.path == "/v1/completions":
                if _token(shared):
                    self._answer(
                        '{"object":"text_completion","choices":[{"text":"1"}],"usage":{"completion_tokens":1}}'
                    )
                else:
                    self.send_error(503)
                return
            if self.path not in PAUSES:
                self.send_error(404)
                return
            if not _rests(shared, PAUSES[self.path]):
                self.send_error(503)
                return
            say("", access("POST", self.path))
            self._answer("")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
            del format, args

        def _answer(self, text: str) -> None:
            body = text.encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler


def _token(shared: Shared) -> bool:
    """Run one request until a step of all ranks has ended; False when none does."""
    before, idle = shared.get("steps"), shared.get("running") == 0
    if idle:
        shared.put("running", 1)
    until = time.monotonic() + TOKEN_WITHIN_S
    while shared.get("steps") <= before and time.monotonic() < until:
        threading.Event().wait(WATCH_S / 10)
    if idle:
        shared.put("running", 0)
    return shared.get("steps") > before


def _rests(shared: Shared, paused: int) -> bool:
    """Pause or go on, and wait until the scheduler does; False when it does not answer."""
    shared.put("paused", paused)
    until = time.monotonic() + RESTS_WITHIN_S
    while shared.get("resting") != paused:
        if time.monotonic() > until:
            return False
        threading.Event().wait(WATCH_S / 10)
    return True


def _metrics(shared: Shared) -> str:
    rows = (
        ("sglang:num_running_reqs", shared.get("running")),
        ("sglang:num_queue_reqs", shared.get("waiting")),
        ("sglang:realtime_tokens_total", shared.get("tokens")),
    )
    return "".join(f"{name}{_LABELS} {float(value)}\n" for name, value in rows)
