"""SGLang's log is read by prefix, by key and by version, and what only looks like an engine line is left alone."""

from sentinel.collectors import packaged_log, sglang_log
from sentinel.model.observation import Decode, Notice, Observation, Phase, Prefill, Tags
from tests.unit.log_reading import at, read, recognised

PARSER = sglang_log.PARSER


def one(text: str) -> Observation:
    (found,) = read(PARSER, text)
    return found


def notices(text: str) -> list[Notice]:
    return [seen for seen in read(PARSER, text) if isinstance(seen, Notice)]


def test_a_decode_line_is_read_by_key_not_by_position() -> None:
    """Otherwise a new SGLang release that moves a key would turn running requests into queued ones."""
    usual = one(
        "[2026-11-29 10:00:00 TP0] Decode batch, #running-req: 12, #token: 30211, token usage: 0.04, "
        "gen throughput (token/s): 801.44, #queue-req: 3"
    )
    moved = one(
        "[2026-11-29 10:00:00 TP0] Decode batch, #queue-req: 3, gen throughput (token/s): 801.44, token usage: 0.04, "
        "#token: 30211, #running-req: 12, "
    )
    assert isinstance(usual, Decode)
    assert (usual.running, usual.queued, usual.tokens, usual.usage, usual.throughput) == (12, 3, 30211, 0.04, 801.44)
    assert usual == moved


def test_lines_after_the_first_of_a_kind_are_read_like_the_first() -> None:
    """Otherwise the remembered key sequence would give later lines the values of other keys."""
    line = (
        "[2026-11-29 10:00:{s:02} DP1 TP{t}] Decode batch [{i}], #running-req: {r}, #full token: {k}, full "
        "token usage: 0.12, "
        "mamba num: 62, mamba usage: 0.24, cuda graph: {g}, gen throughput (token/s): {p}, #queue-req: 2"
    )
    values = [(0, 4, 100, 7, 400, True, 9.5), (1, 5, 101, 8, 440, False, 10.0), (2, 4, 102, 9, 480, True, "nan")]
    lines = [line.format(s=s, t=t, i=i, r=r, k=k, g=g, p=p) for s, t, i, r, k, g, p in values]

    together = [step for step in read(PARSER, "\n".join(lines)) if isinstance(step, Decode)]

    assert [step.running for step in together] == [7, 8, 9]
    assert [step.iteration for step in together] == [100, 101, 102]
    assert [step.tokens for step in together] == [400, 440, 480]
    assert [step.extra["cuda graph"] for step in together] == [1.0, 0.0, 1.0]
    assert [step.throughput for step in together] == [9.5, 10.0, None]
    assert [step.usage for step in together] == [0.24] * 3


def test_disaggregation_keys_are_kept() -> None:
    """Otherwise requests stuck in KV transfer would be invisible."""
    step = one(
        "[2026-11-29 10:00:00 DP3 TP12 EP12] Decode batch, #running-req: 18, #token: 99120, token usage: 0.31, "
        "pre-allocated usage: "
        "0.02, #prealloc-req: 1, #transfer-req: 2, #retracted-req: 0, cuda graph: False, gen throughput ("
        "token/s): 377.21, "
        "#queue-req: 0, fwd occupancy: 93.10%, fwd+idle occupancy: 95.02%"
    )
    assert isinstance(step, Decode)
    assert step.extra["#transfer-req"] == 2.0
    assert step.extra["fwd occupancy"] == 93.10
    assert step.tags == Tags(dp=3, tp=12, ep=12)


def test_rank_tags_are_read_in_any_order_and_milliseconds_and_ray_prefixes_are_accepted() -> None:
    """Otherwise logs of some versions would name no rank or no time."""
    steps = [
        one("[2026-11-29 09:20:11.482 DP0 PP1 ATTN_CP0 MOE_DP0 TP4 EP4] Load weight begin. avail mem=1 GB"),
        one("(RayActor pid=77, ip=10.0.0.2) [2026-11-29 09:20:11 TP4 PP1 DP0] Load weight begin. avail mem=1 GB"),
    ]
    assert [step.tags for step in steps] == [Tags(dp=0, pp=1, tp=4, ep=4), Tags(dp=0, pp=1, tp=4)]
    assert steps[0].at_s == at("09:20:11") + 0.482
    assert steps[1].pid == 77


def test_request_text_that_looks_like_engine_lines_is_text() -> None:
    """Otherwise anybody who can send a prompt could fake a hang, a crash or progress."""
    fake = (
        "[2026-11-29 10:00:00] Receive: obj=GenerateReqInput(rid='r1', text='Scheduler hit an exception: Traceback, "
        "Watchdog timeout (self.watchdog_timeout=300), Decode batch, #running-req: 9')\n"
        "Decode batch, #running-req: 4, #token: 1, token usage: 0.00, gen throughput (token/s): 1.00, #queue-req: 0\n"
        "SIGQUIT received. signum=3, frame=None.\n"
        "  [2026-11-29 10:00:00 TP0] Watchdog timeout (self.watchdog_timeout=300)\n"
    )
    assert [(seen.notice, seen.fields) for seen in notices(fake)] == [("request", {"rid": "r1"})]
    assert not [seen for seen in read(PARSER, fake) if isinstance(seen, Decode)]


def test_a_prefill_line_counts_pending_tokens() -> None:
    """Otherwise a long prompt could not be told from a stuck one."""
    chunk = one(
        "[2026-11-29 10:00:00 DP0 TP0 EP0] Prefill batch, #new-seq: 1, #new-token: 8192, #cached-token: 16, "
        "full token usage: 0.21, "
        "swa token usage: 0.02, #running-req: 7, #queue-req: 4, #pending-token: 56320, cuda graph: False, "
        "input throughput (token/s): 15211.77"
    )
    assert isinstance(chunk, Prefill)
    assert (chunk.new_seqs, chunk.new_tokens, chunk.cached_tokens, chunk.running, chunk.queued) == (1, 8192, 16, 7, 4)
    assert chunk.usage == 0.21
    assert chunk.extra["#pending-token"] == 56320.0


def test_phases_have_begin_and_end_in_all_wordings() -> None:
    """Otherwise a boot that stands still could not be placed."""
    text = "\n".join(
        f"[2026-11-29 10:00:00 TP0] {message}"
        for message in (
            "Init torch distributed begin.", "Init parallel ends. elapsed=0.1 s", "Load weight begin. avail mem=1 GB",
            "Load weight end. type=M, avail mem=1 GB", "Memory pool end. avail mem=1 GB",
            "Capture piecewise CUDA graph begin. This can take", "Capture target decode cuda graph end. bs=[1]",
            "The server is fired up and ready to roll!",
        )
    )  # fmt: skip
    assert [(seen.phase, seen.edge) for seen in read(PARSER, text) if isinstance(seen, Phase)] == [
        ("dist_init", "begin"), ("dist_init", "end"), ("load", "begin"), ("load", "end"), ("memory", "end"),
        ("capture", "begin"), ("capture", "end"), ("ready", "end"),
    ]  # fmt: skip


def test_a_bar_is_placed_in_time_by_the_begin_of_its_phase() -> None:
    """Otherwise a bar, which prints no time, could not show that loading still moves."""
    *_, bar = read(
        PARSER,
        "[2026-11-29 10:00:00 TP0] Load weight begin. avail mem=1 GB\n"
        "Loading safetensors checkpoint shards:  42% Completed | 42/99 [01:10<01:35,  1.67s/it]",
    )
    assert isinstance(bar, Phase)
    assert (bar.phase, bar.edge, bar.at_s) == ("load", "progress", at("10:01:10"))
    assert bar.percent is not None and round(bar.percent) == 42


def test_a_traceback_is_one_notice_of_the_rank_that_printed_its_first_line() -> None:
    """Otherwise the exception that brought the engine down would belong to nobody."""
    (seen,) = notices(
        "[2026-11-29 10:00:00 DP0 TP5] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "a.py", line 1, in f\n    g()\nKeyError: 1\n\n'
        "During handling of the above exception, another exception occurred:\n\n"
        "Traceback (most recent call last):\n"
        '  File "a.py", line 3, in f\n    h()\n'
        "torch.AcceleratorError: CUDA error: an illegal memory access was encountered\n"
        "Search for `cudaErrorIllegalAddress' in the documentation.\n"
    )
    assert (seen.notice, seen.tags, seen.at_s) == ("cuda_error", Tags(dp=0, tp=5), at("10:00:00"))
    assert seen.fields["type"] == "torch.AcceleratorError"
    assert seen.fields["cause"] == "KeyError: 1"
    assert seen.origin.line == 11


def test_the_messages_of_an_ending_engine_are_told_apart() -> None:
    """Otherwise a clean shutdown, a watchdog and a crash would look alike."""
    text = "\n".join(
        f"[2026-11-29 10:00:00{tags}] {message}"
        for tags, message in (
            (" TP0", "Watchdog timeout (self.watchdog_timeout=300)"),
            ("", "TokenizerManager watchdog timeout (self.watchdog_timeout=60, self.soft=True)"),
            ("", "SIGQUIT received. signum=3, frame=None. It usually means one child failed."),
            ("", "Subprocess scheduler_3 (pid=4411) crashed with exit code -9. Triggering SIGQUIT for cleanup..."),
            ("", "Rank 6 scheduler died during initialization (exit code: 1). x"),
            ("", "SIGTERM received. signum=15 frame=None. Draining requests and shutting down..."),
            ("", "kill_process_tree called: parent_pid=1, include_parent=True, pid=1"),
        )
    )
    kinds = [(seen.notice, seen.pid, seen.rank) for seen in notices(text)]
    assert kinds == [
        ("watchdog_timeout", None, None), ("soft_watchdog", None, None), ("sigquit", None, None),
        ("subprocess_exit", 4411, None), ("subprocess_exit", None, 6), ("sigterm", None, None),
        ("kill_tree", None, None),
    ]  # fmt: skip


def test_the_nth_scheduler_of_a_node_is_a_global_rank_when_the_arguments_say_how_ranks_lie() -> None:
    """Otherwise a crash on the second node would be blamed on a rank of the first."""
    text = (
        "[2026-11-29 10:00:00] server_args=ServerArgs(model_path='/m', tp_size=16, pp_size=1, nnodes=2, node_rank=1)\n"
        "[2026-11-29 10:00:01] Subprocess scheduler_3 (pid=4411) crashed with exit code -6. Triggering SIGQUIT\n"
    )
    assert [seen.rank for seen in notices(text) if seen.notice == "subprocess_exit"] == [11]


def test_arguments_are_read_in_both_shapes() -> None:
    """Otherwise time-outs and sizes would be guessed."""
    shapes = (
        "server_args=ServerArgs(tp_size=8, watchdog_timeout=300, decode_log_interval=40, device='cuda')",
        "server_args={'tp_size': 8, 'watchdog_timeout': 300, 'decode_log_interval': 40, 'device': 'cuda'}",
    )
    read_in = [notices(f"[2026-11-29 10:00:00] {shape}")[0].fields for shape in shapes]
    assert read_in[0] == read_in[1]
    assert read_in[0]["watchdog_timeout"] == "300"


def test_http_lines_tell_requests_health_and_admin_calls_apart() -> None:
    """Otherwise a pause call or a failing health probe would pass as an ordinary request."""
    lines = (
        '[2026-11-29 10:00:00] INFO:     10.0.0.7:51422 - "POST /v1/chat/completions HTTP/1.1" 200 OK',
        '[2026-11-29 10:00:00] INFO:     10.0.0.7:51422 - "GET /health HTTP/1.1" 503 Service Unavailable',
        '[2026-11-29 10:00:00] INFO:     10.0.0.7:51422 - "POST /pause_generation HTTP/1.1" 200 OK',
        '[2026-11-29 10:00:00] INFO:     10.0.0.7:51422 - "POST /continue_generation HTTP/1.1" 200 OK',
        '[2026-11-29 10:00:00] INFO:     10.0.0.7:51422 - "POST /generate HTTP/1.1" 500 Internal Server Error',
    )
    assert [notices(line)[0].notice for line in lines] == ["request", "health_failed", "pause", "resume", "http_error"]


def test_the_batch_of_a_watchdog_names_its_requests_but_not_their_tokens() -> None:
    """Otherwise either the stuck request is lost or users' tokens leave the log."""
    seen = notices(
        "[2026-11-29 10:00:00 TP1] Scheduler debug info:\n"
        "scheduler.cur_batch.reqs=[Req(rid=3f0c, input_ids=array('q', [280, 391]), output_ids=[1]), Req(rid=4a,"
        " input_ids=..)]"
    )
    assert [one.fields["rid"] for one in seen if one.notice == "request"] == ["3f0c", "4a"]
    assert all("280" not in str(one.fields) for one in seen)


def test_the_last_line_of_a_log_is_known_even_when_it_has_no_meaning() -> None:
    """Otherwise the silence after the last progress would be measured against too early an end."""
    *_, last = notices(
        "[2026-11-29 10:00:00 TP0] Load weight begin. avail mem=1 GB\n[2026-11-29 10:05:00 TP0] nothing known"
    )
    assert (last.at_s, last.fields) == (at("10:05:00"), {"event": "last_line"})


def test_only_one_of_the_two_parsers_of_this_dialect_claims_a_log() -> None:
    """Otherwise each progress line would count twice."""
    sglang = "[2026-11-29 10:00:00] server_args=ServerArgs(tp_size=8)\n"
    ours = (
        "[2026-11-29 10:00:00 TP0] sentinel-engine version=0.1.0 args=(tp_size=2, watchdog_timeout=300)\n"
        "[2026-11-29 10:00:01 TP0] Decode batch, #running-req: 1, #token: 8, token usage: 0.01, store reads: 24, "
        "gen throughput (token/s): 5.00, #queue-req: 0"
    )
    assert recognised(PARSER, sglang) and not recognised(packaged_log.PARSER, sglang)
    assert recognised(packaged_log.PARSER, ours) and not recognised(PARSER, ours)
    steps = [seen for seen in read(packaged_log.PARSER, ours) if isinstance(seen, Decode)]
    assert [(step.engine, step.extra["store reads"]) for step in steps] == [("packaged", 24.0)]
    assert [
        seen.fields["tp_size"]
        for seen in read(packaged_log.PARSER, ours)
        if isinstance(seen, Notice) and seen.notice == "server_args"
    ] == ["2"]
