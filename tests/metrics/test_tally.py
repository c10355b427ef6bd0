"""Counting: closed label sets, monotone counters, histograms that add up."""

import pytest

from sentinel.agent.figures import Figures, labels
from sentinel.agent.status import EngineStatus
from sentinel.metrics.exposition import encode
from sentinel.metrics.registry import AGENT, BY_NAME
from sentinel.metrics.tally import Tally, Values, gauges, merged
from sentinel.model.stamp import Stamp
from tests.metrics.scrapes import OPENMETRICS, samples, value


def page(tally: Tally) -> str:
    return encode(tuple(tally.series()), OPENMETRICS)[0].decode()


def test_every_metric_follows_the_conventions() -> None:
    """If false, a dashboard that assumes seconds shows bytes, or a query on a counter finds a gauge."""
    for metric in BY_NAME.values():
        assert metric.name.startswith(("sentinel_", "process_")), metric.name
        assert (metric.kind == "counter") == metric.name.endswith("_total"), metric.name
        assert (metric.kind == "info") == metric.name.endswith("_info"), metric.name
        assert metric.unit in metric.name and metric.help.endswith("."), metric.name
        assert (metric.kind == "histogram") == bool(metric.buckets) and len(metric.buckets) <= 12, metric.name
        assert all(label.values or label.bound for label in metric.labels), metric.name
        assert not {label.name for label in metric.labels} & {"type", "cluster", "env", "service", "zone", "instance"}


def test_a_value_outside_a_closed_set_counts_as_other() -> None:
    """If false, what an engine prints could create series without end."""
    tally = Tally(AGENT)
    tally.add("sentinel_xid_events_total", "79")
    tally.add("sentinel_xid_events_total", "4711")
    found = list(samples(page(tally)))

    assert value(found, "sentinel_xid_events_total", xid="79") == 1
    assert value(found, "sentinel_xid_events_total", xid="other") == 1
    assert value(found, "sentinel_xid_events_total", xid="31") == 0, "a first event must be an increase from zero"
    assert value(found, "sentinel_xid_events_total", xid="4711") is None


def test_wrong_labels_are_a_defect() -> None:
    """If false, values would stand under the wrong label and nobody would notice."""
    with pytest.raises(ValueError, match="zip"):
        Tally(AGENT).add("sentinel_dump_failures_total", "py-spy")


def test_a_counter_of_a_source_that_was_replaced_does_not_fall() -> None:
    """If false, `rate` over a restart of a source shows a huge spike, or hides the failures after it."""
    tally = Tally(AGENT)
    for polls in (10.0, 15.0, 3.0):
        tally.grown("sentinel_probes_total", "log:a", polls, "log")
    tally.forget([])
    tally.grown("sentinel_probes_total", "log:a", 2.0, "log")

    assert value(list(samples(page(tally))), "sentinel_probes_total", probe="log") == 20


def test_a_histogram_is_cumulative_and_counts_what_is_above_all_bounds() -> None:
    """If false, quantiles of the agent's own delays would be wrong just when they are long."""
    tally = Tally(AGENT)
    for seconds in (0.001, 0.2, 0.2, 99.0):
        tally.observe("sentinel_loop_lag_seconds", seconds)
    found = list(samples(page(tally)))

    assert value(found, "sentinel_loop_lag_seconds_bucket", le="0.001") == 1
    assert value(found, "sentinel_loop_lag_seconds_bucket", le="0.25") == 3
    assert value(found, "sentinel_loop_lag_seconds_bucket", le="30.0") == 3
    assert value(found, "sentinel_loop_lag_seconds_bucket", le="+Inf") == 4
    assert value(found, "sentinel_loop_lag_seconds_sum") == pytest.approx(99.401)


def test_gauges_that_become_other_are_added_up() -> None:
    """If false, a page with two unknown values would hold the same series twice and be refused as a whole."""
    found: dict[str, dict[Values, float]] = {}
    found["sentinel_store_mode"] = {("e", "mmap"): 1.0, ("e", "uring"): 2.0, ("e", "ram"): 4.0}
    text = encode(tuple(gauges(found)), OPENMETRICS)[0].decode()

    assert value(list(samples(text)), "sentinel_store_mode", mode="other") == 3


def test_two_snapshots_with_a_metric_in_common_are_one_family() -> None:
    """If false, a page of two parts names a metric twice and is refused as a whole."""
    name = "sentinel_loop_last_tick_timestamp_seconds"
    page = merged(*(tuple(gauges({name: {(loop,): 1.0}})) for loop in ("turn", "coordinator")))
    found = list(samples(encode(page, OPENMETRICS)[0].decode()))

    assert len(page) == 1 and {sample.labels["loop"] for sample in found} == {"turn", "coordinator"}


def test_the_name_of_an_engine_survives_its_restart() -> None:
    """If false, every restart would be a new engine on every board, and an alert would never resolve."""

    def engine(key: str, url: str | None) -> EngineStatus:
        return EngineStatus(
            key=key, adapter=key.split(":")[0], processes=(), phase="watching", serving="idle", url=url
        )  # fmt: skip

    before = (engine("sglang:10:1", "http://127.0.0.1:30000"), engine("vllm:20:1", None))
    after = (engine("sglang:90:7", "http://127.0.0.1:30000"), engine("sglang:91:7", "http://10.0.0.1:30000"))

    assert labels(before) == ["sglang:30000", "vllm:20"]
    assert labels(after[:1]) == ["sglang:30000"]
    assert labels(after) == ["sglang:30000:90", "sglang:30000:91"]


def test_figures_can_count_every_metric_that_is_declared_as_a_count() -> None:
    """If false, the registry promises counters that nothing can ever increase."""
    figures = Figures()
    figures.turned(Stamp(mono_ns=0, wall_ns=0, boot_id=""), "turn", 0.0, 0.0)
    counted = {series.metric.name for series in figures.tally.series()}

    assert counted == {metric.name for metric in AGENT if metric.kind in ("counter", "histogram")}
