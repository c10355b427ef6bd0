"""A streaming client that notes when tokens arrive, and ends a burst that falls silent.

Protocol: POST /v1/completions with `stream` and `stream_options.include_usage`, answered as
server-sent events `data: {...}` and closed by `data: [DONE]`.
"""

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import httpx

CONNECT_S = 10.0


class BenchError(Exception):
    """A load run cannot go on; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One request; `ignore_eos` forces exactly `max_tokens` output tokens."""

    prompt: str
    max_tokens: int
    ignore_eos: bool = True
    temperature: float = 0.0

    def body(self, model: str) -> dict[str, Any]:
        """The request; usage on every event where the server can give it."""
        return {
            "model": model,
            "prompt": self.prompt,
            "max_tokens": self.max_tokens,
            "ignore_eos": self.ignore_eos,
            "temperature": self.temperature,
            "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        }


@dataclass(slots=True)
class Answer:
    """What came of a request: `status` is ok, silent, cut or `http N`; times in seconds.

    A speculative step delivers several tokens in one event, so those of the first event do not
    count as decoded since then; without usage on every event they are taken for one.
    """

    status: str = "cut"
    text: str = ""
    detail: str = ""
    prompt_tokens: int = 0
    tokens: int = 0
    first_tokens: int = 1
    sent_s: float = 0.0
    first_s: float | None = None
    last_s: float = 0.0

    @property
    def ttft_s(self) -> float | None:
        """From sending to the first token; None when none came."""
        return None if self.first_s is None else self.first_s - self.sent_s

    @property
    def decode_tok_s(self) -> float | None:
        """Tokens after the first event over the time from it to the last; None when too few."""
        later = self.tokens - self.first_tokens
        if self.first_s is None or later < 1 or self.last_s <= self.first_s:
            return None
        return later / (self.last_s - self.first_s)


class Client:
    """One server; `async with` it. `silence_s` bounds how long a burst may give no token."""

    def __init__(self, url: str, model: str | None = None, silence_s: float = 300) -> None:
        self.url, self.model, self.silence_s = url.rstrip("/"), model or "", silence_s
        limits = httpx.Limits(max_connections=None)
        timeout = httpx.Timeout(None, connect=CONNECT_S)
        self._http = httpx.AsyncClient(timeout=timeout, limits=limits, trust_env=False)
        self._heard_s = 0.0

    async def __aenter__(self) -> Self:
        if not self.model:
            listing = await self.call("GET", "/v1/models")
            self.model = listing["data"][0]["id"]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._http.aclose()

    async def call(self, method: str, path: str, body: object = None) -> Any:
        """One plain JSON exchange within `silence_s`; BenchError when it fails."""
        try:
            got = await self._http.request(
                method, self.url + path, json=body, timeout=self.silence_s
            )
            if got.status_code == httpx.codes.OK:
                return got.json()
            what = f"HTTP {got.status_code} {got.text[:300]}"
        except (httpx.HTTPError, ValueError) as error:
            what = f"{type(error).__name__} {error}; is the engine ready?"
        raise BenchError(f"{method} {self.url}{path}: {what}")

    async def metrics(self) -> dict[str, float]:
        """Samples of `/metrics`, labels included in the name; empty when there is no such page."""
        try:
            got = await self._http.get(self.url + "/metrics", timeout=CONNECT_S)
        except httpx.HTTPError:
            return {}
        samples = {}
        for line in got.text.splitlines() if got.status_code == httpx.codes.OK else ():
            name, _, value = line.rpartition(" ")
            if name and not line.startswith("#"):
                samples[name] = float(value)
        return samples

    async def burst(self, asks: Sequence[Ask]) -> list[Answer]:
        """Send all (at least one) at once; ends with them, or after `silence_s` without a token."""
        self._heard_s = time.monotonic()
        answers = [Answer() for _ in asks]
        pairs = zip(asks, answers, strict=True)
        tasks = {asyncio.create_task(self._stream(ask, answer)): answer for ask, answer in pairs}
        waiting = set(tasks)
        while waiting:
            left_s = self._heard_s + self.silence_s - time.monotonic()
            if left_s <= 0:
                break
            _, waiting = await asyncio.wait(waiting, timeout=left_s)
        for task in waiting:
            task.cancel()
            tasks[task].status = "silent"
        await asyncio.wait(tasks)
        for task in tasks.keys() - waiting:
            task.result()
        return answers

    async def _stream(self, ask: Ask, answer: Answer) -> None:
        answer.sent_s = answer.last_s = time.monotonic()
        url = self.url + "/v1/completions"
        try:
            async with self._http.stream("POST", url, json=ask.body(self.model)) as got:
                if got.status_code != httpx.codes.OK:
                    answer.status = f"http {got.status_code}"
                    answer.detail = (await got.aread()).decode(errors="replace")[:500]
                    return
                async for line in got.aiter_lines():
                    if line.startswith("data:"):
                        self._event(line[5:].strip(), answer)
        except (httpx.HTTPError, ValueError) as error:
            answer.status, answer.detail = "cut", f"{type(error).__name__}: {error}"

    def _event(self, data: str, answer: Answer) -> None:
        if data == "[DONE]":
            answer.status = "ok" if answer.status == "cut" else answer.status
            return
        event = json.loads(data)
        if "error" in event:
            answer.status, answer.detail = "error", json.dumps(event["error"])[:500]
            return
        usage, choices = event.get("usage") or {}, event.get("choices") or ()
        before, answer.tokens = answer.tokens, usage.get("completion_tokens", answer.tokens)
        answer.prompt_tokens = usage.get("prompt_tokens", answer.prompt_tokens)
        text = "".join(choice.get("text") or "" for choice in choices)
        # Half a character is a token without text; the last event has usage and no choices.
        if not text and not (choices and answer.tokens > before):
            return
        self._heard_s = answer.last_s = time.monotonic()
        answer.text += text
        if answer.first_s is None:
            answer.first_s = answer.last_s
            answer.first_tokens = usage.get("completion_tokens", 1)
