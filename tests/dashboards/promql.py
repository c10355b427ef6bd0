"""Expressions as syntax trees: which series they ask for, and what of Grafana's variables stands in them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import promql_parser

from sentinel.metrics.registry import BY_NAME, Metric

SERIES: dict[str, Metric] = {sample: metric for metric in BY_NAME.values() for sample in metric.samples}
"""Every series that Sentinel itself exposes."""

OTHERS = re.compile(r"up|scrape_duration_seconds|DCGM_FI_(DEV|PROF)_[A-Z_]+|node_[a-zA-Z_]+|(sglang|vllm)[:_][a-z_]+")
"""Series of Prometheus itself, dcgm-exporter, node_exporter, SGLang and vLLM, which boards join with ours."""

TARGET_LABELS = {"job", "instance", "le", "__name__"}


@dataclass(frozen=True)
class Selector:
    """A series that is asked for, with its matchers as (label, operator, value)."""

    name: str
    matchers: tuple[tuple[str, str, str], ...]


def filled(expression: str, window: str = "1m") -> str:
    """The expression as Grafana would send it, with every variable at "All"."""
    for name, text in {"__rate_interval": window, "__range": window, "engine_prefix": "sglang:"}.items():
        expression = expression.replace(f"${{{name}}}", text).replace(f"${name}", text)
    return re.sub(r"\$(job|instance|engine|node)\b", ".+", expression)


def selectors(expression: str) -> Iterator[Selector]:
    """All series of an expression; raises ValueError where it is no PromQL."""
    found: list[promql_parser.VectorSelector] = []

    def visit(node: object) -> None:
        if isinstance(node, promql_parser.VectorSelector):
            found.append(node)

    promql_parser.walk(promql_parser.parse(expression), visit)
    for one in found:
        matchers = tuple((m.name, str(m.op), m.value) for m in one.matchers.matchers)
        names = [value for label, _, value in matchers if label == "__name__"]
        for name in [one.name] if one.name else names[0].split("|"):
            yield Selector(name or "", matchers)


def complaints(expression: str, recorded: frozenset[str]) -> Iterator[str]:
    """What an expression asks for that nobody exposes: a metric, a label of it, or a value of the label."""
    for one in selectors(expression):
        metric = SERIES.get(one.name)
        if metric is None:
            if one.name not in recorded and not OTHERS.fullmatch(one.name):
                yield f"nobody exposes {one.name}"
            continue
        known = {label.name: label for label in metric.labels}
        for label, operator, value in one.matchers:
            if label in TARGET_LABELS or "$" in value or value == ".+":
                continue
            if label not in known:
                yield f"{one.name} has no label {label}"
            elif known[label].values is not None:
                wanted = value.split("|") if operator.endswith("Re") else [value]
                yield from (f"{one.name}: {label} is never {v}" for v in wanted if v not in (known[label].values or ()))
