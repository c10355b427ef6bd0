"""Pressure-stall information: /proc/pressure/{cpu,memory,io,irq} and cgroup `*.pressure` files, pasted or grepped.

Source of the format: Linux 4.20 to 6.17. Averages are percent of time, `total` is microseconds.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from sentinel.collector import Context, Line, LogParser, Sample
from sentinel.collectors._machine import Sections, sample_lines
from sentinel.model.observation import Observation, Pressure

Resource = Literal["cpu", "memory", "io", "irq"]
_RESOURCES: dict[str, Resource] = {"cpu": "cpu", "memory": "memory", "mem": "memory", "io": "io", "irq": "irq"}

_LINE = re.compile(
    r"^(?P<before>[^\s].{0,200}?[\s:/]|)\s*(?P<kind>some|full) "
    r"avg10=(?P<a10>\d{1,3}(?:\.\d+)?) avg60=(?P<a60>\d{1,3}(?:\.\d+)?)"
    r"(?: avg300=\d{1,3}(?:\.\d+)?)?(?: total=(?P<total>\d{1,20}))?"
)
_WORD = re.compile(r"(?:^|[/\s_.\-:])(cpu|memory|mem|io|irq)(?=$|[/\s_.\-:<=])")


def resource_in(text: str) -> Resource | None:
    """Resource that a path, header or file name names: `/proc/pressure/io`, `memory.pressure`, `pressure_io.txt`."""
    found = _WORD.findall(text[-300:])
    return _RESOURCES[found[-1]] if found else None


@dataclass(slots=True)
class _Reader:
    context: Context
    sections: Sections = field(init=False)
    header: str = ""
    some: Pressure | None = None

    def __post_init__(self) -> None:
        self.sections = Sections(self.context)

    def feed(self, lines: Iterable[Line]) -> Iterator[Observation]:
        batch = list(lines)
        if not batch:
            yield from self._release()
        for line in batch:
            found = _LINE.match(line.text[:512]) if " avg10=" in line.text[:512] else None
            if found is not None:
                yield from self._pressure(line, found)
                continue
            yield from self._release()
            if self.sections.note(line.text) or (len(line.text) < 80 and resource_in(line.text.rstrip(": "))):
                self.header = line.text[:200]

    def _pressure(self, line: Line, found: re.Match[str]) -> Iterator[Pressure]:
        base = self.context.name.rpartition("/")[2]
        resource = resource_in(found["before"].rstrip(": ")) or resource_in(self.sections.path)
        resource = resource or resource_in(self.header) or resource_in(base)
        if resource is None:
            return
        a10, a60 = float(found["a10"]), float(found["a60"])
        where = self.sections.where(line)
        if found["kind"] == "some":
            yield from self._release()
            total = float(found["total"]) if found["total"] else None
            self.some = Pressure(**where, resource=resource, some_avg10=a10, some_avg60=a60, some_total_us=total)
        elif self.some is not None and self.some.resource == resource:
            some, self.some = self.some, None
            yield Pressure(
                origin=some.origin, at_s=some.at_s, clock_s=some.clock_s, host=some.host, resource=resource,
                some_avg10=some.some_avg10, some_avg60=some.some_avg60, some_total_us=some.some_total_us,
                full_avg10=a10, full_avg60=a60,
            )  # fmt: skip
        else:
            yield Pressure(**where, resource=resource, full_avg10=a10, full_avg60=a60)

    def _release(self) -> Iterator[Pressure]:
        some, self.some = self.some, None
        if some is not None:
            yield some


def _recognise(sample: Sample) -> bool:
    return any(" avg10=" in line and _LINE.match(line[:512]) for line in sample_lines(sample.head))


def _start(context: Context) -> Callable[[Iterable[Line]], Iterator[Observation]]:
    return _Reader(context).feed


PARSER = LogParser(name="pressure", recognise=_recognise, start=_start)
