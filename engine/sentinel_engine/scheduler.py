"""Who runs in which step: requests, KV pages, and the order of prefill and decode.

Every rank keeps its own scheduler and feeds it the same events and tokens, so all decide alike.
A request gets all the pages it can ever need when it is admitted: nothing is ever retracted.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from .config import EngineConfig


@dataclass(slots=True, eq=False)
class Request:
    """One request; `done` counts tokens whose keys and values are in the cache."""

    rid: str
    tokens: list[int]
    prompt: int
    max_tokens: int
    options: dict[str, Any]
    done: int = 0
    pages: list[int] = field(default_factory=list)
    state: Tensor | None = None
    """Hidden state from which the last token was chosen; the draft head starts from it."""
    _slots: NDArray[np.int64] | None = None

    @property
    def produced(self) -> int:
        """Tokens generated so far."""
        return len(self.tokens) - self.prompt

    @property
    def prefilled(self) -> bool:
        """Whether the prompt has been fed and a first token chosen."""
        return self.produced > 0

    def draft_room(self, most: int) -> int:
        """Drafted tokens that could still be used."""
        return max(0, min(most, self.max_tokens - self.produced - 1))

    def slots(self, page_tokens: int) -> NDArray[np.int64]:
        """Cache slots by position."""
        if self._slots is None:
            first = np.array(self.pages, dtype=np.int64)[:, None] * page_tokens
            self._slots = (first + np.arange(page_tokens)).reshape(-1)
        return self._slots


class Scheduler:
    """Queue, running requests and free pages."""

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        # Page 0 takes what padding writes.
        self._free = list(range(config.kv_pages - 1, 0, -1))
        self._prefer_decode = False

    def add(self, request: Request) -> None:
        """Queue a request."""
        self.waiting.append(request)

    def admit(self) -> Iterator[Request]:
        """Move requests that fit into the running batch, in order of arrival."""
        while self.waiting and len(self.running) < self.config.max_running:
            head = self.waiting[0]
            tokens = len(head.tokens) + head.max_tokens + self.config.draft_tokens + 1
            needed = -(-tokens // self.config.page_tokens)
            if needed > len(self._free):
                return
            head.pages = [self._free.pop() for _ in range(needed)]
            self.running.append(self.waiting.popleft())
            yield head

    def next_prefill(self) -> Request | None:
        """The request whose prompt is fed next; None when it is the turn of decoding."""
        hungry = next((one for one in self.running if not one.prefilled), None)
        ready = any(one.prefilled for one in self.running)
        if hungry is None or (ready and self._prefer_decode):
            self._prefer_decode = False
            return None
        self._prefer_decode = True
        return hungry

    def decoding(self) -> list[Request]:
        """Requests of the next decode step."""
        return [one for one in self.running if one.prefilled]

    def drop(self, request: Request) -> None:
        """Forget a request and free its pages."""
        if request in self.running:
            self.running.remove(request)
            self._free.extend(reversed(request.pages))
        elif request in self.waiting:
            self.waiting.remove(request)

    def find(self, rid: str) -> Request | None:
        """A request by its id."""
        return next((one for one in (*self.running, *self.waiting) if one.rid == rid), None)

    @property
    def used_tokens(self) -> int:
        """Tokens in the cache."""
        return sum(one.done for one in self.running)

    @property
    def usage(self) -> float:
        """Share of the pages that is taken."""
        return 1 - len(self._free) / (self.config.kv_pages - 1)
