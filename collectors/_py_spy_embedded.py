"""py-spy dumps inside an engine's log, as SGLang prints them (`Pyspy dump for PID N (command):`, 0.4.4 to 0.5.23).

The header line carries time and rank prefix, the dump's own lines carry neither; a failed attempt is one line.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sentinel.collector import Context, Line
from sentinel.collectors._py_spy_text import PROCESS, Dump
from sentinel.collectors._stack_frames import MAX_LINE, stamp, without_writer
from sentinel.core.identity import tags_of
from sentinel.model.observation import Observation, Origin, Stack

FOREIGN_LINES = 8
"""Lines of other writers that may stand inside an embedded dump before it is taken for ended."""

_HEADER = re.compile(r"Pyspy dump for PID (\d{1,10})(?: \([^)]{0,200}\))?:")
_FAILED = re.compile(r"Pyspy failed (?:\(.{0,200}?--pid (\d{1,10})\)|to dump PID (\d{1,10}))\. ?(?:Error: )?(.*)")
_ALL_FAILED = re.compile(r"All pyspy dump attempts failed for PID (\d{1,10})")


@dataclass(slots=True)
class Embedded:
    """Dumps inside an engine's log, from their header line on."""

    context: Context
    dump: Dump | None = None
    foreign: int = 0

    def feed(self, lines: Iterable[Line]) -> Iterator[Observation]:
        empty = True
        for line in lines:
            empty = False
            yield from self._line(line)
        if empty:
            yield from self._finish()

    def _line(self, line: Line) -> Iterator[Observation]:
        text = line.text[:MAX_LINE]
        if "yspy" in text and (begun := self._header(line, text)) is not None:
            yield from self._finish()
            if isinstance(begun, Stack):
                yield begun
            else:
                self.dump, self.foreign = begun, 0
        elif self.dump is not None:
            yield from self._inside(without_writer(text).rstrip())

    def _header(self, line: Line, text: str) -> "Dump | Stack | None":
        origin, host = Origin(self.context.name, line.number), self.context.host or line.host
        at_s = stamp(text, self.context.year)
        at_s = line.at_s if at_s is None else at_s
        closing = text.find("]")
        tags = tags_of(text[:closing]) if text.startswith("[") and 0 < closing < 80 else None
        if (found := _HEADER.search(text)) is not None:
            dump = Dump(origin, at_s, host, tags, pid=int(found[1]))
            self._title(dump, text[found.end() :].strip())
            return dump
        if (found := _FAILED.search(text)) is not None:
            pid, said = int(found[1] or found[2]), found[3].removeprefix("Error: ") or "py-spy failed"
        elif (found := _ALL_FAILED.search(text)) is not None:
            pid, said = int(found[1]), found[0]
        else:
            return None
        return Stack(origin=origin, at_s=at_s, host=host, pid=pid, tags=tags, tool="py-spy", error=said)

    def _title(self, dump: Dump, text: str) -> bool:
        found = PROCESS.match(text)
        if found is not None and dump.title is None:
            dump.pid, dump.title = int(found[1]), found[2].strip()
        return found is not None

    def _inside(self, text: str) -> Iterator[Observation]:
        dump = self.dump
        if dump is None:
            return
        if (found := PROCESS.match(text)) is not None and dump.title is not None:
            yield from self._finish()
            self.dump = Dump(dump.origin, dump.at_s, dump.host, pid=int(found[1]), title=found[2].strip())
        elif self._title(dump, text) or dump.take(text):
            self.foreign = 0
        else:
            self.foreign += 1
            if self.foreign >= FOREIGN_LINES:
                yield from self._finish()

    def _finish(self) -> Iterator[Observation]:
        dump, self.dump = self.dump, None
        if dump is not None and (done := dump.stack("")) is not None:
            yield done
