"""Prometheus text scrapes of engines, caches and row stores; one or several scrapes in a file.

Source of the format: text exposition 0.0.4 and OpenMetrics 1.0. Kept are the families of inference engines, their
caches and stores, without histogram buckets and creation times. Labels come out sorted. Sample times (ms or s) are used
when the scrape prints them.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from math import isfinite

from sentinel.collector import Context, Line, LogParser, Sample
from sentinel.collectors._machine import Sections, Where, sample_lines
from sentinel.model.observation import Observation, Scrape

FAMILIES = (
    "vllm:", "sglang:", "sglang_", "trtllm_", "nv_trt_llm_", "nv_inference_", "lmcache:", "lmcache_", "mooncake_",
    "nixl_", "dynamo_", "sentinel_", "rowstore_", "row_store_",
)  # fmt: skip
MAX_SERIES = 20_000

_SERIES = re.compile(
    r"^(?P<name>[a-zA-Z_:][\w:]{2,200})(?P<labels>\{.{0,2000}\})?\s+"
    r"(?P<value>[-+]?(?:\d{1,20}(?:\.\d{0,20})?(?:[eE][-+]?\d{1,3})?|Inf|NaN))(?:\s+(?P<time>\d{9,13}(?:\.\d+)?))?\s*$"
)
_LABEL = re.compile(r'([a-zA-Z_]\w{0,100})="((?:[^"\\]|\\.){0,500})"')


def series_of(line: str) -> tuple[str, float, float | None] | None:
    """(series with sorted labels, value, time of the sample in s) of one line of a kept family; None for any other.

    `NaN` and `Inf`, a meter before its first sample, are no values.

    >>> series_of('vllm:num_requests_running{model_name="m",engine="0"} 2.0')
    ('vllm:num_requests_running{engine="0",model_name="m"}', 2.0, None)
    """
    if not line.startswith(FAMILIES) or len(line) > 4096:
        return None
    found = _SERIES.match(line)
    if found is None or found["name"].endswith(("_bucket", "_created")):
        return None
    labels = ",".join(f'{key}="{value}"' for key, value in sorted(_LABEL.findall(found["labels"] or "")))
    at_s = float(found["time"]) if found["time"] else None
    if at_s is not None and at_s > 1e11:
        at_s /= 1000.0
    value = float(found["value"])
    if not isfinite(value):
        return None
    return f"{found['name']}{{{labels}}}" if labels else found["name"], value, at_s


@dataclass(slots=True)
class _Reader:
    context: Context
    sections: Sections = field(init=False)
    where: Where | None = None
    samples: dict[str, float] = field(default_factory=dict)
    stamp_s: float | None = None

    def __post_init__(self) -> None:
        self.sections = Sections(self.context)

    def feed(self, lines: Iterable[Line]) -> Iterator[Observation]:
        batch = list(lines)
        if not batch:
            yield from self._close()
        for line in batch:
            series = series_of(line.text)
            if series is None:
                if line.text.startswith(("# HELP", "# TYPE", "# EOF", "# UNIT")):
                    continue
                if self.sections.note(line.text):
                    yield from self._close()
                continue
            if series[0] in self.samples:
                yield from self._close()
            self._keep(line, *series)

    def _keep(self, line: Line, name: str, value: float, at_s: float | None) -> None:
        self.where = self.where or self.sections.where(line)
        self.stamp_s = at_s if at_s is not None else self.stamp_s
        if len(self.samples) < MAX_SERIES and value == value:
            self.samples[name] = value

    def _close(self) -> Iterator[Scrape]:
        where = self.where
        if where is not None and self.samples:
            if self.stamp_s is not None:
                where["at_s"], where["clock_s"] = self.stamp_s, None
            yield Scrape(**where, samples=self.samples)
        self.where, self.samples, self.stamp_s = None, {}, None


def _recognise(sample: Sample) -> bool:
    return any(series_of(line) is not None for text in (sample.head, sample.tail) for line in sample_lines(text))


def _start(context: Context) -> Callable[[Iterable[Line]], Iterator[Observation]]:
    return _Reader(context).feed


PARSER = LogParser(name="prometheus_text", recognise=_recognise, start=_start)
