"""Steady load on an OpenAI-compatible server: streams of random completions, each token's arrival noted."""

import contextlib
import http.client
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.engines.processes import now_s

ANSWER_S = 900.0


@dataclass(slots=True)
class Load:
    """`streams` requests at a time until `stop`. With `rest_s` each stream pauses between its requests (bursts)."""

    port: int
    streams: int = 4
    tokens: int = 400
    rest_s: float = 0.0
    last_token_s: float = 0.0
    received: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)
    _open: list[http.client.HTTPConnection] = field(default_factory=list)

    def start(self) -> "Load":
        """Begin."""
        for number in range(self.streams):
            thread = threading.Thread(target=self._stream, args=(number,), daemon=True)
            thread.start()
            self._threads.append(thread)
        return self

    def stop(self) -> None:
        """Hang up: the engine aborts what is still running."""
        self._stop.set()
        for client in list(self._open):
            if client.sock is not None:
                with contextlib.suppress(OSError):
                    client.sock.shutdown(2)

    def _stream(self, number: int) -> None:
        while not self._stop.is_set():
            try:
                for _ in tokens(self.port, self.tokens, number, self._open):
                    self.last_token_s = now_s()
                    self.received += 1
            except (OSError, http.client.HTTPException):
                self._stop.wait(0.5)
            self._stop.wait(self.rest_s)


def tokens(
    port: int, count: int, number: int = 0, opened: list[http.client.HTTPConnection] | None = None
) -> Iterator[bytes]:
    """Pieces of one streamed completion as they arrive."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_S)
    opened = [] if opened is None else opened
    opened.append(client)
    try:
        prompt = f"hello world {number} " * (1 + number)
        asked = {"model": "small", "prompt": prompt, "max_tokens": count, "temperature": 0, "stream": True}
        body = json.dumps({**asked, "ignore_eos": True})
        client.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        for line in client.getresponse():
            if line.startswith(b"data: {"):
                yield line
    finally:
        opened.remove(client)
        client.close()


def complete(port: int, count: int) -> int:
    """One completion; number of pieces that came."""
    return sum(1 for _ in tokens(port, count))
