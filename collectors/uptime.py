"""When a host booted: `uptime`, `uptime -s`, the first line of `top`, /proc/uptime, `btime` of /proc/stat.

Source of the formats: procps-ng 3.3 to 4.0, Linux procfs. `uptime` prints whole minutes and no date: the boot time then
counts from midnight of an unknown day, unless the dump states the date elsewhere.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from sentinel.collector import Context, Line, LogParser, Sample
from sentinel.collectors._machine import Sections, date_in, sample_lines
from sentinel.model.observation import BootTime, Observation

_UPTIME = re.compile(
    r"^(?:top -)?\s*(?P<h>\d{1,2}):(?P<m>\d\d):(?P<s>\d\d) up\s+(?:(?P<days>\d{1,5}) days?,\s+)?"
    r"(?:(?P<hours>\d{1,2}):(?P<minutes>\d\d)|(?P<min>\d{1,3}) min(?:s|utes?)?|(?P<sec>\d{1,3}) secs?)?"
)
_SINCE = re.compile(r"^20\d\d-\d\d-\d\d \d\d:\d\d:\d\d\s*$")
_PROC = re.compile(r"^(?P<up>\d{1,10}\.\d\d) \d{1,12}\.\d\d\s*$")
_BTIME = re.compile(r"^btime (?P<boot>\d{9,11})\s*$")
_DAY_S = 86_400.0


def up_of(line: str) -> tuple[float, float, float] | None:
    """(time of day, seconds up, half the resolution of the latter) of a line of `uptime`; None for any other.

    >>> up_of(" 01:08:10 up 27 min,  2 users,  load average: 9.10, 8.77, 6.02")
    (4090.0, 1650.0, 30.0)
    """
    found = _UPTIME.match(line[:256])
    if found is None or not any(found[name] for name in ("days", "hours", "min", "sec")):
        return None
    clock_s = int(found["h"]) * 3600.0 + int(found["m"]) * 60 + int(found["s"])
    days = int(found["days"] or 0)
    if found["sec"]:
        return clock_s, days * _DAY_S + int(found["sec"]), 0.5
    minutes = int(found["hours"] or 0) * 60 + int(found["minutes"] or found["min"] or 0)
    # Whole minutes are cut off, not rounded: the middle of the minute is the best guess.
    return clock_s, days * _DAY_S + minutes * 60.0 + 30.0, 30.0


@dataclass(slots=True)
class _Reader:
    context: Context
    sections: Sections = field(init=False)

    def __post_init__(self) -> None:
        self.sections = Sections(self.context)

    def feed(self, lines: Iterable[Line]) -> Iterator[Observation]:
        for line in lines:
            text = line.text[:256]
            if (up := up_of(text)) is not None:
                yield self._uptime(line, *up)
            elif found := _BTIME.match(text):
                yield BootTime(**self.sections.where(line), boot_s=float(found["boot"]), error_s=0.5)
            elif self.sections.path.endswith("uptime") and (found := _PROC.match(text)):
                where = self.sections.where(line)
                if where["at_s"] is not None:
                    yield BootTime(**where, boot_s=where["at_s"] - float(found["up"]), error_s=1.0)
            elif (since := _SINCE.match(text)) and (boot_s := date_in(since[0])) is not None and self._asks_since():
                yield BootTime(**self.sections.where(line), boot_s=boot_s, error_s=1.0)
            else:
                self.sections.note(line.text)

    def _asks_since(self) -> bool:
        """Whether the dump's command or file is `uptime -s`: a bare date says nothing by itself."""
        return "uptime" in self.sections.path or "uptime" in self.context.name.rpartition("/")[2]

    def _uptime(self, line: Line, clock_s: float, up_s: float, error_s: float) -> BootTime:
        where = self.sections.where(line)
        near_s = where["at_s"]
        if near_s is None:
            where["clock_s"] = clock_s
            return BootTime(**where, boot_s=clock_s - up_s, error_s=error_s, dated=False)
        at_s = near_s - near_s % _DAY_S + clock_s
        where["at_s"], where["clock_s"] = at_s, None
        return BootTime(**where, boot_s=at_s - up_s, error_s=error_s)


def _recognise(sample: Sample) -> bool:
    return any(
        up_of(line) is not None or _BTIME.match(line[:64]) or "/proc/uptime" in line or "uptime -s" in line
        for line in sample_lines(sample.head[:16_384])
    )


def _start(context: Context) -> Callable[[Iterable[Line]], Iterator[Observation]]:
    return _Reader(context).feed


PARSER = LogParser(name="uptime", recognise=_recognise, start=_start)
