"""vLLM's log: process prefixes of all versions, the statistics line, deaths told from their victims."""

from sentinel.collectors import vllm_log
from sentinel.model.observation import EngineStats, Notice, Observation, Phase, Tags
from tests.unit.log_reading import at, read, recognised

PARSER = vllm_log.PARSER
STATS = (
    "Avg prompt throughput: 12.0 tokens/s, Avg generation throughput: 88.1 tokens/s, Running: 3 reqs, Waiting: 5 reqs, "
)


def notices(text: str) -> list[Notice]:
    return [seen for seen in read(PARSER, text) if isinstance(seen, Notice)]


def stats(text: str) -> list[EngineStats]:
    return [seen for seen in read(PARSER, text) if isinstance(seen, EngineStats)]


def test_statistics_are_read_per_engine_and_aggregated() -> None:
    """Otherwise a stopped data-parallel engine would hide behind its peers."""
    text = (
        f"INFO 11-29 10:00:10 [loggers.py:87] Engine 000: {STATS}GPU KV cache usage: 1.2%, Prefix cache hit "
        f"rate: 0.0%\n"
        f"(APIServer pid=9) INFO 11-29 10:00:20 [loggers.py:236] Engine 001: {STATS}KV fetch: 1 waiting to "
        f"start, 2 in progress, "
        "3 completed waiting, CPU KV cache usage: 44.9%\n"
        f"(APIServer pid=9) INFO 11-29 10:00:30 [loggers.py:271] 8 Engines Aggregated: {STATS}GPU KV cache usage: 12.0%"
    )
    seen = stats(text)
    assert [one.engine_index for one in seen] == [0, 1, None]
    assert [one.kv_usage_percent for one in seen] == [1.2, 44.9, 12.0]
    assert (seen[0].running, seen[0].waiting, seen[0].generation_tps) == (3, 5, 88.1)
    assert seen[1].extra["kv_fetch_progress"] == 2.0
    assert [one.at_s for one in seen] == [at("10:00:10"), at("10:00:20"), at("10:00:30")]


def test_a_log_that_runs_into_january_goes_on_in_the_next_year() -> None:
    """Otherwise every event after New Year would lie a year before the hang."""
    first, second = stats(
        f"INFO 12-31 23:59:55 [loggers.py:87] Engine 000: {STATS}GPU KV cache usage: 1.2%\n"
        f"INFO 01-01 00:00:05 [loggers.py:87] Engine 000: {STATS}GPU KV cache usage: 1.2%"
    )
    assert (second.at_s or 0) - (first.at_s or 0) == 10


def test_worker_names_become_tags_and_pids() -> None:
    """Otherwise no line of a worker could be laid to a rank."""
    names = {
        "Worker_TP3": Tags(tp=3),
        "Worker_DP0_PP1_PCP0_TP3_DCP0_EP3": Tags(dp=0, pp=1, tp=3, ep=3),
        "EngineCore_DP2": None,
        "APIServer": None,
    }
    for name, tags in names.items():
        *_, seen = read(PARSER, f"({name} pid=77) INFO 11-29 10:00:10 [x.py:1] Starting to load model /m...")
        assert (seen.tags, seen.pid) == (tags, 77), name
    (old,) = read(PARSER, "(VllmWorker rank=1 pid=3312) INFO 11-29 10:00:10 [x.py:1] Starting to load model /m...")
    assert (old.rank, old.pid) == (1, 3312)


def test_an_engine_core_is_a_rank_only_when_it_computes_itself() -> None:
    """Otherwise the core's report of a dead worker would accuse rank 0."""
    reports = notices(
        "(EngineCore_DP1 pid=77) INFO 11-29 10:00:10 [gpu_model_runner.py:3902] Starting to load model /m...\n"
        "(EngineCore_DP2 pid=78) ERROR 11-29 10:05:12 [core.py:844] EngineCore encountered a fatal error."
    )
    assert [(seen.notice, seen.tags) for seen in reports] == [("engine_dead", Tags(dp=2))]


def test_a_dead_worker_is_the_rank_that_the_message_names_not_the_one_that_prints_it() -> None:
    """Otherwise the messenger would be taken for the culprit."""
    (seen,) = notices(
        "(EngineCore pid=77) ERROR 11-29 10:05:12 [multiproc_executor.py:380] Worker proc VllmWorker-3 died "
        "unexpectedly "
        "(exit code: -9), shutting down executor."
    )
    assert (seen.notice, seen.rank, seen.pid, seen.fields["exit_code"]) == ("worker_died", 3, None, "-9")


def test_a_prefixed_traceback_yields_its_last_exception() -> None:
    """Otherwise an RPC time-out would be read as some TimeoutError of unknown origin."""
    prefix = "(EngineCore pid=77) ERROR 11-29 10:05:12 [core.py:1512]"
    seen = notices(
        f"{prefix} EngineCore encountered a fatal error.\n"
        f"{prefix} Traceback (most recent call last):\n"
        f'{prefix}   File "a.py", line 440, in get\n'
        f"{prefix}     raise TimeoutError\n"
        f"{prefix} TimeoutError\n{prefix} \n"
        f"{prefix} The above exception was the direct cause of the following exception:\n{prefix} \n"
        f"{prefix} Traceback (most recent call last):\n"
        f'{prefix}   File "b.py", line 1, in f\n'
        f"{prefix} TimeoutError: RPC call to execute_model timed out.\n"
        "(APIServer pid=9) INFO 11-29 10:05:13 [x.py:1] other\n"
    )
    kinds = [(one.notice, one.fields.get("type")) for one in seen if one.notice != "other"]
    assert kinds == [("engine_dead", None), ("rpc_timeout", "TimeoutError")]


def test_the_last_line_of_a_raw_traceback_is_enough() -> None:
    """Otherwise a cut log would lose the reason of the death."""
    (seen,) = notices("(EngineCore_DP0 pid=77) TimeoutError: RPC call to sample_tokens timed out.")
    assert seen.notice == "rpc_timeout"


def test_waits_for_shared_memory_are_read_in_all_wordings() -> None:
    """Otherwise the only sign of a stuck worker in old versions would be lost."""
    texts = (
        "DEBUG 11-29 10:00:20 [a.py:1] No available shared memory broadcast block foundin 60 second.",
        "(EngineCore pid=7) INFO 11-29 10:00:20 [a:1] No available shared memory broadcast block found in 60 seconds.",
    )
    assert [notices(text)[0].notice for text in texts] == ["shm_wait", "shm_wait"]


def test_start_up_is_followed_to_readiness() -> None:
    """Otherwise a slow boot and a hung one would look alike."""
    text = "\n".join(
        f"(EngineCore pid=77) INFO 11-29 10:00:10 [x.py:1] {message}"
        for message in (
            "Initializing a V1 LLM engine (v0.20.2) with config: model='/m', tensor_parallel_size=4, kv_connector=X",
            "Starting to load model /m...", "Loading weights took 75.40 seconds",
            "torch.compile takes 37.12 s in total",
            "GPU KV cache size: 402,112 tokens", "Graph capturing finished in 7 secs, took 0.91 GiB",
        )
    )  # fmt: skip
    seen = read(PARSER, f"{text}\n(APIServer pid=9) INFO:     Application startup complete.")
    phases = [(one.phase, one.edge) for one in seen if isinstance(one, Phase)]
    assert phases == [
        ("start", "progress"), ("load", "begin"), ("load", "end"), ("compile", "end"), ("memory", "end"),
        ("capture", "end"), ("ready", "end"),
    ]  # fmt: skip
    fields = [one.fields for one in seen if isinstance(one, Notice) and one.notice == "server_args"]
    assert fields[0]["tp_size"] == "4"
    assert fields[1]["pool_tokens"] == "402112"


def test_prompts_in_a_log_are_not_engine_lines() -> None:
    """Otherwise a prompt could fake a death of the engine."""
    seen: list[Observation] = read(
        PARSER,
        "(APIServer pid=9) INFO 11-29 10:00:10 [logger.py:40] Received request cmpl-1: prompt: 'EngineCore "
        "encountered a fatal "
        "error. Worker proc VllmWorker-1 died unexpectedly', params: x\n"
        "Worker proc VllmWorker-1 died unexpectedly (exit code: -9), shutting down executor.\n"
        "EngineDeadError: EngineCore encountered an issue.",
    )
    assert [(one.notice, one.fields["rid"]) for one in seen if isinstance(one, Notice)] == [("request", "cmpl-1:")]


def test_recognition_needs_a_record_of_this_engine() -> None:
    """Otherwise any log with the word INFO would be read as vLLM's."""
    assert recognised(PARSER, "x\n(EngineCore_DP0 pid=77) TimeoutError: RPC call to execute_model timed out.\n")
    assert not recognised(PARSER, "[2026-11-29 10:00:00 TP0] Load weight begin. avail mem=1 GB\nINFO: started\n")
