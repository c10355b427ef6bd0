"""What the engines' log parsers share: times, key/value lists, HTTP access lines, progress bars, "
"tracebacks, settings."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Literal, NamedTuple

from sentinel.collector import Line
from sentinel.model.observation import Notice, NoticeKind, Origin, Phase, PhaseName, Tags

TEXT_MAX = 4096
"""Longest text that a pattern is run on and longest text that a notice carries, in characters."""

NOTICE_MAX = 400
"""Longest text of a notice: enough to recognise the line, too short to carry a prompt."""

SETTINGS_MAX = 65_536
"""An engine's argument line is one huge line; the settings of interest lie in its first 64 KiB."""

Fields = Mapping[str, str]


# --- times -----------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _minute_s(stamp: str) -> float | None:
    try:
        year, month, day = int(stamp[0:4]), int(stamp[5:7]), int(stamp[8:10])
        return datetime(year, month, day, int(stamp[11:13]), int(stamp[14:16]), tzinfo=UTC).timestamp()
    except (ValueError, OverflowError):
        return None


@lru_cache(maxsize=4096)
def wall_s(stamp: str) -> float | None:
    """Seconds of a local wall clock read as UTC; the stamp starts `YYYY-MM-DD HH:MM:SS`, any separators."""
    minute = _minute_s(stamp[:16])
    if minute is None:
        return None
    try:
        return minute + int(stamp[17:19])
    except ValueError:
        return None


@dataclass(slots=True)
class YearlessClock:
    """Completes times that print no year. A stream that goes from December to January goes on in the next year."""

    year: int
    month: int = 0

    def at(self, month: str, day: str, clock: str) -> float | None:
        """Seconds for `11`, `29`, `10:00:10[.fraction]`; None when that is no time."""
        number = int(month) if month.isdecimal() else 0
        year = self.year
        if self.month - number > 6:
            year = self.year = self.year + 1
        elif self.month and number - self.month > 6:
            year -= 1  # a late line of the old year among those of the new one
        if year == self.year:
            self.month = number
        whole, _, fraction = clock.partition(".")
        at_s = wall_s(f"{year:04}-{month:0>2}-{day:0>2} {whole}")
        return at_s if at_s is None or not fraction.isdecimal() else at_s + float(f"0.{fraction[:9]}")


def whole(text: str | None) -> int | None:
    """A count; None when it is absent or no whole number."""
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


# --- HTTP access lines (uvicorn) -------------------------------------------------------------------------------

ACCESS = re.compile(r'INFO:\s+(?P<peer>\S+) - "(?P<method>[A-Z]+) (?P<path>\S+) HTTP/[\d.]+" (?P<status>\d{3})')

_HEALTH = {"/health", "/health_generate", "/ping", "/ready", "/readyz", "/v2/health/ready", "/v2/health/live"}
_ADMIN: dict[str, NoticeKind] = {
    "/pause": "pause", "/pause_generation": "pause", "/resume": "resume", "/continue_generation": "resume",
    "/sleep": "sleep", "/release_memory_occupation": "sleep",
    "/wake_up": "wake", "/resume_memory_occupation": "wake",
    "/flush_cache": "flush", "/reset_prefix_cache": "flush", "/abort_request": "request_abort",
}  # fmt: skip


def access(text: str) -> tuple[NoticeKind, Fields] | None:
    """`INFO:     10.0.0.7:51422 - "POST /v1/completions HTTP/1.1" 200 OK`: what was asked and answered.

    uvicorn writes the line when the answer *starts*, so for a streamed answer it does not mean that it ended.
    """
    found = ACCESS.match(text[:TEXT_MAX])
    if found is None:
        return None
    path, status = found["path"].partition("?")[0], int(found["status"])
    fields = {key: found[key] for key in ("peer", "method", "status")} | {"path": path}
    if path in _HEALTH:
        return ("health_ok" if status < 400 else "health_failed"), fields
    if status >= 400:
        return "http_error", fields
    if found["method"] == "POST" or path in _ADMIN:
        if path.startswith("/update_weights"):
            return "weights_updated", fields
        return _ADMIN.get(path, "request"), fields
    return "other", fields


# --- progress bars (tqdm) --------------------------------------------------------------------------------------

BAR = re.compile(
    r"(?P<what>[A-Z][^%|]{0,160}?): {1,16}(?P<percent>\d{1,3})%(?: Completed)? ?\|"
    r"[^|]{0,400}\| (?P<done>\d{1,18})/(?P<total>\d{1,18}) \[(?:(?P<hours>\d{1,18}):)?(?P<minutes>\d{1,18}):"
    r"(?P<seconds>\d\d)<"
)
BAR_PLAIN = re.compile(
    r"(?P<what>[A-Z][^%|]{0,160}?): {1,16}(?P<percent>\d{1,3})%(?: Completed)? ?\|"
    r" ?(?P<done>\d{1,18})/(?P<total>\d{1,18}) \[(?:(?P<hours>\d{1,18}):)?(?P<minutes>\d{1,18}):(?P<seconds>\d\d)<"
)
_BAR_PHASES: tuple[tuple[re.Pattern[str], PhaseName], ...] = (
    (re.compile(r"captur", re.IGNORECASE), "capture"),
    (re.compile(r"compil|deepgemm|jit|autotun|tuning|kernel", re.IGNORECASE), "compile"),
    (re.compile(r"warm", re.IGNORECASE), "warmup"),
    (re.compile(r"load|shard|checkpoint|weight", re.IGNORECASE), "load"),
)


@dataclass(frozen=True, slots=True)
class Bar:
    """A progress bar as last drawn: how far, and how long after its start it was drawn."""

    phase: PhaseName
    percent: float
    elapsed_s: float


def progress_bar(text: str) -> Bar | None:
    """`Loading safetensors checkpoint shards:  42% Completed | 42/99 [00:26<00:36,  1.58it/s]` of a known phase."""
    if "%" not in text or "<" not in text or "|" not in text:
        return None
    found = BAR_PLAIN.match(text[:TEXT_MAX]) or BAR.match(text[:TEXT_MAX])
    if found is None:
        return None
    for pattern, phase in _BAR_PHASES:
        if pattern.search(found["what"]) is not None:
            elapsed_s = (int(found["hours"] or 0) * 60 + int(found["minutes"])) * 60.0 + int(found["seconds"])
            total = int(found["total"])
            percent = 100.0 * int(found["done"]) / total if total else float(found["percent"])
            return Bar(phase, min(percent, 100.0), elapsed_s)
    return None


# --- tracebacks ------------------------------------------------------------------------------------------------

_RAISED = re.compile(r"(?P<type>[A-Za-z_][\w.]{0,200})(?:: ?(?P<message>.*))?$")
_TRACEBACK = "Traceback (most recent call last):"
_CHAIN = ("During handling of the above exception", "The above exception was the direct cause")
_EXPLAINS = (
    "Search for `", "CUDA kernel errors might", "For debugging consider", "Compile with `TORCH_USE_CUDA_DSA`",
    "Device-side assertion", "Last error:", "Exception raised from", "frame #",
)  # fmt: skip
TRACEBACK_LINES_MAX = 2000


def raised_kind(type_name: str, message: str) -> NoticeKind:
    """What an exception reports, by its type and message."""
    for kind, holds in _RAISED_KINDS:
        if holds(type_name, message):
            return kind
    return "exception"


_RAISED_KINDS: tuple[tuple[NoticeKind, Callable[[str, str], bool]], ...] = (
    ("rpc_timeout", lambda _, message: "RPC call to" in message and "timed out" in message),
    ("engine_dead", lambda name, _: name.endswith("EngineDeadError")),
    ("peer_closed", lambda _, message: "onnection closed by peer" in message or "onnection reset by peer" in message),
    ("cuda_error", lambda name, message: "CUDA error" in message or name.endswith("AcceleratorError")),
    ("nccl_error", lambda name, message: "NCCL" in message or name.endswith("DistBackendError")),
)


@dataclass(slots=True)
class Traceback:
    """A traceback that is being read; `take` says whether a line still belongs to it.

    The notice carries time and identity of the first line, the type and message of the last exception of a chain,
    and the first exception of the chain as `cause`.
    """

    notice: Notice
    name: str
    type: str = ""
    message: str = ""
    cause: str = ""
    line: int | None = None
    lines: int = 0
    _ended: bool = False

    def take(self, line: Line, text: str) -> bool:
        """Whether `text` (without any line prefix) continues this traceback."""
        self.lines += 1
        if self.lines > TRACEBACK_LINES_MAX:
            return False
        if not text or text[0] in " \t" or text.startswith((_TRACEBACK, *_CHAIN)):
            self._ended = self._ended and not text.startswith(_TRACEBACK)
            return True
        if self._ended:
            return text.startswith(_EXPLAINS)
        found = _RAISED.match(text[:TEXT_MAX])
        if found is None:
            return False
        self.cause = self.cause or f"{self.type}: {self.message}" if self.type else ""
        self.type, self.message, self.line = found["type"], (found["message"] or "").strip(), line.number
        self._ended = True
        return True

    def finish(self) -> Notice:
        """The traceback as one notice."""
        fields = dict(self.notice.fields) | {"type": self.type, "message": self.message}
        if self.cause:
            fields["cause"] = self.cause
        first = self.notice
        return Notice(
            origin=Origin(self.name, self.line) if self.line is not None else first.origin,
            at_s=first.at_s, host=first.host, pid=first.pid, tags=first.tags, rank=first.rank, engine=first.engine,
            notice=raised_kind(self.type, self.message) if self.type else first.notice,
            text=f"{self.type}: {self.message}" if self.type else first.text, fields=fields,
        )  # fmt: skip


# --- settings --------------------------------------------------------------------------------------------------

_RENAMED = {
    "tensor_parallel_size": "tp_size", "pipeline_parallel_size": "pp_size", "data_parallel_size": "dp_size",
    "max_seq_len": "context_length", "max_model_len": "context_length", "structured_outputs_backend": "grammar_backend",
    "guided_decoding_backend": "grammar_backend", "max_num_batched_tokens": "chunked_prefill_size",
}  # fmt: skip
_KEPT = (
    "tp_size", "pp_size", "dp_size", "ep_size", "attn_cp_size", "nnodes", "node_rank", "watchdog_timeout",
    "soft_watchdog_timeout", "decode_log_interval", "dist_timeout", "disaggregation_mode", "enable_dp_attention",
    "chunked_prefill_size", "max_total_tokens", "context_length", "disable_cuda_graph", "disable_custom_all_reduce",
    "enable_hierarchical_cache", "grammar_backend", "speculative_algorithm", "enforce_eager", "kv_connector", "device",
    "distributed_executor_backend", "load_format",
)  # fmt: skip
_SETTING = re.compile(
    r"(?<![\w.])['\"]?(?P<name>" + "|".join((*_KEPT, *_RENAMED)) + r")['\"]?\s?[=:]\s?"
    r"(?:'(?P<quoted>[^']{0,200})'|\"(?P<double>[^\"]{0,200})\"|(?P<bare>[\w.+-]{1,60}))"
)


def settings(text: str) -> dict[str, str]:
    """Sizes, limits and modes named in an engine's argument line, under SGLang's names; the first mention wins."""
    found: dict[str, str] = {}
    for match in _SETTING.finditer(text[:SETTINGS_MAX]):
        value = match["quoted"] or match["double"] or match["bare"]
        if value is not None and value != "None":
            found.setdefault(_RENAMED.get(match["name"], match["name"]), value)
    return found


# --- request ids -----------------------------------------------------------------------------------------------

_QUOTED_ID = re.compile(r"'([^'\s,]{1,120})'")
REQUESTS_MAX = 256


def quoted_ids(text: str) -> Iterator[str]:
    """Request ids of a printed Python list, at most 256 of them."""
    for count, found in enumerate(_QUOTED_ID.finditer(text)):
        if count >= REQUESTS_MAX:
            return
        yield found[1]


Edge = Literal["begin", "progress", "end"]


class Who(NamedTuple):
    """Where and when a record was printed, and by whom."""

    origin: Origin
    at_s: float | None
    host: str | None
    pid: int | None = None
    tags: Tags | None = None
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class Said:
    """What a message reports, before time and speaker are added.

    `pid` and `rank` name the process that the message speaks *of*; with `own_pid` that is the speaker itself.
    `local_index` is a worker's number on its node. `traceback` says that the lines that follow belong to it.
    """

    notice: NoticeKind | None = None
    fields: Fields = field(default_factory=dict)
    phase: PhaseName | None = None
    edge: Edge = "begin"
    percent: float | None = None
    pid: int | None = None
    rank: int | None = None
    tags: Tags | None = None
    own_pid: bool = False
    local_index: int | None = None
    traceback: bool = False

    def as_phase(self, who: Who, engine: str, text: str) -> Phase:
        """The phase line that this message is."""
        return Phase(
            origin=who.origin, at_s=who.at_s, host=who.host, pid=who.pid, tags=who.tags or self.tags,
            rank=self.rank if who.rank is None and who.tags is None else who.rank, engine=engine,
            phase=self.phase or "start", edge=self.edge, percent=self.percent, text=text[:200],
        )  # fmt: skip

    def as_notice(
        self, who: Who, engine: str, text: str, fields: Fields | None = None, rank: int | None = None
    ) -> Notice:
        """The event that this message reports; of another process than the speaker when it names one."""
        rank = self.rank if rank is None else rank
        speaks_of_other = (self.pid is not None and not self.own_pid) or rank is not None or self.tags is not None
        return Notice(
            origin=who.origin, at_s=who.at_s, host=who.host, engine=engine, notice=self.notice or "other",
            pid=self.pid if self.pid is not None or speaks_of_other else who.pid,
            tags=self.tags if speaks_of_other else who.tags, rank=rank if speaks_of_other else who.rank,
            text=text[:NOTICE_MAX], fields=self.fields if fields is None else fields,
        )  # fmt: skip


@dataclass(slots=True)
class Started:
    """When each start-up phase of a stream began, so that a bar, which prints no time, can be placed in time."""

    at_s: dict[PhaseName, float] = field(default_factory=dict)

    def note(self, phase: PhaseName, edge: Edge, at_s: float | None) -> None:
        """Remember the first begin since the last end."""
        if at_s is None:
            return
        if edge == "end":
            self.at_s.pop(phase, None)
        else:
            self.at_s.setdefault(phase, at_s)

    def bar_at_s(self, bar: Bar, line: Line) -> float | None:
        """When a bar was last drawn: the frame's time, else begin of its phase plus the time that the bar counts."""
        if line.at_s is not None:
            return line.at_s
        began = self.at_s.get(bar.phase)
        return None if began is None else began + bar.elapsed_s


def tags_from(pairs: Mapping[str, int]) -> Tags | None:
    """Tags of `{"DP": 1, "TP": 9}`; other coordinates (context parallelism, MoE data parallelism) are not kept."""
    known = {name.lower(): index for name, index in pairs.items() if name in ("DP", "PP", "TP", "EP")}
    return Tags(**known) if known else None
