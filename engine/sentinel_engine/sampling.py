"""Chooses tokens, on rank 0 only: verifies drafts, applies grammars, finds the end of a request.

A drafted token is kept with the probability that the model gives it, else another one is drawn
from what remains: the text is distributed as if it had not been drafted. Greedy requests keep a
draft while it is the model's own first choice.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from .grammar import Grammar, State
from .modelfile import BOS, EOS
from .scheduler import Request

Logits = NDArray[np.float32]
RUNNING, STOP, LENGTH = 0, 1, 2
FINISH = {STOP: "stop", LENGTH: "length"}


@dataclass(slots=True)
class Choice:
    """What a request brings along for choosing its tokens."""

    random: np.random.Generator
    grammar: Grammar | None
    state: State
    text: bytearray = field(default_factory=bytearray)


class Sampler:
    """The choices of all running requests."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._choices: dict[str, Choice] = {}

    def admit(self, request: Request) -> None:
        """Prepare a request."""
        schema = request.options.get("schema")
        grammar = None if schema is None else Grammar(schema)
        seed = request.options.get("seed", self._seed)
        self._choices[request.rid] = Choice(
            np.random.default_rng(seed), grammar, grammar.start if grammar else frozenset()
        )

    def forget(self, request: Request) -> None:
        """Drop what is known of a request."""
        self._choices.pop(request.rid, None)

    def choose(
        self, request: Request, logits: Logits, drafts: list[int]
    ) -> tuple[list[int], int]:
        """Tokens to append, and whether the request ends with them."""
        choice, chosen, finish = self._choices[request.rid], [], RUNNING
        for place in range(len(drafts) + 1):
            draft = drafts[place] if place < len(drafts) else None
            token = self._pick(request, choice, logits[place], draft)
            chosen.append(token)
            finish = self._after(request, choice, token, request.produced + len(chosen))
            if finish != RUNNING or token != draft:
                break
        return chosen, finish

    def _pick(self, request: Request, choice: Choice, logits: Logits, draft: int | None) -> int:
        logits = logits.copy()
        logits[BOS] = -np.inf
        if choice.grammar is not None:
            logits[~choice.grammar.allowed(choice.state)] = -np.inf
        elif request.options.get("ignore_eos"):
            logits[EOS] = -np.inf
        temperature = request.options.get("temperature", 0.0)
        if temperature == 0.0:
            return int(logits.argmax())
        weights = np.exp((logits - logits.max()) / temperature, dtype=np.float64)
        weights /= weights.sum()
        if draft is not None:
            if choice.random.random() < weights[draft]:
                return draft
            weights[draft] = 0.0
            weights /= weights.sum()
        return int(choice.random.choice(len(weights), p=weights))

    @staticmethod
    def _after(request: Request, choice: Choice, token: int, produced: int) -> int:
        if token == EOS:
            return STOP
        choice.text.append(token)
        if choice.grammar is not None:
            choice.state = choice.grammar.step(choice.state, token)
            if choice.grammar.complete(choice.state):
                return STOP
        if any(choice.text.endswith(one.encode()) for one in request.options.get("stop", ())):
            return STOP
        return LENGTH if produced >= request.max_tokens else RUNNING
