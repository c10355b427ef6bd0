"""Start-up: how far it came, whether it still moves, what never ended."""

from sentinel.collectors import sglang_log, vllm_log
from sentinel.core.fact import Value
from sentinel.core.facts import phases
from sentinel.core.picture import Picture
from sentinel.model.observation import Notice, Origin, ProcessCounters, ProcessRow, ProcessTable, Scrape
from tests.unit.log_reading import at, picture_of, read

SPECS = {spec.name: spec for spec in phases.FACTS}
BOOT = (
    "[2026-11-29 10:00:00] server_args=ServerArgs(tp_size=2)\n"
    "[2026-11-29 10:00:05 TP0] Init torch distributed begin.\n"
    "[2026-11-29 10:00:09 TP0] Init torch distributed ends. mem usage=1 GB\n"
    "[2026-11-29 10:00:10 TP0] Load weight begin. avail mem=1 GB\n"
)
LOADED = "[2026-11-29 10:01:10 TP0] Load weight end. type=M, avail mem=1 GB\n"
CAPTURE = "[2026-11-29 10:01:20 TP0] Capture cuda graph begin. This can take up to several minutes. avail mem=1 GB\n"
READY = "[2026-11-29 10:02:00] The server is fired up and ready to roll!\n"


def value(picture: Picture, name: str) -> Value:
    return SPECS[f"phase.{name}"].compute(picture).value


def boot(text: str, *, end: str, parser: object = sglang_log.PARSER) -> Picture:
    return picture_of(*read(parser, text), now_s=at(end))  # type: ignore[arg-type]


def test_a_start_that_stands_in_loading_is_a_boot_with_loading_open() -> None:
    """False would mean that a slow load is called a hang of a running engine."""
    picture = boot(BOOT, end="10:20:00")
    assert (value(picture, "booting"), value(picture, "current"), value(picture, "load_open")) == (True, "load", True)
    assert value(picture, "age_s") == 1190.0
    assert value(picture, "moving") is None


def test_a_finished_start_is_no_boot() -> None:
    """False would mean that a running engine is told to wait for its start."""
    picture = boot(BOOT + LOADED + CAPTURE + READY, end="10:20:00")
    assert (value(picture, "booting"), value(picture, "current")) == (False, "ready")
    assert (value(picture, "load_open"), value(picture, "capture_open")) == (False, False)


def test_counters_that_go_on_growing_end_a_start_of_which_the_end_was_not_kept() -> None:
    """False would mean that a hung engine is told to wait when the log of its front end was lost."""

    def scrape(second: int, tokens: float) -> Scrape:
        samples = {'sglang:realtime_tokens_total{mode="decode"}': tokens}
        return Scrape(origin=Origin("m.prom", second), at_s=at("10:02:00") + second, samples=samples)

    lines = read(sglang_log.PARSER, BOOT + LOADED + CAPTURE)
    warm = picture_of(*lines, scrape(1, 0.0), scrape(2, 8.0), scrape(3, 8.0), now_s=at("10:20:00"))
    serving = picture_of(*lines, scrape(1, 0.0), scrape(2, 8.0), scrape(3, 90.0), now_s=at("10:20:00"))
    assert (value(warm, "booting"), value(warm, "current")) == (True, "capture")
    assert (value(serving, "booting"), value(serving, "current")) == (False, "ready")


def test_a_bar_that_moves_to_the_end_is_life_and_one_that_stopped_is_not() -> None:
    """False would mean that a dead disk looks like a slow one."""
    text = BOOT + "Loading safetensors checkpoint shards:  60% Completed | 99/163 [21:36<13:58, 12.81s/it]\n"
    assert value(boot(text, end="10:22:10"), "moving") is True
    assert value(boot(text, end="10:40:00"), "moving") is False


def test_a_line_that_the_evidence_ends_with_does_not_show_that_the_start_goes_on() -> None:
    """False would mean that a start which stands right after its newest line is told to wait for ever."""
    picture = picture_of(*read(sglang_log.PARSER, BOOT + LOADED))
    assert (value(picture, "booting"), value(picture, "moving")) == (True, None)


def test_the_log_of_a_rank_that_never_says_ready_does_not_say_that_it_starts() -> None:
    """False would mean that a hung engine, of which only the second rank's log was kept, is told to wait."""
    ended = CAPTURE.replace("begin. This can take up to several minutes.", "end. Time elapsed: 9 s.")
    whole = BOOT + LOADED + CAPTURE + ended
    second = "".join(line for line in whole.replace("TP0", "TP1").splitlines(keepends=True) if " TP1]" in line)
    assert value(boot(second, end="10:20:00"), "booting") is None
    assert value(boot(second.replace(ended.replace("TP0", "TP1"), ""), end="10:20:00"), "booting") is True
    assert value(boot(whole, end="10:20:00"), "booting") is True


def test_bytes_read_and_compilers_are_life_without_a_bar() -> None:
    """False would mean that page faults of a mapped checkpoint pass for a hang."""
    reads = [
        ProcessCounters(origin=Origin("io", n), at_s=at(clock), pid=9, values={"majflt": faults})
        for n, (clock, faults) in enumerate((("10:19:00", 1000.0), ("10:19:20", 90000.0)))
    ]
    compiler = ProcessTable(origin=Origin("ps", 1), rows=(ProcessRow(pid=5, state="R", command="cicc --arch sm_90"),))
    idle = ProcessTable(origin=Origin("ps", 1), rows=(ProcessRow(pid=5, state="S", command="ninja", cpu_percent=0.0),))
    lines = read(sglang_log.PARSER, BOOT)
    assert value(picture_of(*lines, *reads, now_s=at("10:20:00")), "moving") is True
    assert value(picture_of(*lines, compiler, now_s=at("10:20:00")), "moving") is True
    assert value(picture_of(*lines, idle, now_s=at("10:20:00")), "moving") is None


def test_capture_without_an_end_is_open_until_work_goes_on() -> None:
    """False would mean that a cold graph capture is killed as a hang."""
    decode = (
        "[2026-11-29 10:03:00 TP0] Decode batch, #running-req: 1, #token: 8, token usage: 0.01, "
        "gen throughput (token/s): 5.00, #queue-req: 0\n"
    )
    assert value(boot(BOOT + LOADED + CAPTURE, end="10:05:00"), "capture_open") is True
    assert value(boot(BOOT + LOADED + CAPTURE + decode, end="10:05:00"), "capture_open") is False


def test_compiling_at_run_time_is_open_after_the_last_step() -> None:
    """False would mean that a rank that compiles a kernel is restarted in the middle of it."""
    compiling = "[2026-11-29 10:05:00 TP1] Entering DeepGEMM JIT Pre-Compile session. It may take a long time\n"
    picture = boot(BOOT + LOADED + READY + compiling, end="10:06:00")
    assert (value(picture, "compile_open"), value(picture, "booting")) == (True, False)


def test_a_boot_of_vllm_ends_when_its_front_end_is_up() -> None:
    """False would mean that vLLM is booting for ever."""
    text = (
        "(APIServer pid=9) INFO 11-29 10:00:00 [a.py:1] vLLM API server version 0.20.2\n"
        "(Worker_TP0 pid=31) INFO 11-29 10:00:35 [a.py:1] Starting to load model /m...\n"
    )
    assert value(boot(text, end="10:20:00", parser=vllm_log.PARSER), "booting") is True
    ready = text + "(APIServer pid=9) INFO:     Application startup complete.\n"
    assert value(boot(ready, end="10:20:00", parser=vllm_log.PARSER), "booting") is False


def test_older_starts_in_other_files_do_not_count() -> None:
    """False would mean that the shutdown of the first try is taken for the state of the third."""
    old = "(APIServer pid=9) INFO 11-29 09:00:00 [a.py:1] vLLM API server version 0.20.2\n"
    old += "(APIServer pid=9) INFO:     Shutting down\n"
    new = "(APIServer pid=8) INFO 11-29 10:00:00 [a.py:1] vLLM API server version 0.20.2\n"
    seen = [*read(vllm_log.PARSER, old, name="start1.log"), *read(vllm_log.PARSER, new, name="start2.log")]
    assert value(picture_of(*seen, now_s=at("10:10:00")), "current") == "start"


def test_an_end_on_request_with_nothing_left_is_clean_and_any_other_is_not() -> None:
    """False would mean that a crash passes for a shutdown, or a shutdown for a crash."""
    term = "[2026-11-29 10:10:00] SIGTERM received. signum=15 frame=None. Draining requests and shutting down...\n"
    left = "[2026-11-29 10:10:05] Gracefully exiting... Remaining number of requests 2. remaining_rids=['a'].\n"
    none = "[2026-11-29 10:10:05] Gracefully exiting... Remaining number of requests 0. remaining_rids=[].\n"
    started = BOOT + LOADED + READY
    assert value(boot(started + term + none, end="10:10:10"), "ended_cleanly") is True
    assert value(boot(started + term + left, end="10:10:10"), "ended_cleanly") is False
    assert value(boot(started, end="10:10:10"), "ended_cleanly") is False
    failed = Notice(origin=Origin("engine.log", 99), at_s=at("10:09:00"), engine="sglang", notice="exception", text="x")
    assert (
        value(picture_of(*read(sglang_log.PARSER, started + term), failed, now_s=at("10:10:10")), "ended_cleanly")
        is False
    )


def test_nothing_read_is_nothing_known() -> None:
    """False would mean that blindness is called health."""
    assert {name: spec.compute(Picture()).value for name, spec in SPECS.items()} == dict.fromkeys(SPECS)
