"""SGLang engine log, 0.3.6 to 0.5.23: progress lines, start-up phases, watchdog and crash messages.

A line starts `[2026-11-29 09:20:11 DP1 TP9 EP9] text`: local time, optional rank tags in any order, no level. Lines
without this start are continuations, progress bars or other programs' lines; what looks like an engine message inside
them is text.
"""

import re
from collections.abc import Iterable, Iterator

from sentinel.collector import Context, Line, LogParser, Sample
from sentinel.collectors._engine_lines import (
    SETTINGS_MAX,
    TEXT_MAX,
    Said,
    Started,
    Traceback,
    Who,
    progress_bar,
    tags_from,
    wall_s,
    whole,
)  # fmt: skip
from sentinel.collectors._progress_lines import DECODE, KEY_VALUE, PREFILL, ProgressLines
from sentinel.collectors._sglang_events import FATAL, PHASE, PYSPY, WATCHDOG, batch, said, uvicorn
from sentinel.model.observation import Observation, Origin, Phase, Tags

PREFIX = re.compile(
    r"^(?:\x1b\[[0-9;]*m|\(\w+ pid=\d+(?:, ?ip=[\d.]+)?\)\s*)*\[(?P<ts>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)"
    r"(?:\.(?P<ms>\d{3}))?"
    r"(?P<ranks>(?: (?:DP|PP|ATTN_CP|MOE_DP|TP|EP)\d+)*)(?: encode_server| encode_dp_worker\[\d+\])?\] (?P<msg>.*)$"
)
FORMATS = {
    "sglang.prefix": PREFIX, "sglang.decode": DECODE, "sglang.kv": KEY_VALUE, "sglang.prefill": PREFILL,
    "sglang.phase": PHASE, "sglang.watchdog": WATCHDOG, "sglang.fatal": FATAL, "sglang.pyspy": PYSPY,
}  # fmt: skip

_HEAD = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{3})?(?: [A-Z_]+\d+)*\] \S")
PACKAGED = re.compile(
    r"(?m)^\[(?P<ts>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)[^\]\n]{0,60}\] sentinel-engine version=(?P<version>\S{1,40})"
)
"""How the co-packaged engine opens a log in this dialect; its own parser reads such a log."""

_RANK = re.compile(r"(DP|PP|ATTN_CP|MOE_DP|TP|EP)(\d{1,5})")
RANKS_MAX = 4096
_RAY = re.compile(r"\((?P<actor>\w+) pid=(?P<pid>\d{1,18})")


def recognise(sample: Sample) -> bool:
    """Whether the sample holds lines of this dialect with a message that this engine prints."""
    text = sample.head + "\n" + sample.tail
    if _HEAD.search(text) is None or PACKAGED.search(text) is not None:
        return False
    return any(word in text for word in _OWN_WORDS) or any(
        pattern.search(line, 0, TEXT_MAX) is not None
        for line in text.split("\n")
        if _HEAD.search(line, 0, 200) is not None
        for pattern in (DECODE, PREFILL, PHASE, WATCHDOG, FATAL, PYSPY)
    )


_OWN_WORDS = (
    "server_args=", "The server is fired up", "cuda graph begin", "#running-req: ", "kill_process_tree called",
    "KV Cache is allocated", "DeepGEMM JIT",
)  # fmt: skip


class Feed:
    """One stream of lines. Holds the key sequences seen, an unfinished traceback and the start of open phases."""

    def __init__(self, context: Context, engine: str = "sglang") -> None:
        self.name, self.host, self.engine = context.name, context.host, engine
        self._progress = ProgressLines(engine)
        self._ranks: dict[str, Tags | None] = {"": None}
        self._raised: Traceback | None = None
        self._started = Started()
        self._sizes: dict[str, str] = {}
        self._last: Who | None = None
        self._shown: Who | None = None

    def __call__(self, lines: Iterable[Line]) -> Iterator[Observation]:
        """Observations of these lines; no lines at all flush what is held back."""
        empty = True
        name, host, known, progress = self.name, self.host, self._ranks, self._progress
        stamp, at_s = "", None
        for line in lines:
            empty = False
            text = line.text
            if (usual := progress.usual(text)) is not None and self._raised is None:
                # The most frequent line by far: no generator, no table.
                values = usual.groups()
                if values[0] != stamp:
                    stamp, at_s = values[0], wall_s(values[0])
                if at_s is not None and (ranks := values[1]) in known:
                    who = (Origin(name, line.number), at_s, host or line.host, None, known[ranks], None)
                    if (step := progress.usual_decode(values, who)) is not None:
                        self._last = None
                        yield step
                        continue
            if (close := text.find("] ", 20)) > 0 and text[0] == "[" and (when := wall_s(text[1:20])) is not None:
                yield from self._record(line, when, text[20:close], close + 2)
            elif text.startswith("(") and (found := PREFIX.match(text[:TEXT_MAX])) is not None:
                ray, when = _RAY.match(text), wall_s(found["ts"])
                if when is not None:
                    pid = int(ray["pid"]) if ray is not None else None
                    yield from self._record(line, when, found["ranks"], found.start("msg"), pid)
            else:
                yield from self._other(line, text)
        if empty:
            yield from self._flush()
            yield from self._last_line()

    def _record(self, line: Line, at_s: float, ranks: str, start: int, pid: int | None = None) -> Iterator[Observation]:
        """A record whose message begins at `start` of the line."""
        if ranks.startswith("."):
            at_s, ranks = at_s + (whole(ranks[1:4]) or 0) / 1000.0, ranks[4:]
        tags = self._ranks[ranks] if ranks in self._ranks else self._tags(ranks)
        if self._raised is not None:
            yield from self._flush()
        who = Who(Origin(self.name, line.number), at_s, self.host or line.host, pid, tags)
        self._last = who
        if line.text.startswith("Decode batch", start):
            self._shown = who
            yield self._progress.decode(line.text, start, who)
        elif line.text.startswith("Prefill batch", start):
            self._shown = who
            yield self._progress.prefill(line.text, start, who)
        else:
            msg = line.text[start:]
            yield from self._events(said(msg), msg, who)

    def _other(self, line: Line, text: str) -> Iterator[Observation]:
        """A line without a record prefix: more of a traceback, a bar, the HTTP server, the watchdog's batch dump."""
        if self._raised is not None:
            if self._raised.take(line, text):
                return
            yield from self._flush()
        who = Who(Origin(self.name, line.number), line.at_s, self.host or line.host)
        if text.startswith("INFO: "):
            yield from self._events(uvicorn(text), text, who)
        elif text.startswith(("scheduler.cur_batch", "self.cur_batch")):
            yield from self._events(batch(text[:SETTINGS_MAX]), text, self._last or who)
        elif (bar := progress_bar(text)) is not None:
            yield Phase(
                origin=who.origin, at_s=self._started.bar_at_s(bar, line), host=who.host, engine=self.engine,
                phase=bar.phase, edge="progress", percent=bar.percent, text=text[:200],
            )  # fmt: skip

    def _events(self, reports: Iterable[Said], msg: str, who: Who) -> Iterator[Observation]:
        for report in reports:
            self._shown = who
            if report.notice == "server_args":
                self._sizes.update(report.fields)
            if report.phase is not None:
                self._started.note(report.phase, report.edge, who.at_s)
                yield report.as_phase(who, self.engine, msg)
            elif report.traceback:
                self._raised = Traceback(report.as_notice(who, self.engine, msg), self.name)
            else:
                yield report.as_notice(who, self.engine, msg, rank=self._rank(report))

    def _rank(self, report: Said) -> int | None:
        """Global rank of the n-th scheduler of this node, when the argument line said how ranks lie on nodes."""
        if report.local_index is None or "tp_size" not in self._sizes:
            return report.rank
        size = {name: whole(self._sizes.get(name)) or 1 for name in ("tp_size", "pp_size", "nnodes")}
        on_node = size["tp_size"] * size["pp_size"] // max(size["nnodes"], 1)
        return report.local_index + on_node * (whole(self._sizes.get("node_rank")) or 0)

    def _flush(self) -> Iterator[Observation]:
        if self._raised is not None:
            yield self._raised.finish()
            self._raised = None

    def _last_line(self) -> Iterator[Observation]:
        """Where the log ends, when its last record has no meaning of its own: silence is measured against it."""
        if self._last is not None and (self._shown is None or self._shown.origin < self._last.origin):
            self._shown = self._last
            yield Said("other", fields={"event": "last_line"}).as_notice(
                self._last, self.engine, "last line of the log"
            )

    def _tags(self, ranks: str) -> Tags | None:
        tags = tags_from({name: int(index) for name, index in _RANK.findall(ranks)})
        if len(self._ranks) < RANKS_MAX:
            self._ranks[ranks] = tags
        return tags


PARSER = LogParser(name="sglang_log", recognise=recognise, start=Feed)
