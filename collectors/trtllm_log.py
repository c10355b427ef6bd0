"""TensorRT-LLM log, 0.20 to 1.2: one line an iteration, start-up stages, error lines, Triton's access lines.

`[10/28/2026-21:02:00] [TRT-LLM] [RANK 0] [I] text`; the rank is absent in the C++ runtime's lines, whose statistics
are one JSON object. These formats are written from general knowledge, not read in the program's source.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated

import msgspec

from sentinel.collector import Context, Line, LogParser, Sample
from sentinel.collectors._engine_lines import (
    TEXT_MAX,
    Said,
    Started,
    Traceback,
    Who,
    YearlessClock,
    access,
    progress_bar,
    raised_kind,
    wall_s,
)  # fmt: skip
from sentinel.model.observation import Decode, Observation, Origin, Phase

RECORD = re.compile(
    r"\[(?P<month>\d\d)/(?P<day>\d\d)/(?P<year>\d{4})-(?P<clock>\d\d:\d\d:\d\d)\] \[TRT-?LLM\] (?:\[RANK "
    r"(?P<rank>\d{1,6})\] )?"
    r"\[(?P<level>[A-Z])\] ?"
)
TRITON = re.compile(
    r"[IWE](?P<month>\d\d)(?P<day>\d\d) (?P<clock>\d\d:\d\d:\d\d\.\d+) \d+ http_server\.cc:\d+\] "
    r'"?HTTP request: \d+ (?P<path>/\S+?)"?$'
)
FORMATS: dict[str, re.Pattern[str]] = {}

_ITERATION = re.compile(r"iter = (?P<iteration>\d{1,18}),")
_FIELD = re.compile(r"'?(?P<key>[a-z_]{3,40})'?(?: = |: )(?P<value>-?\d{1,18}(?:\.\d+)?)(?!\d)")
_STAGES: tuple[tuple[re.Pattern[str], Said], ...] = (
    (re.compile(r"TensorRT[- ]LLM version"), Said(phase="start", edge="begin")),
    (
        re.compile(r"Loading weights: 100% done|Model init total|Load(?:ing)? weights? (?:took|done)"),
        Said(phase="load", edge="end"),
    ),
    (re.compile(r"Load(?:ing)? weights?\b|Loading (?:checkpoint|safetensors)"), Said(phase="load", edge="progress")),
    (re.compile(r"\[Autotuner\].{0,80}\b(?:ends|done|finished)", re.IGNORECASE), Said(phase="compile", edge="end")),
    (re.compile(r"\[Autotuner\].{0,80}\b(?:starts|begins)", re.IGNORECASE), Said(phase="compile", edge="begin")),
    (re.compile(r"\[Autotuner\]", re.IGNORECASE), Said(phase="compile", edge="progress")),
    (
        re.compile(r"Run (?:generation |general )?warmup|Creating CUDA graph instances"),
        Said(phase="warmup", edge="begin"),
    ),
    (re.compile(r"Hang detected"), Said("watchdog_timeout", fields={"name": "executor"})),
    (re.compile(r"\[?shutdown|Shutting down", re.IGNORECASE), Said(phase="shutdown", edge="begin")),
)  # fmt: skip
_RAISED = re.compile(
    r"(?:.{0,80}: )?(?P<type>(?:[a-z_]\w{0,60}\.){0,8}[A-Z]\w{0,60}(?:Error|Exception)): (?P<message>.*)$"
)


Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]


class Statistics(msgspec.Struct):
    """What is used of the C++ runtime's statistics object; all other keys are ignored."""

    iteration: Count = msgspec.field(name="Iteration Counter")
    active: Count = msgspec.field(name="Active Request Count", default=0)
    used: Count | None = msgspec.field(name="Used KV cache blocks", default=None)
    most: Count | None = msgspec.field(name="Max KV cache blocks", default=None)
    scheduled: Count | None = msgspec.field(name="Scheduled Requests", default=None)


def recognise(sample: Sample) -> bool:
    """Whether the sample holds records of this engine."""
    return RECORD.search(sample.head) is not None or RECORD.search(sample.tail) is not None


class Feed:
    """One stream of lines. Holds an unfinished traceback and the start of open phases."""

    def __init__(self, context: Context) -> None:
        self.name, self.host = context.name, context.host
        self._clock = YearlessClock(context.year)
        self._raised: Traceback | None = None
        self._started = Started()
        self._last: Who | None = None
        self._shown: Who | None = None

    def __call__(self, lines: Iterable[Line]) -> Iterator[Observation]:
        """Observations of these lines; no lines at all flush what is held back."""
        empty = True
        for line in lines:
            empty = False
            found = RECORD.match(line.text)
            if found is None:
                yield from self._raw(line)
            else:
                yield from self._record(line, found)
        if empty:
            yield from self._flush()
            if self._last is not None and (self._shown is None or self._shown.origin < self._last.origin):
                self._shown = self._last
                yield Said("other", fields={"event": "last_line"}).as_notice(
                    self._last, "trtllm", "last line of the log"
                )

    def _record(self, line: Line, found: re.Match[str]) -> Iterator[Observation]:
        yield from self._flush()
        at_s = wall_s(f"{found['year']}-{found['month']}-{found['day']} {found['clock']}")
        rank = int(found["rank"]) if found["rank"] is not None else None
        who = Who(Origin(self.name, line.number), at_s, self.host or line.host, None, None, rank)
        self._last = who
        msg = line.text[found.end() : found.end() + TEXT_MAX]
        if (step := _decode(msg, who)) is not None:
            self._shown = who
            yield step
        elif msg.startswith("Traceback (most recent call last):"):
            self._raised = Traceback(Said("exception").as_notice(who, "trtllm", msg), self.name)
        elif found["level"] in "EF" and (raised := _RAISED.match(msg)) is not None:
            fields = {"type": raised["type"], "message": raised["message"]}
            yield from self._events([Said(raised_kind(raised["type"], raised["message"]), fields=fields)], msg, who)
        else:
            yield from self._events([report for pattern, report in _STAGES if pattern.match(msg)][:1], msg, who)

    def _raw(self, line: Line) -> Iterator[Observation]:
        text = line.text
        if self._raised is not None:
            if self._raised.take(line, text):
                return
            yield from self._flush()
        who = Who(Origin(self.name, line.number), line.at_s, self.host or line.host)
        if text.startswith("INFO: ") and (answered := access(text)) is not None:
            yield from self._events([Said(answered[0], fields=answered[1])], text, who)
        elif "http_server.cc" in text and (found := TRITON.match(text[:TEXT_MAX])) is not None:
            at_s = self._clock.at(found["month"], found["day"], found["clock"])
            yield from self._events([Said("other", fields={"path": found["path"]})], text, who._replace(at_s=at_s))
        elif (bar := progress_bar(text)) is not None:
            yield Phase(
                origin=who.origin, at_s=self._started.bar_at_s(bar, line), host=who.host, engine="trtllm",
                phase=bar.phase, edge="progress", percent=bar.percent, text=text[:200],
            )  # fmt: skip

    def _events(self, reports: Iterable[Said], msg: str, who: Who) -> Iterator[Observation]:
        for report in reports:
            self._shown = who
            if report.phase is not None:
                self._started.note(report.phase, report.edge, who.at_s)
                yield report.as_phase(who, "trtllm", msg)
            else:
                yield report.as_notice(who, "trtllm", msg)

    def _flush(self) -> Iterator[Observation]:
        if self._raised is not None:
            yield self._raised.finish()
            self._raised = None


def _decode(msg: str, who: Who) -> Decode | None:
    """An iteration line of the Python runtime, or the statistics object of the C++ runtime."""
    if (found := _ITERATION.match(msg)) is not None:
        values = {hit["key"]: float(hit["value"]) for hit in _FIELD.finditer(msg)}
        scheduled = values.get("num_scheduled_requests")
        kept = {key: values[key] for key in _KEPT if key in values}
        return Decode(
            origin=who.origin, at_s=who.at_s, host=who.host, rank=who.rank, engine="trtllm",
            iteration=int(found["iteration"]), running=None if scheduled is None else int(scheduled), extra=kept,
        )  # fmt: skip
    if not msg.startswith("{"):
        return None
    try:
        stats = msgspec.json.decode(msg, type=Statistics)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    usage = stats.used / stats.most if stats.used is not None and stats.most else None
    extra: Mapping[str, float] = {} if stats.scheduled is None else {"scheduled": float(stats.scheduled)}
    return Decode(
        origin=who.origin, at_s=who.at_s, host=who.host, rank=who.rank, engine="trtllm",
        iteration=stats.iteration, running=stats.active, usage=usage, extra=extra,
    )  # fmt: skip


_KEPT = ("host_step_time", "prev_device_step_time", "num_ctx_requests", "num_ctx_tokens", "num_generation_tokens")

PARSER = LogParser(name="trtllm_log", recognise=recognise, start=Feed)
