"""SGLang's log (0.4.6 to 0.5.23) and the packaged engine's, which prints the same lines per rank."""

# ruff: noqa: E501 - printed lines stay whole, so that they can be searched for

from sentinel.testing.generator import clock
from sentinel.testing.generator.fleet import Host, Rank
from sentinel.testing.generator.story import Beat, Said, Story

Lines = list[tuple[float, str]]


def log_of(story: Story, host: Host) -> Lines:
    """All lines of one host's launcher, its schedulers included, in order of time."""
    lines: Lines = []
    if host.index == 0 or story.rng.random() < 0.8:
        lines.append((story.fleet.start_s, _prefix(story, story.fleet.start_s) + _arguments(story, host)))
    for rank in story.fleet.on(host):
        lines += boot_of(story, rank)
    lines += _ready(story, host)
    for beat in story.beats:
        printer = printer_of(story, beat)
        if printer.host is host:
            lines.append((beat.at_s, _prefix(story, beat.at_s, printer) + beat_text(story, beat)))
    lines += [(said.at_s, _said(story, said)) for said in story.said if said.host is host]
    if host.index == 0:
        lines += _traffic(story)
    lines.sort(key=lambda line: line[0])
    if story.bar is not None and host.index == 0:
        lines.append((story.end_s, story.bar))
    return lines


def rank_log_of(story: Story, rank: Rank) -> Lines:
    """The packaged engine's log of one rank; rank 0 prints the progress."""
    lines = boot_of(story, rank)
    if story.ready_s is not None:
        lines.append((story.ready_s, _prefix(story, story.ready_s, rank) + "The server is fired up and ready to roll!"))
    if rank.rank == 0:
        lines += [(beat.at_s, _prefix(story, beat.at_s, rank) + beat_text(story, beat)) for beat in story.beats]
    lines += [(said.at_s, _said(story, said)) for said in story.said if said.rank is rank]
    lines.sort(key=lambda line: line[0])
    return lines


def printer_of(story: Story, beat: Beat) -> Rank:
    """The rank that prints progress of a data-parallel group: its first."""
    return next(rank for rank in story.fleet.ranks if rank.dp == beat.group) if story.fleet.dp > 1 else story.rank(0)


def _prefix(story: Story, at_s: float, rank: Rank | None = None) -> str:
    if story.fleet.engine == "packaged":
        return f"[{clock.full(at_s)} TP{0 if rank is None else rank.tp}] "
    tags = "" if rank is None else story.fleet.tags(rank)
    return f"[{clock.full(at_s)}{' ' + tags if tags else ''}] "


def _said(story: Story, said: Said) -> str:
    return said.text if said.raw else _prefix(story, said.at_s, said.rank) + said.text


def _arguments(story: Story, host: Host) -> str:
    fleet = story.fleet
    return (
        f"server_args=ServerArgs(model_path='/models/m', tokenizer_path='/models/m', host='0.0.0.0', port=30000, "
        f"mem_fraction_static=0.85, chunked_prefill_size=8192, tp_size={fleet.tp}, pp_size={fleet.pp}, dp_size={fleet.dp}, "
        f"enable_dp_attention={fleet.dp_attention}, watchdog_timeout=300, decode_log_interval=40, "
        f"nnodes={len(fleet.hosts)}, node_rank={host.index}, disable_cuda_graph={story.eager})"
    )


BOOT = ("dist_init", "load", "memory", "capture")


def boot_of(story: Story, rank: Rank) -> Lines:
    """Start-up lines of one rank, up to the phase in which the story's boot stops."""
    fleet, rng = story.fleet, story.rng
    begin = fleet.start_s + 8 + rng.uniform(0, 3)
    end = story.ready_s - 2 if story.ready_s is not None else story.t0_s
    span = max(end - begin, 20.0)
    at = [begin, begin + span * 0.08, begin + span * 0.1, begin + span * 0.7, begin + span * 0.72, begin + span * 0.95]
    newest, clocked = fleet.at_least("0.5.23"), fleet.at_least("0.5.10")
    elapsed = "elapsed=5.12 s, " if clocked else ""
    texts = [
        (at[0], "dist_init", "Init parallel begin." if newest else "Init torch distributed begin."),
        (at[1], "dist_init_end", "Init parallel ends. elapsed=5.12 s" if newest else f"Init torch distributed ends. {elapsed}mem usage=1.31 GB"),
        (at[2], "load", "Load weight begin. avail mem=138.20 GB"),
        (at[3], "load_end", f"Load weight end. {'elapsed=61.31 s, ' if clocked else ''}type=DeepseekV3ForCausalLM, dtype=torch.bfloat16, avail mem=55.30 GB, mem usage=82.90 GB."),
        (at[3] + 1, "memory", "KV Cache is allocated. #tokens: 701220, KV size: 34.93 GB"),
        (at[4], "memory_end", "Memory pool end. avail mem=15.80 GB"),
        (at[4] + 1, "capture", "Capture target decode cuda graph begin. backend=full, num_tokens_per_req=1, avail mem=15.30 GB" if newest else "Capture cuda graph begin. This can take up to several minutes. avail mem=15.30 GB"),
        (at[5], "capture_end", "Capture target decode cuda graph end. bs=[1, 2, 4, 8], elapsed=14.04 s, mem usage=1.10 GB, avail mem=14.20 GB." if newest else "Capture cuda graph end. Time elapsed: 14.48 s. mem usage=1.10 GB. avail mem=14.20 GB."),
    ]  # fmt: skip
    lines: Lines = []
    for at_s, phase, text in texts:
        if story.eager and phase.startswith("capture"):
            continue
        if phase == "dist_init_end" and (story.init_open or rank.rank in story.init_missing):
            break
        lines.append((at_s, _prefix(story, at_s, rank) + text))
        if phase == story.boot_stop:
            break
    if rank.rank == 0 and story.boot_stop != "dist_init" and not story.init_open:
        lines.append((at[1] - 0.5, _prefix(story, at[1] - 0.5, rank) + f"sglang is using nccl=={fleet.nccl}"))
        if story.boot_stop != "load" or story.bar is None:
            lines.append((at[2] + 1, _shards(100)))
    return lines


def _shards(percent: int) -> str:
    done = 163 * percent // 100
    return f"Loading safetensors checkpoint shards: {percent:3d}% Completed | {done}/163 [00:56<00:00,  2.98it/s]"


def _ready(story: Story, host: Host) -> Lines:
    if story.ready_s is None or host.index != 0:
        return []
    main = _prefix(story, story.ready_s)
    return [
        (story.ready_s - 1, main + "INFO:     Application startup complete."),
        (story.ready_s - 0.5, main + "INFO:     Uvicorn running on http://0.0.0.0:30000 (Press CTRL+C to quit)"),
        (story.ready_s, main + "The server is fired up and ready to roll!"),
    ]


def beat_text(story: Story, beat: Beat) -> str:
    """A "Decode batch" or "Prefill batch" line in the dialect of the version."""
    fleet = story.fleet
    head = (
        ". " if not fleet.at_least("0.5.4") else f" [{int(beat.at_s) % 100000}], " if fleet.version == "0.5.4" else ", "
    )
    comma = ", " if not fleet.at_least("0.5.10") and fleet.version != "0.4.6" and fleet.engine != "packaged" else ""
    usage = beat.tokens / 701220
    if fleet.engine == "packaged":
        head, comma = ", ", ""
    extra = "".join(f"{key}: {value}, " for key, value in beat.extra)
    graph = f"cuda graph: {not story.eager}, " if fleet.at_least("0.4.10") or fleet.engine == "packaged" else ""
    if beat.kind == "decode":
        return (
            f"Decode batch{head}#running-req: {beat.running}, #token: {beat.tokens}, token usage: {usage:.2f}, "
            f"{extra}{graph}gen throughput (token/s): {beat.rate:.2f}, #queue-req: {beat.queued}{comma}"
        )
    tail = f", {graph}input throughput (token/s): {beat.rate:.2f}" if fleet.at_least("0.5.10") else comma
    return (
        f"Prefill batch{head}#new-seq: 1, #new-token: {beat.new_tokens}, #cached-token: 0, token usage: {usage:.2f}, "
        f"#running-req: {beat.running}, #queue-req: {beat.queued}{tail.rstrip() if tail == ', ' else tail}"
    )


def _traffic(story: Story) -> Lines:
    """Access lines of requests while they are served, and of a health probe during the whole time."""
    rng = story.rng
    lines: Lines = []
    for beat in story.beats[:: rng.choice((2, 3, 5))]:
        text = f'INFO:     10.0.0.{rng.randrange(40, 60)}:{rng.randrange(30000, 60000)} - "POST /v1/chat/completions HTTP/1.1" 200 OK'
        lines.append((beat.at_s - 0.1, _prefix(story, beat.at_s - 0.1) + text))
    if story.health == "none" or story.ready_s is None:
        return lines
    at = story.ready_s + 30
    while at < story.end_s:
        failing = story.health == "failing" and at > story.t0_s + 20
        if failing:
            lines.append((at, _prefix(story, at) + (
                "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds. "
                f"tic start time: {clock.day(at - 20)}. last_heartbeat time: {clock.day(story.t0_s)}"
            )))  # fmt: skip
        status = "503 Service Unavailable" if failing else "200 OK"
        lines.append(
            (
                at,
                _prefix(story, at)
                + f'INFO:     10.0.0.5:{rng.randrange(30000, 60000)} - "GET /health HTTP/1.1" {status}',
            )
        )
        at += 31.0
    return lines
