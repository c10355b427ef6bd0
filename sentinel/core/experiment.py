"""Does the row-store mode matter? Stalls per serving hour in each mode, with an exact interval."""

from collections.abc import Callable
from math import exp

from sentinel.model.cluster import Exposure

CONFIDENCE = 0.95
STALLS_MAX = 300
"""Beyond this many the first term of the distribution underflows; the rate is then a lower bound."""


def rate_per_hour(exposure: Exposure) -> tuple[float | None, float, float | None]:
    """(rate, lower, upper) of stalls per served hour: the exact Poisson interval (Garwood 1936).

    Without any exposure the rate and its upper end are unknown, not 0.
    """
    hours = exposure.served_s / 3600.0
    if hours <= 0:
        return None, 0.0, None
    tail = (1.0 - CONFIDENCE) / 2.0
    stalls = min(exposure.stalls, STALLS_MAX)
    lower = 0.0 if stalls == 0 else _solve(lambda mean: 1.0 - _at_most(stalls - 1, mean), tail)
    upper = _solve(lambda mean: 1.0 - _at_most(stalls, mean), 1.0 - tail)
    return stalls / hours, lower / hours, upper / hours


def _at_most(count: int, mean: float) -> float:
    """P(N <= count) of a Poisson variable; the terms are built up from the first to stay finite."""
    term = total = exp(-mean)
    for number in range(1, count + 1):
        term *= mean / number
        total += term
    return total


def _solve(rising: Callable[[float], float], wanted: float) -> float:
    """The mean at which a rising probability reaches `wanted`, by bisection."""
    low, high = 0.0, 1.0
    while rising(high) < wanted:
        high *= 2.0
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (middle, high) if rising(middle) < wanted else (low, middle)
    return (low + high) / 2.0
