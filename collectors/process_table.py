"""Process tables: `ps` in any column order (`aux`, `-ef`, `-eo ...`, `auxf`), `top -b`, /proc/PID/status and stat.

Source of the formats: procps-ng 3.3 to 4.0, Linux procfs. Tables of threads (`-L`, `top -H`) belong to `thread_table`.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from sentinel.collector import Context, Line, LogParser, Sample
from sentinel.collectors._columns import Columns, columns_of, elapsed_s, kib, pid_in, says_threads
from sentinel.collectors._machine import TEXT_CAP, Sections, number, sample_lines
from sentinel.model.observation import Observation, ProcessRow, ProcessTable

MAX_ROWS = 100_000

_TREE = re.compile(r"^(?:[|`\s]*\\_ )+|^[|`\s]+")
_STAT = re.compile(r"^(?P<pid>\d{1,10}) \((?P<comm>.{1,64})\) (?P<state>[RSDTtZXIKWP]) (?P<ppid>\d{1,10}) -?\d")
_PID_ONLY = re.compile(r"^\s*\d{1,10}(?:\s|$)")
_ANY_STATUS = re.compile(r"^\w{1,40}:(?:\s|$)")
_STATUS = re.compile(r"^(?P<key>Name|State|Tgid|Pid|PPid|TracerPid|VmRSS):\s+(?P<value>\S.{0,64})$")


def row_of(cells: dict[str, str]) -> ProcessRow | None:
    """One process from the cells of a table row; None when the row has no pid."""
    pid = pid_in(cells.get("PID"))
    if pid is None:
        return None
    wchan = cells.get("WCHAN")
    elapsed = cells.get("ELAPSED")
    return ProcessRow(
        pid=pid, ppid=pid_in(cells.get("PPID")), state=cells.get("STATE", "?")[:8] or "?",
        command=_TREE.sub("", cells.get("COMMAND") or cells.get("COMM", ""))[:TEXT_CAP],
        elapsed_s=elapsed_s(elapsed) if elapsed else None, cpu_percent=number(cells.get("%CPU", "")),
        rss_kib=kib(cells.get("RSS", "")), wchan=wchan if wchan not in ("-", "0", None) else None,
    )  # fmt: skip


@dataclass(slots=True)
class _Reader:
    context: Context
    sections: Sections = field(init=False)
    columns: Columns | None = None
    rows: list[ProcessRow] = field(default_factory=list)
    first: Line | None = None
    threads: bool = False
    status: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.sections = Sections(self.context)

    def feed(self, lines: Iterable[Line]) -> Iterator[Observation]:
        batch = list(lines)
        if not batch:
            yield from self._close()
        for line in batch:
            text = line.text[:TEXT_CAP]
            if (columns := columns_of(text)) is not None:
                yield from self._close()
                self.columns, self.first = columns, line
            elif self._row(text):
                continue
            else:
                yield from self._other(line, text)

    def _row(self, text: str) -> bool:
        """Take one row of the open table; False when the line is no row of it."""
        if self.columns is None or not text.strip():
            return False
        cells = self.columns.row(text)
        if cells is None or pid_in(cells.get("PID") or cells.get("TID")) is None:
            return False
        tid = cells.get("TID")
        row = row_of(cells) if not self.threads and (tid is None or tid == cells.get("PID")) else None
        if row is not None and len(self.rows) < MAX_ROWS:
            self.rows.append(row)
        return True

    def _other(self, line: Line, text: str) -> Iterator[ProcessTable]:
        if says_threads(text):
            self.threads = True
        elif text.startswith(("Tasks:", "top - ")):
            self.threads = False
        if found := _STATUS.match(text):
            yield from self._status(line, found["key"], found["value"])
        elif (found := _STAT.match(text)) and self.sections.tid in (None, self.sections.pid):
            yield from self._close()
            row = ProcessRow(
                pid=int(found["pid"]), ppid=int(found["ppid"]), state=found["state"], command=found["comm"]
            )
            yield ProcessTable(**self.sections.where(line), rows=(row,), complete=False)
        elif text.strip() and not (self.status and _ANY_STATUS.match(text)):
            # A pid without the columns behind it: the table was cut here, and rows below are missing.
            yield from self._close(cut=_PID_ONLY.match(text) is not None)
            self.sections.note(text)

    def _status(self, line: Line, key: str, value: str) -> Iterator[ProcessTable]:
        if key == "Name":
            yield from self._close()
            self.first = line
        self.status[key] = value.strip()

    def _close(self, *, cut: bool = False) -> Iterator[ProcessTable]:
        """End of a table or of a status file; rows are missing where it was `cut`."""
        first, columns = self.first, self.columns
        if first is not None and self.rows and columns is not None:
            complete = not cut and not {"PR", "VIRT"}.intersection(columns.names)
            yield ProcessTable(**self.sections.where(first), rows=tuple(self.rows), complete=complete)
        status, pid = self.status, pid_in(self.status.get("Pid"))
        if first is not None and pid is not None and "State" in status and status.get("Tgid", str(pid)) == str(pid):
            row = ProcessRow(
                pid=pid, ppid=pid_in(status.get("PPid")), state=status["State"][:1], command=status.get("Name", ""),
                rss_kib=_kib(status.get("VmRSS")), tracer_pid=pid_in(status.get("TracerPid")) or None,
            )  # fmt: skip
            yield ProcessTable(**self.sections.where(first), rows=(row,), complete=False)
        self.columns, self.rows, self.status, self.first = None, [], {}, None


def _kib(text: str | None) -> int | None:
    value = number(text or "")
    return None if value is None else int(value)


def _recognise(sample: Sample) -> bool:
    keys: set[str] = set()
    for line in sample_lines(sample.head):
        columns = columns_of(line)
        if columns is not None and "PID" in columns.names and len(columns.names) >= 4:
            return True
        if _STAT.match(line):
            return True
        if found := _STATUS.match(line):
            keys.add(found["key"])
            if {"State", "Pid"} <= keys:
                return True
    return False


def _start(context: Context) -> Callable[[Iterable[Line]], Iterator[Observation]]:
    return _Reader(context).feed


PARSER = LogParser(name="process_table", recognise=_recognise, start=_start)
