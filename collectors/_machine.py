"""Readings that several machine collectors share: numbers with units, clock times, section headers of mixed dumps."""

import calendar
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypedDict

from sentinel.collector import Context, Line
from sentinel.model.observation import Origin

TEXT_CAP = 4096
"""Characters of a line that a regular expression may look at; no line of these sources is longer."""

MONTHS = {name: number for number, name in enumerate(calendar.month_abbr) if name}

_NUMBER = re.compile(r"^\s*(-?\d{1,18}(?:\.\d{1,9})?)")
_NAME_STAMP = re.compile(r"(?<!\d)(20\d\d)-?(\d\d)-?(\d\d)[T_.\- ]?(\d\d)[-:.]?(\d\d)[-:.]?(\d\d)(?:[.,]\d+)?Z?(?!\d)")
_NAME_CLOCK = re.compile(r"[_.\-T](\d\d)[-:.]?(\d\d)[-:.]?(\d\d)(?!\d)")
_DATE = re.compile(r"(?<!\d)(20\d\d)[-/](\d\d)[-/](\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?")
_WEEKDAY_DATE = re.compile(
    r"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) (?:([A-Z][a-z]{2}) +(\d{1,2})|(\d{1,2}) ([A-Z][a-z]{2})) +(?:(20\d\d) +)?"
    r"(\d\d):(\d\d):(\d\d)(?: +(AM|PM))?(?: +[A-Z]{2,5})?(?: +(20\d\d))?"
)
_CLOCK = re.compile(r"(?<![\d:.\-])([01]\d|2[0-3]):([0-5]\d):([0-5]\d)(?:\.(\d{1,9}))?(?![\d:])")

_HEADER = re.compile(r"^(?:==|--|#|\$ |%|\+ |\S{0,64}[#$] )")
_PATH = re.compile(r"(/(?:proc|sys)/[^\s'\"<>|;:]{1,300})")
_FILE = re.compile(
    r"(?:^|[\s/])((?:memory|cpu|io|pids|cgroup)\.[a-z_.]{2,40}|meminfo|vmstat|diskstats|uptime)(?=$|[\s<=:;|])"
)
_PID = re.compile(r"\bpid[ =:]*(\d{1,10})\b", re.IGNORECASE)
_BARE_PID = re.compile(r"^[=#\-\s]*(?:pid\s*)?(\d{1,10})[=#\-\s]*$", re.IGNORECASE)
_PROC_PID = re.compile(r"^/proc/(\d{1,10})(?:/task/(\d{1,10}))?(?:/|$)")


class Where(TypedDict):
    """The fields of an observation that say where and when, as keyword arguments."""

    origin: Origin
    at_s: float | None
    clock_s: float | None
    host: str | None


def number(text: str) -> float | None:
    """Leading number of a field such as `98 %`, `145.87 W`, `121034MiB`; None for `[N/A]`, `ERR!`, `-`.

    >>> number(" 145.87 W"), number("[N/A]")
    (145.87, None)
    """
    found = _NUMBER.match(text[:64])
    return float(found[1]) if found else None


def epoch(year: int, month: int, day: int, hour: int, minute: int, second: float) -> float | None:
    """Seconds since the epoch of a wall clock reading taken as UTC; None when it is no valid date.

    >>> epoch(2026, 2, 30, 0, 0, 0) is None
    True
    """
    if not (1970 <= year <= 9999 and 1 <= month <= 12 and hour < 24 and minute < 60 and second < 61):
        return None
    if not 1 <= day <= calendar.monthrange(year, month)[1]:
        return None
    return calendar.timegm((year, month, day, hour, minute, 0)) + second


def date_in(text: str) -> float | None:
    """First full date and time in a short text: ISO, slashes, or `Mon Oct 19 10:38:51 2026`."""
    text = text[:512]
    if found := _DATE.search(text):
        year, month, day, hour, minute, second = (int(part) for part in found.groups()[:6])
        return epoch(year, month, day, hour, minute, second + _fraction(found[7]))
    if found := _WEEKDAY_DATE.search(text):
        month_name, day_text = (found[1], found[2]) if found[1] else (found[4], found[3])
        year_text = found[10] or found[5]
        if month_name not in MONTHS or year_text is None:
            return None
        hour = int(found[6]) % 12 + 12 * (found[9] == "PM") if found[9] else int(found[6])
        return epoch(int(year_text), MONTHS[month_name], int(day_text), hour, int(found[7]), int(found[8]))
    return None


def clock_in(text: str) -> float | None:
    """First time of day in a short text, in seconds since midnight; None without one."""
    found = _CLOCK.search(text[:512])
    if found is None:
        return None
    return int(found[1]) * 3600 + int(found[2]) * 60 + int(found[3]) + _fraction(found[4])


def name_time(name: str) -> tuple[float | None, float | None]:
    """(`at_s`, `clock_s`) that a file name states, such as `metrics-20261129T173500Z.prom` or `ps_050842.txt`."""
    base = name.rpartition("/")[2][-255:]
    if found := _NAME_STAMP.search(base):
        year, month, day, hour, minute, second = (int(part) for part in found.groups())
        return epoch(year, month, day, hour, minute, second), None
    for found in _NAME_CLOCK.finditer(base):
        hour, minute, second = (int(part) for part in found.groups())
        if hour < 24 and minute < 60 and second < 60:
            return None, float(hour * 3600 + minute * 60 + second)
    return None, None


def _fraction(digits: str | None) -> float:
    return float(f"0.{digits}") if digits else 0.0


@dataclass(slots=True)
class Sections:
    """Follows the headers of a dump in which several short files or commands are pasted below each other.

    Understood: `==> /proc/meminfo <==` (tail), `$ cat /proc/412/io`, `# 14:23:23`, `# 2026-10-22 06:17:31`,
    `== 08:02:36 pid 301`, `== 8801`, `--- /proc/pressure/io ---`. `path`, `pid` and `tid` are those of the current
    section; a printed time holds until the next one.
    """

    context: Context
    path: str = ""
    pid: int | None = None
    tid: int | None = None
    at_s: float | None = None
    clock_s: float | None = None
    count: int = 0
    _name: tuple[float | None, float | None] = field(default=(None, None))

    def __post_init__(self) -> None:
        self._name = name_time(self.context.name)

    def note(self, text: str) -> bool:
        """Whether the line is a section header or a time stamp line (then the state has moved on)."""
        if len(text) > 512 or not (_HEADER.match(text) or _is_bare_stamp(text)):
            return False
        at_s = date_in(text)
        clock_s = clock_in(text) if at_s is None else None
        path = _PATH.search(text)
        file = None if path else _FILE.search(text)
        pid = _PID.search(text) or _BARE_PID.match(text)
        if at_s is None and clock_s is None and path is None and file is None and pid is None:
            return False
        if at_s is not None or clock_s is not None:
            self.at_s, self.clock_s = at_s, clock_s
        self._enter(path[1] if path else file[1] if file else "", int(pid[1]) if pid else None)
        return True

    def _enter(self, path: str, pid: int | None) -> None:
        self.count += 1
        self.path, self.tid = path.rstrip("/"), None
        if found := _PROC_PID.match(path):
            self.pid = int(found[1])
            self.tid = int(found[2]) if found[2] else None
        else:
            self.pid = pid

    def where(self, line: Line) -> Where:
        """Origin, time and host for an observation made from this line; the file name's time is the last resort."""
        at_s, clock_s = self.at_s, self.clock_s
        if at_s is None and clock_s is None:
            at_s = line.at_s
        if at_s is None and clock_s is None:
            at_s, clock_s = self._name
        return Where(
            origin=Origin(self.context.name, line.number),
            at_s=at_s,
            clock_s=clock_s if at_s is None else None,
            host=self.context.host or line.host,
        )


def _is_bare_stamp(text: str) -> bool:
    """A line that is nothing but a time, as `date` prints it between two samples."""
    return len(text) < 48 and (date_in(text) is not None or bool(re.fullmatch(r"\s*\d\d:\d\d:\d\d(?:\.\d+)?\s*", text)))


def sample_lines(text: str) -> Iterator[str]:
    """Lines of a recognition sample, each cut to the length that a regular expression may see."""
    for line in text.splitlines():
        yield line[:TEXT_CAP]
