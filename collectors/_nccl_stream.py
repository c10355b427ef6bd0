"""The calls of one process on one communicator: totals, the last calls, digests at common lengths, opCount."""

import re
from bisect import bisect_left
from calendar import timegm
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Literal

from sentinel.model.observation import Op

TAIL_OPS = 64
DIGEST_EVERY = 64
MAX_DIGESTS = 4096

MARK_BYTES = 8

_OPERATIONS = (
    "AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce", "Send", "Recv", "AlltoAll", "Gather", "Scatter",
    "PutSignal", "Signal", "WaitSignal", "AllGatherV", "AllToAll", "ReduceScatterV",
)  # fmt: skip
_CODES = {name: code for code, name in enumerate(_OPERATIONS)}
_OTHER_CODE = 255

Part = Literal["head", "middle", "tail"]
Process = tuple[str, int]
Key = tuple[str, int, str]
Call = tuple[int, int, bytes, bytes]
"""Line number, order in the process, the line itself, its mark."""

_OP_COUNT = re.compile(rb": opCount ([0-9a-fA-F]{1,16}) ")
_STAMP = re.compile(rb"\[(\d{4})-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(\.\d{1,9})?\] ")


def stamp_s(head: bytes) -> float | None:
    """Time that a line prints in front of its prefix, as seconds on the printing host's wall clock; None without one.

    >>> stamp_s(b"[1970-01-02 00:00:01.5] node1:7:7 [0] NCCL INFO x")
    86401.5
    """
    found = _STAMP.search(head[:512])
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(part) for part in found.groups()[:6])
    if not (year >= 1970 and 1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second < 61):
        return None
    return timegm((year, month, day, hour, minute, second)) + float(found[7] or b"0")


@dataclass(slots=True)
class Shape:
    """What must agree across ranks, as printed on one communicator of one process."""

    op: str
    count: int
    dtype: int
    root: int


@dataclass(slots=True, eq=False)
class _Last:
    """The last calls of a stream in one batch, with what tells their order among the calls of the process."""

    numbers: list[int]
    lines: list[bytes]
    rows: list[int]
    marks: bytes
    beside: Sequence[list[int]]
    before: int

    def calls(self) -> tuple[Call, ...]:
        """The calls, laid out."""
        found = []
        for at, row in enumerate(self.rows):
            order = self.before + sum(bisect_left(others, row) for others in self.beside)
            found.append((self.numbers[at], order, self.lines[at], self.marks[at * MARK_BYTES : (at + 1) * MARK_BYTES]))
        return tuple(found)


@dataclass(slots=True, eq=False)
class Stream:
    """The calls of one process on one communicator. `rows` and `marks` hold the current batch only.

    A mark stands for a shape: one byte for the operation, then a digest. `marks` holds runs of them, glued.
    """

    key: Key
    nranks: int
    shapes: dict[bytes, Shape] = field(default_factory=dict)
    total: int = 0
    by_op: Counter[str] = field(default_factory=Counter)
    first_op: int = 0
    last_op: int = 0
    run: int = 0
    every: int = DIGEST_EVERY
    digests: list[str] = field(default_factory=list)
    missing: set[Part] = field(default_factory=set)
    fresh: bool = False
    rows: list[int] = field(default_factory=list)
    marks: list[bytes] = field(default_factory=list)
    _sum: blake2b = field(default_factory=lambda: blake2b(digest_size=8))
    _pending: bytes = b""
    _tail: deque[Call] = field(default_factory=lambda: deque(maxlen=TAIL_OPS))
    _dense: "_Last | None" = None

    def mark(self, shape: Shape, reduction: int) -> bytes:
        """The mark of a shape; the same on all ranks. `reduction` is the operator, which must agree as well."""
        code = _CODES.get(shape.op, _OTHER_CODE)
        text = f"{shape.op} {shape.count} {shape.dtype} {reduction} {shape.root}"
        mark = bytes((code,)) + blake2b(text.encode(), digest_size=MARK_BYTES - 1).digest()
        self.shapes.setdefault(mark, shape)
        return mark

    def absorb(self, lines: Sequence[bytes], numbers: Sequence[int], beside: Sequence[list[int]], before: int) -> None:
        """Take over what the current batch appended to `rows` and `marks`.

        `beside` are the rows of all streams of the process in this batch, `before` its calls in earlier batches.
        """
        rows, marks = self.rows[-TAIL_OPS:], b"".join(self.marks)
        self._note_ops(marks)
        self._note_op_counts(lines)
        last = _Last(
            [numbers[row] for row in rows], [lines[row] for row in rows], rows, marks[-TAIL_OPS * MARK_BYTES :],
            beside, before,
        )  # fmt: skip
        if len(rows) == TAIL_OPS:
            # A batch that fills the tail by itself is kept as it came; its calls are laid out when asked for.
            self._dense = last
            self._tail.clear()
        else:
            self._tail.extend(self._dense.calls() if self._dense else ())
            self._tail.extend(last.calls())
            self._dense = None
        self._note_marks(marks)
        self.total += len(self.rows)
        self.fresh = True

    def calls(self) -> tuple[Call, ...]:
        """The last calls, oldest first."""
        return self._dense.calls() if self._dense else tuple(self._tail)

    def trim(self) -> None:
        """Keep the shapes of the tail only."""
        self.shapes = {mark: self.shapes[mark] for _, _, _, mark in self.calls()}

    def _note_ops(self, marks: bytes) -> None:
        codes = marks[::MARK_BYTES]
        for code in set(codes):
            if code != _OTHER_CODE:
                self.by_op[_OPERATIONS[code]] += codes.count(code)
        if _OTHER_CODE in codes:
            for at in range(0, len(marks), MARK_BYTES):
                if marks[at] == _OTHER_CODE:
                    self.by_op[self.shapes[marks[at : at + MARK_BYTES]].op] += 1

    def _note_op_counts(self, lines: Sequence[bytes]) -> None:
        """Keep the first and the last opCount and how many calls in a row printed the last one."""
        rows = self.rows
        last = op_count(lines[rows[-1]])
        if self.total == 0:
            self.first_op = self.last_op = op_count(lines[rows[0]])
        if last == self.last_op == self.first_op:
            self.run += len(rows)
        else:
            token = b": opCount %x " % last
            same = next((at for at, row in enumerate(reversed(rows)) if token not in lines[row]), len(rows))
            self.run = same + (self.run if same == len(rows) and last == self.last_op else 0)
        self.last_op = last

    def _note_marks(self, added: bytes) -> None:
        """Advance the running digest; beyond `MAX_DIGESTS` every second one is dropped and the distance doubles."""
        data, step = self._pending + added, self.every * MARK_BYTES
        at = 0
        while at + step <= len(data):
            self._sum.update(data[at : at + step])
            self.digests.append(self._sum.hexdigest())
            at += step
            if len(self.digests) >= MAX_DIGESTS:
                del self.digests[::2]
                self.every *= 2
                step *= 2
        self._pending = data[at:]

    def digest(self) -> str:
        """Digest of all shapes so far."""
        total = self._sum.copy()
        total.update(self._pending)
        return total.hexdigest()

    def unlogged(self) -> int | None:
        """Growth of opCount beyond logged calls; None when it never advanced."""
        if self.last_op == self.first_op:
            return None
        return max(0, (self.last_op - self.first_op) - (self.total - self.run))

    def ops(self) -> tuple[Op, ...]:
        """The last calls, oldest first."""
        return tuple(self._op(*entry) for entry in self.calls())

    def _op(self, number: int, order: int, line: bytes, mark: bytes) -> Op:
        shape = self.shapes[mark]
        return Op(
            op=shape.op, op_count=op_count(line), count=shape.count, dtype=shape.dtype, root=shape.root,
            comm=self.key[2], order=order, line=number, at_s=stamp_s(line),
        )  # fmt: skip


def op_count(line: bytes) -> int:
    """The opCount of a COLL line (hexadecimal without 0x); 0 when it prints none.

    >>> op_count(b"n:1:1 [0] NCCL INFO AllReduce: opCount 1a sendbuff 0x1")
    26
    """
    found = _OP_COUNT.search(line)
    return int(found[1], 16) if found else 0
