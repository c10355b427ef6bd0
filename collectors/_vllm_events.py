"""What vLLM's messages other than statistics report. Sources: vLLM 0.8.5 to 0.33.0."""

import re
from collections.abc import Callable, Iterator

from sentinel.collectors._engine_lines import TEXT_MAX, Edge, Said, access, quoted_ids, raised_kind, settings
from sentinel.model.observation import NoticeKind, PhaseName, Tags

SHM = re.compile(r"No available (?:shared memory broadcast )?block found ?in (?P<secs>\d{1,18}) seconds?\.")
FATAL = re.compile(
    r"(?P<kind>EngineCore (?:failed to start|encountered a fatal error|hit an exception)|EngineDeadError"
    r"|RPC call to (?P<method>\w+) timed out|Worker proc (?P<worker>\S+) died unexpectedly|Engine core "
    r"proc(?:ess)? \S+ "
    r"|engine core exited unexpectedly|WorkerProc (?:hit an exception|failed)|Engine core initialization failed"
    r"|RuntimeError: Executor failed|\[Watchdog\]Dumped stack to (?P<dump>\S+) due to (?P<why>.+))"
)
SPECDEC = re.compile(
    r"SpecDecoding metrics: Mean acceptance length: (?P<len>[\d.]{1,24}|nan), Accepted throughput: "
    r"(?P<atps>[\d.]{1,24}) tokens/s, "
    r"Drafted throughput: (?P<dtps>[\d.]{1,24}) tokens/s, Accepted: (?P<acc>\d{1,18}) tokens, Drafted: "
    r"(?P<dr>\d{1,18}) tokens, "
    r"Per-position acceptance rate: (?P<pos>[\d., nan]*), Avg Draft acceptance rate: (?P<rate>[\d.]{1,24}|nan)%"
)

_VERSION = re.compile(r"vLLM API server version (?P<vllm>\S+)")
_ENGINE = re.compile(r"Initializing a V1 LLM engine \(v(?P<vllm>[^)]+)\) with config:")
_NCCL = re.compile(r"vLLM is using nccl==(?P<nccl>[\d.]{1,24})(?:.*\[repeated (?P<repeated>\d{1,18})x)?")
_WORLD = re.compile(r"world_size=(?P<world_size>\d{1,6}) rank=(?P<rank>\d{1,6}) local_rank=")
_ASSIGNED = re.compile(
    r"rank \d+ in world size \d+ is assigned as DP rank (?P<dp>\d{1,6}), PP rank (?P<pp>\d{1,6}).{0,"
    r"100}?\bTP rank (?P<tp>\d{1,6})"
)
_POOL = re.compile(r"\w+ KV cache size: (?P<pool_tokens>[\d,]+) tokens")
_EXIT = re.compile(r"\(exit code: (?P<exit_code>-?\d{1,18})\)")
_STATS_LEFT = re.compile(r"num_running_reqs=(?P<running>\d{1,18}), num_waiting_reqs=(?P<waiting>\d{1,18})")
_REQUEST = re.compile(
    r"(?:Received|Added|Finished|Aborted|Aborting|Generated response for) (?:streaming )?request(?:\(s\))?"
    r" (?P<rid>[\w.:-]{1,120})"
)
_RAISED = re.compile(
    r"(?P<type>(?:[a-z_]\w{0,60}\.){0,8}[A-Z]\w{0,60}(?:Error|Exception|Timeout|Interrupt))(?:: |$)(?P<message>.*)$"
)


def said(msg: str) -> Iterator[Said]:
    """What one message (without its line prefix) reports; nothing for a message without a known meaning."""
    for start, handler in _BY_START:
        if msg.startswith(start):
            yield from handler(msg)
            return
    found = _RAISED.match(msg[:TEXT_MAX])
    if found is not None:  # the last line of a traceback whose beginning went elsewhere
        kind = raised_kind(found["type"], found["message"])
        yield Said(kind, fields={"type": found["type"], "message": found["message"].strip()})


def uvicorn(msg: str) -> Iterator[Said]:
    """`INFO:     text` of the HTTP server: an access line, or a stage of its life."""
    if (answered := access(msg)) is not None:
        yield Said(answered[0], fields=answered[1])
    elif "Application startup complete" in msg:
        yield Said(phase="ready", edge="end")
    elif "Shutting down" in msg:
        yield Said(phase="shutdown", edge="begin")
    elif "Finished server process" in msg:
        yield Said(phase="shutdown", edge="end")


def _version(msg: str) -> Iterator[Said]:
    if (found := _VERSION.match(msg)) is not None:
        yield Said(phase="start", edge="begin")
        yield Said("version", fields=found.groupdict())


def _engine(msg: str) -> Iterator[Said]:
    if (found := _ENGINE.match(msg)) is not None:
        yield Said(phase="start", edge="progress")
        yield Said("server_args", fields=settings(msg) | found.groupdict())


def _arguments(msg: str) -> Iterator[Said]:
    yield Said("server_args", fields=settings(msg))


def _world(msg: str) -> Iterator[Said]:
    if (found := _WORLD.match(msg)) is not None:
        alone = int(found["world_size"]) < 2
        yield Said(phase="dist_init", edge="begin", rank=None if alone else int(found["rank"]))


def _assigned(msg: str) -> Iterator[Said]:
    if (found := _ASSIGNED.match(msg)) is not None:
        tags = Tags(dp=int(found["dp"]), pp=int(found["pp"]), tp=int(found["tp"]))
        yield Said(phase="dist_init", edge="end", tags=tags)


def _nccl(msg: str) -> Iterator[Said]:
    if (found := _NCCL.match(msg)) is not None:
        yield Said(phase="dist_init", edge="progress")
        yield Said("version", fields={"nccl": found["nccl"]})
        if found["repeated"] is not None:
            yield Said("repeated", fields={"times": found["repeated"]})


def _pool(msg: str) -> Iterator[Said]:
    if (found := _POOL.match(msg)) is not None:
        yield Said(phase="memory", edge="end")
        yield Said("server_args", fields={"pool_tokens": found["pool_tokens"].replace(",", "")})


def _shm(msg: str) -> Iterator[Said]:
    if (found := SHM.match(msg)) is not None:
        yield Said("shm_wait", fields=found.groupdict())


def _worker_died(msg: str) -> Iterator[Said]:
    found, code = FATAL.match(msg), _EXIT.search(msg)
    if found is not None and found["worker"] is not None:
        _, _, index = found["worker"].rpartition("-")
        fields = {"worker": found["worker"], **({} if code is None else code.groupdict())}
        yield Said("worker_died", fields=fields, local_index=int(index) if index.isdecimal() else None)


def _engine_dead(_: str) -> Iterator[Said]:
    yield Said("engine_dead")


def _raising(_: str) -> Iterator[Said]:
    yield Said("exception", traceback=True)


def _stack_dumped(msg: str) -> Iterator[Said]:
    found = FATAL.match(msg)
    if found is not None:
        yield Said("soft_watchdog", fields={"dump": found["dump"] or "", "why": found["why"] or ""})


def _scheduled(msg: str) -> Iterator[Said]:
    """The scheduler output that a dying engine dumps: which requests were in the step that did not end."""
    for rid in quoted_ids(msg.partition("req_ids=[")[2].partition("]")[0]):
        yield Said("request", fields={"rid": rid, "where": "batch"})


def _left(msg: str) -> Iterator[Said]:
    if (found := _STATS_LEFT.search(msg)) is not None:
        yield Said("other", fields=found.groupdict())


def _shutdown(msg: str) -> Iterator[Said]:
    if "trigger received signal=SIGTERM" in msg or "API server: shutdown triggered" in msg:
        yield Said("sigterm")
        yield Said(phase="shutdown", edge="begin")
    elif "engine core exited unexpectedly" in msg:
        yield Said("engine_dead")
    elif "sending SIG" in msg or "send sigterm" in msg:
        yield Said("kill_tree")


def _request(msg: str) -> Iterator[Said]:
    found = _REQUEST.match(msg[:400])
    if found is not None:
        word = msg.partition(" ")[0]
        kind: NoticeKind = "request" if word in ("Received", "Added") else "request_done"
        yield Said("request_abort" if word.startswith("Abort") else kind, fields=found.groupdict())


def _sleep(msg: str) -> Iterator[Said]:
    if "to fall asleep" in msg or msg.startswith("Sleep mode freed"):
        yield Said("sleep")
    elif "to wake up" in msg:
        yield Said("wake")


def _accepted(msg: str) -> Iterator[Said]:
    if (found := SPECDEC.match(msg[:TEXT_MAX])) is not None:
        yield Said("other", fields={"acceptance_length": found["len"], "acceptance_percent": found["rate"]})


def _flushed(_: str) -> Iterator[Said]:
    yield Said("flush")


def _at(phase: PhaseName, edge: Edge) -> Callable[[str], Iterator[Said]]:
    def handler(_: str) -> Iterator[Said]:
        yield Said(phase=phase, edge=edge)

    return handler


_BY_START: tuple[tuple[str, Callable[[str], Iterator[Said]]], ...] = (
    ("No available ", _shm),
    ("vLLM API server version", _version), ("Initializing a V1 LLM engine", _engine), ("non-default args:", _arguments),
    ("world_size=", _world), ("rank ", _assigned), ("vLLM is using nccl", _nccl),
    ("Starting to load model", _at("load", "begin")), ("Loading weights from ", _at("load", "begin")),
    ("Loading weights took", _at("load", "end")), ("Model loading took", _at("load", "end")),
    ("Using cache directory", _at("compile", "begin")), ("Dynamo bytecode transform", _at("compile", "progress")),
    ("Compiling a graph", _at("compile", "progress")), ("Directly load the compiled graph", _at("compile", "progress")),
    ("Cache the graph", _at("compile", "progress")), ("torch.compile takes", _at("compile", "end")),
    ("torch.compile took", _at("compile", "end")),
    ("Available KV cache memory", _at("memory", "progress")),
    ("GPU KV cache size", _pool), ("CPU KV cache size", _pool),
    ("XPU KV cache size", _pool), ("Graph capturing finished", _at("capture", "end")),
    ("init engine (profile", _at("warmup", "end")), ("Starting vLLM", _at("ready", "end")),
    ("EngineCore hit an exception", _raising), ("EngineCore failed to start", _engine_dead),
    ("EngineCore encountered a fatal error", _engine_dead),
    ("Worker proc ", _worker_died), ("Engine core ", _engine_dead),
    ("AsyncLLM output_handler failed", _engine_dead), ("[shutdown]", _shutdown), ("WorkerProc ", _raising),
    ("Traceback (most recent call last):", _raising), ("[Watchdog]Dumped stack", _stack_dumped),
    ("Dumping scheduler output", _scheduled), ("Dumping scheduler stats", _left),
    ("It took ", _sleep), ("Sleep mode freed", _sleep), ("Successfully reset prefix cache", _flushed),
    ("SpecDecoding metrics", _accepted),
    *((word, _request) for word in ("Received ", "Added ", "Finished ", "Aborted ", "Aborting ", "Generated ")),
)  # fmt: skip
