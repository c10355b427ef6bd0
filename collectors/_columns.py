"""Tables of `ps`, `top` and alike: columns found by the words of the header line, one free-text column at most."""

import re
from dataclasses import dataclass

from sentinel.collectors._machine import number

_ALIASES = {
    "S": "STATE", "STAT": "STATE", "CMD": "COMMAND", "ARGS": "COMMAND", "PCPU": "%CPU", "CPU%": "%CPU", "C": "%CPU",
    "LWP": "TID", "SPID": "TID", "ETIME": "ELAPSED", "ETIMES": "ELAPSED", "RES": "RSS", "RSZ": "RSS", "TGID": "PID",
    "TIME+": "TIME", "NAME": "COMM",
}  # fmt: skip
_WORDS = frozenset((
    "PID", "PPID", "TID", "STATE", "COMMAND", "COMM", "WCHAN", "%CPU", "%MEM", "ELAPSED", "RSS", "VSZ", "TTY",
    "TIME", "START", "STARTED", "STIME", "USER", "UID", "PGID", "SID", "PRI", "PR", "NI", "NLWP", "VIRT", "SHR",
    "PSR", "CLS", "F", "ADDR", "SZ", "RTPRIO", "SUSER", "GID", "GROUP", "EUSER", "RUSER", "CGROUP", "NUMA",
))  # fmt: skip
_HEADER = re.compile(r"^[#\s]*[A-Za-z%][A-Za-z+%\s]{4,240}$")
_DAYS = frozenset(("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"))
_ELAPSED = re.compile(r"^(?:(\d{1,6})-)?(?:(\d{1,4}):)?(\d{1,4}):(\d\d)(?:\.\d+)?$")
_CPU_TIME = re.compile(r"^(?:(\d{1,6})-)?(?:(\d{1,6}):)?(\d{1,6}):(\d\d)(?:\.(\d\d))?$")
_SIZE = re.compile(r"^(\d{1,15}(?:\.\d+)?)([kmgtp]?)$", re.IGNORECASE)
_KIB = {"": 1, "k": 1, "m": 1 << 10, "g": 1 << 20, "t": 1 << 30, "p": 1 << 40}


@dataclass(frozen=True, slots=True)
class Columns:
    """Column names of one table, aliases resolved, upper case. `start`: where the last column begins in the header."""

    names: tuple[str, ...]
    start: int

    def row(self, text: str) -> dict[str, str] | None:
        """Cells of one line by column name; None when it has too few cells. Free text keeps its spaces."""
        cells = text.split()
        if "STARTED" in self.names:
            cells = _join_date(cells, self.names.index("STARTED"))
        count = len(self.names)
        if len(cells) < count:
            return None
        free = next((i for i, name in enumerate(self.names) if name in ("COMM", "COMMAND")), count - 1)
        if free == count - 1 or self.names[-1] == "COMMAND":
            row = dict(zip(self.names, [*cells[: count - 1], " ".join(cells[count - 1 :])], strict=True))
        else:
            right = count - 1 - free
            middle = " ".join(cells[free : len(cells) - right])
            row = dict(zip(self.names, [*cells[:free], middle, *cells[len(cells) - right :]], strict=True))
        aligned = text[self.start :].strip()
        if self.names[-1] == "COMMAND" and text[self.start - 1 : self.start] == " " and aligned:
            row["COMMAND"] = aligned
        return row


def columns_of(line: str) -> Columns | None:
    """Columns of a header line: known words only, with a PID or TID and a command name.

    >>> columns_of("  PID  PPID STAT WCHAN  COMMAND").names
    ('PID', 'PPID', 'STATE', 'WCHAN', 'COMMAND')
    """
    if len(line) > 256 or not _HEADER.match(line):
        return None
    words = line.lstrip("#").split()
    names = [_ALIASES.get(word.upper(), word.upper()) for word in words]
    if len(names) < 3 or not _WORDS.issuperset(names) or not {"COMM", "COMMAND"}.intersection(names):
        return None
    if names.count("COMMAND") == 2:
        names[names.index("COMMAND")] = "COMM"
    if len(set(names)) != len(names) or not {"PID", "TID"}.intersection(names):
        return None
    return Columns(tuple(names), line.rfind(words[-1]))


def _join_date(cells: list[str], at: int) -> list[str]:
    """`ps -o lstart` prints five words in one column."""
    if len(cells) >= at + 5 and cells[at] in _DAYS:
        return [*cells[:at], " ".join(cells[at : at + 5]), *cells[at + 5 :]]
    return cells


def elapsed_s(text: str) -> float | None:
    """Seconds of `2-01:11:20`, `11:01` or plain seconds.

    >>> elapsed_s("1-00:00:05"), elapsed_s("11:01"), elapsed_s("183")
    (86405.0, 661.0, 183.0)
    """
    if text.isdecimal():
        return float(text[:15])
    if found := _ELAPSED.match(text[:32]):
        days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
        return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
    return None


def cpu_ticks(text: str) -> int | None:
    """CPU time in ticks of 10 ms of `10:02.11` (top) or `00:10:02` (ps); None when it is neither."""
    found = _CPU_TIME.match(text[:32])
    if found is None:
        return None
    days, hours, minutes, seconds, hundredths = (int(part or 0) for part in found.groups())
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 100 + hundredths


def kib(text: str) -> int | None:
    """Size in KiB of a cell such as `28811204` or `9.8g`."""
    found = _SIZE.match(text[:24])
    value = number(found[1]) if found else None
    return None if found is None or value is None else int(value * _KIB[found[2].lower()])


def pid_in(text: str | None) -> int | None:
    """A process or thread id; None for anything else."""
    return int(text) if text is not None and text.isdecimal() and len(text) <= 10 else None


def says_threads(line: str) -> bool:
    """Whether a line says that the `top` table below it lists threads, not processes."""
    return line.startswith("Threads:") or (
        "top " in line and bool(re.search(r"\stop\b.{0,80}\s-\w*H", f" {line[:200]}"))
    )
