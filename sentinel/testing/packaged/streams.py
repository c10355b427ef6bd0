"""Clients of an engine as a process of its own: `python -m sentinel.testing.packaged.streams URL FILE CLIENTS`.

Each client streams one completion after the other, and goes on whatever happens to the engine. FILE gets a line when
tokens begin to arrive after a pause and when a request fails: seconds of CLOCK_BOOTTIME, then `token` or `failed` and
why. With `--fault FILE` the process hands that JSON to the engine's fault switch instead; the token is read from the
environment.
"""

import contextlib
import http.client
import json
import os
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

from sentinel.plumbing.stopping import stop_on_signals

PAUSE_S = 2.0
AGAIN_S = 0.2
ANSWER_S = 600.0
TOKENS = 96
TOKEN_VARIABLE = "SENTINEL_DRILL_TOKEN"
PROMPTS = ("Return a list of ", "The number of ", "This function is ", "Raise an error if ")


class Clients:
    """All clients of one process; `run` returns when it is told to stop."""

    def __init__(self, url: str, log: Path) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._log = log
        self._lock = threading.Lock()
        self._last_s = -PAUSE_S
        self._failing = False
        self.over = threading.Event()

    def run(self, clients: int) -> None:
        """Until SIGTERM."""
        for number in range(clients):
            threading.Thread(target=self._client, args=(number,), daemon=True).start()
        self.over.wait()

    def _client(self, number: int) -> None:
        count = 0
        while not self.over.is_set():
            count += 1
            try:
                self._stream(f"{PROMPTS[number % len(PROMPTS)]}{count} ")
            except (OSError, http.client.HTTPException) as error:
                self._note(f"failed {type(error).__name__}")
            self.over.wait(AGAIN_S)

    def _stream(self, prompt: str) -> None:
        body = {"prompt": prompt, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True, "stream": True}
        with contextlib.closing(http.client.HTTPConnection(self._host, self._port, timeout=ANSWER_S)) as connection:
            headers = {"Content-Type": "application/json"}
            connection.request("POST", "/v1/completions", json.dumps(body), headers)
            answer = connection.getresponse()
            if answer.status != http.client.OK:
                self._note(f"failed {answer.status}")
                return
            for line in answer:
                if line.startswith(b'data: {"error"'):
                    self._note("failed in the stream")
                elif line.startswith(b"data: {"):
                    self._note("token")

    def _note(self, what: str) -> None:
        now_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        with self._lock:
            if what == "token":
                again, self._last_s, self._failing = now_s - self._last_s >= PAUSE_S, now_s, False
            else:
                again, self._failing = not self._failing, True
            if again:
                with self._log.open("a") as file:
                    file.write(f"{now_s:.3f} {what}\n")


def switch_fault(url: str, spec: str) -> int:
    """Give the engine a fault; the exit status."""
    parts = urlsplit(url)
    with contextlib.closing(http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60.0)) as connection:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {os.environ[TOKEN_VARIABLE]}"}
        connection.request("POST", "/faults", spec, headers)
        answer = connection.getresponse()
        sys.stderr.write(f"{answer.status} {answer.read(1000).decode(errors='replace')}\n")
    return 0 if answer.status == http.client.OK else 1


def main() -> int:
    """Do what the arguments say."""
    if sys.argv[2] == "--fault":
        return switch_fault(sys.argv[1], sys.argv[3])
    clients = Clients(sys.argv[1], Path(sys.argv[2]))
    stop_on_signals(clients.over)
    clients.run(int(sys.argv[3]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
