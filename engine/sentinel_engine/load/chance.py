"""Exact statistics of rare hangs: intervals and a two-arm test, without approximations."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

_HALVINGS = 200


def _solve(rises: Callable[[float], float], target: float, high: float) -> float:
    """Where a function that rises on [0, high] reaches `target`."""
    low = 0.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if rises(middle) < target else (low, middle)
    return (low + high) / 2


def _binomial_at_most(k: int, n: int, p: float) -> float:
    return math.fsum(math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k + 1))


def _poisson_at_most(k: int, mean: float) -> float:
    return math.fsum(math.exp(i * math.log(mean) - mean - math.lgamma(i + 1)) if mean else i == 0
                     for i in range(k + 1))  # fmt: skip


def share_interval(hangs: int, cases: int, level: float = 0.95) -> tuple[float, float]:
    """Clopper-Pearson interval of a rate per case."""
    tail = (1 - level) / 2
    low = _solve(lambda p: 1 - _binomial_at_most(hangs - 1, cases, p), tail, 1.0) if hangs else 0.0
    high = _solve(lambda p: 1 - _binomial_at_most(hangs, cases, p), 1 - tail, 1.0)
    return low, high if hangs < cases else 1.0


def share_upper(hangs: int, cases: int, level: float = 0.95) -> float:
    """One-sided upper bound of a rate per case."""
    return share_interval(hangs, cases, 2 * level - 1)[1]


def time_interval(hangs: int, seconds: float, level: float = 0.95) -> tuple[float, float]:
    """Garwood interval of a rate per second of exposure."""
    tail = (1 - level) / 2
    most = 10.0 * (hangs + 10)
    low = _solve(lambda m: 1 - _poisson_at_most(hangs - 1, m), tail, most) if hangs else 0.0
    high = _solve(lambda m: 1 - _poisson_at_most(hangs, m), 1 - tail, most)
    return low / seconds, high / seconds


def fisher(hangs_a: int, cases_a: int, hangs_b: int, cases_b: int) -> float:
    """One-sided exact probability of at least `hangs_a` of all hangs in arm A if arms are alike."""
    hangs, cases = hangs_a + hangs_b, cases_a + cases_b
    ways = sum(math.comb(cases_a, k) * math.comb(cases_b, hangs - k)
               for k in range(hangs_a, min(hangs, cases_a) + 1))  # fmt: skip
    return ways / math.comb(cases, hangs)


@dataclass(frozen=True, slots=True)
class Arm:
    """What one arm was exposed to; cases that ended in an error are no exposure."""

    name: str
    cases: int
    hangs: int
    seconds: float

    @classmethod
    def of(cls, name: str, cases: Iterable[dict[str, Any]]) -> "Arm":
        """Count the cases of an arm; the silence by which a hang was known is no exposure."""
        used = [case for case in cases if case["arm"] == name and case["outcome"] != "error"]
        hung = [case for case in used if case["outcome"] == "hang"]
        seconds = math.fsum(case["wall_s"] for case in used)
        silent = math.fsum(case["silence_s"] for case in hung)
        return cls(name, len(used), len(hung), seconds - silent)

    def row(self) -> dict[str, Any]:
        """Rates with 95 % intervals, per case and per hour of exposure."""
        hours = (3600 * bound for bound in time_interval(self.hangs, self.seconds))
        return {
            "arm": self.name, "cases": self.cases, "hangs": self.hangs, "seconds": self.seconds,
            "per_case_95": share_interval(self.hangs, self.cases), "per_hour_95": tuple(hours),
        }  # fmt: skip


def compare(cases: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row per arm, then the exact test of each pair, the arm with the higher rate first.

    `p_one_sided` is for a direction that was fixed before looking; else take `p_two_sided`.
    """
    names = sorted({case["arm"] for case in cases})
    arms = [arm for arm in (Arm.of(name, cases) for name in names) if arm.cases]
    arms.sort(key=lambda arm: -arm.hangs / arm.cases)
    rows = [arm.row() for arm in arms]
    for k, more in enumerate(arms):
        for less in arms[k + 1 :]:
            p = fisher(more.hangs, more.cases, less.hangs, less.cases)
            rows.append({"more": more.name, "less": less.name, "p_one_sided": p,
                         "p_two_sided": min(1.0, 2 * p)})  # fmt: skip
    return rows
