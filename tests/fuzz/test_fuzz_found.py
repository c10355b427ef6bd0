"""What fuzzing found, each with the value that is right instead."""

import msgspec
import pytest

from sentinel.collector import Parser
from sentinel.collectors import (
    agent_notes,
    host_counters,
    nvidia_dmon,
    process_io,
    process_table,
    prometheus_text,
    thread_table,
    trtllm_log,
    vllm_log,
)
from sentinel.model.observation import (
    AnyObservation,
    Decode,
    DeviceCounters,
    EngineStats,
    GpuSample,
    Observation,
    Origin,
    Phase,
    ProcessCounters,
    ProcessTable,
    Scrape,
    ThreadTable,
    Unavailable,
)
from tests.fuzz.fuzzing import bounded
from tests.fuzz.seeds import read

HUGE = "9" * 400


def text(parser: Parser, *lines: str) -> list[Observation]:
    """What a parser says about these lines."""
    return read(parser, ("\n".join(lines) + "\n").encode())


def test_a_superscript_is_no_process_number() -> None:
    """False: `²` counts as a digit, int() raises, and the whole table is lost to one odd name."""
    threads = text(thread_table.PARSER, "# pid tid state wchan comm", "² 4700 S do_epoll_wait s", "4 5 S futex_wait s")
    processes = text(
        process_table.PARSER, "  PID    PPID STAT WCHAN COMMAND", "  31  1 S do_wait y", "  ²  1 S do_wait x"
    )
    samples = text(nvidia_dmon.PARSER, "# gpu pid type", "0 ² C", "0 77 C")

    assert [table.threads[0].tid for table in threads if isinstance(table, ThreadTable)] == [4700, 5]
    assert [row.pid for table in processes if isinstance(table, ProcessTable) for row in table.rows] == [31]
    assert [sample.pids for sample in samples if isinstance(sample, GpuSample)] == [(77,)]


def test_a_progress_bar_of_more_hours_than_fit_into_a_float_is_none() -> None:
    """False: int() of 400 digits becomes no float, and the log of the engine is not read any further."""
    bar = "(Worker_TP0 pid=411) Loading safetensors checkpoint shards:  16% Completed | 10/62 [{}:01<05:18,  6.13s/it]"
    seen = text(vllm_log.PARSER, bar.format(HUGE), bar.format("01"))

    assert [phase.percent for phase in seen if isinstance(phase, Phase)] == [pytest.approx(1000 / 62)]


def test_numbers_that_are_infinite_as_floats_are_not_seen() -> None:
    """False: `inf` is journalled as null, and the replay leaves the record out."""
    stats = (
        "(APIServer pid=9) INFO 10-04 13:08:02 [loggers.py:271] Engine 000: Avg prompt throughput: 1.0 tokens/s, Avg "
        "generation throughput: 2.0 tokens/s, Running: 2 reqs, Waiting: 0 reqs, GPU KV cache usage: {}%, Prefix cache "
        "hit rate: 5.0%"
    )
    iteration = (
        "[10/28/2026-21:02:00] [TRT-LLM] [RANK 0] [I] iter = 1, num_scheduled_requests = 2, "
        "prev_device_step_time = {}, num_ctx_requests = 1"
    )
    vllm = [
        seen for seen in text(vllm_log.PARSER, stats.format(HUGE), stats.format("3.0")) if isinstance(seen, EngineStats)
    ]
    trtllm = [seen for seen in text(trtllm_log.PARSER, iteration.format(HUGE)) if isinstance(seen, Decode)]

    assert [seen.kv_usage_percent for seen in vllm] == [3.0]
    assert [seen.extra for seen in trtllm] == [{"num_ctx_requests": 1.0}]


def test_a_meter_that_has_no_value_yet_is_left_out_of_a_scrape() -> None:
    """False: one summary of an idle engine, NaN by the text format, makes the record of the scrape unreadable."""
    scrape = text(
        prometheus_text.PARSER,
        'vllm:a{quantile="0.5"} NaN', "vllm:b +Inf", "vllm:c -Inf", "vllm:d 1e999", "vllm:e 2.5",
    )  # fmt: skip

    assert [seen.samples for seen in scrape if isinstance(seen, Scrape)] == [{"vllm:e": 2.5}]


def test_a_control_group_without_a_limit_does_not_cost_a_host_its_evidence() -> None:
    """False: what is shipped to the coordinator holds an infinite number, and is thrown away as a whole."""
    seen = text(host_counters.PARSER, "$ cat memory.max", "max", "$ cat memory.current", "5")
    shipped = msgspec.json.decode(msgspec.json.encode(seen), type=list[AnyObservation])

    assert [one.values for one in shipped if isinstance(one, DeviceCounters)] == [{"memory.current": 5.0}]


def test_a_note_nested_without_end_is_left_out() -> None:
    """False: a RecursionError ends the reading of the agent's own notes."""
    note = msgspec.json.encode(Unavailable(origin=Origin("x"), source="nvml", reason="none"))
    data = agent_notes.HEADER + b'{"kind":"unavailable","tags":' + b'{"a":' * 9000 + b"\n" + note + b"\n"

    assert [type(seen) for seen in read(agent_notes.PARSER, data)] == [Unavailable]


def test_pairs_without_a_separator_take_no_time() -> None:
    """False: a line of a kilobyte keeps the reader of process counters busy for minutes."""
    with bounded():
        seen = text(process_io.PARSER, "31 ab=" + "11ab=1" * 170 + "!", "31 utime=700 stime=41,")

    assert [one.values for one in seen if isinstance(one, ProcessCounters)] == [{"utime": 700.0, "stime": 41.0}]
