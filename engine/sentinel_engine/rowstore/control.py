"""Talks to a store over its control socket, from another process."""

import json
import socket
from pathlib import Path
from typing import Any

from .errors import NoAnswer

REPLY_BYTES_MAX = 1 << 20


def ask(path: Path, line: str, *, timeout_s: float = 5.0) -> dict[str, Any]:
    """Send one request line and return the reply; NoAnswer when none comes in time."""
    reply = b""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout_s)
            connection.connect(str(path))
            connection.sendall(line.encode() + b"\n")
            while not reply.endswith(b"\n") and len(reply) < REPLY_BYTES_MAX:
                part = connection.recv(65536)
                if not part:
                    break
                reply += part
    except OSError as error:
        raise NoAnswer(
            f"{path}: {error}; the process is gone or stopped: read its telemetry page with "
            "`rowstore stat`"
        ) from error
    if not reply:
        raise NoAnswer(f"{path}: the store closed the connection without an answer")
    answer: dict[str, Any] = json.loads(reply)
    return answer
