"""The front end's end of the conversation with rank 0."""

import asyncio
import itertools
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from .ask import Asked, Refused

LINE_MAX = 16 << 20
LOOK_EVERY_S = 0.1


class Backend:
    """Submits requests and hands out what comes back, by request."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: asyncio.StreamWriter | None = None
        self._open: dict[str | int, asyncio.Queue[dict[str, Any]]] = {}
        self._numbers = itertools.count(1)
        self._reading: asyncio.Task[None] | None = None

    @property
    def connected(self) -> bool:
        """Whether rank 0 holds the other end."""
        return self._writer is not None

    @property
    def open_requests(self) -> int:
        """Requests and questions without an end yet."""
        return len(self._open)

    async def connect(self) -> None:
        """Wait for rank 0 to listen; the supervisor ends this process if it never does."""
        while True:
            try:
                reader, self._writer = await asyncio.open_unix_connection(
                    self._path, limit=LINE_MAX
                )
                break
            except (FileNotFoundError, ConnectionRefusedError):
                await asyncio.sleep(LOOK_EVERY_S)
        self._reading = asyncio.create_task(self._read(reader))

    async def submit(self, rid: str, asked: Asked) -> AsyncGenerator[dict[str, Any], None]:
        """Messages of a request up to its end; leaving early aborts it."""
        answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._open[rid] = answers
        ended = False
        try:
            self._send({"do": "submit", "rid": rid, "tokens": asked.tokens,
                        "max_tokens": asked.max_tokens, "options": asked.options})  # fmt: skip
            while not ended:
                message = await answers.get()
                ended = "finish" in message or "error" in message
                if "error" in message:
                    raise Refused(503, message["error"], retriable=message["retriable"])
                yield message
        finally:
            del self._open[rid]
            if not ended and self.connected:
                self._send({"do": "abort", "rid": rid})

    async def ask(self, question: dict[str, Any]) -> Any:
        """The answer to a question about the engine itself."""
        number = next(self._numbers)
        answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._open[number] = answers
        try:
            self._send({**question, "id": number})
            answer = await answers.get()
            if "error" in answer:
                raise Refused(503, answer["error"], retriable=True)
            return answer["reply"]
        finally:
            del self._open[number]

    def _send(self, message: dict[str, Any]) -> None:
        if self._writer is None:
            raise Refused(503, "the engine is not ready", retriable=True)
        self._writer.write(json.dumps(message).encode() + b"\n")

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            message = json.loads(line)
            queue = self._open.get(message.get("rid", message.get("id")))
            if queue is not None:
                queue.put_nowait(message)
        self._writer = None
        for queue in self._open.values():
            queue.put_nowait({"error": "the engine has ended", "retriable": True})
