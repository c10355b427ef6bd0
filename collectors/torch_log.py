"""PyTorch distributed lines inside any log: c10d, ProcessGroupNCCL, TCPStore and gloo; torchrun's rank tracebacks.

C++ lines go to file descriptor 2 and may be glued behind another writer's text, so they are found anywhere in a line:
`[rank3]:[E1129 10:10:04.330817002 ProcessGroupNCCL.cpp:689] text`; month not zero-padded, no year, local time.
Sources: PyTorch 2.4 to 2.14; older lines carry no date.
"""

import re
from collections.abc import Iterable, Iterator

from sentinel.collector import Context, Line, LogParser, Sample
from sentinel.collectors._engine_lines import TEXT_MAX, Said, Traceback, Who, YearlessClock, raised_kind
from sentinel.model.observation import NoticeKind, Observation, Origin

PREFIX = re.compile(
    r"(?:\[rank(?P<rank>\d{1,18})\]:)?\[(?P<lvl>[IWEF])(?P<md>\d{3,4})? ?(?P<time>\d\d:\d\d:\d\d\.\d+)? ?(?:\d+ )?"
    r"(?P<file>[\w.]+\.(?:cpp|hpp|cc|h)):(?P<line>\d{1,18})\] (?P<msg>.*)$"
)
TIMEOUT = re.compile(
    r"Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=(?P<seq>\d{1,18}), OpType=(?P<op>\w+), "
    r"NumelIn=(?P<nin>\d{1,18}), "
    r"NumelOut=(?P<nout>\d{1,18}), Timeout\(ms\)=(?P<to>\d{1,18})\) ran for (?P<ran>\d{1,18}) milliseconds"
)
DUMP = re.compile(
    r"Received a dump signal due to a collective timeout from (?P<from>this local rank| ?rank (?P<src>\d{1,18})"
    r") and we will try "
    r"our best to dump the debug info\. Last enqueued NCCL work: (?P<enq>-?\d{1,18}), last completed NCCL work:"
    r" (?P<done>-?\d{1,18})"
)
FORMATS = {"torch.prefix": PREFIX, "torch.timeout": TIMEOUT, "torch.dump": DUMP}

_RANK = re.compile(r"\[Rank (?P<rank>\d{1,6})\]|\[PG (?:ID )?(?P<pg>\S{1,64}).{0,120}?Rank (?P<pg_rank>\d{1,6})\]")
_FAILED_AT = re.compile(
    r"failure detected by watchdog at work sequence id: (?P<seq>-?\d{1,18}) PG status: last enqueued work: "
    r"(?P<enq>-?\d{1,18}), "
    r"(?:last started work: (?P<started>-?\d{1,18}), )?last completed work: (?P<done>-?\d{1,18})"
)
_THREAD_ENDED = re.compile(r"Process group watchdog thread terminated with exception: (?P<message>.*)$")
_REMOTE = re.compile(r"remote error detected from rank: (?P<source>\d{1,18})")
_TERMINATE = re.compile(r"terminate called after throwing an instance of '(?P<type>[^']{1,120})'")
_GLOO = re.compile(
    r"gloo/transport/\S{1,80}?:\d+\] (?P<text>Connection closed by peer \[?(?P<peer>[^\]\s]{1,80})\]?|"
    r"Timed out waiting.*|Connection reset.*)"
)
_RANKED = re.compile(r"\[rank(?P<rank>\d{1,6})\]: ?(?P<text>.*)$", re.DOTALL)

_TEXTS: tuple[tuple[str, NoticeKind], ...] = (
    ("watchdog got stuck for", "heartbeat_stuck"), ("Could not acquire GIL", "heartbeat_stuck"),
    ("due to ProcessGroupNCCL watchdog hang", "heartbeat_stuck"),
    ("preparing to dump debug info", "flight_dump"), ("dumping nccl trace to", "flight_dump"),
    ("Observed flight recorder dump signal", "flight_dump"), ("First PG on this rank to signal dumping", "flight_dump"),
    ("Dump signal received through pipe", "flight_dump"),
    ("taking the entire process down", "kill_tree"),
    ("onnection closed by peer", "peer_closed"), ("onnection reset by peer", "peer_closed"),
    ("Broken pipe", "peer_closed"),
    ("Connection was likely closed", "peer_closed"), ("recvValue failed", "peer_closed"),
    ("client socket has timed out", "store_error"), ("wait timeout after", "store_error"),
    ("on TCPStore", "store_error"),
    ("store unavailable", "store_error"),
    ("NCCL communicator encountered error", "nccl_error"), ("NCCL error", "nccl_error"), ("CUDA error", "cuda_error"),
)  # fmt: skip
_MARKS = ("[rank", ".cpp:", ".cc:", ".hpp:", ".h:", "terminate called")


def recognise(sample: Sample) -> bool:
    """Whether the sample holds a line of PyTorch's C++ logger or a torchrun rank prefix."""
    text = sample.head + "\n" + sample.tail
    return _HEAD.search(text) is not None


_HEAD = re.compile(
    r"(?m)\[[IWEF](?:\d{3,4} \d\d:\d\d:\d\d\.\d+ )?(?:\d+ )?[\w.]+\.(?:cpp|hpp|cc|h):\d+\] |^\[rank\d+\]: "
    r"|gloo/transport/\S+:\d+\] "
)


class Feed:
    """One stream of lines. Holds one unfinished traceback a rank and where the last C++ line of a rank stood."""

    def __init__(self, context: Context) -> None:
        self.name, self.host = context.name, context.host
        self._clock = YearlessClock(context.year)
        self._raised: dict[int, Traceback] = {}
        self._last: Who | None = None

    def __call__(self, lines: Iterable[Line]) -> Iterator[Observation]:
        """Observations of these lines; no lines at all flush what is held back."""
        empty = True
        for line in lines:
            empty = False
            if any(mark in line.text for mark in _MARKS):
                yield from self._line(line, line.text[: 4 * TEXT_MAX])
        if empty:
            for raised in self._raised.values():
                yield raised.finish()
            self._raised.clear()

    def _line(self, line: Line, text: str) -> Iterator[Observation]:
        if (found := PREFIX.search(text)) is not None:
            yield from self._record(line, found)
        elif (ranked := _RANKED.match(text)) is not None:
            yield from self._ranked(line, int(ranked["rank"]), ranked["text"])
        elif (ended := _TERMINATE.match(text)) is not None:
            who = self._last or Who(Origin(self.name, line.number), line.at_s, self.host or line.host)
            who = who._replace(origin=Origin(self.name, line.number))
            yield Said("exit", fields=ended.groupdict()).as_notice(who, "torch", text)
        elif (closed := _GLOO.search(text)) is not None:
            who = Who(Origin(self.name, line.number), line.at_s, self.host or line.host)
            kind: NoticeKind = "store_error" if closed["text"].startswith("Timed out") else "peer_closed"
            yield Said(kind, fields={"peer": closed["peer"] or ""}).as_notice(who, "torch", closed["text"])

    def _record(self, line: Line, found: re.Match[str]) -> Iterator[Observation]:
        msg = found["msg"]
        speaker = _RANK.search(msg[:400])
        rank = found["rank"]
        if rank is None and speaker is not None:
            rank = speaker["rank"] or (speaker["pg_rank"] if speaker["pg"] == "0" else None)
        if rank is not None and int(rank) in self._raised:
            yield self._raised.pop(int(rank)).finish()
        at_s = line.at_s
        if found["md"] is not None and found["time"] is not None:
            at_s = self._clock.at(found["md"][:-2], found["md"][-2:], found["time"])
        who = Who(
            Origin(self.name, line.number),
            at_s,
            self.host or line.host,
            None,
            None,
            None if rank is None else int(rank[:9]),
        )
        self._last = who
        if (report := _said(msg)) is not None:
            yield report.as_notice(who, "torch", msg)

    def _ranked(self, line: Line, rank: int, text: str) -> Iterator[Observation]:
        """`[rank1]: Traceback (most recent call last):` and what follows it with the same prefix."""
        raised = self._raised.get(rank)
        if raised is not None:
            if raised.take(line, text):
                return
            yield self._raised.pop(rank).finish()
        if text.startswith("Traceback (most recent call last):") and len(self._raised) < 4096:
            who = Who(Origin(self.name, line.number), line.at_s, self.host or line.host, None, None, rank)
            self._raised[rank] = Traceback(Said("exception").as_notice(who, "torch", text), self.name)


def _said(msg: str) -> Said | None:
    if (found := TIMEOUT.search(msg)) is not None or (found := _FAILED_AT.search(msg)) is not None:
        return Said(
            "collective_timeout", fields={key: text for key, text in found.groupdict().items() if text is not None}
        )
    if (found := DUMP.search(msg)) is not None:
        return Said("flight_dump", fields={key: text for key, text in found.groupdict().items() if text is not None})
    if (found := _REMOTE.search(msg)) is not None:
        return Said("remote_error", fields=found.groupdict())
    if (found := _THREAD_ENDED.search(msg)) is not None:
        return Said(_ended_kind(found["message"]), fields=found.groupdict())
    return next((Said(kind) for part, kind in _TEXTS if part in msg), None)


def _ended_kind(message: str) -> NoticeKind:
    """The watchdog thread ends for a time-out it saw itself, or for an error that another layer reported to it."""
    return "collective_timeout" if "collective operation timeout" in message else raised_kind("", message)


PARSER = LogParser(name="torch_log", recognise=recognise, start=Feed)
