"""Counts NCCL's COLL lines per process and communicator at the speed of the log (NCCL `src/enqueue.cc`, 2.18 to 2.30).

A busy eager engine writes half a million COLL lines a second on a node, so nothing here looks at a line twice: a line
that was seen before in the same form is one dictionary lookup, otherwise the parts that repeat (prefix with operation;
everything from the element count on) are looked up, and only the last line of a batch has its opCount read. A log
whose lines repeat byte for byte (single host, opCount 0) takes the first way, one with rising opCount the second.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from sentinel.collectors._nccl_stream import TAIL_OPS, Key, Part, Process, Shape, Stream
from sentinel.model.observation import Enqueues, Origin

MAX_STREAMS = 4096
MAX_CACHED = 20_000
MAX_SHAPES = 65_536
GLUED_BYTES = 40
"""Lines of one kind differ in length by their numbers, by less than the shortest prefix of a second line in them."""

_WHOLE_LINE_PAUSE = 64

_HEAD = re.compile(rb"([^\s:\[\]()]{1,255}):(\d{1,10}):\d{1,10} (?:\[-?\d{1,4}\] )?NCCL INFO ([A-Z]\w{1,30})$")
_REST = re.compile(
    rb"(\d{1,19}) datatype (\d{1,5}) op (\d{1,19}) root (-?\d{1,10}) "
    rb"comm (0x[0-9a-fA-F]{1,16}) \[nranks=(\d{1,7})\]"
)

_WHO = re.compile(rb"([^\s:\[\]()]{1,255}):(\d{1,10}):\d{1,10} ")
_COMM = re.compile(rb" comm (0x[0-9a-fA-F]{1,16}) rank ")
_START = b"- Init START"
_CALL = b": opCount "


@dataclass(slots=True, eq=False)
class _Form:
    """One kind of line: how it begins and ends, where its rows and its mark go, and what came next last time.

    The mark is empty for lines that are no calls; those have a form that fits no line.
    """

    add_rows: Callable[[Iterable[int]], None]
    add_mark: Callable[[bytes], None]
    mark: bytes
    rest: bytes = b"\n"
    size: int = 1
    head: bytes = b"\n"
    skip: int = 0
    stop: int = 1
    follower: "_Form | None" = None


class EnqueueCounter:
    """Counts the COLL lines of one file or stream, which may interleave several processes."""

    def __init__(self) -> None:
        self.streams: dict[Key, Stream] = {}
        self.born: set[Key] = set()
        self.calls: Counter[Process] = Counter()
        self.longest = 0
        self._ended: list[Stream] = []
        self._others: list[int] = []
        self._other = _Form(self._others.extend, lambda _mark: None, b"")
        self._heads: dict[bytes, dict[bytes, _Form]] = {}
        self._cached = 0
        self._lines = _WholeLines(self)
        self._pause = 0

    def add(self, lines: Sequence[bytes], numbers: Sequence[int]) -> list[int]:
        """Count a batch of lines with their numbers; returns the indices of the lines that are not COLL lines."""
        self._others.clear()
        if self._pause == 0:
            self._count_whole_lines(lines)
        else:
            self._pause -= 1
            self._count_by_parts(lines)
        self._absorb(lines, numbers)
        if max(map(len, lines), default=0) > self.longest + GLUED_BYTES:
            self._look_for_glue(lines)
        return list(self._others)

    def _look_for_glue(self, lines: Sequence[bytes]) -> None:
        """A line longer than calls are may be two writers' text in one: a call that was not counted."""
        if sum(line.count(_CALL) for line in lines) > len(lines) - len(self._others):
            self.lose()

    def add_last(self, line: bytes, number: int) -> bool:
        """Take the unfinished last line of a stream; True when it was a whole COLL line, else the tail is cut."""
        if not self.add([line], [number]):
            return True
        found = _WHO.search(line[:1024])
        process = (found[1].decode("utf-8", "replace"), int(found[2])) if found else None
        for stream in self.streams.values():
            if process is None or stream.key[:2] == process:
                stream.missing.add("tail")
                stream.fresh = True
        return False

    def _begin(self, line: bytes) -> None:
        """A communicator comes to life under this pointer: counting starts anew, what was counted is kept aside."""
        who, what = _WHO.search(line[:1024]), _COMM.search(line[:1024])
        if who is None or what is None:
            return
        key = (who[1].decode("utf-8", "replace"), int(who[2]), what[1].decode())
        if len(self.born) < MAX_STREAMS:
            self.born.add(key)
        if (old := self.streams.pop(key, None)) is not None:
            self._ended.append(old)
            self._forget()

    def ended(self, file: str) -> Iterator[Enqueues]:
        """Last snapshots of the streams whose pointer came to a new life since this was last asked."""
        ended, self._ended = self._ended, []
        for stream in ended:
            if (seen := self._snapshot(stream, file)) is not None:
                yield seen

    def lose(self) -> None:
        """Lines are known to be missing here: no count of this stream is complete."""
        for stream in self.streams.values():
            stream.missing.add("middle")

    def _snapshot(self, stream: Stream, file: str) -> Enqueues | None:
        """What one process enqueued on one communicator so far; None when it enqueued nothing."""
        if stream.total == 0:
            return None
        key, missing, tail = stream.key, self._missing(stream), stream.ops()
        return Enqueues(
            origin=Origin(file, tail[-1].line), at_s=tail[-1].at_s, host=key[0], pid=key[1], comm=key[2],
            nranks=stream.nranks, total=stream.total, by_op=dict(stream.by_op),
            first_op_count=stream.first_op, last_op_count=stream.last_op, tail=tail,
            digest_every=stream.every, digests=tuple(stream.digests), digest=stream.digest(),
            unlogged_ops=stream.unlogged(), last_line=tail[-1].line, truncated=bool(missing), missing=missing,
        )  # fmt: skip

    def fresh(self, file: str) -> Iterator[Enqueues]:
        """Snapshots of the streams that grew since they were last asked for."""
        for stream in list(self.streams.values()):
            if stream.fresh:
                stream.fresh = False
                if (seen := self._snapshot(stream, file)) is not None:
                    yield seen

    def _missing(self, stream: Stream) -> tuple[Part, ...]:
        parts = set(stream.missing)
        if stream.key not in self.born or stream.first_op > 0:
            parts.add("head")
        return tuple(sorted(parts))

    def _count_whole_lines(self, lines: Sequence[bytes]) -> None:
        whole = self._lines
        whole.missed = 0
        form, begin = self._other, 0
        for index, found in enumerate(map(whole.__getitem__, lines)):
            if found is not form:
                _enter(form, begin, index)
                form, begin = found, index
        _enter(form, begin, len(lines))
        if whole.missed * 2 > len(lines) and len(lines) >= TAIL_OPS:
            self._pause = _WHOLE_LINE_PAUSE
            whole.clear()

    def _count_by_parts(self, lines: Sequence[bytes]) -> None:
        """Most lines begin (behind a time stamp of constant length) and end as the one before: no need to parse them.

        Such a run of alike calls is entered at once, when it ends; then what followed this kind last time is tried.
        Slices and `partition` are what CPython does fastest here: methods with optional arguments (`startswith`,
        `find`) cost several times as much.
        """
        form, begin = self._other, 0
        rest, size, head, skip, stop = form.rest, form.size, form.head, form.skip, form.stop
        for index, line in enumerate(lines):
            if line[-size:] == rest and line[skip:stop] == head:
                continue
            _enter(form, begin, index)
            before, begin, form = form, index, form.follower or self._other
            rest, size, head, skip, stop = form.rest, form.size, form.head, form.skip, form.stop
            if line[-size:] != rest or line[skip:stop] != head:
                before.follower = form = self.form_of(line)
                rest, size, head, skip, stop = form.rest, form.size, form.head, form.skip, form.stop
        _enter(form, begin, len(lines))

    def form_of(self, line: bytes) -> _Form:
        """The form of a line, learned from its text and kept by its repeating parts."""
        skip, head, rest = _cut(line)
        form = self._heads.get(head, {}).get(rest)
        if form is None:
            form = self._learn(line, head, rest)
        if form.mark:
            form.skip, form.stop = skip, skip + len(head) + 2
        return form

    def _learn(self, line: bytes, head: bytes, rest: bytes) -> _Form:
        who = _HEAD.search(head[-512:]) if b"NCCL INFO " in head else None
        what = _REST.match(rest[:256]) if who else None
        if who is None or what is None:
            if _START in line:
                self._begin(line)
            return self._other
        key = (who[1].decode("utf-8", "replace"), int(who[2]), what[5].decode())
        stream = self._stream(key, int(what[6]))
        if stream is None:
            return self._other
        shape = Shape(who[3].decode(), int(what[1]), int(what[2]), int(what[4]))
        form = _Form(stream.rows.extend, stream.marks.append, stream.mark(shape, int(what[3])))
        if line.count(_CALL) > 1:
            self.lose()
            return form
        form.rest, form.size, form.head = b" count " + rest, len(rest) + 7, head + b": "
        self.longest = max(self.longest, len(line))
        if self._cached >= MAX_CACHED:
            self._forget()
        self._cached += 1
        self._heads.setdefault(head, {})[rest] = form
        return form

    def _stream(self, key: Key, nranks: int) -> Stream | None:
        stream = self.streams.get(key)
        if stream is None and len(self.streams) < MAX_STREAMS:
            stream = self.streams[key] = Stream(key, nranks)
        return stream

    def _forget(self) -> None:
        """Drop everything learned; forms that still follow one another lead to nowhere new."""
        for known in self._heads.values():
            for form in known.values():
                form.follower = None
        self._other.follower = None
        self._heads.clear()
        self._lines.clear()
        self._cached = 0

    def _absorb(self, lines: Sequence[bytes], numbers: Sequence[int]) -> None:
        by_process: dict[Process, list[Stream]] = {}
        for stream in (*self._ended, *self.streams.values()):
            if stream.rows:
                by_process.setdefault(stream.key[:2], []).append(stream)
        for process, streams in by_process.items():
            beside, before = [stream.rows[:] for stream in streams], self.calls[process]
            for stream in streams:
                stream.absorb(lines, numbers, beside, before)
                if len(stream.shapes) > MAX_SHAPES:
                    stream.trim()
                    self._forget()
            self.calls[process] += sum(map(len, beside))
            for stream in streams:
                stream.rows.clear()
                stream.marks.clear()


def _cut(line: bytes) -> tuple[int, bytes, bytes]:
    """Where the prefix of a line begins, the prefix up to the operation, and all from the element count on."""
    left, _, rest = line.rpartition(b" count ")
    head, _, _ = left.partition(_CALL)
    skip = head.find(b"] ", 0, 64) + 2 if head[:1] == b"[" else 0
    return skip, head[skip:], rest


def _enter(form: _Form, begin: int, end: int) -> None:
    """Count the lines from `begin` to before `end`, all of one form."""
    form.add_rows(range(begin, end))
    form.add_mark(form.mark * (end - begin))


class _WholeLines(dict[bytes, _Form]):
    """Forms by whole line; fills itself with COLL lines, up to a limit."""

    def __init__(self, counter: EnqueueCounter) -> None:
        super().__init__()
        self.missed = 0
        self._counter = counter

    def __missing__(self, line: bytes) -> _Form:
        self.missed += 1
        form = self._counter.form_of(line)
        if form.mark and line.count(_CALL) == 1:
            if len(self) >= MAX_CACHED:
                self.clear()
            self[line] = form
        return form
