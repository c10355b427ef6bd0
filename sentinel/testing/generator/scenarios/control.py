"""The control plane, the pool, transfers, grammar or the front end is stuck."""

# ruff: noqa: E501 - printed lines stay whole, so that they can be searched for

from random import Random

from sentinel.testing.generator import clock, host_writer, stack_writer
from sentinel.testing.generator.fleet import make_fleet
from sentinel.testing.generator.frames import PyFrame
from sentinel.testing.generator.story import Beat, Label, Story, hang, progress_counters, serve

NOT = ("drain_node", "rowstore_mode")
_BASE: tuple[PyFrame, ...] = (
    ("Thread.run", "threading.py", 1012), ("Thread._bootstrap_inner", "threading.py", 1075), ("Thread._bootstrap", "threading.py", 1032),
)  # fmt: skip


def _parked(story: Story) -> None:
    """Workers wait for work, GPUs idle."""
    story.all_states(place="idle", process="S", cpu=0.6, gpu="held", wchan="do_epoll_wait")


def core_lock(rng: Random) -> Story:
    """vLLM's engine core waits for a lock inside its scheduler; workers are parked, requests outstanding."""
    story = Story(make_fleet(rng, engines=("vllm",), max_world=16, plain=True), rng)
    serve(story)
    hang(story)
    _parked(story)
    story.core_place = "lock"
    story.keep.update(("stacks", "gpu", "metrics"))
    story.label = Label(
        ("hang.scheduler",),
        True,
        (),
        None,
        ("restart_engine",),
        NOT,
        situation="the engine core is stuck in its scheduler",
    )
    return story


def same_barrier(rng: Random) -> Story:
    """All schedulers wait in the same host-side barrier; nothing points to one of them."""
    story = Story(make_fleet(rng, engines=("sglang",), max_world=8, plain=True), rng)
    serve(story)
    hang(story)
    story.all_states(place="barrier", process="S", cpu=2.0, gpu="held", wchan="do_epoll_wait")
    story.focus = tuple(range(story.fleet.world))
    story.health = "failing"
    story.keep.update(("stacks", "gpu"))
    story.label = Label(
        ("hang.scheduler", "hang.collective_stuck", "unknown"), True, (), None, ("restart_engine|capture_more|page_human",), NOT,
        situation="all schedulers wait at the same host place, GPUs idle",
    )  # fmt: skip
    return story


def head_too_big(rng: Random) -> Story:
    """The request at the head of the queue is larger than the pool: nothing is admitted, the queue grows."""
    story = Story(make_fleet(rng, engines=("vllm",), max_world=8, hosts=1, plain=True), rng)
    serve(story)
    _parked(story)
    story.core_place = "schedule"
    story.running = 0
    at = story.t0_s
    pool = rng.randrange(30_000, 90_000)
    story.say(story.fleet.start_s + 40, f"GPU KV cache size: {pool:,} tokens", core=True)
    queue = 1
    for _ in range(rng.randrange(18, 40)):
        at += 10
        queue += rng.choice((0, 1, 1, 2))
        story.beats.append(Beat(at, "decode", 0, 0, queue, 3000, 0.0))
    story.end_s = at + 3
    story.waiting = queue
    story.counters.update(progress_counters(story, moving=False))
    story.counters["vllm:num_requests_waiting"] = (float(queue - 3), float(queue))
    story.keep.update(("stacks", "metrics", "gpu"))
    story.files.append(
        (
            story.fleet.hosts[0],
            "gateway.jsonl",
            f'{{"ts": "{clock.rfc3339(story.t0_s + 4 - story.fleet.utc_offset_s)[:19]}Z", "rid": "chatcmpl-3961c344", "path": "/v1/chat/completions", "prompt_tokens": {int(pool * 1.3)}, "max_tokens": 1024, "status": null}}\n',
        )
    )
    story.label = Label(
        ("hang.kv_pool", "hang.scheduler"), True, None, None, ("abort_request",), ("restart_engine", "drain_node", "rowstore_mode"),
        situation="the head request does not fit the pool",
    )  # fmt: skip
    return story


def retraction_loop(rng: Random) -> Story:
    """The same request is retracted and admitted for ever; tokens do not advance."""
    story = Story(make_fleet(rng, engines=("sglang",), max_world=8, plain=True), rng)
    serve(story)
    at = story.t0_s
    tokens = 698_000
    for _ in range(rng.randrange(20, 40)):
        at += 3.0
        story.beats.append(Beat(at - 0.4, "prefill", 0, 1, 6, tokens, 3000.0, 4096))
        story.beats.append(Beat(at, "decode", 0, 1, 6, tokens, 12.0))
        story.say(
            at + 0.1,
            "KV cache pool is full. Retract requests. #retracted_reqs: 1, #new_tokens_gained: 4096, #new_token_ratio: 0.9812 -> 1.0000",
            0,
        )
    story.end_s = at + 2
    story.running, story.waiting = 1, 6
    story.all_states(place="gpu_wait", gpu="decode")
    story.counters.update(progress_counters(story, moving=False))
    story.counters["sglang:token_usage"] = (0.99, 0.99)
    story.keep.add("metrics")
    story.label = Label(
        ("hang.kv_pool",),
        True,
        None,
        None,
        ("abort_request|change_setting",),
        ("drain_node", "rowstore_mode"),
        situation="retraction for ever at a full pool",
    )
    return story


def transfers(rng: Random) -> Story:
    """Decode side of a disaggregated pair: transfers stay outstanding, no bytes arrive, the loop lives on one request."""
    story = Story(make_fleet(rng, engines=("sglang",), max_world=8, plain=True), rng)
    while not story.fleet.at_least("0.5.4"):
        story = Story(make_fleet(rng, engines=("sglang",), max_world=8, plain=True), rng)
    serve(story)
    stuck, at = rng.randrange(8, 70), story.t0_s
    extra = (
        ("pre-allocated usage", "0.00"),
        ("#prealloc-req", "2"),
        ("#transfer-req", str(stuck)),
        ("#retracted-req", "0"),
    )
    for number in range(rng.randrange(25, 50)):
        at += 6.0
        story.beats.append(Beat(at, "decode", 0, 1, 0, 4000 + 40 * number, 31.0, 0, extra))
    story.t0_s, story.end_s = at, at + 4
    story.running = 1
    story.all_states(gpu="decode", place="gpu_wait")
    story.counters.update(progress_counters(story, moving=True))
    story.counters["sglang:num_decode_transfer_queue_reqs"] = (float(stuck), float(stuck))
    story.keep.add("metrics")
    host = story.fleet.hosts[0]
    story.files.append((host, "rdma.txt", host_writer.rdma(host, ((at - 60, {}), (at - 30, {}), (at, {})), 0)))
    story.label = Label(
        ("hang.kv_transfer",),
        True,
        None,
        None,
        ("restart_engine|page_human",),
        NOT,
        situation="KV transfers never complete",
    )
    return story


def cache_lookup(rng: Random) -> Story:
    """One request waits for the answer of a cache server that is gone; everything else is idle."""
    story = Story(make_fleet(rng, engines=("vllm",), max_world=8, plain=True), rng)
    serve(story)
    hang(story)
    _parked(story)
    story.core_place, story.running, story.waiting = "idle", 0, rng.randrange(1, 4)
    story.counters.update(progress_counters(story, moving=False))
    host = story.fleet.hosts[0]
    lookup: tuple[PyFrame, ...] = (
        ("poll", "zmq/sugar/poll.py", 106), ("get_future_result", "lmcache/v1/multiprocess/mq.py", 233),
        ("lookup", "lmcache/integration/vllm/vllm_multi_process_adapter.py", 188), *_BASE,
    )  # fmt: skip
    text = stack_writer.core_text(story, host) + 'Thread 991 (idle): "Thread-7 (_lookup_loop)"\n'
    text += "".join(f"    {function} ({file}:{line})\n" for function, file, line in lookup)
    story.files.append((host, "core_stack.txt", text))
    pid = host.core_pid + 1400
    story.printk(
        story.fleet.start_s + 30,
        f"Out of memory: Killed process {pid} (lmcache) total-vm:64110208kB, anon-rss:2211840kB, file-rss:18204kB, shmem-rss:512kB, UID:0 pgtables:24100kB oom_score_adj:0",
        host,
    )
    story.keep.update(("kernel", "metrics", "gpu"))
    story.label = Label(
        ("hang.kv_transfer", "crash.oom"),
        True,
        None,
        None,
        ("restart_engine|page_human",),
        NOT,
        situation="a request waits for a dead cache server",
    )
    return story


def grammar(rng: Random) -> Story:
    """One request waits for its JSON schema to compile; others are served."""
    story = Story(make_fleet(rng, engines=("vllm",), max_world=8, hosts=1, plain=True), rng)
    serve(story)
    at = story.t0_s
    for _ in range(rng.randrange(20, 40)):
        at += 10
        story.beats.append(Beat(at, "decode", 0, story.running, 1, 4000, story.running * 31.0))
    story.t0_s, story.end_s = at, at + 3
    story.all_states(gpu="decode", place="gpu_wait")
    story.waiting = 1
    story.counters.update(progress_counters(story, moving=True))
    host = story.fleet.hosts[0]
    backend = rng.choice(
        (
            ("compile_json_schema", "xgrammar/compiler.py", 231),
            ("compile_grammar", "llguidance/mtgen.py", 88),
            ("build_index", "outlines_core/fsm/guide.py", 214),
        )
    )
    pool: tuple[PyFrame, ...] = (
        backend, ("compile_grammar", "vllm/v1/structured_output/backend_xgrammar.py", 112), ("_create_grammar", "vllm/v1/structured_output/__init__.py", 201),
        ("run", "concurrent/futures/thread.py", 59), ("_worker", "concurrent/futures/thread.py", 93), *_BASE,
    )  # fmt: skip
    for number in (1, 2):
        text = stack_writer.core_text(story, host) + f'Thread {host.core_pid + 54} (active): "ThreadPoolExecutor-2_0"\n'
        story.files.append(
            (
                host,
                f"core_{number}.txt",
                text + "".join(f"    {function} ({file}:{line})\n" for function, file, line in pool),
            )
        )
    story.keep.add("metrics")
    story.label = Label(
        ("hang.grammar",), None, None, None, ("abort_request|wait",), ("restart_engine", "drain_node", "rowstore_mode"),
        situation="one request's schema compiles for ever",
    )  # fmt: skip
    return story


def frontend(rng: Random) -> Story:
    """The HTTP process is busy in one request's text for minutes; connections pile up; schedulers are parked."""
    story = Story(make_fleet(rng, engines=("sglang",), max_world=8, hosts=1, plain=True), rng)
    serve(story)
    hang(story)
    _parked(story)
    story.running, story.waiting, story.frontend = 0, 0, "busy"
    story.counters.clear()
    host = story.fleet.hosts[0]
    busy: tuple[PyFrame, ...] = (
        rng.choice((("_search", "regex/_regex_core.py", 1402), ("encode", "tokenizers/__init__.py", 0), ("loads", "json/decoder.py", 337))),
        ("_normalize_prompt", "sglang/srt/parser/conversation.py", 911), ("_process_messages", "sglang/srt/entrypoints/openai/serving_chat.py", 512),
        ("openai_v1_chat_completions", "sglang/srt/entrypoints/http_server.py", 1433), ("_run", "asyncio/events.py", 88), ("run", "uvicorn/server.py", 75),
        ("launch_server", "sglang/srt/entrypoints/http_server.py", 2110), ("<module>", "sglang/launch_server.py", 40),
    )  # fmt: skip
    for number in (1, 2):
        text = stack_writer.process_text(
            host.main_pid, "python3 -m sglang.launch_server --model-path /models/m", "active+gil", busy[number - 1 :]
        )
        story.files.append((host, f"pyspy_http_{number}.txt", text))
    story.files.append((host, "ss.txt", host_writer.sockets(story, host.main_pid, rng.randrange(60, 200), True)))
    story.files.append(
        (
            host,
            "curl.txt",
            '$ curl -m 10 -s -o /dev/null -w "%{http_code}\\n" localhost:30000/health\ncurl: (28) Operation timed out after 10001 milliseconds with 0 bytes received\n',
        )
    )
    story.focus = tuple(range(story.fleet.world))
    story.keep.update(("stacks", "gpu", "ps"))
    story.label = Label(
        ("hang.frontend",),
        True,
        (),
        None,
        ("restart_frontend|abort_request",),
        NOT,
        situation="the HTTP process is blocked, schedulers parked",
    )
    return story


SCENARIOS = (
    core_lock,
    same_barrier,
    head_too_big,
    retraction_loop,
    transfers,
    transfers,
    cache_lookup,
    grammar,
    grammar,
    frontend,
    frontend,
)
