"""Runs steps: builds padded batches, states their row ids, and replays captured graphs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from .config import EngineConfig
from .handoff import RowFeed
from .model import Batch, Model
from .modelfile import HISTORY, VOCAB, NgramHash, with_history
from .scheduler import Request


@dataclass(slots=True)
class Work:
    """Tokens to feed for one request, of which the first has position `start`."""

    request: Request
    start: int
    tokens: list[int]


@dataclass(slots=True)
class Graph:
    """A captured step with its fixed inputs and outputs."""

    graph: torch.cuda.CUDAGraph
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


class Runner:
    """Forward passes of one rank."""

    def __init__(
        self, config: EngineConfig, model: Model, feed: RowFeed, hashes: Sequence[NgramHash]
    ) -> None:
        self.config, self.model, self.feed, self.hashes = config, model, feed, hashes
        self.device, self.ring = model.device, model.peers.ring
        self._graphs: dict[tuple[str, int], Graph] = {}
        self.used_graph = False
        self.skip = self.extra = 0
        """Steps that end with a collective too few, or one too many (faults of drills)."""

    @torch.inference_mode()
    def forward(
        self, works: list[Work], width: int, *, last_only: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Logits `(B, width, VOCAB)` and hidden states, or those of the last position alone.

        With `last_only` a single request is fed and not padded.
        """
        shape = 1 if last_only else self.config.shape_for(len(works))
        captured = None if last_only else self._graphs.get(("verify", shape))
        batch = self._batch(works, width, shape, full_context=captured is not None)
        self.used_graph = captured is not None
        self.ring.add("enqueued", self.model.collectives)
        if captured is not None:
            logits, hidden = self._replay(captured, batch)
        else:
            hidden = self.model.forward(self._to_device(batch), self.feed.rows)
            if last_only:
                hidden = hidden[:, -1:]
            logits = self._gathered(hidden)
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        self.ring.add("forwards")
        return logits, hidden

    @torch.inference_mode()
    def draft(self, requests: list[Request]) -> list[list[int]]:
        """Guesses for each request, as many as it may still use."""
        count = self.config.draft_tokens
        if count == 0:
            return [[] for _ in requests]
        shape = self.config.shape_for(len(requests))
        state = torch.zeros((shape, self.model.model.dim), device=self.device)
        token = torch.zeros(shape, dtype=torch.long)
        for row, request in enumerate(requests):
            assert request.state is not None, "a request decodes only after its prefill"
            state[row] = request.state
            token[row] = request.tokens[-1]
        captured = self._graphs.get(("draft", shape))
        self.ring.add("enqueued", count)
        if captured is not None:
            (guesses,) = self._replay(captured, (state, token))
        else:
            guesses = self.model.draft(state, token.to(self.device), count)
        rows = guesses.tolist()
        return [rows[k][: one.draft_room(count)] for k, one in enumerate(requests)]

    @torch.inference_mode()
    def capture(self) -> list[int]:
        """Capture draft and verify steps of every batch shape; returns the shapes."""
        width = self.config.draft_tokens + 1
        for shape in self.config.batch_shapes:
            batch = self._to_device(self._batch([], width, shape, full_context=True))
            state = torch.zeros((shape, self.model.model.dim), device=self.device)
            token = torch.zeros(shape, dtype=torch.long, device=self.device)
            self._graphs["verify", shape] = self._captured(partial(self._verify, batch), batch)
            if width > 1:
                guess = partial(self._guess, state, token)
                self._graphs["draft", shape] = self._captured(guess, (state, token))
        return list(self.config.batch_shapes)

    def release(self) -> None:
        """Drop the captured graphs: NCCL destroys no communicator while one still uses it."""
        self._graphs.clear()

    def _gathered(self, hidden: Tensor) -> Tensor:
        """Logits; with a fault, the rank strays from its peers here, at the end of a step.

        In the middle of one, gloo would find sizes that differ and abort instead of waiting.
        """
        if self.skip:
            self.skip -= 1
            self.ring.add("enqueued", -1)
            return torch.zeros((*hidden.shape[:-1], VOCAB), device=self.device)
        logits = self.model.logits(hidden)
        if self.extra:
            self.extra -= 1
            self.ring.add("enqueued")
            self.model.logits(hidden)
        return logits

    def _verify(self, batch: Batch) -> tuple[Tensor, Tensor]:
        hidden = self.model.forward(batch, self.feed.rows)
        return self.model.logits(hidden), hidden

    def _guess(self, state: Tensor, token: Tensor) -> tuple[Tensor]:
        return (self.model.draft(state, token, self.config.draft_tokens),)

    def _captured(
        self, run: Callable[[], tuple[Tensor, ...]], inputs: tuple[Tensor, ...]
    ) -> Graph:
        # Libraries initialise themselves at first use, which a capture does not allow.
        run()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            outputs = run()
        return Graph(graph, inputs, outputs)

    def _replay(self, captured: Graph, values: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        for target, value in zip(captured.inputs, values, strict=True):
            target.copy_(value)
        self.ring.add("replays")
        captured.graph.replay()
        return captured.outputs

    def prefetch(self, request: Request) -> None:
        """Tell the store what rows the prompt of an admitted request will need."""
        text = with_history(request.tokens, 0)
        for layer, hashing in zip(self.model.model.engram_layers, self.hashes, strict=True):
            self.feed.hint(layer, hashing.ids(text))

    def _batch(self, works: list[Work], width: int, shape: int, *, full_context: bool) -> Batch:
        """A padded step; a captured one has room for the full context, which never changes."""
        config, page = self.config, self.config.page_tokens
        tokens, positions, slots = (np.zeros((shape, width), dtype=np.int64) for _ in range(3))
        longest = max((work.start + len(work.tokens) for work in works), default=1)
        pages = config.pages_per_request if full_context else -(-longest // page)
        context = np.zeros((shape, pages * page), dtype=np.int64)
        ids = [np.full((shape, width, one.heads), -1, dtype=np.int64) for one in self.hashes]
        for row, work in enumerate(works):
            count = len(work.tokens)
            where = work.request.slots(page)[: pages * page]
            context[row, : len(where)] = where
            tokens[row, :count] = work.tokens
            positions[row, :count] = np.arange(work.start, work.start + count)
            slots[row, :count] = where[work.start : work.start + count]
            before = work.request.tokens[max(0, work.start - HISTORY) : work.start]
            text = with_history(before + work.tokens, len(before))
            for layer, hashing in enumerate(self.hashes):
                ids[layer][row, :count] = hashing.ids(text)
        self.feed.stage(ids)
        return Batch(*(torch.from_numpy(one) for one in (tokens, positions, slots, context)))

    def _to_device(self, batch: Batch) -> Batch:
        return Batch(*(one.to(self.device) for one in batch))
