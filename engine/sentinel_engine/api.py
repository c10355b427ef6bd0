"""The front end: an OpenAI-compatible API, health, metrics and controls, in a process of its own.

It answers `/health` and `/metrics` whatever the ranks do; only `/health_generate` asks for a token.
"""

import argparse
import asyncio
import codecs
import json
import logging
import signal
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import uvicorn
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from .ask import Asked, Refused, fault_problem, parse_chat, parse_completion
from .backend import Backend
from .config import LOOPBACK, EngineConfig, dump_config, load_config
from .logs import StatsPage, say
from .modelfile import ModelConfig, load_model_config
from .watchdog import die_with_parent

Pieces = AsyncGenerator[tuple[str, str, dict[str, int]], None]

HEALTH_TIMEOUT_S = 20.0
CONTROL_TIMEOUT_S = 120.0
WARM_UP_TRIES = 5
WARM_UP_EVERY_S = 0.5
SWITCHABLE = ("nvme", "ram", "legacy")
LATENCIES_S = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
GAUGES = ("num_running_reqs", "num_queue_reqs", "num_used_tokens", "token_usage",
          "gen_throughput", "spec_accept_length", "spec_accept_rate", "is_cuda_graph")  # fmt: skip


class Numbers(Collector):
    """Rank 0's page of numbers under SGLang's names."""

    def __init__(self, page: StatsPage, model: str) -> None:
        self._page, self._labels = page, {"model_name": model, "tp_rank": "0"}

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """Everything, as of now."""
        names, values = list(self._labels), list(self._labels.values())
        for name in GAUGES:
            gauge = GaugeMetricFamily(f"sglang:{name}", f"{name} of rank 0", labels=names)
            gauge.add_metric(values, self._page.get(name))
            yield gauge
        tokens = CounterMetricFamily(
            "sglang:realtime_tokens", "Tokens processed, step by step", labels=[*names, "mode"]
        )
        tokens.add_metric([*values, "prefill_compute"], self._page.get("prefill_tokens"))
        tokens.add_metric([*values, "decode"], self._page.get("decode_tokens"))
        yield tokens
        for name in ("forwards", "failed_batches", "accepted_drafts", "drafted"):
            counter = CounterMetricFamily(f"sentinel_engine_{name}", name, labels=names)
            counter.add_metric(values, self._page.get(name))
            yield counter


class Api:
    """Handlers of all routes."""

    def __init__(self, config: EngineConfig, model: ModelConfig, backend: Backend) -> None:
        self.config, self.model, self.backend = config, model, backend
        self.ready = False
        self._control = asyncio.Lock()
        self._registry = CollectorRegistry()
        page = StatsPage(Path(config.runtime_dir) / "stats")
        self._registry.register(Numbers(page, model.name))
        self._first_token = Histogram(
            "sglang:time_to_first_token_seconds", "From request to first token", ["model_name"],
            buckets=LATENCIES_S, registry=self._registry,
        )  # fmt: skip
        self._whole = Histogram(
            "sglang:e2e_request_latency_seconds", "From request to its end", ["model_name"],
            buckets=LATENCIES_S, registry=self._registry,
        )  # fmt: skip

    def routes(self) -> list[Route]:
        """What is served where."""
        return [
            Route("/v1/completions", self.completions, methods=["POST"]),
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
            Route("/v1/models", self.models),
            Route("/health", self.health),
            Route("/health_generate", self.health_generate),
            Route("/metrics", self.metrics),
            Route("/server_info", self.server_info),
            Route("/rowstore/mode", self.mode, methods=["GET", "POST"]),
            Route("/faults", self.fault, methods=["POST"]),
        ]

    async def warm_up(self) -> None:
        """Generate one token; only then is the engine ready. Without one, this process ends."""
        await self.backend.connect()
        for tries_left in reversed(range(WARM_UP_TRIES)):
            try:
                await self._one_token("WARM_UP")
            except Refused as error:
                say("", f"Warm-up failed: {error}; {tries_left} tries left")
                await asyncio.sleep(WARM_UP_EVERY_S)
            else:
                self.ready = True
                say("", "The server is fired up and ready to roll!")
                return
        signal.raise_signal(signal.SIGTERM)

    async def completions(self, request: Request) -> Response:
        """`/v1/completions`."""
        return await self._answer(request, parse_completion)

    async def chat(self, request: Request) -> Response:
        """`/v1/chat/completions`."""
        return await self._answer(request, parse_chat)

    async def models(self, request: Request) -> Response:
        """The one model."""
        del request
        one = {"id": self.model.name, "object": "model", "owned_by": "sentinel-engine",
               "max_model_len": self.config.context_tokens}  # fmt: skip
        return JSONResponse({"object": "list", "data": [one]})

    async def health(self, request: Request) -> Response:
        """Whether the engine has been ready and its rank 0 is connected; costs nothing."""
        del request
        good = self.ready and self.backend.connected
        return PlainTextResponse("", 200 if good else 503)

    async def health_generate(self, request: Request) -> Response:
        """Whether a token can be generated now."""
        del request
        try:
            await asyncio.wait_for(self._one_token("HEALTH_CHECK"), HEALTH_TIMEOUT_S)
        except Refused:
            return PlainTextResponse("", 503)
        except TimeoutError:
            say("", "Health check failed. Server couldn't generate a token for last "
                    f"{HEALTH_TIMEOUT_S:g} seconds.")  # fmt: skip
            return PlainTextResponse("", 503)
        return PlainTextResponse("")

    async def metrics(self, request: Request) -> Response:
        """Prometheus text; frozen while the ranks hang, but answered."""
        del request
        return Response(generate_latest(self._registry), media_type="text/plain; version=0.0.4")

    async def server_info(self, request: Request) -> Response:
        """The settings, without the token."""
        del request
        return JSONResponse(dump_config(self.config) | {"admin_token": ""})

    async def mode(self, request: Request) -> Response:
        """The row store's mode on every rank; POST `{"mode": ...}` switches and waits."""
        self._authorise(request)
        target = ""
        if request.method == "POST":
            target = (await self._json(request)).get("mode", "")
            if target not in SWITCHABLE:
                raise Refused(400, f"mode must be one of {', '.join(SWITCHABLE)}", "mode")
        return await self._ask({"do": "mode", "target": target})

    async def fault(self, request: Request) -> Response:
        """Switch a fault, if the engine was started with `faults_allowed`."""
        self._authorise(request)
        if not self.config.faults_allowed:
            raise Refused(403, "faults are off; start the engine with faults_allowed = true")
        spec = await self._json(request)
        if wrong := fault_problem(spec):
            raise Refused(400, wrong)
        return await self._ask({"do": "fault", "spec": spec})

    async def _ask(self, question: dict[str, Any]) -> Response:
        async with self._control:
            try:
                reply = await asyncio.wait_for(self.backend.ask(question), CONTROL_TIMEOUT_S)
            except TimeoutError as error:
                raise Refused(504, "the ranks do not answer; they may hang") from error
        return JSONResponse(reply)

    def _authorise(self, request: Request) -> None:
        peer = request.client.host if request.client else ""
        if peer not in (*LOOPBACK, self.config.admin_host):
            raise Refused(403, f"controls are only served to {self.config.admin_host}")
        token = self.config.admin_token
        if not token:
            raise Refused(403, "controls are off; set admin_token")
        if request.headers.get("authorization") != f"Bearer {token}":
            raise Refused(401, "send the admin token as `Authorization: Bearer ...`")

    async def _json(self, request: Request) -> dict[str, Any]:
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > self.config.max_body_bytes:
                raise Refused(413, f"the body is over {self.config.max_body_bytes} bytes")
        try:
            value = json.loads(body)
        except ValueError as error:
            raise Refused(400, f"the body is not JSON: {error}") from error
        if not isinstance(value, dict):
            raise Refused(400, "the body must be a JSON object")
        return value

    async def _answer(
        self, request: Request, parse: Callable[[dict[str, Any], EngineConfig], Asked]
    ) -> Response:
        asked = parse(await self._json(request), self.config)
        if self.backend.open_requests >= self.config.max_running + self.config.max_queue:
            raise Refused(429, "the queue is full; try again later", retriable=True)
        rid = f"{'chatcmpl' if asked.chat else 'cmpl'}-{uuid.uuid4().hex}"
        pieces = self._generate(rid, asked)
        if asked.stream:
            events = self._events(rid, asked, pieces)
            return StreamingResponse(events, media_type="text/event-stream")
        text, finish = "", ""
        usage: dict[str, int] = {}
        async for piece, ended, counted in pieces:
            text, finish, usage = text + piece, ended or finish, counted or usage
            if await request.is_disconnected():
                await pieces.aclose()
                return Response(status_code=499)
        choice = {"index": 0, **asked.whole(text), "finish_reason": asked.finish(finish)}
        return JSONResponse(self._frame(rid, asked, "", [choice]) | {"usage": usage})

    async def _generate(self, rid: str, asked: Asked) -> Pieces:
        """Text as it comes, without a stop string; the last item has the reason and the usage."""
        began, decoder = time.monotonic(), codecs.getincrementaldecoder("utf-8")("replace")
        held, first = "", True
        hold = max((len(one) for one in asked.options.get("stop", ())), default=0)
        async for message in self.backend.submit(rid, asked):
            if "finish" in message:
                held += decoder.decode(b"", final=True)
                for stop in asked.options.get("stop", ()):
                    held = held.removesuffix(stop)
                total = message["usage"]["prompt_tokens"] + message["usage"]["completion_tokens"]
                self._whole.labels(self.model.name).observe(time.monotonic() - began)
                yield held, message["finish"], message["usage"] | {"total_tokens": total}
                return
            if first:
                self._first_token.labels(self.model.name).observe(time.monotonic() - began)
                first = False
            held += decoder.decode(bytes(message["tokens"]))
            ready = max(0, len(held) - hold)
            yield held[:ready], "", {}
            held = held[ready:]

    async def _events(
        self, rid: str, asked: Asked, pieces: Pieces
    ) -> AsyncIterator[str]:
        try:
            async for piece, finish, usage in pieces:
                if piece or finish:
                    reason = asked.finish(finish) if finish else None
                    choice = {"index": 0, **asked.part(piece), "finish_reason": reason}
                    frame = self._frame(rid, asked, ".chunk", [choice])
                    yield f"data: {json.dumps(frame)}\n\n"
                if finish and asked.include_usage:
                    frame = self._frame(rid, asked, ".chunk", []) | {"usage": usage}
                    yield f"data: {json.dumps(frame)}\n\n"
        except Refused as error:
            yield f"data: {json.dumps(error.body())}\n\n"
        finally:
            await pieces.aclose()
        yield "data: [DONE]\n\n"

    def _frame(
        self, rid: str, asked: Asked, kind: str, choices: list[dict[str, Any]]
    ) -> dict[str, Any]:
        name = f"chat.completion{kind}" if asked.chat else "text_completion"
        return {"id": rid, "object": name, "created": int(time.time()), "model": self.model.name,
                "choices": choices}  # fmt: skip

    async def _one_token(self, name: str) -> None:
        asked = Asked(tokens=[32], max_tokens=1, options={"ignore_eos": True})
        async for _ in self.backend.submit(f"{name}_{uuid.uuid4().hex}", asked):
            pass


class _Asked(logging.Filter):
    """Access lines of what clients asked; probes and scrapes would drown them."""

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        return "/metrics" not in text and "/health " not in text


async def _refused(request: Request, error: Exception) -> Response:
    del request
    assert isinstance(error, Refused)
    headers = {"Retry-After": "1"} if error.retriable else None
    return JSONResponse(error.body(), error.status, headers)


def build(config: EngineConfig) -> Starlette:
    """The application; it warms up in the background, so that `/health` answers from the start."""
    backend = Backend(Path(config.runtime_dir) / "frontend.sock")
    api = Api(config, load_model_config(Path(config.model)), backend)

    @asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        del app
        warming = asyncio.create_task(api.warm_up())
        yield
        warming.cancel()
        with suppress(asyncio.CancelledError, Refused):
            await warming

    return Starlette(routes=api.routes(), lifespan=life, exception_handlers={Refused: _refused})


def main() -> None:
    """Serve until told to end."""
    parser = argparse.ArgumentParser(prog="sentinel_engine.api", description=__doc__)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--role", choices=("frontend",))
    die_with_parent()
    config = load_config(parser.parse_args().config)
    form = "[%(asctime)s] %(levelname)s:     %(message)s"
    plain = {"format": form, "datefmt": "%Y-%m-%d %H:%M:%S"}
    handler = {"class": "logging.StreamHandler", "formatter": "plain", "filters": ["asked"]}
    settings = {
        "version": 1, "disable_existing_loggers": False, "formatters": {"plain": plain},
        "filters": {"asked": {"()": _Asked}}, "handlers": {"stderr": handler},
        "loggers": {"uvicorn": {"handlers": ["stderr"], "level": "INFO"}},
    }  # fmt: skip
    uvicorn.run(build(config), host=config.host, port=config.port, log_config=settings,
                timeout_graceful_shutdown=3)  # fmt: skip


if __name__ == "__main__":
    main()
