"""Outstanding work: requests by name, a pool too small, transfers and schemas that never end."""

from sentinel.collectors import health_probe, sglang_log
from sentinel.core.fact import Value
from sentinel.core.facts import workload
from sentinel.core.picture import Picture
from sentinel.model.observation import Decode, EngineStats, Notice, Origin, Scrape, StoreTelemetry, Tags
from tests.unit.log_reading import at, picture_of, read

SPECS = {spec.name: spec for spec in workload.FACTS}
GATEWAY = health_probe.PARSERS[2]


def value(picture: Picture, name: str) -> Value:
    return SPECS[name].compute(picture).value


def decode(second: int, *, transfers: float = 0.0, running: int = 1, queued: int = 0, usage: float = 0.1) -> Decode:
    return Decode(
        origin=Origin("engine.log", second + 1), at_s=at("10:00:00") + second, engine="sglang", running=running,
        queued=queued, usage=usage, tokens=100, extra={"#transfer-req": transfers},
    )  # fmt: skip


def stats(second: int, *, running: int, waiting: int, usage: float) -> EngineStats:
    return EngineStats(
        origin=Origin("engine.log", second + 1), at_s=at("10:00:00") + second, engine_index=0, prompt_tps=0.0,
        generation_tps=0.0, running=running, waiting=waiting, kv_usage_percent=usage,
    )  # fmt: skip


def scrape(number: int, **gauges: float) -> Scrape:
    return Scrape(origin=Origin(f"m{number}.prom"), samples={f"sglang:{name}": each for name, each in gauges.items()})


def test_the_newest_scrape_knows_the_load_better_than_an_old_line() -> None:
    """False would mean that an idle engine keeps the last line's requests for ever."""
    idle = picture_of(decode(1), scrape(1, num_running_reqs=0.0, num_queue_reqs=0.0), now_s=at("10:30:00"))
    assert (value(idle, "work.outstanding"), value(idle, "work.running")) == (False, 0.0)
    assert value(picture_of(decode(1), now_s=at("10:30:00")), "work.outstanding") is True
    assert value(Picture(), "work.outstanding") is None


def test_a_gather_that_stays_open_is_outstanding_work_whatever_the_gauges_say() -> None:
    """False would mean that a hang in the first step of a burst is judged idle: gauges are those of the step before."""

    def page(open_s: float | None) -> StoreTelemetry:
        lane = None if open_s is None else 0
        return StoreTelemetry(origin=Origin("rank1.page"), rank=1, mode="legacy", open_lane=lane, lane_age_s=open_s)

    idle = scrape(1, num_running_reqs=0.0, num_queue_reqs=0.0)
    assert value(picture_of(idle, page(14.0)), "work.outstanding") is True
    assert value(picture_of(idle, page(0.004)), "work.outstanding") is False
    assert value(picture_of(idle, page(14.0), page(None)), "work.outstanding") is False


def test_a_line_that_does_not_say_how_many_requests_run_is_no_sign_of_idleness() -> None:
    """False would mean that an engine whose log was cut in its last line counts as idle while it hangs."""
    cut = Decode(origin=Origin("engine.log", 9), at_s=at("10:00:02"), engine="sglang", iteration=9)
    assert value(picture_of(decode(1, running=3), cut, now_s=at("10:30:00")), "work.running") == 3.0
    assert value(picture_of(cut, now_s=at("10:30:00")), "work.outstanding") is None


def test_tensor_parallel_ranks_report_one_batch_and_data_parallel_ranks_several() -> None:
    """False would mean that the load is counted once a rank."""
    samples = {f'sglang:num_running_reqs{{dp_rank="{dp}",tp_rank="{tp}"}}': 3.0 for dp in range(2) for tp in range(4)}
    assert value(picture_of(Scrape(origin=Origin("m"), samples=samples)), "work.running") == 6.0


def test_one_answer_ends_one_request_whatever_the_number_of_printers() -> None:
    """False would mean that a data-parallel engine with work left counts as idle once one answer came back."""
    lines = [
        Decode(origin=Origin("engine.log", dp), at_s=at("10:00:00"), engine="sglang", tags=Tags(dp=dp), running=2)
        for dp in range(4)
    ]
    answers = [
        Notice(origin=Origin("engine.log", 9 + n), at_s=at("10:00:01"), engine="sglang", notice="request", text="POST",
               fields={"method": "POST", "path": "/generate"})
        for n in range(3)
    ]  # fmt: skip
    assert value(picture_of(*lines, *answers, now_s=at("10:30:00")), "work.running") == 5.0


def test_requests_without_an_answer_are_named_and_answered_ones_are_not() -> None:
    """False would mean that the wrong request is aborted."""
    text = (
        '{"ts": "2026-11-29T09:04:35Z", "rid": "a", "status": null}\n{"ts": "2026-11-29T09:04:36Z", "rid": "b",'
        ' "status": null}\n'
        '{"ts": "2026-11-29T09:04:50Z", "rid": "a", "status": 200}\n'
    )
    picture = picture_of(*read(GATEWAY, text), now_s=at("09:10:00"))
    assert value(picture, "work.requests") == ("b",)
    assert value(picture, "work.outstanding") is True


def test_a_request_larger_than_the_pool_blocks_admission() -> None:
    """False would mean that an engine is restarted although one request has to be aborted."""
    pool = Notice(
        origin=Origin("e", 1),
        at_s=at("09:00:00"),
        engine="vllm",
        notice="server_args",
        text="",
        fields={"pool_tokens": "8000"},
    )
    asked = read(GATEWAY, '{"ts": "2026-11-29T09:04:35Z", "rid": "big", "prompt_tokens": 9000, "status": null}')
    waiting = [stats(second, running=0, waiting=2 + second, usage=0.0) for second in (0, 10, 20)]
    picture = picture_of(pool, *asked, *waiting, now_s=at("10:10:00"))
    assert value(picture, "kv.request_too_big") == ("big",)
    assert value(picture, "kv.blocked") is True
    assert value(picture, "work.queue_growing") is True


def test_waiting_alone_is_no_blocked_pool() -> None:
    """False would mean that every paused engine is blamed on its pool."""
    roomy = [stats(second, running=0, waiting=5, usage=1.0) for second in (0, 10, 20)]
    full = [stats(second, running=0, waiting=5, usage=99.0) for second in (0, 10, 20)]
    busy = [stats(second, running=3, waiting=5, usage=99.0) for second in (0, 10, 20)]
    assert [value(picture_of(*lines), "kv.blocked") for lines in (roomy, full, busy)] == [False, True, False]


def test_a_queue_from_which_nobody_is_taken_is_told_from_one_that_moves() -> None:
    """False would mean that an engine whose pool size nobody knows is restarted, and meets the same queue again."""
    stuck = picture_of(*(stats(10 * n, running=0, waiting=30 + n, usage=0.4) for n in range(4)))
    moves = picture_of(*(stats(10 * n, running=n % 2, waiting=30, usage=0.4) for n in range(4)))
    assert (value(stuck, "kv.unadmitted"), value(stuck, "kv.blocked")) == (True, False)
    assert value(moves, "kv.unadmitted") is False
    assert value(picture_of(stats(0, running=0, waiting=3, usage=0.4)), "kv.unadmitted") is None


def test_transfers_that_never_complete_are_told_from_transfers_that_come_and_go() -> None:
    """False would mean that a busy disaggregated engine is called stuck, or a stuck one busy."""
    climbing = [decode(second, transfers=min(second, 40)) for second in range(1, 100)]
    passing = [decode(second, transfers=1 + second % 4) for second in range(1, 100)]
    assert value(picture_of(*climbing), "kv.transfer_stuck") is True
    assert value(picture_of(*passing), "kv.transfer_stuck") is False
    assert value(picture_of(*climbing), "kv.transfer_waiting") == 40.0


def test_retractions_count_only_while_tokens_stand_still() -> None:
    """False would mean that a single retraction under load is called a livelock."""
    retract = "[2026-11-29 10:0{m}:00 TP0] KV cache pool is full. Retract requests. #retracted_reqs: 1"
    grown = Decode(origin=Origin("engine.log", 900), at_s=at("10:09:00"), engine="sglang", running=1, tokens=900)
    lines = read(sglang_log.PARSER, "\n".join(retract.format(m=minute) for minute in (1, 2, 3)))
    assert value(picture_of(decode(1), *lines), "kv.retracting") is True
    assert value(picture_of(decode(1), *lines, grown), "kv.retracting") is False


def test_tokens_of_data_parallel_schedulers_grow_each_in_its_own_lines() -> None:
    """False would mean that healthy schedulers whose lines alternate are told to abort a request."""
    retract = "[2026-11-29 10:0{m}:00 DP0 TP0] KV cache pool is full. Retract requests. #retracted_reqs: 1"
    retracted = read(sglang_log.PARSER, "\n".join(retract.format(m=minute) for minute in (1, 2, 3)))
    lines = [
        Decode(origin=Origin("engine.log", 900 + n), at_s=at("10:03:00") + n, engine="sglang", running=1,
               tokens=1000 * (4 - n % 4) + n, tags=Tags(dp=n % 4))
        for n in range(8)
    ]  # fmt: skip
    assert value(picture_of(*retracted, *lines), "kv.retracting") is False


def test_an_answer_above_the_last_line_ended_another_request() -> None:
    """False would mean that an engine at work counts as idle, because both lines show the same second."""
    last = Decode(origin=Origin("engine.log", 9), at_s=at("10:00:00"), engine="sglang", running=1)
    for line, running in ((8, 1.0), (10, 0.0)):
        answer = Notice(origin=Origin("engine.log", line), at_s=at("10:00:00"), engine="sglang", notice="request",
                        text="POST", fields={"method": "POST", "path": "/generate"})  # fmt: skip
        assert value(picture_of(last, answer, now_s=at("10:00:01")), "work.running") == running


def test_a_schema_that_waits_for_minutes_is_seen() -> None:
    """False would mean that one request's grammar is blamed on the engine."""
    text = '{"ts": "2026-11-29T10:00:00Z", "rid": "s", "response_format": "json_schema", "status": null}'
    assert value(picture_of(*read(GATEWAY, text), now_s=at("10:08:00")), "grammar.waiting") is True
    assert value(picture_of(*read(GATEWAY, text), now_s=at("10:00:10")), "grammar.waiting") is False
    assert value(picture_of(scrape(1, num_grammar_queue_reqs=2.0)), "grammar.waiting") is True


def test_only_a_grammar_abort_before_the_stall_can_be_its_cause() -> None:
    """False would mean that a later, unrelated refusal is called the cause."""

    def abort(clock: str) -> Notice:
        return Notice(
            origin=Origin("e", 5), at_s=at(clock), engine="sglang", notice="grammar_abort", text="x", tags=Tags(tp=4)
        )

    assert value(picture_of(decode(30), abort("10:00:30")), "grammar.abort_ranks") == (4,)
    assert value(picture_of(decode(30), abort("10:05:00")), "grammar.abort_ranks") == ()
