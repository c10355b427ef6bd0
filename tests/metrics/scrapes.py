"""What a scraper does: asks a page, and reads it with the strict parser of the OpenMetrics text format."""

import http.client
import ssl
from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client.openmetrics.parser import text_string_to_metric_families

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


@dataclass(frozen=True)
class Answer:
    """A page."""

    status: int
    content_type: str
    text: str


def get(port: int, path: str = "/metrics", tls: ssl.SSLContext | None = None, **headers: str) -> Answer:
    """One request to the loopback device."""
    client = (
        http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        if tls is None
        else http.client.HTTPSConnection("localhost", port, timeout=10, context=tls)
    )
    try:
        client.request("GET", path, headers=headers)
        response = client.getresponse()
        return Answer(response.status, response.headers["Content-Type"], response.read().decode())
    finally:
        client.close()


@dataclass(frozen=True)
class Sample:
    """One value of a page."""

    name: str
    labels: dict[str, str]
    value: float


def samples(text: str) -> Iterator[Sample]:
    """All values of an OpenMetrics page; raises ValueError where the page breaks the format."""
    for family in text_string_to_metric_families(text):  # type: ignore[no-untyped-call]
        for sample in family.samples:
            yield Sample(sample.name, dict(sample.labels), sample.value)


def scraped(port: int) -> list[Sample]:
    """All values that a running exporter serves now."""
    answer = get(port, Accept=OPENMETRICS)
    assert answer.status == 200 and answer.content_type.startswith("application/openmetrics-text"), answer
    return list(samples(answer.text))


def value(found: list[Sample], name: str, **labels: str) -> float | None:
    """The value of the one series with these labels; None when there is none."""
    values = [sample.value for sample in found if sample.name == name and labels.items() <= sample.labels.items()]
    assert len(values) < 2, (name, labels)
    return values[0] if values else None
