"""The engine's own words: who failed first, what the engine killed itself, whether it is paused."""

from sentinel.collectors import health_probe, sglang_log, vllm_log
from sentinel.core.fact import Value
from sentinel.core.facts import engine
from sentinel.core.picture import Picture
from sentinel.model.observation import HealthProbe, Observation, Origin, Scrape
from tests.unit.log_reading import at, picture_of, read

SPECS = {spec.name: spec for spec in engine.FACTS}
WORK = (
    "[2026-11-29 10:00:{s:02} TP0] Decode batch, #running-req: 4, #token: 8, token usage: 0.01, "
    "gen throughput (token/s): 5.00, #queue-req: 0\n"
)
RUN = "".join(WORK.format(s=second) for second in range(30))
RAISED = "[2026-11-29 10:00:31 TP{tp}] Scheduler hit an exception: Traceback (most recent call last):\n{error}\n"


def value(picture: Picture, name: str) -> Value:
    return SPECS[f"engine.{name}"].compute(picture).value


def sglang(text: str, *, end: str = "10:30:00") -> Picture:
    return picture_of(*read(sglang_log.PARSER, text), now_s=at(end))


def vllm(text: str, *, end: str = "10:30:00") -> Picture:
    return picture_of(*read(vllm_log.PARSER, text), now_s=at(end))


def test_the_first_exception_is_the_failure_and_what_the_kill_brings_is_not() -> None:
    """False would mean that a rank killed by its launcher is accused."""
    picture = sglang(
        RUN
        + RAISED.format(tp=5, error="TypeError: 'NoneType' object is not iterable")
        + "[2026-11-29 10:00:32] SIGQUIT received. signum=3, frame=None. It usually means one child failed.\n"
        "[2026-11-29 10:00:40 TP2] Scheduler hit an exception: Traceback (most recent call last):\nOSError: torn down\n"
        "[2026-11-29 10:06:00 TP0] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)\n"
    )
    assert value(picture, "failed_first_ranks") == (5,)
    assert value(picture, "failure") == "exception"
    assert value(picture, "failure_is_kill_of_hang") is False


def test_failures_in_the_same_second_cannot_be_ordered() -> None:
    """False would mean that the first line of one second is called the cause."""
    error = "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"
    picture = sglang(RUN + RAISED.format(tp=3, error=error) + RAISED.format(tp=1, error=error))
    assert (value(picture, "failed_first_ranks"), value(picture, "failure")) == ((1, 3), "cuda_error")


def test_a_watchdog_after_a_silence_killed_a_hang() -> None:
    """False would mean that the engine's own kill is called the cause of the hang."""
    picture = sglang(
        RUN + "[2026-11-29 10:06:00 TP1] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)\n"
        "[2026-11-29 10:06:05] Subprocess scheduler_1 (pid=44) crashed with exit code -9. Triggering SIGQUIT\n"
    )
    assert value(picture, "failure_is_kill_of_hang") is True
    assert value(picture, "failed_first_ranks") == ()
    assert value(picture, "watchdog_ranks") == (1,)
    assert value(picture, "failure") is None


def test_the_core_that_reports_a_dead_worker_is_not_the_one_that_died() -> None:
    """False would mean that rank 0 is accused of rank 1's death."""
    prefix = "(EngineCore pid=77) ERROR 11-29 10:05"
    picture = vllm(
        f"{prefix}:12 [a.py:1] Worker proc VllmWorker-1 died unexpectedly (exit code: -9), shutting down executor.\n"
        f"{prefix}:22 [a.py:1] EngineCore encountered a fatal error.\n{prefix}:22 [a.py:1] Traceback (most "
        f"recent call last):\n"
        f"{prefix}:22 [a.py:1] RuntimeError: cancelled\n"
    )
    assert (value(picture, "failed_first_ranks"), value(picture, "failure")) == ((1,), "killed")


def test_an_error_that_the_engine_outlived_is_no_failure() -> None:
    """False would mean that an old, harmless exception is dug up as the cause."""
    later = "".join(WORK.format(s=second).replace("10:00", "10:05") for second in range(30))
    picture = sglang(RUN + RAISED.format(tp=5, error="ValueError: x") + later, end="10:05:31")
    assert value(picture, "failed_first_ranks") == ()


def test_waiting_for_shared_memory_is_normal_in_a_start_and_a_sign_later() -> None:
    """False would mean that a slow boot is called a hang."""
    wait = "(EngineCore pid=7) INFO 11-29 10:{m}:00 [a.py:1] No available block found in 60 seconds.\n"
    start = "(APIServer pid=9) INFO 11-29 10:00:00 [a.py:1] vLLM API server version 0.20.2\n" + wait.format(m="01")
    ready = "(APIServer pid=9) INFO 11-29 10:02:00 [a.py:1] Starting vLLM server on http://0.0.0.0:8000\n"
    booting, serving = vllm(start), vllm(start + ready + wait.format(m="09"))
    assert (value(booting, "shm_waits"), value(booting, "boot_shm_waits")) == (0.0, 1.0)
    assert (value(serving, "shm_waits"), value(serving, "boot_shm_waits")) == (1.0, 1.0)


def test_a_pause_lasts_until_a_resume_or_progress() -> None:
    """False would mean that a paused engine is restarted, or a running one left alone as paused."""
    call = '[2026-11-29 10:00:31] INFO:     10.0.0.7:1 - "POST /{path} HTTP/1.1" 200 OK\n'
    paused = RUN + call.format(path="pause_generation")
    assert value(sglang(paused), "paused") is True
    assert value(sglang(paused + call.format(path="continue_generation")), "paused") is False
    assert value(sglang(paused + "".join(WORK.format(s=second) for second in range(45, 59))), "paused") is False
    asleep = Scrape(origin=Origin("m"), samples={'vllm:engine_sleep_state{sleep_state="weights_offloaded"}': 1.0})
    awake = Scrape(origin=Origin("m"), samples={'vllm:engine_sleep_state{sleep_state="awake"}': 1.0})
    assert [value(picture_of(scrape), "paused") for scrape in (asleep, awake)] == [True, False]


def test_a_worker_node_s_constant_health_answer_is_no_health() -> None:
    """False would mean that the dummy server of the second node hides the failure of the first."""
    failed = "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds."
    first = f"{RUN}[2026-11-29 10:05:00] {failed}\n"
    second = '[2026-11-29 10:06:00] INFO:     10.0.0.7:1 - "GET /health HTTP/1.1" 200 OK\n'
    seen: list[Observation] = [
        *read(sglang_log.PARSER, first, name="node1.log"), *read(sglang_log.PARSER, second, name="node2.log")
    ]  # fmt: skip
    assert value(picture_of(*seen), "health_failed") is True


def test_a_front_end_is_silent_only_where_it_could_answer_alone() -> None:
    """False would mean that a scheduler's hang is blamed on the HTTP process, or the other way round."""

    def probe(url: str, error: str) -> Picture:
        seen = HealthProbe(
            origin=Origin("p", 1), at_s=at("10:05:00"), url=url, status=None, latency_ms=5000.0, error=error
        )
        return picture_of(*read(sglang_log.PARSER, RUN), seen, now_s=at("10:10:00"))

    assert value(probe("http://h:1/v1/models", "timed out"), "frontend_silent") is True
    assert value(probe("http://h:1/health", "timed out"), "frontend_silent") is None
    assert value(probe("http://h:1/v1/models", "Connection refused"), "frontend_silent") is None


def test_prefills_that_follow_one_another_are_a_long_prompt() -> None:
    """False would mean that chunked prefill of a long prompt is called a hang."""
    chunk = (
        "[2026-11-29 10:01:{s:02} TP0] Prefill batch, #new-seq: 1, #new-token: 8192, #cached-token: 0, token "
        "usage: 0.21, "
        "#running-req: 6, #queue-req: 4, #pending-token: 56320, cuda graph: False, input throughput (token/s): 1.00\n"
    )
    picture = sglang(RUN + "".join(chunk.format(s=second) for second in (10, 18, 26, 34)), end="10:01:50")
    assert (value(picture, "prefill_last"), value(picture, "prefill_advancing")) == (True, True)
    assert value(picture, "prefill_tokens") == 64512.0
    late = sglang(RUN + chunk.format(s=10), end="10:20:00")
    assert (value(late, "prefill_last"), value(late, "prefill_advancing")) == (True, False)


def test_a_soft_watchdog_alone_kills_nothing() -> None:
    """False would mean that stack dumps of an idle engine are read as its death."""
    soft = "[2026-11-29 10:05:00] TokenizerManager watchdog timeout (self.watchdog_timeout=60, self.soft=True)\n"
    hard = "[2026-11-29 10:06:00 TP0] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)\n"
    assert value(sglang(RUN + soft), "soft_watchdog_only") is True
    assert value(sglang(RUN + soft + hard), "soft_watchdog_only") is False


def test_what_an_engine_says_of_itself_counts_as_a_pause() -> None:
    """False would mean that the clearest evidence of a pause is ignored."""
    said = read(health_probe.PARSERS[1], "$ curl localhost:8000/is_paused\n" + '{"is_paused":true}\n')
    assert value(picture_of(*said), "paused") is True


def test_nothing_read_is_nothing_known() -> None:
    """False would mean that blindness is called health."""
    assert {name: spec.compute(Picture()).value for name, spec in SPECS.items()} == dict.fromkeys(SPECS)


def test_health_probes_of_an_idle_engine_are_no_long_prompt() -> None:
    """False would mean that an idle engine under health checks is called busy."""
    probe = (
        "[2026-11-29 10:01:{s:02} TP0] Prefill batch, #new-seq: 1, #new-token: 1, #cached-token: 0, token usage: 0.00, "
        "#running-req: 0, #queue-req: 0, cuda graph: False, input throughput (token/s): 1.00\n"
    )
    picture = sglang(RUN + "".join(probe.format(s=second) for second in range(0, 60, 2)), end="10:01:59")
    assert (value(picture, "prefill_last"), value(picture, "prefill_advancing")) == (False, False)
