"""Socket tables: `ss -tnp` and `-tlnp`, `netstat -tnp`.

Source of the formats: iproute2 5 and 6, net-tools 2.10. Receive queues are bytes on connections and waiting connections
on listeners.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from sentinel.collector import Context, Line, LogParser, Sample
from sentinel.collectors._machine import Sections, Where, sample_lines
from sentinel.model.observation import Observation, Sockets

_SS = re.compile(
    r"^(?:tcp\s+)?(?P<state>ESTAB|LISTEN|CLOSE-WAIT|[A-Z][A-Z0-9-]{3,11})\s+(?P<recv>\d{1,12})\s+\d{1,12}\s+\S+:\S+\s"
)
_SS_PID = re.compile(r"\bpid=(\d{1,10})\b")
_NETSTAT = re.compile(
    r"^tcp6?\s+(?P<recv>\d{1,12})\s+\d{1,12}\s+\S+\s+\S+\s+(?P<state>ESTABLISHED|LISTEN|CLOSE_WAIT)\s+(?P<pid>\d{1,10})?"
)
_HEADER = re.compile(r"^(?:Netid\s+)?State\s+Recv-Q\s+Send-Q\b")
_ESTABLISHED = frozenset(("ESTAB", "ESTABLISHED", "CLOSE-WAIT", "CLOSE_WAIT"))


@dataclass(slots=True)
class _Reader:
    context: Context
    sections: Sections = field(init=False)
    where: Where | None = None
    unread: Counter[str] = field(default_factory=Counter)
    backlog: Counter[str] = field(default_factory=Counter)
    established: int = 0

    def __post_init__(self) -> None:
        self.sections = Sections(self.context)

    def feed(self, lines: Iterable[Line]) -> Iterator[Observation]:
        batch = list(lines)
        if not batch:
            yield from self._close()
        for line in batch:
            text = line.text[:1024]
            if found := _SS.match(text):
                self._socket(line, found, _SS_PID.findall(text))
            elif found := _NETSTAT.match(text):
                self._socket(line, found, [found["pid"]] if found["pid"] else [])
            elif _HEADER.match(text) or self.sections.note(text):
                yield from self._close()

    def _socket(self, line: Line, found: re.Match[str], pids: list[str]) -> None:
        self.where = self.where or self.sections.where(line)
        waiting = int(found["recv"])
        self.established += found["state"] in _ESTABLISHED
        for pid in set(pids):
            if found["state"] == "LISTEN":
                self.backlog[pid] += waiting
            elif waiting and found["state"] in _ESTABLISHED:
                self.unread[pid] += 1

    def _close(self) -> Iterator[Sockets]:
        if self.where is not None:
            yield Sockets(
                **self.where, unread_by_pid=dict(self.unread), backlog_by_pid=dict(self.backlog),
                established=self.established,
            )  # fmt: skip
        self.where, self.established = None, 0
        self.unread, self.backlog = Counter(), Counter()


def _recognise(sample: Sample) -> bool:
    return any(_HEADER.match(line) or _NETSTAT.match(line[:1024]) for line in sample_lines(sample.head))


def _start(context: Context) -> Callable[[Iterable[Line]], Iterator[Observation]]:
    return _Reader(context).feed


PARSER = LogParser(name="sockets", recognise=_recognise, start=_start)
