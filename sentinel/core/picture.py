"""The picture: everything observed so far, grouped by kind and joined to ranks. Facts read it, nothing else writes it.

Bounded: each kind keeps its newest `keep` observations (older ones are counted in `dropped`), so that a live agent's
memory does not grow with the age of the engine.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar, cast

import msgspec

from sentinel.core.identity import Identity
from sentinel.model.observation import Observation

KEEP = 200_000
T = TypeVar("T", bound=Observation)
V = TypeVar("V")


def moved(seen: T, seconds: float) -> T:
    """An observation on a wall clock that is that much ahead; one without a time is not changed."""
    return seen if seen.at_s is None else msgspec.structs.replace(seen, at_s=seen.at_s + seconds)


@dataclass(slots=True)
class Picture:
    """All that is known at one instant. `now_s` is the judgement time on the scale of `Observation.at_s`."""

    keep: int = KEEP
    now_s: float | None = None
    clock_error_s: float = 0.0
    identity: Identity = field(default_factory=Identity)
    dropped: int = 0
    _by_type: dict[type[Observation], deque[Observation]] = field(default_factory=dict)
    _cache: dict[str, object] = field(default_factory=dict)

    def note(self, seen: Observation) -> None:
        """Add one observation."""
        self._cache.clear()
        kept = self._by_type.setdefault(type(seen), deque())
        kept.append(seen)
        if len(kept) > self.keep:
            kept.popleft()
            self.dropped += 1
        self.identity.note(seen)

    def shift(self, seconds: float) -> None:
        """Somebody set the wall clock: move what was seen before onto the new scale."""
        self._cache.clear()
        for kind, kept in self._by_type.items():
            self._by_type[kind] = deque(moved(seen, seconds) for seen in kept)

    def all(self, kind: type[T]) -> Iterator[T]:
        """Observations of one kind in the order they were noted."""
        yield from self._by_type.get(kind, ())  # type: ignore[misc]

    def has(self, kind: type[Observation]) -> bool:
        """Whether anything of this kind was observed."""
        return bool(self._by_type.get(kind))

    def rank_of(self, seen: Observation) -> int | None:
        """Global rank that an observation speaks of; None when the evidence does not say."""
        found = self.identity.rank_of(seen.host, seen.pid, seen.tags)
        return found if found is not None else seen.rank

    def by_rank(self, kind: type[T]) -> dict[int, list[T]]:
        """Observations of one kind per known rank, in order; those of unknown rank are left out."""
        grouped: dict[int, list[T]] = defaultdict(list)
        for seen in self.all(kind):
            rank = self.rank_of(seen)
            if rank is not None:
                grouped[rank].append(seen)
        return dict(grouped)

    @property
    def kinds(self) -> frozenset[type[Observation]]:
        """Kinds observed at least once."""
        return frozenset(kind for kind, kept in self._by_type.items() if kept)

    def memo(self, compute: "Callable[[Picture], V]") -> V:
        """A derived value, computed once per state of the picture and shared by the facts that need it."""
        name = f"{compute.__module__}.{compute.__qualname__}"
        if name not in self._cache:
            self._cache[name] = compute(self)
        return cast(V, self._cache[name])
