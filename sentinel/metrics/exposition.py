"""A snapshot in the formats that Prometheus reads: text 0.0.4 and OpenMetrics, chosen by what the scraper accepts."""

from collections.abc import Iterator

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from sentinel.metrics.tally import Heights, Series, Snapshot


class _Page(Collector):
    """What the library's encoders ask for the metrics."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        """One family a metric that has samples."""
        yield from (_family(series) for series in self._snapshot if series.samples)


def encode(snapshot: Snapshot, accept: str = "") -> tuple[bytes, str]:
    """(page, content type) for an Accept header; without one, the plain text format."""
    encoder, content_type = choose_encoder(accept)
    return encoder(_Page(snapshot)), content_type


def _family(series: Series) -> Metric:
    metric = series.metric
    names = [label.name for label in metric.labels]
    # A unit is part of a family's metadata only where its name ends with it, as OpenMetrics demands.
    unit = metric.unit if metric.family.endswith(f"_{metric.unit}") else ""
    if metric.kind == "histogram":
        histogram = HistogramMetricFamily(metric.family, metric.help, labels=names, unit=unit)
        for values, heights in series.samples:
            assert isinstance(heights, Heights)
            histogram.add_metric(values, _buckets(metric.buckets, heights), heights.total)
        return histogram
    if metric.kind == "info":
        info = InfoMetricFamily(metric.family, metric.help)
        for values, _ in series.samples:
            info.add_metric([], dict(zip(names, values, strict=True)))
        return info
    counter = metric.kind == "counter"
    kind = CounterMetricFamily if counter else GaugeMetricFamily
    family = kind(metric.family, metric.help, labels=names, unit=unit)
    for values, value in series.samples:
        assert not isinstance(value, Heights)
        family.add_metric(values, value)
    return family


def _buckets(bounds: tuple[float, ...], heights: Heights) -> list[tuple[str, float]]:
    """Cumulative counts, as the format wants them."""
    total, found = 0, []
    for bound, count in zip((*map(str, bounds), "+Inf"), heights.counts, strict=True):
        total += count
        found.append((bound, float(total)))
    return found
