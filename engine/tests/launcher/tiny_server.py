"""A real HTTP server with an OpenAI dialect whose behaviour a test sets: not an engine."""

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

WORDS = ("one ", "two ", "three ", "four ", "five ", "six ", "seven ", "eight ")


@dataclass
class Behaviour:
    """What the server does; `bodies` are the requests it saw."""

    tokens_per_event: int = 1
    stop_after: int | None = None
    hang_from_request: int | None = None
    refuse: bool = False
    usage: bool = True
    usage_on_every_event: bool = True
    error_from_request: int | None = None
    chat: list[dict[str, Any]] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)


def _event(text: str, usage: dict[str, int] | None, choices: bool = True) -> str:
    body: dict[str, Any] = {"choices": [{"index": 0, "text": text}] if choices else []}
    if usage:
        body["usage"] = usage
    return f"data: {json.dumps(body)}\n\n"


async def _events(behaviour: Behaviour, body: dict[str, Any], number: int) -> AsyncIterator[str]:
    usage = {"prompt_tokens": len(body["prompt"]) // 4, "completion_tokens": 0}
    limit = min(body["max_tokens"], behaviour.stop_after or body["max_tokens"])
    hangs = number >= (behaviour.hang_from_request or number + 1)
    fails = number >= (behaviour.error_from_request or number + 1)
    while usage["completion_tokens"] < limit:
        step = min(behaviour.tokens_per_event, limit - usage["completion_tokens"])
        usage["completion_tokens"] += step
        at = usage["completion_tokens"]
        yield _event("".join(WORDS[(at + k) % len(WORDS)] for k in range(step)),
                     usage if behaviour.usage_on_every_event and behaviour.usage else None)
        if hangs:
            await asyncio.Event().wait()
        if fails:
            yield 'data: {"error": {"message": "gather failed", "type": "retriable"}}\n\n'
            break
        await asyncio.sleep(0)
    if behaviour.usage:
        yield _event("", usage, choices=False)
    yield "data: [DONE]\n\n"


def application(behaviour: Behaviour) -> Starlette:
    """The server's routes over a behaviour that the test may change at any time."""

    async def completions(request: Request) -> Response:
        body = await request.json()
        behaviour.bodies.append(body)
        if behaviour.refuse:
            return JSONResponse({"error": {"message": "queue is full"}}, status_code=503)
        if not body.get("stream"):
            usage = {"prompt_tokens": len(body["prompt"]) // 4,
                     "completion_tokens": body["max_tokens"]}  # fmt: skip
            return JSONResponse({"choices": [{"text": "word"}], "usage": usage})
        events = _events(behaviour, body, len(behaviour.bodies))
        return StreamingResponse(events, media_type="text/event-stream")

    async def chat(request: Request) -> Response:
        behaviour.bodies.append(await request.json())
        return JSONResponse({"choices": [{"message": behaviour.chat.pop(0)}]})

    async def models(_request: Request) -> Response:
        return JSONResponse({"data": [{"id": "tiny"}]})

    async def metrics(_request: Request) -> Response:
        return PlainTextResponse(f"# TYPE seen counter\nseen_total {len(behaviour.bodies)}\n")

    return Starlette(routes=[
        Route("/v1/completions", completions, methods=["POST"]),
        Route("/v1/chat/completions", chat, methods=["POST"]),
        Route("/v1/models", models), Route("/metrics", metrics),
    ])  # fmt: skip


@contextmanager
def serving(behaviour: Behaviour) -> Iterator[str]:
    """The URL of a server on a free loopback port, for as long as the context lasts."""
    listener = socket.create_server(("127.0.0.1", 0))
    settings = uvicorn.Config(application(behaviour), log_level="error", lifespan="off",
                              timeout_graceful_shutdown=1)
    server = uvicorn.Server(settings)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
