"""Counters and histograms. Each tally is written by one thread alone, so that nothing needs a lock."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from sentinel.metrics.registry import BY_NAME, Metric

Values = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Heights:
    """A histogram's content: observations per bucket, the last for what is above them all, and their sum."""

    counts: tuple[int, ...]
    total: float


@dataclass(frozen=True, slots=True)
class Series:
    """All series of one metric at one instant."""

    metric: Metric
    samples: tuple[tuple[Values, float | Heights], ...]


Snapshot = tuple[Series, ...]
"""What a scrape serves. It is never changed once it is made."""


@dataclass(slots=True)
class Tally:
    """Counts for the metrics it was made for. Closed label sets start at zero, so that a first event is an increase."""

    metrics: tuple[Metric, ...]
    _counts: dict[str, dict[Values, float]] = field(default_factory=dict)
    _heights: dict[str, dict[Values, tuple[list[int], float]]] = field(default_factory=dict)
    _last: dict[tuple[str, str], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for metric in self.metrics:
            combinations = tuple(metric.closed_combinations())
            if metric.kind == "counter":
                self._counts[metric.name] = dict.fromkeys(combinations, 0.0)
            elif metric.kind == "histogram":
                self._heights[metric.name] = {values: _empty(metric) for values in combinations}

    def add(self, name: str, *values: str, by: float = 1.0) -> None:
        """Count; a value outside a closed set counts as `other`."""
        series = self._counts[name]
        admitted = admitted_values(BY_NAME[name], values)
        series[admitted] = series.get(admitted, 0.0) + by

    def grown(self, name: str, owner: str, value: float, *values: str) -> None:
        """Count the growth of somebody else's counter since the last call; one that fell was started anew."""
        before = self._last.get((name, owner), 0.0)
        self._last[name, owner] = value
        self.add(name, *values, by=value - before if value >= before else value)

    def forget(self, owners: Iterable[str]) -> None:
        """Keep the counters of these owners alone; the others are gone."""
        kept = set(owners)
        self._last = {key: value for key, value in self._last.items() if key[1] in kept}

    def observe(self, name: str, value: float, *values: str) -> None:
        """Add one observation to a histogram."""
        metric = BY_NAME[name]
        admitted = admitted_values(metric, values)
        counts, total = self._heights[name].get(admitted) or _empty(metric)
        counts[bisect_left(metric.buckets, value)] += 1
        self._heights[name][admitted] = (counts, total + value)

    def series(self) -> Iterator[Series]:
        """What was counted so far."""
        for name, series in self._counts.items():
            yield Series(BY_NAME[name], tuple(series.items()))
        for name, found in self._heights.items():
            samples = ((values, Heights(tuple(counts), total)) for values, (counts, total) in found.items())
            yield Series(BY_NAME[name], tuple(samples))


def gauges(found: Mapping[str, Mapping[Values, float]]) -> Iterator[Series]:
    """Values that were read now. Those that are not there any more vanish; those that become `other` are added up."""
    for name, samples in found.items():
        metric = BY_NAME[name]
        admitted: dict[Values, float] = {}
        for values, value in samples.items():
            key = admitted_values(metric, values)
            admitted[key] = admitted.get(key, 0.0) + value
        yield Series(metric, tuple(admitted.items()))


def merged(*snapshots: Snapshot) -> Snapshot:
    """Several snapshots as one page: a metric that more than one of them has becomes one family."""
    found: dict[str, Series] = {}
    for series in chain.from_iterable(snapshots):
        known = found.get(series.metric.name)
        samples = series.samples if known is None else (*known.samples, *series.samples)
        found[series.metric.name] = Series(series.metric, samples)
    return tuple(found.values())


def admitted_values(metric: Metric, values: Values) -> Values:
    """Label values inside their closed sets. Raises ValueError on a wrong number of them: a defect of ours."""
    return tuple(label.admit(value) for label, value in zip(metric.labels, values, strict=True))


def _empty(metric: Metric) -> tuple[list[int], float]:
    return [0] * (len(metric.buckets) + 1), 0.0
