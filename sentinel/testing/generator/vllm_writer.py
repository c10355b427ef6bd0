"""vLLM's log (V1 engine, 0.9 to 0.33): statistics every 10 s, silent while idle or hung; process prefixes by version."""

# ruff: noqa: E501 - printed lines stay whole, so that they can be searched for

from collections import defaultdict

from sentinel.testing.generator import clock
from sentinel.testing.generator.fleet import Host, Rank
from sentinel.testing.generator.story import Said, Story

Lines = list[tuple[float, str]]

SHM = (
    "No available shared memory broadcast block found in 60 seconds. This typically happens when some processes are "
    "hanging or doing some time-consuming work (e.g. compilation, weight/kv cache quantization)."
)


def log_of(story: Story, host: Host) -> Lines:
    """All lines of one host's `vllm serve`, its engine core and workers included, in order of time."""
    lines: Lines = []
    if host.index == 0:
        lines += _frontend(story, host)
        lines += _statistics(story, host)
        lines += _health(story, host)
    for rank in story.fleet.on(host):
        lines += _boot(story, rank)
    lines += [(said.at_s, _said(story, said)) for said in story.said if said.host is host]
    lines.sort(key=lambda line: line[0])
    if story.bar is not None and host.index == 0:
        lines.append((story.end_s, f"{_process(story, story.rank(0))}{story.bar}"))
    return lines


def _api(story: Story, host: Host) -> str:
    return f"(APIServer pid={host.main_pid}) " if story.fleet.at_least("0.11.2") else ""


def _core(story: Story, host: Host) -> str:
    name = (
        "EngineCore"
        if story.fleet.at_least("0.20.2")
        else "EngineCore_DP0"
        if story.fleet.at_least("0.11.2")
        else "EngineCore_0"
    )
    return f"({name} pid={host.core_pid}) "


def _process(story: Story, rank: Rank) -> str:
    if not story.fleet.at_least("0.11.2") and story.fleet.dp == 1:
        return f"(VllmWorker rank={rank.rank} pid={rank.pid}) "
    return f"({story.fleet.worker(rank)} pid={rank.pid}) "


def _line(prefix: str, level: str, at_s: float, where: str, text: str) -> str:
    return f"{prefix}{level} {clock.month_day(at_s)} [{where}] {text}"


def _said(story: Story, said: Said) -> str:
    prefix = (
        _core(story, said.host)
        if said.core
        else _api(story, said.host)
        if said.rank is None
        else _process(story, said.rank)
    )
    if said.raw:
        return "\n".join(prefix + line if line else line for line in said.text.split("\n"))
    where = "core.py:1138" if said.core else "api_server.py:412" if said.rank is None else "multiproc_executor.py:870"
    return _line(prefix, said.level, said.at_s, where, said.text)


def _frontend(story: Story, host: Host) -> Lines:
    fleet, at = story.fleet, story.fleet.start_s
    api, core = _api(story, host), _core(story, host)
    lines = [
        (at, _line(api, "INFO", at, "api_server.py:1388", f"vLLM API server version {fleet.version}")),
        (at + 8, _line(api, "INFO", at + 8, "model.py:1640", "Using max model len 131072")),
    ]
    if fleet.dp == 1:
        text = (
            f"Initializing a V1 LLM engine (v{fleet.version}) with config: model='/models/m', speculative_config=None, "
            f"tokenizer='/models/m', dtype=torch.bfloat16, max_seq_len=131072, tensor_parallel_size={fleet.tp}, "
            f"pipeline_parallel_size={fleet.pp}, data_parallel_size={fleet.dp}, enforce_eager={story.eager}"
        )
        lines.append((at + 12, _line(core, "INFO", at + 12, "core.py:101", text)))
    if story.ready_s is not None:
        ready = story.ready_s
        lines += [
            (ready - 2, _line(core, "INFO", ready - 2, "core.py:214", "init engine (profile, create kv cache, warmup model) took 41.21 seconds")),
            (ready - 1, _line(api, "INFO", ready - 1, "api_server.py:1702", "Starting vLLM API server 0 on http://0.0.0.0:8000")),
            (ready, f"{api}INFO:     Application startup complete."),
        ]  # fmt: skip
    return lines


def _boot(story: Story, rank: Rank) -> Lines:
    fleet, rng = story.fleet, story.rng
    begin = fleet.start_s + 20 + rng.uniform(0, 2)
    end = story.ready_s - 3 if story.ready_s is not None else story.t0_s
    span = max(end - begin, 20.0)
    address = fleet.hosts[0].address
    first = rank.rank == 0
    texts = [
        (begin, "dist_init", "parallel_state.py:1212", f"world_size={fleet.world} rank={rank.rank} local_rank={rank.local} distributed_init_method=tcp://{address}:29531 backend=nccl"),
        (begin + 2, "nccl", "pynccl.py:111", f"vLLM is using nccl=={fleet.nccl}"),
        (begin + span * 0.1, "load", "gpu_model_runner.py:3902", "Starting to load model /models/m..."),
        (begin + span * 0.6, "load_end", "gpu_model_runner.py:4001", "Model loading took 41.2 GiB memory and 61.204411 seconds"),
        (begin + span * 0.62, "compile", "backends.py:548", "Using cache directory: /root/.cache/vllm/torch_compile_cache/0f1e for vLLM's torch.compile"),
        (begin + span * 0.8, "compile_end", "monitor.py:34", "torch.compile takes 21.40 s in total"),
        (begin + span * 0.82, "memory", "gpu_worker.py:298", "Available KV cache memory: 38.41 GiB"),
        (begin + span * 0.95, "capture_end", "gpu_model_runner.py:4802", "Graph capturing finished in 12 secs, took 1.42 GiB"),
    ]  # fmt: skip
    lines: Lines = []
    for at_s, phase, where, text in texts:
        if story.eager and phase in ("compile", "compile_end", "capture_end"):
            continue
        if phase == "load" and (story.init_open or rank.rank in story.init_missing):
            break
        if first or phase in ("dist_init", "load", "load_end"):
            lines.append((at_s, _line(_process(story, rank), "INFO", at_s, where, text)))
        if first and phase == "load" and story.boot_stop != "load":
            bar = "Loading safetensors checkpoint shards: 100% Completed | 62/62 [00:51<00:00,  1.21it/s]"
            lines.append((at_s + span * 0.4, _process(story, rank) + bar))
        if phase == story.boot_stop:
            break
    return lines


def _statistics(story: Story, host: Host) -> Lines:
    """One line per engine and 10 s; after T0 one with zero throughput (while requests run), then none."""
    by_time: dict[float, list[tuple[int, int, int, float, float]]] = defaultdict(list)
    for beat in story.beats:
        if beat.kind == "decode":
            by_time[beat.at_s].append((beat.group, beat.running, beat.queued, beat.rate, beat.tokens / 701220 * 100))
    where = "loggers.py:87" if not story.fleet.at_least("0.11.2") else "loggers.py:271"
    prompts = {round(beat.at_s): beat.new_tokens for beat in story.beats if beat.kind == "prefill"}
    lines: Lines = []
    for at_s, rows in by_time.items():
        for group, running, queued, rate, usage in rows:
            prompt = prompts.get(round(at_s - 0.2), 0) / 10
            lines.append(
                (
                    at_s,
                    _line(_api(story, host), "INFO", at_s, where, stats(group, prompt, rate, running, queued, usage)),
                )
            )
    if story.silence_s > 10 and story.running and story.beats and story.states:
        last = max(by_time)
        for group, running, _, _, usage in by_time[last] or ():
            text = stats(group, 0.0, 0.0, running, story.waiting, usage)
            lines.append((last + 10, _line(_api(story, host), "INFO", last + 10, where, text)))
    return lines


def stats(engine: int, prompt: float, rate: float, running: int, waiting: int, usage: float) -> str:
    """The text of a statistics line."""
    return (
        f"Engine {engine:03d}: Avg prompt throughput: {prompt:.1f} tokens/s, Avg generation throughput: {rate:.1f} tokens/s, "
        f"Running: {running} reqs, Waiting: {waiting} reqs, GPU KV cache usage: {usage:.1f}%, Prefix cache hit rate: 31.4%"
    )


def shm_lines(story: Story, until_s: float | None = None) -> None:
    """The notice that the core prints each minute while it waits for a worker (INFO since 0.11)."""
    if story.fleet.engine != "vllm" or not story.fleet.at_least("0.11.2") or story.fleet.dp > 1:
        return
    at = story.t0_s + 60
    while at < (until_s or story.end_s):
        story.say(at, SHM, core=True)
        at += 60


def _health(story: Story, host: Host) -> Lines:
    """Health is 200 for as long as the API process does not know of a death."""
    rng = story.rng
    lines: Lines = []
    if story.ready_s is None:
        return lines
    for beat in story.beats[:: rng.choice((2, 3))]:
        lines.append((beat.at_s - 0.1, f'{_api(story, host)}INFO:     10.0.0.{rng.randrange(40, 60)}:{rng.randrange(30000, 60000)} - "POST /v1/chat/completions HTTP/1.1" 200 OK'))  # fmt: skip
    if story.health != "none":
        at = story.ready_s + 20
        while at < story.end_s:
            lines.append(
                (
                    at,
                    f'{_api(story, host)}INFO:     10.0.0.5:{rng.randrange(30000, 60000)} - "GET /health HTTP/1.1" 200 OK',
                )
            )
            at += 20
    return lines
