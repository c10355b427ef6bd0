"""What does not fit onto the bus: it costs its own words, and never the coordinator."""

import msgspec
import pytest

from sentinel.bus.bus import RECORD_BYTES_MAX, TooLarge
from sentinel.coordinator.asking import ask, notices, state_of
from sentinel.coordinator.names import ANSWERS, ORDERS
from sentinel.model.cluster import Order
from sentinel.model.verdict import Verdict
from sentinel.plumbing.clock import SystemClock
from tests.coordination.cluster_world import CALLBACK, World
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


def test_verdicts_that_fit_into_no_state_together_are_saved_without_their_reasons() -> None:
    """False: a storm of stalls ends the lead at every save, and nobody leads while it lasts."""
    led = Led(groups={f"chat{number}": (f"host{number}",) for number in range(8)})
    led.turn(3)
    missing = tuple("x" * 1000 for _ in range(RECORD_BYTES_MAX * 3 // 5 // 1000))
    for name in led.groups:
        led.change(name, phase="judged", verdict=large(missing), moved_s=led.now_s - 100.0)
    led.turn(40)
    saved, core = state_of(led.bus), led.leader.core

    assert led.leader.leading and led.leader.transitions == 1 and led.leader.trouble == ""
    assert saved is not None and core is not None
    for name, state in saved.groups.items():
        verdict, told = state.verdict, core.group(name).verdict
        assert verdict is not None and told is not None and told.missing == missing
        assert verdict.actions == told.actions and verdict.kind == told.kind and verdict.stalled
        assert len(verdict.missing) == 1 and verdict.missing[0].startswith(f"{len(missing)} lines of this verdict")


def test_a_state_that_cannot_be_saved_holds_everything_up_and_keeps_the_lead() -> None:
    """False: a coordinator acts on what no successor will know, or leads and stands down for ever."""
    names: dict[str, tuple[str, ...]] = {f"{'x' * 300}{number}": ("one",) for number in range(900)}
    led = Led(groups=names, silent={"one"})
    led.turn(3)
    led.order("policy", group="", value="observe")

    assert led.leader.leading and led.leader.transitions == 1
    assert "configure fewer groups" in led.leader.trouble and len(led.bus.follow(ANSWERS, 0)) == 0


def test_words_of_people_do_not_fill_the_state() -> None:
    """False: sixty-four remarks on made-up incidents, each as long as an order may be, end the lead."""
    world = World()
    assert not world.order("feedback", group="chat-" + "7" * 5000, value="confirmed").ok
    assert world.order("feedback", group="chat-7.1", value="confirmed").ok
    world.order("pause", seconds=60.0, reason="x" * 5000)
    world.order("maintenance", group="one", value="on", reason="x" * 5000)

    assert len(msgspec.json.encode(world.core.state)) < 5000


def large(missing: tuple[str, ...]) -> Verdict:
    """A verdict with many words."""
    return msgspec.structs.replace(CALLBACK, missing=missing)
