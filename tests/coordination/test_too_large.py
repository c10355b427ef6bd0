"""What does not fit onto the bus: it costs its own words, and never the coordinator."""

import msgspec
import pytest

from sentinel.bus.bus import RECORD_BYTES_MAX, TooLarge
from sentinel.coordinator.asking import ask, notices
from sentinel.coordinator.names import ANSWERS, ORDERS
from sentinel.model.cluster import Order
from sentinel.plumbing.clock import SystemClock
from tests.coordination.cluster_world import CALLBACK
from tests.coordination.led import Led


def test_a_verdict_that_fits_into_no_record_is_told_by_its_summary() -> None:
    """False: the incident of a large group ends the thread that leads, again and again."""
    led = Led()
    led.turn(3)
    half = "x" * (RECORD_BYTES_MAX * 2 // 5)
    led.stall(msgspec.structs.replace(CALLBACK, summary=half, missing=(half,)))
    (told,) = [told for told in notices(led.bus) if told.what == "verdict"]

    assert told.verdict is None and told.words and half.startswith(told.words)


def test_an_order_that_is_too_long_is_refused_where_it_is_given_and_passed_over_where_it_is_not() -> None:
    """False: a pasted log as the reason of a pause ends the coordinator, and every one that begins after it."""
    led = Led()
    led.turn(3)
    long = Order(id="long", verb="pause", by="somebody", reason="x" * (RECORD_BYTES_MAX - 150), seconds=60.0)
    with pytest.raises(TooLarge, match="an order of"):
        ask(led.bus, long, SystemClock())
    led.bus.append(ORDERS, msgspec.json.encode(long), long.id)
    led.order("pause", group="", seconds=60.0)

    assert len(led.bus.follow(ANSWERS, 0)) == 1 and led.leader.leading
