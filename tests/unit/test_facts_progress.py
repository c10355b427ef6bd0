"""Progress: what stops, what goes on, what merely prints nothing, and what grew slower."""

from sentinel.core import timeline
from sentinel.core.fact import Value
from sentinel.core.facts import progress
from sentinel.core.picture import Picture
from sentinel.model.observation import Decode, EngineStats, Notice, Observation, Origin, Phase, Prefill, Scrape, Tags
from tests.unit.log_reading import at, picture_of

SPECS = {spec.name: spec for spec in progress.FACTS}
LINES = iter(range(1, 1_000_000))


def value(picture: Picture, name: str) -> Value:
    return SPECS[f"progress.{name}"].compute(picture).value


def here() -> Origin:
    return Origin("engine.log", next(LINES))


def decode(clock: str, *, running: int = 4, queued: int = 0, rate: float = 100.0, dp: int | None = None) -> Decode:
    return Decode(
        origin=here(), at_s=at(clock), engine="sglang", running=running, queued=queued, throughput=rate,
        tags=None if dp is None else Tags(dp=dp, tp=0),
    )  # fmt: skip


def prefill(clock: str, *, running: int = 0, tokens: int = 512, queued: int = 0) -> Prefill:
    return Prefill(
        origin=here(), at_s=at(clock), engine="sglang", new_seqs=1, new_tokens=tokens, running=running, queued=queued
    )


def stats(clock: str, *, running: int, waiting: int = 0, tps: float = 50.0, engine: int = 0) -> EngineStats:
    return EngineStats(
        origin=here(),
        at_s=at(clock),
        engine_index=engine,
        prompt_tps=0.0,
        generation_tps=tps,
        running=running,
        waiting=waiting,
    )


def notice(clock: str, kind: str, *, engine: str = "sglang", **fields: str) -> Notice:
    return Notice(origin=here(), at_s=at(clock), engine=engine, notice=kind, text=kind, fields=fields)  # type: ignore[arg-type]


def scrape(
    clock: str | None, tokens: float, *, running: float = 4.0, waiting: float = 0.0, name: str = "m.prom"
) -> Scrape:
    samples = {
        'vllm:generation_tokens_total{engine="0"}': tokens, 'vllm:num_requests_running{engine="0"}': running,
        'vllm:num_requests_waiting{engine="0"}': waiting,
    }  # fmt: skip
    return Scrape(origin=Origin(name), at_s=None if clock is None else at(clock), samples=samples)


def steady(*, seconds: int = 30, running: int = 4) -> list[Observation]:
    return [decode(f"10:00:{second:02}", running=running) for second in range(seconds)]


def test_a_silence_with_requests_running_is_a_stop() -> None:
    """False would mean that a hang goes unseen."""
    picture = picture_of(*steady(), now_s=at("10:01:30"))
    assert value(picture, "stopped") is True
    assert value(picture, "advancing") is False
    assert value(picture, "silence_s") == 61.0


def test_a_silence_after_the_last_request_ended_is_no_stop() -> None:
    """False would mean that every idle engine is called hung: an engine prints nothing when its last request ends."""
    picture = picture_of(
        *steady(running=1), notice("10:00:29", "request", method="POST", path="/generate"), now_s=at("10:30:00")
    )
    assert value(picture, "stopped") is False
    assert value(picture, "advancing") is False


def test_an_answer_long_after_the_last_line_does_not_make_it_idle() -> None:
    """False would mean that a new request's HTTP line hides the hang of the old ones."""
    late = notice("10:02:00", "request", method="POST", path="/generate")
    assert value(picture_of(*steady(running=1), late, now_s=at("10:05:00")), "stopped") is True


def test_statistics_every_ten_seconds_are_slower_than_decode_lines_and_still_progress() -> None:
    """False would mean that a healthy vLLM is called hung between two of its lines, above all with several engines."""
    lines = [stats(f"10:{minute:02}:{second:02}", running=2, engine=engine)
             for minute in range(3) for second in (0, 10, 20, 30, 40, 50) for engine in range(8)]  # fmt: skip
    assert value(picture_of(*lines, now_s=at("10:03:20")), "advancing") is True


def test_the_last_statistics_line_tells_idle_from_hung() -> None:
    """False would mean that one silent vLLM looks like the other."""
    lines = [stats(f"10:00:{second:02}", running=2) for second in (0, 10, 20, 30)]
    hung = picture_of(*lines, stats("10:00:40", running=2, tps=0.0), now_s=at("10:05:00"))
    idle = picture_of(*lines, stats("10:00:40", running=0, tps=0.0), now_s=at("10:05:00"))
    assert (value(hung, "stopped"), value(idle, "stopped")) == (True, False)


def test_chunks_of_a_long_prefill_set_their_own_pace() -> None:
    """False would mean that a long prompt is called a hang."""
    chunks = [prefill(f"10:01:{second:02}", running=6, tokens=8192) for second in range(0, 54, 9)]
    assert value(picture_of(*steady(), *chunks, now_s=at("10:01:58") + 25), "advancing") is True


def test_counters_that_grow_outweigh_a_log_that_was_copied_early() -> None:
    """False would mean that evidence gathered in two steps makes a hang out of a slow engine."""
    picture = picture_of(
        *steady(), scrape(None, 100.0, name="m1.prom"), scrape(None, 180.0, name="m2.prom"), now_s=at("10:05:00")
    )
    assert value(picture, "advancing") is True
    assert value(picture, "moving_counters") is True
    assert value(picture, "flat_counters") is False


def test_flat_counters_count_only_with_requests_running_and_time_between() -> None:
    """False would mean that an idle engine, or two scrapes at once, prove a hang."""
    assert value(picture_of(scrape("10:00:00", 5.0), scrape("10:00:20", 5.0)), "flat_counters") is True
    assert value(picture_of(scrape("10:00:00", 5.0), scrape("10:00:20", 5.0, running=0)), "flat_counters") is False
    assert value(picture_of(scrape("10:00:00", 5.0), scrape("10:00:01", 5.0)), "flat_counters") is None


def test_scrapes_without_a_time_are_ordered_by_their_names() -> None:
    """False would mean that the tenth scrape counts as older than the second."""
    picture = picture_of(scrape(None, 200.0, name="scrape10.txt"), scrape(None, 100.0, name="scrape2.txt"))
    assert value(picture, "moving_counters") is True


def test_a_death_ends_progress_however_fresh_the_last_line_is() -> None:
    """False would mean that a crash seconds ago is reported as a healthy engine."""
    dead = notice("10:00:40", "engine_dead", engine="vllm")
    lines = [stats(f"10:00:{second:02}", running=2) for second in (0, 10, 20, 30)]
    picture = picture_of(*lines, dead, stats("10:00:48", running=2, tps=20.0), now_s=at("10:00:55"))
    assert (value(picture, "stopped"), value(picture, "advancing")) == (True, False)


def test_a_pause_that_ended_counts_and_an_idle_gap_does_not() -> None:
    """False would mean that a quiet night is reported as a freeze, or a freeze as a quiet night."""
    frozen = picture_of(*steady(), *(decode(f"10:01:{second:02}") for second in range(10, 40)), now_s=at("10:01:40"))
    idle = picture_of(
        *steady(),
        prefill("10:01:09"),
        *(decode(f"10:01:{second:02}") for second in range(10, 40)),
        now_s=at("10:01:40"),
    )
    assert (value(frozen, "pauses"), value(frozen, "longest_pause_s"), value(frozen, "resumed")) == (1.0, 41.0, True)
    assert (value(idle, "pauses"), value(idle, "longest_pause_s"), value(idle, "resumed")) == (0.0, None, False)


def test_pace_is_compared_at_the_same_batch_size() -> None:
    """False would mean that a smaller batch is called a slowdown, or a real one is missed."""
    fast = [decode(f"10:00:{second:02}", running=8, rate=800.0) for second in range(40)]
    slow = [decode(f"10:01:{second:02}", running=8, rate=300.0) for second in range(20)]
    small = [decode(f"10:01:{second:02}", running=1, rate=110.0) for second in range(20)]
    assert value(picture_of(*fast, *slow), "slowdown") == 0.375
    assert value(picture_of(*fast, *small), "slowdown") is None or value(picture_of(*fast, *small), "slowdown") == 1.0
    assert value(picture_of(*fast[:5]), "slowdown") is None


def test_only_the_last_start_in_a_log_counts() -> None:
    """False would mean that yesterday's progress is today's silence."""
    start = Phase(origin=here(), at_s=at("11:00:00"), engine="sglang", phase="start", edge="begin")
    picture = picture_of(*steady(), start, now_s=at("11:05:00"))
    assert value(picture, "stopped") is None


def test_nothing_read_is_nothing_known() -> None:
    """False would mean that blindness is called health."""
    assert {name: spec.compute(Picture()).value for name, spec in SPECS.items()} == dict.fromkeys(SPECS)


def test_several_engines_of_one_front_end_do_not_quicken_the_learned_pace() -> None:
    """False would mean that engines which print at the same instants are suspected within one of their intervals."""
    lines = [stats(f"10:0{at // 6}:{at % 6}0", running=2, engine=engine) for at in range(12) for engine in range(4)]
    assert timeline.progress(picture_of(*lines)).interval_s == 10.0
