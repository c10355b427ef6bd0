"""When silence of a live engine is suspicious."""

import pytest

from sentinel.core.pulse import Pulse
from sentinel.model.event import CoreSettings
from sentinel.model.observation import Decode, HealthProbe, Notice, NoticeKind, Origin, Phase, Scrape, StoreTelemetry
from sentinel.model.stamp import Stamp

PAGE = Origin("http://127.0.0.1:8000/metrics")


def at(seconds: float) -> Stamp:
    return Stamp(mono_ns=round(seconds * 1e9), wall_ns=round((1_700_000_000 + seconds) * 1e9))


def scraped(pulse: Pulse, seconds: float, running: int, tokens: float) -> bool:
    samples = {'vllm:num_requests_running{engine="0"}': float(running), "vllm:generation_tokens_total": tokens}
    return pulse.note(at(seconds), Scrape(origin=PAGE, at_s=1_700_000_000 + seconds, samples=samples))


def overdue(pulse: Pulse, seconds: float) -> bool:
    silence_s = pulse.silence_s(seconds)
    return bool(pulse.outstanding()) and silence_s is not None and silence_s >= pulse.limit_s(seconds)


def test_the_first_request_after_a_start_may_take_its_time() -> None:
    """False: every start of a real engine, whose first token took 18 s, raises an alarm."""
    pulse = Pulse(CoreSettings())
    scraped(pulse, 0, running=0, tokens=0)
    for second in range(100, 118):
        scraped(pulse, second, running=1, tokens=0)

    assert not overdue(pulse, 118)
    assert overdue(pulse, 161)


def test_an_engine_that_has_served_owes_its_next_token_soon() -> None:
    """False: a worker that was stopped while idle is noticed only when the request's client has given up."""
    pulse = Pulse(CoreSettings())
    scraped(pulse, 0, running=0, tokens=512)
    for second in range(100, 109):
        scraped(pulse, second, running=1, tokens=512)

    assert not overdue(pulse, 107)
    assert overdue(pulse, 108)


def test_a_front_end_that_falls_silent_is_suspected_even_without_known_work() -> None:
    """False: an idle engine's API server hangs, requests pile up unseen, and its last gauges say that nobody waits."""
    pulse = Pulse(CoreSettings())
    scraped(pulse, 0, running=0, tokens=512)
    for second in (100, 104, 108, 112, 116):
        probe = HealthProbe(origin=PAGE, at_s=1_700_000_000 + second, url="/metrics", status=None, latency_ms=2000)
        pulse.note(at(second), probe)

    assert not overdue(pulse, 104)
    assert overdue(pulse, 116)

    scraped(pulse, 118, running=0, tokens=512)

    assert not overdue(pulse, 200)


def test_a_front_end_that_never_answered_is_not_expected_to() -> None:
    """False: an engine whose metrics page is closed to the agent is suspected for ever."""
    pulse = Pulse(CoreSettings())
    for second in range(0, 60, 4):
        probe = HealthProbe(origin=PAGE, at_s=1_700_000_000 + second, url="/metrics", status=None, latency_ms=2000)
        pulse.note(at(second), probe)

    assert not overdue(pulse, 60)


def accepted(pulse: Pulse, seconds: float, path: str = "/v1/completions") -> None:
    line = Notice(
        origin=Origin("engine.log", 9), at_s=1_700_000_000 + seconds, engine="vllm", notice="request",
        text=f'INFO: 127.0.0.1:50000 - "POST {path} HTTP/1.1" 200 OK', fields={"path": path, "status": "200"},
    )  # fmt: skip
    pulse.note(at(seconds), line)


def served_and_idle() -> Pulse:
    pulse = Pulse(CoreSettings())
    for second, tokens in ((0, 100), (2, 200), (4, 300), (6, 300), (60, 300)):
        scraped(pulse, second, running=0, tokens=tokens)
    return pulse


def test_a_request_to_a_frozen_idle_engine_is_work_although_its_gauges_stay_at_zero() -> None:
    """False: a worker is stopped at night, and in the morning every request hangs while the metrics say idle."""
    pulse = served_and_idle()
    accepted(pulse, 61)
    for second in (62, 64, 66, 68, 70):
        scraped(pulse, second, running=0, tokens=300)

    assert overdue(pulse, 70)


def gathering(pulse: Pulse, seconds: float, open_s: float | None) -> None:
    lane = None if open_s is None else 0
    page = StoreTelemetry(
        origin=PAGE, at_s=1_700_000_000 + seconds, pid=7, mode="legacy", open_lane=lane, lane_age_s=open_s
    )
    pulse.note(at(seconds), page)


def test_a_gather_that_stays_open_is_work_although_the_gauges_stay_at_zero() -> None:
    """False: an engine that hangs in the first step of a burst is killed by its own watchdog, unseen."""
    pulse = Pulse(CoreSettings())
    scraped(pulse, 0, running=3, tokens=512)
    scraped(pulse, 1, running=0, tokens=600)
    for second in range(10, 30):
        scraped(pulse, second, running=0, tokens=600)
        gathering(pulse, second, open_s=second - 9.0)

    assert overdue(pulse, 29)
    assert pulse.silence_s(29) == pytest.approx(20.0)
    gathering(pulse, 30, open_s=None)
    assert not pulse.outstanding()


def test_a_gather_that_a_sample_happens_to_meet_is_no_outstanding_work() -> None:
    """False: the last gather before a quiet night is suspected until the next look at its page."""
    pulse = Pulse(CoreSettings())
    scraped(pulse, 0, running=1, tokens=512)
    scraped(pulse, 1, running=0, tokens=600)
    gathering(pulse, 2, open_s=0.004)

    assert not overdue(pulse, 60)


def test_a_short_request_between_two_scrapes_is_no_outstanding_work() -> None:
    """False: each short request to a quiet engine, answered long before the next scrape, raises an alarm."""
    pulse = served_and_idle()
    accepted(pulse, 61)
    scraped(pulse, 62, running=0, tokens=316)

    assert not overdue(pulse, 100)

    accepted(pulse, 63)

    assert not overdue(pulse, 140)


def test_calls_that_make_no_tokens_are_no_outstanding_work() -> None:
    """False: counting the tokens of a text, or a line from before the agent's start, raises an alarm."""
    pulse = served_and_idle()
    accepted(pulse, 61, "/tokenize")

    assert not overdue(pulse, 140)


def printed(pulse: Pulse, seconds: float, notice: NoticeKind) -> None:
    line = Notice(
        origin=Origin("engine.log", 10), at_s=1_700_000_000 + seconds, engine="vllm", notice=notice, text=notice
    )
    pulse.note(at(seconds), line)


def shut_down(pulse: Pulse, seconds: float) -> None:
    line = Phase(
        origin=Origin("engine.log", 11), at_s=1_700_000_000 + seconds, engine="vllm", phase="shutdown", edge="begin"
    )
    pulse.note(at(seconds), line)


def test_a_shutdown_that_follows_a_lost_rank_is_no_orderly_end() -> None:
    """False: a rank is killed, the front end says "Shutting down" a second later, and the crash is never reported."""
    asked, died = served_and_idle(), served_and_idle()
    shut_down(asked, 61)
    printed(asked, 62, "engine_dead")
    printed(died, 61, "worker_died")
    shut_down(died, 62)

    assert asked.closing
    assert not died.closing


def test_what_was_under_way_at_a_pause_does_not_end_it() -> None:
    """False: an operator who pauses an engine raises an alarm, because its counters are read a moment later."""
    pulse = Pulse(CoreSettings())
    for second in range(0, 10, 2):
        scraped(pulse, second, running=4, tokens=512 + second)
    text = 'INFO: 127.0.0.1:50000 - "POST /pause_generation HTTP/1.1" 200 OK'
    line = Notice(origin=Origin("engine.log", 9), at_s=1_700_000_009, engine="sglang", notice="pause", text=text)
    pulse.note(at(9), line)
    scraped(pulse, 10, running=4, tokens=600)
    for second in range(12, 60, 2):
        scraped(pulse, second, running=4, tokens=600)

    assert pulse.paused and pulse.overdue(59) is None

    scraped(pulse, 60, running=4, tokens=700)

    assert not pulse.paused


def decoded(pulse: Pulse, seconds: float) -> None:
    line = Decode(origin=Origin("engine.log", 1), at_s=1_700_000_000 + seconds, engine="sglang", running=4, queued=0)
    pulse.note(at(seconds), line)


def test_a_scrape_after_a_freeze_does_not_make_the_engine_younger() -> None:
    """False: counters that are read two seconds after the last step postpone every suspicion by two seconds."""
    pulse = Pulse(CoreSettings())
    for second in range(11):
        scraped(pulse, second, running=4, tokens=100.0 * second)
        decoded(pulse, second + 0.5)
    scraped(pulse, 12.4, running=4, tokens=1090)

    assert pulse.silence_s(12.4) == pytest.approx(1.9)

    scraped(pulse, 14.4, running=4, tokens=1200)

    assert pulse.silence_s(14.4) == 0.0


def test_an_engine_that_goes_on_after_a_pause_has_time_for_its_first_step() -> None:
    """False: every pause that is longer than a healthy silence ends with an alarm."""
    pulse = Pulse(CoreSettings())
    for second in range(0, 10, 2):
        scraped(pulse, second, running=4, tokens=512 + second)
    for second, notice in ((9, "pause"), (69, "resume")):
        text = f'INFO: 127.0.0.1:50000 - "POST /{notice} HTTP/1.1" 200 OK'
        origin = Origin("engine.log", second)
        pulse.note(
            at(second),
            Notice(origin=origin, at_s=1_700_000_000 + second, engine="sglang", notice=notice, text=text),  # type: ignore[arg-type]
        )

    assert pulse.overdue(70) is None
    assert pulse.overdue(78) is not None
