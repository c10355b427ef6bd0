"""Threads of processes: dumps of /proc/PID/task, `ps -eLf` and `-eLo`, `top -H`, and hand-made tables of them.

Source of the formats: Linux procfs, procps-ng 3.3 to 4.0. One table a process and instant; CPU time in 10 ms ticks.
Hand-made tables understood: `tid ; comm= ; wchan= ; syscall= ; stat= ; stack=`, a `#` header with column names, and
`== PID` followed by `tid comm state wchan`.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from sentinel.collector import Context, Line, LogParser, Sample
from sentinel.collectors._columns import Columns, columns_of, cpu_ticks, pid_in, says_threads
from sentinel.collectors._machine import Sections, sample_lines
from sentinel.collectors._thread_rows import Draft, arch_of, kernel_frames
from sentinel.model.observation import Observation, ThreadTable

MAX_THREADS = 65_536
_LINE_CAP = 16_384

_FIELDS = re.compile(r"^\s*(?P<tid>\d{1,10}) ; (?:comm|wchan|syscall|stat|stack|state)=")
_PLAIN = re.compile(
    r"^\s*(?P<tid>\d{1,10})\s+(?P<comm>\S.{0,40}?)\s+(?P<state>[RSDTtZXI])(?:\s+(?P<wchan>\S{1,80}))?\s*$"
)
_TASK_FILE = re.compile(
    r"^/proc/(?P<pid>\d{1,10})/(?:task/(?P<tid>\d{1,10})/)?(?P<file>comm|wchan|syscall|stat|stack)$"
)
_GREP = re.compile(
    r"^/proc/(?P<pid>\d{1,10})/(?:task/(?P<tid>\d{1,10})/)?(?P<file>comm|wchan|syscall|stat|stack):(?P<text>.*)$"
)
_NAMED = re.compile(r"(?<!\d)(\d{1,10})(?!\d)(?:\.[a-z]+)*$")
_TOP_PID = re.compile(r"\s-p\s?(\d{1,10})\b")


@dataclass(slots=True)
class _Table:
    """Threads of one process, or of the processes that a table without a pid column mixes (pid None)."""

    line: Line
    pid: int | None
    drafts: dict[int, Draft] = field(default_factory=dict)

    def draft(self, tid: int) -> Draft:
        """The thread's draft, a new one at need; beyond the limit a draft that is not kept."""
        if tid not in self.drafts and len(self.drafts) >= MAX_THREADS:
            return Draft(tid)
        return self.drafts.setdefault(tid, Draft(tid))


@dataclass(slots=True)
class _Reader:
    context: Context
    sections: Sections = field(init=False)
    columns: Columns | None = None
    tables: dict[int | None, _Table] = field(default_factory=dict)
    threads: bool = False
    top_pid: int | None = None
    named: int | None = None

    def __post_init__(self) -> None:
        self.sections = Sections(self.context)
        found = _NAMED.search(self.context.name)
        self.named = int(found[1]) if found else None

    def feed(self, lines: Iterable[Line]) -> Iterator[Observation]:
        batch = list(lines)
        if not batch:
            yield from self._close()
        for line in batch:
            text = line.text[:_LINE_CAP]
            if found := _FIELDS.match(text):
                self._fields(line, text, int(found["tid"]))
            elif found := _GREP.match(text):
                self._file(line, int(found["pid"]), found["tid"], found["file"], found["text"])
            elif (columns := columns_of(text)) is not None:
                yield from self._header(columns)
            elif not self._row(line, text):
                yield from self._other(line, text)

    def _header(self, columns: Columns) -> Iterator[ThreadTable]:
        """A table of threads begins when there is a thread column, or when `top` said that its rows are threads."""
        yield from self._close()
        self.columns = columns if "TID" in columns.names or self.threads else None

    def _fields(self, line: Line, text: str, tid: int) -> None:
        """`tid ; key=value ; ...`: of the pid that a header names, else the file's name, else of the first thread.

        Thread ids are not always above the pid: where they have wrapped around, the main thread comes last.
        """
        pid = self.sections.pid
        if pid is None:
            pid = next((key for key in self.tables if key is not None), self.named or tid)
        draft = self._table(line, pid).draft(tid)
        for part in text.split(" ; ")[1:]:
            key, _, value = part.partition("=")
            draft.note(key.strip(), value)

    def _file(self, line: Line, pid: int, tid: str | None, file: str, text: str) -> None:
        self._table(line, pid).draft(int(tid) if tid else pid).note(file, text)

    def _row(self, line: Line, text: str) -> bool:
        if self.columns is not None:
            cells = self.columns.row(text)
            tid = pid_in(cells.get("TID") or cells.get("PID")) if cells else None
            if cells is None or tid is None:
                return False
            self._cells(line, cells, tid)
            return True
        if self.sections.pid is not None and not self.sections.path and (found := _PLAIN.match(text[:200])):
            draft = self._table(line, self.sections.pid).draft(int(found["tid"]))
            draft.comm, draft.state = found["comm"], found["state"]
            draft.note("wchan", found["wchan"] or "")
            return True
        return False

    def _cells(self, line: Line, cells: dict[str, str], tid: int) -> None:
        pid = pid_in(cells.get("PID")) if "TID" in cells else self.top_pid
        draft = self._table(line, pid if pid is not None else self.sections.pid).draft(tid)
        draft.comm = (cells.get("COMM") or cells.get("COMMAND", ""))[:64]
        draft.state = cells.get("STATE", "?")[:1] or "?"
        draft.note("wchan", cells.get("WCHAN", ""))
        draft.cpu_ticks = cpu_ticks(cells.get("TIME", ""))

    def _other(self, line: Line, text: str) -> Iterator[ThreadTable]:
        """Section headers, contents of single procfs files, and what ends a table."""
        if says_threads(text):
            found = _TOP_PID.search(text[:300])
            self.threads, self.top_pid = True, int(found[1]) if found else self.top_pid
        before = (self.sections.pid, self.sections.at_s, self.sections.clock_s)
        if self.sections.note(text):
            if (self.sections.pid, self.sections.at_s, self.sections.clock_s) != before and not self.sections.path:
                yield from self._close()
            self.columns = None
            return
        if (found := _TASK_FILE.match(self.sections.path)) and text.strip():
            self._file(line, int(found["pid"]), found["tid"], found["file"], text)
        elif not text.strip() and self.threads:
            yield from self._close(keep_columns=True)
        elif text.startswith("#") and any(table.pid is not None for table in self.tables.values()):
            yield from self._close()

    def _table(self, line: Line, pid: int | None) -> _Table:
        if pid not in self.tables and len(self.tables) >= MAX_THREADS:
            return _Table(line, pid)
        return self.tables.setdefault(pid, _Table(line, pid))

    def _close(self, keep_columns: bool = False) -> Iterator[ThreadTable]:
        tables, self.tables = self.tables, {}
        if not keep_columns:
            self.columns = None
        _join_stacks(tables)
        for table in tables.values():
            rows = tuple(draft.row() for draft in table.drafts.values())
            if rows:
                # A number in a file's name is a pid only if such a thread is in the file.
                guessed = table.pid == self.named and self.sections.pid is None and self.named not in table.drafts
                pid = next(iter(table.drafts)) if guessed else table.pid
                yield ThreadTable(**self.sections.where(table.line), pid=pid, threads=rows, arch=arch_of(rows))


def _join_stacks(tables: dict[int | None, _Table]) -> None:
    """Settle a table without a pid column.

    Threads that other parts of the dump show as main threads (`/proc/PID/stack`) move there; without such a part the
    first thread is taken for the main thread of the only process.
    """
    mixed = tables.get(None)
    if mixed is None:
        return
    mains = [pid for pid in tables if pid is not None and pid in mixed.drafts]
    for pid in mains:
        listed, table = mixed.drafts.pop(pid), tables[pid]
        own = table.draft(pid)
        own.comm, own.wchan = own.comm or listed.comm, own.wchan or listed.wchan
        own.state = listed.state if own.state == "?" else own.state
    if not mains and mixed.drafts:
        mixed.pid = next(iter(mixed.drafts))


def _recognise(sample: Sample) -> bool:
    threads = bare_pid = False
    for line in sample_lines(sample.head):
        columns = columns_of(line)
        threads = threads or says_threads(line)
        if columns is not None and ("TID" in columns.names or threads):
            return True
        if _FIELDS.match(line) or _GREP.match(line) or kernel_frames(line[:200]):
            return True
        if bare_pid and _PLAIN.match(line[:200]):
            return True
        bare_pid = bool(re.match(r"^==+ \d{1,10}\s*$", line))
    return False


def _start(context: Context) -> Callable[[Iterable[Line]], Iterator[Observation]]:
    return _Reader(context).feed


PARSER = LogParser(name="thread_table", recognise=_recognise, start=_start)
