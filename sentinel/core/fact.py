"""What a fact is: a named, three-valued statement computed from observations, with the places that show it.

A fact's value is `None` when the sources that could decide it were absent, unreadable or too few: *unknown* is a value,
and `missing` then names the observation that would decide. A fact is never guessed from silence of a source.
"""

from collections.abc import Callable
from dataclasses import dataclass

from sentinel.core.picture import Picture
from sentinel.model.observation import Origin

Value = bool | float | str | tuple[int, ...] | tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Cite:
    """One place that shows the fact, in words a person on call understands."""

    says: str
    origin: Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A computed fact. Sets of ranks, hosts, pids or requests are sorted tuples; an empty tuple is a known "none"."""

    value: Value
    cites: tuple[Cite, ...] = ()
    missing: tuple[str, ...] = ()


def unknown(*missing: str) -> Fact:
    """A fact that cannot be decided, with what would decide it."""
    return Fact(value=None, missing=missing)


@dataclass(frozen=True, slots=True, kw_only=True)
class FactSpec:
    """A catalogue entry. `unit` is one of: bool, s, ranks, hosts, pids, requests, count, ratio, word.

    `about` is one sentence; `compute` must be pure, total and must cite at least one origin for any known value that
    a rule may use as support.
    """

    name: str
    unit: str
    about: str
    compute: Callable[[Picture], Fact]
