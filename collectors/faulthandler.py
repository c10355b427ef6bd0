"""Python's faulthandler (3.8 to 3.14), alone or inside a log, and the stack-dump files of vLLM's watchdog (0.33).

`Current thread 0x… (most recent call first):` or `Thread 0x… [name] (most recent call first):`, then `  File "f", line
N in function`. vLLM's `VLLM_STACK_DUMP_for_<NAME>_<pid>.log` puts `>>> Call stack dump #k at <ctime> due to <reason>`
before each dump; process and name stand only in the file's name, which the engine chose.
"""

import calendar
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from sentinel.collector import Context, Line, LogParser, Sample
from sentinel.collectors._stack_frames import MAX_FRAMES, MAX_LINE, MAX_THREADS, frame, rank_hint, stamp, without_writer
from sentinel.core.identity import tags_of
from sentinel.model.observation import Frame, Observation, Origin, Stack, Thread

_HEAD = "(most recent call first)"
_TITLE = ">>> Call stack dump"
_THREAD = re.compile(r"^(Current thread|Thread) 0x[0-9A-Fa-f]{1,16}(?: \[([^\]]{0,80})\])? \(most recent call first\):")
_FRAME = re.compile(r'^ {2}File "(.{1,1024})", line (\d{1,8}) in (.{1,400})$')
_DUMP = re.compile(
    r"^>>> Call stack dump #\d{1,8} at \w{3} (\w{3})\s{1,2}(\d{1,2}) (\d\d):(\d\d):(\d\d) (\d{4}) due to"
)
_TIMED = re.compile(r"(?:\([^)]{1,150}\) ?)?\[.{0,50}?\d\d-\d\d[ T]\d\d:\d\d:\d\d")
_WRITER = re.compile(r"^\((?:([A-Za-z_][\w.-]{0,80}) )?pid=(\d{1,10})")
_FILE = re.compile(r"VLLM_STACK_DUMP_for_(.{1,80})_(\d{1,10})\.log")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


@dataclass(slots=True)
class _Dump:
    origin: Origin
    at_s: float | None
    host: str | None
    pid: int | None
    title: str | None
    threads: list[tuple[str | None, bool, list[Frame]]] = field(default_factory=list)


@dataclass(slots=True)
class _Feed:
    """State of one stream: the last printed time, the last line that may print a later one, the dump being read."""

    context: Context
    at_s: float | None = None
    timed: str | None = None
    dump: _Dump | None = None

    def feed(self, lines: Iterable[Line]) -> Iterator[Observation]:
        empty = True
        for line in lines:
            empty = False
            text = line.text
            if self.dump is not None or _HEAD in text or _TITLE in text:
                yield from self._line(line)
            elif _TIMED.match(text) is not None:
                self.timed = text  # nearly all lines of a log: only the last one before a dump is worth reading
        if empty:
            yield from self._finish()

    def _line(self, line: Line) -> Iterator[Observation]:
        raw = line.text[:MAX_LINE]
        text = without_writer(raw).rstrip()
        if _HEAD in text and (head := _THREAD.match(text)) is not None:
            if self.dump is None:
                self.dump = self._begin(line, raw)
            if len(self.dump.threads) < MAX_THREADS:
                self.dump.threads.append((head[2], head[1] == "Current thread", []))
        elif self.dump is not None:
            yield from self._inside(text)
        elif text.startswith(_TITLE) and (found := _DUMP.match(text)) is not None:
            self.at_s, self.timed = _ctime(found), None

    def _inside(self, text: str) -> Iterator[Observation]:
        if self.dump is None or not text.strip() or text.startswith("  "):
            found = _FRAME.match(text)
            if self.dump is not None and found is not None and len(self.dump.threads[-1][2]) < MAX_FRAMES:
                self.dump.threads[-1][2].append(frame(found[3], found[1], int(found[2]), native=False))
            return
        yield from self._finish()
        if (found := _DUMP.match(text)) is not None:
            self.at_s, self.timed = _ctime(found), None

    def _begin(self, line: Line, raw: str) -> _Dump:
        title, pid = None, line.pid
        if (writer := _WRITER.match(raw)) is not None:
            title, pid = writer[1], int(writer[2])
        elif (named := _FILE.search(self.context.name)) is not None:
            title, pid = named[1], int(named[2])
        if self.timed is not None:
            self.at_s = stamp(without_writer(self.timed[:MAX_LINE]), self.context.year) or self.at_s
            self.timed = None
        at_s = self.at_s if self.at_s is not None else line.at_s
        return _Dump(Origin(self.context.name, line.number), at_s, self.context.host or line.host, pid, title)

    def _finish(self) -> Iterator[Observation]:
        dump, self.dump = self.dump, None
        if dump is None:
            return
        tags = tags_of(dump.title) if dump.title else None
        yield Stack(
            origin=dump.origin, at_s=dump.at_s, host=dump.host, pid=dump.pid, tags=tags, title=dump.title,
            rank=rank_hint(self.context.name) if dump.pid is None else None, tool="faulthandler",
            threads=tuple(
                Thread(name=name, tid=None, state=_state(current), frames=tuple(frames))
                for name, current, frames in dump.threads
            ),
        )  # fmt: skip


def _state(current: bool) -> Literal["active", "unknown"]:
    return "active" if current else "unknown"


def _ctime(found: re.Match[str]) -> float | None:
    if found[1] not in _MONTHS:
        return None
    day, hour, minute, second, year = (int(found[k]) for k in (2, 3, 4, 5, 6))
    if not (1 <= day <= 31 and hour < 24 and minute < 60 and second < 62 and year >= 1970):
        return None
    return float(calendar.timegm((year, _MONTHS.index(found[1]) + 1, day, hour, minute, second, 0, 0, 0)))


def _start(context: Context) -> Callable[[Iterable[Line]], Iterator[Observation]]:
    return _Feed(context).feed


def _recognise(sample: Sample) -> bool:
    """Its own dumps, and any log of an engine: a dump may stand far behind the sample."""
    text = sample.head + sample.tail
    return _HEAD in text or "sglang" in text.lower() or "vllm" in text.lower()


PARSER = LogParser(name="faulthandler", recognise=_recognise, start=_start)
