"""Counters of one process: /proc/PID/io, stat and schedstat, and hand-made `PID utime=N stime=N` lines.

Source of the formats: Linux procfs. Units: bytes, counts, CPU time in 10 ms ticks (`utime`, `stime`), run time in ns.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from sentinel.collector import Context, Line, LogParser, Sample
from sentinel.collectors._machine import Sections, sample_lines
from sentinel.model.observation import Observation, ProcessCounters

_IO = re.compile(
    r"^\s*(?P<key>rchar|wchar|syscr|syscw|read_bytes|write_bytes|cancelled_write_bytes): (?P<value>\d{1,20})\s*$"
)
_TIMES = re.compile(
    r"^\s*(?:pid[ =:]*)?(?P<pid>\d{1,10})[:,]? (?P<pairs>\w{2,24}=\d{1,20}(?:[ ,]+\w{2,24}=\d{1,20}){0,15})[ ,\t]*$"
)
_PAIR = re.compile(r"(\w{2,24})=(\d{1,20})")
_STAT = re.compile(r"^(?P<pid>\d{1,10}) \(.{1,64}\) [RSDTtZXIKWP] (?P<rest>[-\d ]{20,600})")
_COUNT = re.compile(r"\d{1,20}")
_SCHED = re.compile(r"^(?P<run>\d{1,20}) (?P<wait>\d{1,20}) (?P<slices>\d{1,20})\s*$")
_KNOWN = frozenset(("utime", "stime", "majflt", "minflt", "read_bytes", "rchar", "syscr", "run_ns"))


def stat_counters(rest: str) -> dict[str, float]:
    """Faults and CPU ticks from the numbers that follow the state letter of a `stat` line."""
    words = rest.split()
    names = {6: "minflt", 8: "majflt", 10: "utime", 11: "stime"}
    return {name: float(words[at]) for at, name in names.items() if at < len(words) and _COUNT.fullmatch(words[at])}


@dataclass(slots=True)
class _Reader:
    context: Context
    sections: Sections = field(init=False)
    first: Line | None = None
    values: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.sections = Sections(self.context)

    def feed(self, lines: Iterable[Line]) -> Iterator[Observation]:
        batch = list(lines)
        if not batch:
            yield from self._close()
        for line in batch:
            text = line.text[:1024]
            if found := _IO.match(text):
                if found["key"] in self.values:
                    yield from self._close()
                self.first = self.first or line
                self.values[found["key"]] = float(found["value"])
            elif (found := _TIMES.match(text)) and (counters := _pairs(found["pairs"])):
                yield ProcessCounters(**self.sections.where(line), pid=int(found["pid"]), values=counters)
            elif (found := _STAT.match(text)) and self.sections.tid in (None, int(found["pid"])):
                values = stat_counters(found["rest"])
                yield ProcessCounters(**self.sections.where(line), pid=int(found["pid"]), values=values)
            elif self.sections.path.endswith("/schedstat") and (found := _SCHED.match(text)) and not self.sections.tid:
                values = {"run_ns": float(found["run"]), "wait_ns": float(found["wait"])}
                yield ProcessCounters(**self.sections.where(line), pid=self.sections.pid, values=values)
            else:
                yield from self._close()
                self.sections.note(line.text)

    def _close(self) -> Iterator[ProcessCounters]:
        """End of an `io` file."""
        if self.first is not None and self.values and self.sections.tid is None:
            yield ProcessCounters(**self.sections.where(self.first), pid=self.sections.pid, values=self.values)
        self.first, self.values = None, {}


def _pairs(text: str) -> dict[str, float]:
    values = {key: float(value) for key, value in _PAIR.findall(text)}
    return values if _KNOWN.intersection(values) else {}


def _recognise(sample: Sample) -> bool:
    for line in sample_lines(sample.head):
        found = _TIMES.match(line[:1024])
        if _IO.match(line[:64]) or _STAT.match(line[:1024]) or (found and _pairs(found["pairs"])):
            return True
    return False


def _start(context: Context) -> Callable[[Iterable[Line]], Iterator[Observation]]:
    return _Reader(context).feed


PARSER = LogParser(name="process_io", recognise=_recognise, start=_start)
