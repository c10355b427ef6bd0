"""Prompts of a wanted length that no cache has seen, repeatable from a seed."""

import random

from .client import Ask, BenchError, Client

_TEXT = """
the of and to in a is that it was for on are with as his they be at one have this from had by
word but what some we can out other were all there when up use your how said an each she which
do their time if will way about many then them write would like so these her long make thing
see him two has look more day could go come did number sound no most people my over know water
than call first who may down side been now find river stone light winter machine answer memory
"""
_WORDS = _TEXT.split()
_PROBE_CHARACTERS = 400


def text(characters: int, seed: str) -> str:
    """Exactly that many characters of words drawn by `seed`; other seeds begin differently."""
    draw = random.Random(seed)
    words: list[str] = []
    length = 0
    while length <= characters:
        words.append(draw.choice(_WORDS))
        length += len(words[-1]) + 1
    return " ".join(words)[:characters]


class Prompts:
    """Makes prompts of about `n` tokens; the real number is what the server's usage says."""

    def __init__(self, characters_per_token: float, seed: str) -> None:
        self.characters_per_token, self.seed = characters_per_token, seed

    @classmethod
    async def calibrate(cls, client: Client, seed: str) -> "Prompts":
        """Ask the server how many tokens a known text has; BenchError when it does not say."""
        (answer,) = await client.burst([Ask(text(_PROBE_CHARACTERS, f"{seed}/probe"), 1)])
        if answer.status != "ok":
            raise BenchError(f"the first request ended '{answer.status}' {answer.detail}; "
                             "check the server with /health_generate")  # fmt: skip
        if not answer.prompt_tokens:
            raise BenchError("the server reports no usage while streaming: rates need it")
        return cls(_PROBE_CHARACTERS / answer.prompt_tokens, seed)

    def make(self, tokens: int, name: str) -> str:
        """A prompt of `tokens` tokens; equal names give equal text."""
        return text(max(1, round(tokens * self.characters_per_token)), f"{self.seed}/{name}")
