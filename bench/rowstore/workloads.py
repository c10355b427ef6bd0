"""What is asked for: row ids by popularity, and the sizes of batches."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]

DECODE_ROWS = 288  # eight requests, five draft tokens, six heads of this rank
PREFILL_ROWS = 49_152  # an 8,192-token chunk, six heads


@dataclass(frozen=True, slots=True)
class Popularity:
    """Independent draws over `rows` rows; `exponent` 0 is uniform, else Zipf.

    Ranks are scattered over the table by a permutation, as hashing scatters n-grams.
    """

    rows: int
    exponent: float

    def sampler(self, seed: int) -> "Sampler":
        return Sampler(self, seed)


class Sampler:
    """Draws batches; equal seeds give equal batches, so every method sees the same ids."""

    def __init__(self, popularity: Popularity, seed: int) -> None:
        self._rows = popularity.rows
        self._draw = np.random.default_rng(seed)
        self._cumulated: NDArray[np.float64] | None = None
        if popularity.exponent > 0:
            weights = np.arange(1, self._rows + 1, dtype=np.float64) ** -popularity.exponent
            self._cumulated = np.cumsum(weights / weights.sum())
            self._place = np.random.default_rng(7).permutation(self._rows)

    def reseed(self, seed: int) -> None:
        """Start another stream of draws without building the tables again."""
        self._draw = np.random.default_rng(seed)

    def batch(self, count: int) -> Ids:
        if self._cumulated is None:
            return self._draw.integers(0, self._rows, count)
        ranks = np.searchsorted(self._cumulated, self._draw.random(count))
        ids: Ids = self._place[np.minimum(ranks, self._rows - 1)]
        return ids


def ragged_sizes(seed: int) -> Iterator[int]:
    """Rows per step when eight requests accept each of five drafts with probability 0.76-0.91."""
    draw = np.random.default_rng(seed)
    while True:
        accept = draw.uniform(0.76, 0.91, size=(8, 1))
        kept = np.cumprod(draw.random((8, 5)) < accept, axis=1).sum()
        yield int(6 * (8 + kept))
