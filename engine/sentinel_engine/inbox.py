"""Rank 0's end of the conversation with the front end: JSON lines over a Unix socket."""

import json
import queue
import socket
import struct
import threading
from pathlib import Path
from typing import Any

SEND_TIMEOUT_S = 10.0
QUEUE_MAX = 4096


class Inbox:
    """Takes what the front end asks, on a thread of its own; sending never waits for long."""

    def __init__(self, path: Path) -> None:
        self._asked: queue.Queue[dict[str, Any]] = queue.Queue(QUEUE_MAX)
        self._peer: socket.socket | None = None
        path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen(1)
        threading.Thread(target=self._listen, name="inbox", daemon=True).start()

    def take(self, timeout_s: float) -> list[dict[str, Any]]:
        """Everything asked since the last call; waits for the first up to `timeout_s`."""
        found = []
        try:
            found.append(self._asked.get(block=timeout_s > 0, timeout=timeout_s or None))
            while True:
                found.append(self._asked.get_nowait())
        except queue.Empty:
            return found

    def send(self, message: dict[str, Any]) -> None:
        """Tell the front end; a front end that does not read is given up."""
        peer = self._peer
        if peer is None:
            return
        try:
            peer.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            self._peer = None
            peer.close()

    def _listen(self) -> None:
        while True:
            peer, _ = self._listener.accept()
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
            timeout = struct.pack("ll", int(SEND_TIMEOUT_S), 0)
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)
            self._peer = peer
            with peer.makefile("rb") as lines:
                for line in lines:
                    self._asked.put(json.loads(line))
