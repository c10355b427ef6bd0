"""What a model folder holds: `config.json` and `model.safetensors`, and how n-grams name rows.

Tokens are bytes; 256 begins a text and 257 ends it. An Engram layer looks up one row per hash head
and position; a head belongs to an n-gram order, and its row number is the exclusive or of the
n-gram's folded tokens times odd multipliers, modulo a prime of its own.
"""

import json
import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .rowstore.geometry import FP8, CodeType, HeadRange, RowFormat, Slice, strided_heads

BOS, EOS, VOCAB = 256, 257, 258
ORDERS = (2, 3, 4)
HISTORY = max(ORDERS) - 1
"""Tokens before the first one that an n-gram reaches back to."""

_CODES_PER_SCALE = 4
_GEOMETRY_HEADS_PER_ORDER = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Sizes of a model, as in its `config.json`."""

    name: str
    dim: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    experts: int
    experts_per_token: int
    expert_hidden: int
    shared_hidden: int
    engram_layers: tuple[int, ...]
    engram_heads_per_order: int
    engram_rows: int
    """Least rows of a hash head; each head has the next prime number of rows above the last."""
    engram_dim: int
    draft_hidden: int
    rope_theta: float = 10000.0
    norm_eps: float = 1e-5
    context_tokens: int = 1024

    @property
    def engram_heads(self) -> int:
        """Hash heads of a layer: rows per position."""
        return len(ORDERS) * self.engram_heads_per_order

    @property
    def row_format(self) -> RowFormat:
        """e4m3 codes, and a ue8m0 scale for every four of them."""
        scales = self.engram_dim // _CODES_PER_SCALE
        return RowFormat(CodeType.E4M3, self.engram_dim, scales, _CODES_PER_SCALE)


def load_model_config(folder: Path) -> ModelConfig:
    """Parse `config.json`; ValueError for unknown or missing sizes, or when there is no model."""
    if not (folder / "model.safetensors").exists():
        raise ValueError(f"{folder} holds no model; engine/tools/train.py makes one")
    raw: dict[str, Any] = json.loads((folder / "config.json").read_text())
    known = {one.name for one in fields(ModelConfig)}
    if unknown := sorted(raw.keys() - known):
        raise ValueError(f"{folder}/config.json: unknown settings {', '.join(unknown)}")
    raw["engram_layers"] = tuple(raw["engram_layers"])
    return ModelConfig(**raw)


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables that n-grams name rows of: the model's own, or those of a geometry.

    A geometry has 24 heads and rows of 256 codes and 8 scales, as published; `geometry_rows` is
    the least number of rows of a head. Several of its heads stand for one of the model, which
    reads the first of them, and from its row as many codes and scales as its own rows have.
    """

    model: ModelConfig
    geometry_rows: int = 0

    def __post_init__(self) -> None:
        own, whole = self.model.row_format, self.row_format
        if (
            self.heads_per_order % self.model.engram_heads_per_order
            or own.code_bytes > whole.code_bytes
            or own.scale_bytes > whole.scale_bytes
        ):
            raise ValueError(
                f"{self.model.name} fits no geometry: its heads per order must divide "
                f"{_GEOMETRY_HEADS_PER_ORDER}, and its rows have no more codes and scales than 256 "
                "and 8; set geometry to an empty text"
            )

    @property
    def heads_per_order(self) -> int:
        """Hash heads of an n-gram order."""
        own = self.model.engram_heads_per_order
        return _GEOMETRY_HEADS_PER_ORDER if self.geometry_rows else own

    @property
    def heads_together(self) -> int:
        """Heads for each head of the model."""
        return self.heads_per_order // self.model.engram_heads_per_order

    @property
    def row_format(self) -> RowFormat:
        """Of every table."""
        return FP8 if self.geometry_rows else self.model.row_format

    def heads(self, layer: int) -> tuple[HeadRange, ...]:
        """Where the rows of each head lie in the table of a layer.

        A geometry gives each layer primes of its own, one layer after the other.
        """
        count = len(ORDERS) * self.heads_per_order
        skipped = self.model.engram_layers.index(layer) * count if self.geometry_rows else 0
        size = (self.geometry_rows or self.model.engram_rows) - 1
        ranges, start = [], 0
        for head in range(-skipped, count):
            size = _next_prime(size)
            if head >= 0:
                ranges.append(HeadRange(head, start, size))
                start += size
        return tuple(ranges)

    def slice(self, layer: int, rank: int, world: int) -> Slice:
        """A rank's part of the table of a layer: heads of each order, in turn with the others."""
        return strided_heads(self.heads(layer), world, rank, self.heads_together)


class NgramHash:
    """Row ids of one layer, for all heads or those of one rank.

    A request's history is its own token list: drafted tokens are hashed behind it and forgotten
    with it, so a rollback of the text is the rollback of the history.
    """

    def __init__(self, tables: Tables, layer: int, *, rank: int = 0, world: int = 1) -> None:
        draw = np.random.default_rng(1000 + layer)
        multipliers = draw.integers(1 << 40, 1 << 52, HISTORY + 1, dtype=np.int64) | 1
        fold = np.arange(VOCAB, dtype=np.int64)
        fold[65:91] += 32
        # Products by folded token, one row per place of the n-gram: hashing is a table look-up.
        self._products = multipliers[:, None] * (fold + 1)[None, :]
        heads = tables.slice(layer, rank, world).ranges
        per_order = tables.heads_per_order
        self._order = np.array([one.head // per_order for one in heads], dtype=np.int64)
        self._base = np.array([one.start for one in heads], dtype=np.int64)
        self._size = np.array([one.count for one in heads], dtype=np.int64)

    @property
    def heads(self) -> int:
        """Heads of this rank: ids per position."""
        return len(self._base)

    def ids(self, tokens: NDArray[np.int64]) -> NDArray[np.int64]:
        """Ids `(T, heads)` for `HISTORY + T` tokens, the first `HISTORY` of which are context."""
        count = len(tokens) - HISTORY
        mixed = self._products[0][tokens[HISTORY:]]
        by_order = []
        for back in range(1, HISTORY + 1):
            mixed = mixed ^ self._products[back][tokens[HISTORY - back : HISTORY - back + count]]
            by_order.append(mixed)
        bucket: NDArray[np.int64] = np.stack(by_order, 1)[:, self._order] % self._size
        return self._base + bucket


def with_history(tokens: list[int], start: int) -> NDArray[np.int64]:
    """The tokens from `start` on with their history; before the text lies its beginning mark."""
    missing = max(0, HISTORY - start)
    return np.array([BOS] * missing + tokens[max(0, start - HISTORY) :], dtype=np.int64)


def _next_prime(number: int) -> int:
    number += 1
    while number < 2 or any(number % d == 0 for d in range(2, math.isqrt(number) + 1)):
        number += 1
    return number
