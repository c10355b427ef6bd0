"""Answers of NCCL's RAS service on port 28028: text and JSON status, monitor events, and the lack of an answer.

NCCL 2.24 to 2.30 (`src/ras`). After a process died, 2.28.9 may print communicators whose size is 0 and ranks
that are stray memory (`Rank 1869760266`); such communicators are left out and the answer is marked `garbled`.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from sentinel.collector import Blob, Context, DocumentParser, Line, Sample
from sentinel.collectors._machine import Sections, date_in, name_time
from sentinel.collectors._ras_json import MAX_ANSWERS, MAX_RANKS, read_json
from sentinel.model.observation import Origin, Ras, RasComm, RasRank

TEXT_CAP = 1024
JSON_CHARS = 64 << 20

FORMATS = {
    "ras.row": (
        r"^\s*(?P<group>\d{1,18})\s+(?P<comms>\d{1,18})\s+(?P<nodes>\d{1,18})\s+(?P<rpn>\d{1,18}(?:-\d+)?)\s+(?P<rpc>\d{1,18})\s+(?P<rig>\d{1,18})\s+"
        r"(?P<status>(?:NOCOMM|UNKNOWN|INIT|RUNNING|FINALIZE|ABORT)"
        r"(?:,(?:NOCOMM|UNKNOWN|INIT|RUNNING|FINALIZE|ABORT))*)\s+"
        r"(?P<errors>OK|(?:INCOMPLETE|ERROR|MISMATCH)(?:,(?:INCOMPLETE|ERROR|MISMATCH))*)\s*$"
    ),
    "ras.detail": (
        r"^\s+(?:(?P<n>\d{1,18}) ranks? have launched up to operation (?P<op>\d{1,18})|Rank (?P<rank>\d{1,18})"
        r"(?: has (?:launched up to operation (?P<rop>\d{1,18})|not launched any operations|status (?P<st>\w+))"
        r"| reported (?P<err>[^-]+?))? -- "
        r"(?:GPUs? (?P<gpu>[\d,]+) managed by process (?P<pid>\d{1,18}) on node (?P<host>\S+)"
        r"|\[process information not found\])|Process (?P<dpid>\d{1,18}) on node (?P<dhost>\S+) managing GPUs? "
        r"(?P<dgpu>[\d,]+))\s*$"
    ),
}

_ROW = re.compile(FORMATS["ras.row"])
_DETAIL = re.compile(FORMATS["ras.detail"])
_COMM = re.compile(r"^#(\d{1,6})-(\d{1,6}) \(([0-9a-fA-F]{1,32})\) (INCOMPLETE|ERROR|MISMATCH)")
_OPERATION = re.compile(r"different (?:(\w{1,30}) operation counts|collective operation counts|status)")
_NONE_LAUNCHED = re.compile(r"^\s+(\d{1,18}) ranks? have not launched any operations")
_MISSING_COUNT = re.compile(r"Missing communicator data from (\d{1,18}) ranks?")
_MISSING_RANK = re.compile(r"^\s+The missing rank: (-?\d{1,18})")
_ANY_RANK = re.compile(r"^\s+Rank (-?\d{1,18})\b")
_BEGIN = re.compile(r"^\s*NCCL version (\S{1,40}) compiled with CUDA")
_EVENT = re.compile(
    r"^\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\] (PEER_[A-Z_]{3,30}): (?:process (\d{1,18}) on node (\S+)|(\S+))?(.{0,300})"
)
_NO_ANSWER = re.compile(
    r"\A\s*(?:[\w.]{1,60}\.)?(?:TimeoutError|timeout|ConnectionRefusedError|ConnectionResetError|BrokenPipeError)"
    r"(?:\(.{0,200}\)|: .{0,200})?\s*\Z|"
    r"^.{0,200}(?:\b28028\b|ncclras\b).{0,200}(?:timed out|refused|reset by peer|no route).{0,100}$|"
    r"\ASERVER PROTOCOL \d+\s+(?:OK\s+)?(?:ERROR: .{0,200})?\s*\Z",
    re.IGNORECASE | re.MULTILINE,
)
_SECTIONS = {"Errors": "errors", "Warnings": "warnings"}


@dataclass(slots=True)
class _Comm:
    """One communicator that the text singles out."""

    group: int
    comm_id: str
    errors: set[str] = field(default_factory=set)
    ranks: dict[int, RasRank] = field(default_factory=dict)
    counts: dict[int, dict[str, int]] = field(default_factory=dict)
    missing: list[RasRank] = field(default_factory=list)
    mismatch: dict[str, dict[str, int]] = field(default_factory=dict)
    garbled: bool = False


@dataclass(slots=True)
class _Answer:
    """One textual answer while it is read."""

    version: str
    line: int
    rows: dict[int, re.Match[str]] = field(default_factory=dict)
    comms: dict[tuple[int, str], _Comm] = field(default_factory=dict)
    dead: list[RasRank] = field(default_factory=list)
    absent: list[RasRank] = field(default_factory=list)
    complete: bool = False
    garbled: bool = False
    _comm: _Comm | None = None
    _topic: str = ""
    _operation: str = ""

    def read(self, text: str) -> None:
        """One line of the answer."""
        if (row := _ROW.match(text)) is not None:
            self.rows[int(row["group"])] = row
            self.garbled |= int(row["rpc"]) == 0
        elif (found := _COMM.match(text)) is not None:
            self._enter(found)
        elif text.rstrip() in ("INCOMPLETE", "DEAD", "TIMEOUT"):
            self._comm, self._topic = None, text.rstrip()
        elif text.rstrip() in _SECTIONS or text.startswith("No communicator data"):
            self.complete = True
        elif (found := _OPERATION.search(text)) is not None:
            self._operation = found[1] or "collective"
        else:
            self._detail(text)

    def _enter(self, found: re.Match[str]) -> None:
        group, comm_id, topic = int(found[1]), "0x" + found[3], found[4]
        self._comm = self.comms.setdefault((group, comm_id), _Comm(group, comm_id))
        self._comm.errors.add(topic)
        self._topic, self._operation = topic, "collective"

    def _size(self, comm: _Comm) -> int | None:
        row = self.rows.get(comm.group)
        return int(row["rpc"]) if row else None

    def _detail(self, text: str) -> None:
        comm = self._comm
        if "considered dead" in text:
            self._topic = "DEAD"
        found = _DETAIL.match(text)
        if found is not None and found["dpid"]:
            who = RasRank(rank=None, host=found["dhost"], pid=int(found["dpid"]))
            (self.dead if self._topic == "DEAD" else self.absent).append(who)
        elif comm is not None:
            self._in_comm(comm, text, found)

    def _in_comm(self, comm: _Comm, text: str, found: re.Match[str] | None) -> None:
        size = self._size(comm)
        claimed = _MISSING_COUNT.search(text)
        rank = _ANY_RANK.match(text) or _MISSING_RANK.match(text)
        if claimed is not None and size is not None and int(claimed[1]) > size:
            comm.garbled = True
        if rank is not None and not 0 <= int(rank[1]) < (size or MAX_RANKS):
            comm.garbled = True
        if comm.garbled:
            self.garbled = True
        elif found is not None and found["n"]:
            _others(comm, self._operation, int(found["n"]), int(found["op"]))
        elif (none := _NONE_LAUNCHED.match(text)) is not None:
            _others(comm, self._operation, int(none[1]), 0)
        elif rank is not None:
            self._rank(comm, int(rank[1]), found)

    def _rank(self, comm: _Comm, rank: int, found: re.Match[str] | None) -> None:
        who = RasRank(
            rank=rank,
            host=found["host"] if found else None,
            pid=int(found["pid"]) if found and found["pid"] else None,
            status=(found["st"] or (found["err"] or "").strip()) if found else "",
        )
        if self._topic == "INCOMPLETE":
            comm.missing.append(who)
            return
        comm.ranks[rank] = who
        if self._topic == "MISMATCH" and found is not None and not who.status:
            launched = int(found["rop"]) if found["rop"] else 0
            comm.counts.setdefault(rank, {})[self._operation] = launched
            comm.mismatch.setdefault(self._operation, {})[str(rank)] = launched

    def result(self) -> tuple[RasComm, ...]:
        """Communicators singled out, then those groups of the table of which nothing else was said."""
        good = [comm for comm in self.comms.values() if not comm.garbled and self._size(comm) != 0]
        told = {comm.group for comm in self.comms.values()}
        rest = [row for group, row in self.rows.items() if group not in told and int(row["rpc"]) > 0]
        return (*(self._told(comm) for comm in good), *(_row_comm(row, tuple(self.absent)) for row in rest))

    def _told(self, comm: _Comm) -> RasComm:
        row = self.rows.get(comm.group)
        ranks = tuple(
            RasRank(rank=who.rank, host=who.host, pid=who.pid, counts=comm.counts.get(rank, {}), status=who.status)
            for rank, who in sorted(comm.ranks.items())
        )
        return RasComm(
            comm_id=comm.comm_id, size=self._size(comm), status=row["status"] if row else "",
            errors=tuple(sorted(comm.errors)), ranks=ranks, missing=tuple(comm.missing), mismatch=comm.mismatch,
        )  # fmt: skip


def _others(comm: _Comm, operation: str, ranks: int, launched: int) -> None:
    """`others` is what the largest unnamed group launched; smaller unnamed groups are numbered."""
    said = comm.mismatch.setdefault(operation, {})
    name = "others" if "others" not in said else f"others#{sum(key.startswith('others') for key in said) + 1}"
    said[name] = launched
    if ranks > MAX_RANKS:
        comm.garbled = True


def _row_comm(row: re.Match[str], absent: tuple[RasRank, ...]) -> RasComm:
    errors = tuple(part for part in row["errors"].split(",") if part != "OK")
    return RasComm(
        comm_id=None, size=int(row["rpc"]), status=row["status"], errors=errors,
        missing=absent if "INCOMPLETE" in errors else (),
    )  # fmt: skip


def read_text(lines: Iterable[Line], context: Context) -> Iterator[Ras]:
    """Every answer and every monitor event in the text, in order."""
    where, answer, given = Sections(context), None, 0
    said: list[str] = []
    for line in lines:
        text = line.text[:TEXT_CAP]
        if given >= MAX_ANSWERS:
            return
        if (begin := _BEGIN.match(text)) is not None:
            if answer is not None:
                given += 1
                yield _ras(answer, where, line)
            answer = _Answer(begin[1], line.number)
        elif (event := _EVENT.match(text)) is not None:
            given += 1
            yield _event(event, context, line)
        elif answer is None or text.startswith("# "):
            where.note(text)
            if answer is None and len(said) < 20:
                said.append(text)
        else:
            answer.read(text)
    if answer is not None:
        yield _ras(answer, where, None)
    elif not given and (reason := _NO_ANSWER.search("\n".join(said))) is not None:
        at_s, clock_s = name_time(context.name)
        yield Ras(
            origin=Origin(context.name, 1), at_s=at_s, clock_s=clock_s, host=context.host,
            error=reason[0].strip()[:200] or "no answer",
        )  # fmt: skip


def _ras(answer: _Answer, where: Sections, line: Line | None) -> Ras:
    placed = where.where(line or Line(number=answer.line, text=""))
    placed["origin"] = Origin(where.context.name, answer.line)
    ended = answer.complete or bool(answer.rows)
    return Ras(
        **placed, comms=answer.result(), nccl_version=answer.version, dead=tuple(answer.dead),
        garbled=answer.garbled, error=None if ended else "the answer ended before the communicators",
    )  # fmt: skip


def _event(found: re.Match[str], context: Context, line: Line) -> Ras:
    """A monitor event; the peer is in `dead` with the event as its status, whatever the event was."""
    host = found[4] or (found[5] or "").partition("<")[0] or None
    pid = int(found[3]) if found[3] else None
    peer = RasRank(rank=None, host=host, pid=pid, status=found[2])
    return Ras(origin=Origin(context.name, line.number), at_s=date_in(found[1]), host=context.host, dead=(peer,))


def _is_json(head: str) -> bool:
    start = head.find("{")
    if not 0 <= start < 512:
        return False
    return ('"communicators' in head and '"nccl_version"' in head) or ('"PEER_' in head and '"peer"' in head)


def _recognise(sample: Sample) -> bool:
    head = sample.head[:16384]
    if any(_BEGIN.match(line[:TEXT_CAP]) for line in head.split("\n")[:200]):
        return True
    if _is_json(head) or any(_EVENT.match(line[:TEXT_CAP]) for line in head.split("\n")[:50]):
        return True
    return not sample.tail and 0 < len(head.strip()) < 400 and _NO_ANSWER.search(head) is not None


def _parse(blob: Blob, context: Context) -> Iterator[Ras]:
    text = blob.text(JSON_CHARS)
    if _is_json(text[:16384]):
        yield from read_json(text, context)
        return
    for seen in read_text(blob.lines(), context):
        if seen.error is None or seen.nccl_version or _is_about_ras(text, context.name):
            yield seen


def _is_about_ras(text: str, name: str) -> bool:
    """A bare error text says nothing about whom was asked, unless it or the file's name does."""
    said = (text[:400] + name.rpartition("/")[2]).lower()
    return "ras" in said or "28028" in said


PARSER = DocumentParser(name="nccl_ras", recognise=_recognise, parse=_parse)
