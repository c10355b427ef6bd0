"""What SGLang's messages other than progress lines report, by their first word. Sources: SGLang 0.3.6 to 0.5.23."""

import re
from collections.abc import Callable, Iterator

from sentinel.collectors._engine_lines import Said, access, quoted_ids, settings
from sentinel.model.observation import NoticeKind, PhaseName

PHASE = re.compile(
    r"(?P<what>Init (?:torch distributed|parallel)|Load weight|Memory pool|Capture (?:[\w-]+ )*?(?:cuda|"
    r"CUDA|cpu|npu|musa) graph)"
    r" (?P<edge>begin|ends?)\b"
)
WATCHDOG = re.compile(
    r"(?:(?P<name>[A-Z]\w+) w|W)atchdog timeout \(self\.watchdog_timeout=(?P<timeout>[\d.]{1,24})(?:, "
    r"self\.soft=(?P<soft>True|False))?\)"
)
FATAL = re.compile(
    r"(?P<kind>Received sigquit from a child process|SIGQUIT received\. signum=|Scheduler hit an exception: "
    r"|Subprocess \S+ \(pid=\d+\) crashed with exit code -?\d+|Scheduler or DataParallelController \d+ "
    r"terminated with -?\w+"
    r"|Rank \d+ scheduler died during initialization|TokenizerManager hit an exception: |"
    r"DetokenizerManager hit an exception: "
    r"|Health check failed\. Server couldn't get a response from detokenizer)"
)
PYSPY = re.compile(r"Pyspy dump for PID (?P<pid>\d{1,18})(?: \((?P<cmd>[^)]*)\))?:")

_PYSPY_FAILED = re.compile(
    r"(?:Pyspy failed .{0,200}?--pid |All pyspy dump attempts failed for PID |Pyspy failed to dump PID )(\d{1,18})"
)
_CRASHED = re.compile(r"Subprocess (?P<name>\S+) \(pid=(?P<pid>\d{1,18})\) crashed with exit code (?P<code>-?\d{1,18})")
_TERMINATED = re.compile(r"Scheduler or DataParallelController (?P<pid>\d{1,18}) terminated with (?P<code>-?\w+)")
_DIED = re.compile(
    r"Rank (?P<rank>\d{1,6}) scheduler died during initialization(?: \(exit code: (?P<code>-?\d{1,18})\))?"
)
_HEARTBEAT = re.compile(
    r"for last (?P<seconds>\d{1,18}) seconds\. tic start time: (?P<tic>[\d:]+)\. last_heartbeat time: (?P<beat>[\d:]+)"
)
_RETRACTED = re.compile(r"#retracted_reqs: (?P<retracted>\d{1,18})(?:, #new_tokens_gained: (?P<gained>\d{1,18}))?")
_REMAINING = re.compile(r"Remaining number of requests (?P<remaining>\d{1,18})")
_UNFINISHED = re.compile(r"Dumped (?P<finished>\d{1,18}) finished and (?P<unfinished>\d{1,18}) unfinished requests")
_REQUEST = re.compile(r"(?:rid[=:]\s?|\breq(?:uest)?\s)['\"]?(?P<rid>[\w.:-]{1,120})")
_POOL = re.compile(r"max_total_num_tokens=(?P<pool_tokens>\d{1,18})")
_RUNNING = re.compile(r"#running-req: (?P<running>\d{1,18})\s*$")
_HOST_MEMORY = re.compile(r"Allocating (?P<gb>[\d.]{1,24}) GB host memory")
_NCCL = re.compile(r"sglang is using nccl==(?P<nccl>[\d.]{1,24})")
_GRAMMAR_ABORT = re.compile(r"(?i)abort|failed|not accepted")


def said(msg: str) -> Iterator[Said]:
    """What one message (without its line prefix) reports; nothing for a message without a known meaning."""
    handler = _BY_FIRST_WORD.get(msg.partition(" ")[0].rstrip(":"))
    if handler is None:
        handler = _server_args if msg.startswith("server_args=") else _by_content
    yield from handler(msg)


def uvicorn(msg: str) -> Iterator[Said]:
    """`INFO:     text` of the HTTP server: an access line, or a stage of its life."""
    if (answered := access(msg)) is not None:
        yield Said(answered[0], fields=answered[1])
    elif "Shutting down" in msg or "Finished server process" in msg:
        yield Said(phase="shutdown", edge="begin" if "Shutting" in msg else "end")
    elif "Application startup complete" in msg:
        # Requests are accepted from here on, the warm-up generation that ends in "fired up" is still to come.
        yield Said(phase="warmup", edge="begin")


def _server_args(msg: str) -> Iterator[Said]:
    yield Said(phase="start", edge="begin")
    yield Said("server_args", fields=settings(msg))


def _phase(msg: str) -> Iterator[Said]:
    found = PHASE.match(msg)
    if found is not None:
        yield Said(phase=_PHASES[found["what"].partition(" ")[0]], edge="begin" if found["edge"] == "begin" else "end")
    elif msg.startswith(("Capture cuda graph failed", "Initialization failed")):
        yield Said("exception")


_PHASES: dict[str, PhaseName] = {"Init": "dist_init", "Load": "load", "Memory": "memory", "Capture": "capture"}


def _watchdog(msg: str) -> Iterator[Said]:
    found = WATCHDOG.match(msg)
    if found is not None:
        kind: NoticeKind = "soft_watchdog" if found["soft"] == "True" else "watchdog_timeout"
        yield Said(kind, fields={"name": found["name"] or "Scheduler", "timeout": found["timeout"]})
    elif (raised := FATAL.match(msg)) is not None and " hit an exception" in raised["kind"]:
        yield Said("exception", fields={"process": msg.partition(" ")[0]}, traceback=True)
    elif (ended := _TERMINATED.match(msg)) is not None:
        yield Said("subprocess_exit", fields={"exit_code": ended["code"]}, pid=int(ended["pid"]))


def _subprocess(msg: str) -> Iterator[Said]:
    found = _CRASHED.match(msg)
    if found is not None:
        name, _, index = found["name"].rpartition("_")
        fields = {"exit_code": found["code"], "name": found["name"]}
        yield Said("subprocess_exit", fields=fields, pid=int(found["pid"]),
                   local_index=int(index) if name == "scheduler" and index.isdecimal() else None)  # fmt: skip


def _died(msg: str) -> Iterator[Said]:
    if (found := _DIED.match(msg)) is not None:
        yield Said("subprocess_exit", fields={"exit_code": found["code"] or ""}, rank=int(found["rank"]))


def _signal(msg: str) -> Iterator[Said]:
    if "SIGTERM" in msg:
        yield Said("sigterm")
        yield Said(phase="shutdown", edge="begin")
    elif "sigquit" in msg or "SIGQUIT" in msg:
        yield Said("sigquit")


def _kill_tree(msg: str) -> Iterator[Said]:
    if msg.startswith("kill_process_tree called"):
        yield Said("kill_tree")


def _health(msg: str) -> Iterator[Said]:
    if FATAL.match(msg) is not None:
        found = _HEARTBEAT.search(msg)
        yield Said("health_failed", fields={} if found is None else found.groupdict())


def _draining(msg: str) -> Iterator[Said]:
    found = _REMAINING.search(msg)
    if found is not None:
        yield Said("other", fields=found.groupdict())
        for rid in quoted_ids(msg.partition("remaining_rids=")[2]):
            yield Said("request", fields={"rid": rid})


def _pyspy(msg: str) -> Iterator[Said]:
    found = PYSPY.match(msg)
    if found is not None:
        yield Said("other", pid=int(found["pid"]), own_pid=True)
    elif (failed := _PYSPY_FAILED.match(msg)) is not None:
        yield Said("other", pid=int(failed[1]), own_pid=True, fields={"pyspy": "failed"})


def _pool(msg: str) -> Iterator[Said]:
    if msg.startswith("KV Cache is allocated"):
        yield Said(phase="memory", edge="progress")
    elif "Retract requests" in msg or "#retracted_reqs" in msg:
        found = _RETRACTED.search(msg)
        fields = {} if found is None else {key: text for key, text in found.groupdict().items() if text is not None}
        yield Said("retract", fields=fields)


def _compile(msg: str) -> Iterator[Said]:
    if "DeepGEMM" in msg or msg.startswith("Compiling"):
        yield Said(phase="compile", edge="begin")
    elif "utotuning" in msg:
        ended = "process ends" in msg
        yield Said(phase="compile", edge="end" if ended else "begin" if "process starts" in msg else "progress")


def _coredump(msg: str) -> Iterator[Said]:
    if "coredump" in msg or "crash diagnostics" in msg:
        yield Said("core_dump_wait")


def _dumped(msg: str) -> Iterator[Said]:
    if (found := _UNFINISHED.match(msg)) is not None:
        yield Said("other", fields=found.groupdict())


def _grammar(msg: str) -> Iterator[Said]:
    found = _REQUEST.search(msg)
    fields = {} if found is None else found.groupdict()
    yield Said("grammar_abort" if _GRAMMAR_ABORT.search(msg) else "grammar", fields=fields)


def _gate(msg: str) -> Iterator[Said]:
    if msg.startswith("Gated launch"):
        yield Said("resume" if "activated" in msg else "pause", fields={"gate": "launch"})


def _request_log(msg: str) -> Iterator[Said]:
    found = _REQUEST.search(msg[:400])
    if found is not None:
        kind: NoticeKind = "request" if msg.startswith("Receive: ") else "request_done"
        yield Said(kind, fields=found.groupdict())


def _fired_up(msg: str) -> Iterator[Said]:
    if msg.startswith("The server is fired up"):
        yield Said(phase="ready", edge="end")


def _flush(msg: str) -> Iterator[Said]:
    if msg.startswith("Cache flushed successfully"):
        yield Said("flush")


def _abort(msg: str) -> Iterator[Said]:
    found = _REQUEST.search(msg[:400])
    kind: NoticeKind = "queue_timeout" if "timeout" in msg[:400].lower() else "request_abort"
    yield Said(kind, fields={} if found is None else found.groupdict())


def _by_content(msg: str) -> Iterator[Said]:
    """Messages whose first word varies."""
    if (found := _POOL.match(msg)) is not None:
        yield Said("server_args", fields=settings(msg) | found.groupdict())
    elif (found := _HOST_MEMORY.match(msg)) is not None:
        yield Said("host_alloc", fields=found.groupdict())
        yield Said(phase="memory", edge="progress")
    elif (found := _NCCL.match(msg)) is not None:
        yield Said("version", fields=found.groupdict())
    elif (found := _RUNNING.search(msg[-64:])) is not None and " finished" in msg:
        yield Said("request_done", fields=found.groupdict())
    elif "ransfer failed" in msg or "KVTransferError" in msg or "handshake failed" in msg or "ootstrap failed" in msg:
        yield from (Said("transfer_failed", fields=found.groupdict()) for found in [_REQUEST.search(msg)] if found)
    elif "cur_batch" in msg and "Req(rid=" in msg:
        yield from batch(msg)


_BATCH_SIZE = re.compile(r"cur_batch\w*\.batch_size\(\)=(?P<batch_size>\d{1,18})")
_BATCH_IDS = re.compile(r"\bReq\(rid=['\"]?([^,\s'\")]{1,120})")


def batch(text: str) -> Iterator[Said]:
    """The watchdog's dump of the batch that does not finish: its request ids. Token ids are not kept."""
    for count, found in enumerate(_BATCH_IDS.finditer(text)):
        if count >= 256:
            return
        yield Said("request", fields={"rid": found[1], "where": "batch"})


_BY_FIRST_WORD: dict[str, Callable[[str], Iterator[Said]]] = {
    "INFO": uvicorn,
    **dict.fromkeys(("Init", "Load", "Memory", "Capture", "Initialization"), _phase),
    **dict.fromkeys(("Watchdog", "Scheduler"), _watchdog),
    **dict.fromkeys(("TokenizerManager", "DetokenizerManager", "DataParallelController"), _watchdog),
    "Subprocess": _subprocess, "Rank": _died, "kill_process_tree": _kill_tree, "Health": _health,
    **dict.fromkeys(("Received", "SIGQUIT", "SIGTERM", "Signal"), _signal),
    "Gracefully": _draining, "Pyspy": _pyspy, "All": _pyspy, "KV": _pool, "Decode": _pool,
    **dict.fromkeys(("Entering", "Try", "Compiling", "Autotuning", "[AutoTuner]", "[Autotuner]"), _compile),
    **dict.fromkeys(("Waiting", "Sleeping"), _coredump), "Dumped": _dumped,
    "Grammar": _grammar, "Gated": _gate, "Receive": _request_log, "Finish": _request_log, "Req": _request_log,
    "The": _fired_up, "Cache": _flush, "Abort": _abort,
}  # fmt: skip
