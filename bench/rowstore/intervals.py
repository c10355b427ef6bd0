"""Medians with bootstrap intervals, and how a comparison is summed up."""

from dataclasses import dataclass

import numpy as np

RESAMPLES = 4000


@dataclass(frozen=True, slots=True)
class Estimate:
    """A median and its 95 % bootstrap interval."""

    median: float
    low: float
    high: float

    def text(self, digits: int = 0) -> str:
        return f"{self.median:,.{digits}f} [{self.low:,.{digits}f}, {self.high:,.{digits}f}]"


def bootstrap(values: list[float], seed: int = 1) -> Estimate:
    """Median of repetitions; the interval comes from resampling them."""
    data = np.array(values)
    draw = np.random.default_rng(seed)
    medians = np.median(draw.choice(data, (RESAMPLES, len(data))), axis=1)
    low, high = np.percentile(medians, (2.5, 97.5))
    return Estimate(float(np.median(data)), float(low), float(high))
