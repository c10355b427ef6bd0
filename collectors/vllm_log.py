"""vLLM (V1) engine log, 0.8.5 to 0.33.0: periodic statistics, start-up phases, hang and death messages.

A record is `(NAME pid=N) LEVEL MM-DD HH:MM:SS [file.py:LINE] text`; the process prefix is absent in old versions, the
year always. The prefix alone stands before raw lines of that process (0.11 to 0.32). Only the statistics line counts
as progress; it is silent both when the engine idles and when it hangs.
"""

import re
from collections.abc import Iterable, Iterator

from sentinel.collector import Context, Line, LogParser, Sample
from sentinel.collectors._engine_lines import (
    TEXT_MAX,
    Said,
    Started,
    Traceback,
    Who,
    YearlessClock,
    progress_bar,
    tags_from,
)
from sentinel.collectors._vllm_events import FATAL, SHM, SPECDEC, said, uvicorn
from sentinel.model.observation import EngineStats, Observation, Origin, Phase, Tags

PREFIX = re.compile(
    r"^(?:\x1b\[[0-9;]*m)*(?:\((?P<proc>[\w.-]+(?: rank=\d+)?) pid=(?P<pid>\d{1,18})\)(?:\x1b\[[0-9;]*m)*\s+)?"
    r"(?:\x1b\[[0-9;]*m)*"
    r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL)(?:\x1b\[[0-9;]*m)* (?:\x1b\[[0-9;]*m)*(?P<ts>\d\d-\d\d "
    r"\d\d:\d\d:\d\d)"
    r"(?:\x1b\[[0-9;]*m)* (?:\x1b\[[0-9;]*m)*\[(?P<file>[^\]:]+):(?P<line>\d{1,18})\](?:\x1b\[[0-9;]*m)* "
    r"(?P<msg>.*?)\r?$"
)
STATS = re.compile(
    r"(?:Engine (?P<engine>\d{3,})|(?P<nagg>\d{1,18}) Engines Aggregated): Avg prompt throughput: "
    r"(?P<ptps>[\d.]{1,24}) tokens/s, "
    r"Avg generation throughput: (?P<gtps>[\d.]{1,24}) tokens/s, Running: (?P<running>\d{1,18}) reqs, Waiting: "
    r"(?P<waiting>\d{1,18}) reqs"
    r"(?:, Deferred: (?P<deferred>\d{1,18}) reqs)?(?P<mid>.*?)(?:, (?P<dev>\w+) KV cache usage: (?P<kv>[\d.]{1,24})"
    r"%)(?P<tail>.*)$"
)
FORMATS = {
    "vllm.prefix": PREFIX, "vllm.stats": STATS, "vllm.specdec": SPECDEC, "vllm.shm": SHM, "vllm.fatal": FATAL,
}  # fmt: skip

_PROCESS = re.compile(
    r"\((?P<proc>[A-Za-z_][\w.-]{0,80})(?: rank=(?P<rank>\d{1,6}))? pid=(?P<pid>\d{1,10})(?:, ?ip="
    r"(?P<ip>[\d.]{1,24}))?\)\s*"
)
_RECORD = re.compile(
    r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) (?P<month>\d\d)-(?P<day>\d\d) (?P<clock>\d\d:\d\d:\d\d) "
    r"\[(?P<file>[^\]:]{1,200}):\d+\] ?"
)
_TAG = re.compile(r"(?<![A-Z])(DP|PP|TP|EP)(\d{1,5})")
_KV_FETCH = re.compile(
    r"KV fetch: (?P<start>\d{1,18}) waiting to start, (?P<progress>\d{1,18}) in progress, "
    r"(?P<done>\d{1,18}) completed waiting"
)
_PERCENT = re.compile(r"(?P<key>[A-Z][\w ]{2,40} hit rate): (?P<value>[\d.]{1,24})%")
_WORKER_FILES = (
    "gpu_model_runner.py",
    "gpu_worker.py",
    "default_loader.py",
    "parallel_state.py",
    "pynccl.py",
    "cpu_worker.py",
)
PROCESSES_MAX = 4096


def recognise(sample: Sample) -> bool:
    """Whether the sample holds records of this engine."""
    return any(_HEAD.search(text) is not None for text in (sample.head, sample.tail))


_HEAD = re.compile(
    r"(?m)^(?:\([\w.-]+(?: rank=\d+)? pid=\d+(?:, ?ip=[\d.]+)?\)\s+)?(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)"
    r" \d\d-\d\d \d\d:\d\d:\d\d \[[^\]:]+:\d+\]"
    r"|^\((?:APIServer|EngineCore|Worker_|VllmWorker)[\w.-]*(?: rank=\d+)? pid=\d+\)"
)


class Feed:
    """One stream of lines. Holds unfinished tracebacks by process, the parallel sizes and the start of open phases."""

    def __init__(self, context: Context) -> None:
        self.name, self.host = context.name, context.host
        self._clock = YearlessClock(context.year)
        self._raised: dict[int | None, Traceback] = {}
        self._started = Started()
        self._cores_compute = False
        self._last: Who | None = None
        self._shown: Who | None = None

    def __call__(self, lines: Iterable[Line]) -> Iterator[Observation]:
        """Observations of these lines; no lines at all flush what is held back."""
        empty = True
        for line in lines:
            empty = False
            yield from self._line(line)
        if empty:
            for raised in self._raised.values():
                yield raised.finish()
            self._raised.clear()
            if self._last is not None and (self._shown is None or self._shown.origin < self._last.origin):
                self._shown = self._last
                yield Said("other", fields={"event": "last_line"}).as_notice(self._last, "vllm", "last line of the log")

    def _line(self, line: Line) -> Iterator[Observation]:
        text, speaker = line.text, None
        if text.startswith("(") and (speaker := _PROCESS.match(text)) is not None:
            text = text[speaker.end() :]
        record = _RECORD.match(text)
        process = speaker["proc"] if speaker is not None else ""
        pid = int(speaker["pid"]) if speaker is not None else None
        if record is None:
            yield from self._raw(line, text, process, pid)
            return
        if process.startswith("EngineCore") and record["file"].endswith(_WORKER_FILES):
            self._cores_compute = True
        who = Who(
            Origin(self.name, line.number), self._clock.at(record["month"], record["day"], record["clock"]),
            self.host or line.host, pid, self._tags(process),
            int(speaker["rank"]) if speaker is not None and speaker["rank"] is not None else None,
        )  # fmt: skip
        self._last = who
        yield from self._message(line, text[record.end() :], process, who)

    def _message(self, line: Line, msg: str, process: str, who: Who) -> Iterator[Observation]:
        raised = self._raised.get(who.pid)
        if raised is not None:
            if raised.take(line, msg):
                return
            yield self._raised.pop(who.pid).finish()
        if "Avg generation throughput" in msg and (stats := STATS.match(msg[:TEXT_MAX])) is not None:
            self._shown = who
            yield _stats(stats, who)
        else:
            yield from self._events(said(msg), msg, process, who)

    def _raw(self, line: Line, text: str, process: str, pid: int | None) -> Iterator[Observation]:
        """A line without a record head: HTTP server, progress bar, rest of a traceback."""
        raised = self._raised.get(pid)
        if raised is not None:
            if raised.take(line, text):
                return
            yield self._raised.pop(pid).finish()
        who = Who(Origin(self.name, line.number), line.at_s, self.host or line.host, pid, self._tags(process))
        if text.startswith("INFO: "):
            yield from self._events(uvicorn(text), text, process, who)
        elif (bar := progress_bar(text)) is not None:
            yield Phase(
                origin=who.origin, at_s=self._started.bar_at_s(bar, line), host=who.host, pid=pid, tags=who.tags,
                engine="vllm", phase=bar.phase, edge="progress", percent=bar.percent, text=text[:200],
            )  # fmt: skip
        elif process:
            last = self._last
            at_s = last.at_s if who.at_s is None and last is not None else who.at_s
            yield from self._events(said(text), text, process, who._replace(at_s=at_s))

    def _events(self, reports: Iterable[Said], msg: str, process: str, who: Who) -> Iterator[Observation]:
        for report in reports:
            self._shown = who
            fields = {**report.fields, "process": process} if process else report.fields
            if report.phase is not None:
                self._started.note(report.phase, report.edge, who.at_s)
                yield report.as_phase(who, "vllm", msg)
            elif report.traceback:
                if len(self._raised) < PROCESSES_MAX:
                    self._raised[who.pid] = Traceback(report.as_notice(who, "vllm", msg, fields), self.name)
            else:
                yield report.as_notice(who, "vllm", msg, fields, rank=self._rank(report, process))

    def _rank(self, report: Said, process: str) -> int | None:
        """Rank of the n-th worker of an engine; with several engines its tags name it, not its number."""
        return report.local_index if report.local_index is not None and not _TAG.search(process) else report.rank

    def _tags(self, process: str) -> Tags | None:
        """Coordinates of a worker. An EngineCore is a rank itself only when it runs the model in its own process."""
        if not process.startswith(("Worker", "VllmWorker")) and not (
            process.startswith("EngineCore") and self._cores_compute
        ):
            return None
        return tags_from({name: int(index) for name, index in _TAG.findall(process.replace("_", " "))})


def _stats(found: re.Match[str], who: Who) -> EngineStats:
    rest = (found["mid"] or "") + (found["tail"] or "")
    extra = {hit["key"]: float(hit["value"]) for hit in _PERCENT.finditer(rest)}
    if found["deferred"] is not None:
        extra["deferred"] = float(found["deferred"])
    if found["nagg"] is not None:
        extra["engines"] = float(found["nagg"])
    if (fetch := _KV_FETCH.search(rest)) is not None:
        extra |= {f"kv_fetch_{stage}": float(count) for stage, count in fetch.groupdict().items()}
    return EngineStats(
        origin=who.origin, at_s=who.at_s, host=who.host, pid=who.pid,
        engine_index=int(found["engine"]) if found["engine"] is not None else None, prompt_tps=_number(found["ptps"]),
        generation_tps=_number(found["gtps"]), running=int(found["running"]), waiting=int(found["waiting"]),
        kv_usage_percent=_number(found["kv"]), extra=extra,
    )  # fmt: skip


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


PARSER = LogParser(name="vllm_log", recognise=recognise, start=Feed)
