"""NCCL debug output, versions 2.18 to 2.30 and RCCL: pure files (`NCCL_DEBUG_FILE`) and lines among an engine's own.

Life-cycle and warning lines become observations at once. COLL lines are only counted; their `Enqueues` are given when
a feed is asked for what it holds (an empty batch), at the end of a file or, live, whenever someone wants to judge; the
feed can go on afterwards. Format sources: NCCL `src/debug.cc`, `src/init.cc`, `src/enqueue.cc` of these versions.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from sentinel.collector import Blob, Context, DocumentParser, Line, LogParser, Sample
from sentinel.collectors._nccl_counts import EnqueueCounter
from sentinel.collectors._nccl_notes import FORMATS, NoteReader
from sentinel.model.observation import Observation

__all__ = ["FORMATS", "PARSERS", "NcclReader"]

PIECE_BYTES = 128 << 10
"""Lines of one piece stay in the processor's cache while they are counted."""
BATCH_LINES = 5_000
LINE_CAP = 64 << 10

_RAW_LINE = re.compile(
    rb"(?:\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,9})?\] )?[^\s:\[\]()]{1,255}:\d{1,10}:\d{1,10} (?:\[-?\d{1,4}\] )?"
    rb"(?:\S{1,200} )?(?:\([^)\n]{0,200}\) )?NCCL [A-Z]|NCCL version \d"
)
_CUT = re.compile(
    rb"lines? (?:omitted|skipped|removed|truncated)|(?:omitted|skipped|truncated) .{0,40}lines?|"
    rb"\.\.\. ?(?:truncated|cut|snip)",
    re.IGNORECASE,
)
_CALL = b": opCount "
_BEGINS_CALL = re.compile(rb"(?:I|IN|INF|INFO(?: [A-Za-z]{0,30}(?::(?: [opCount]{0,7})?)?)?)?")
"""What may stand behind `NCCL ` where a call is cut in the middle."""
_FOREIGN_LINE = re.compile(
    r"^\S{0,80}\[20\d\d-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{3})?(?: [A-Z_]{2,9}\d|\] (?!\S+:\d+:\d))|"
    r"(?:INFO|WARNING|ERROR) \d\d-\d\d \d\d:\d\d:|^Traceback |\[[IWEF]\d{3,4} \d\d:\d\d:",
    re.MULTILINE,
)


class NcclReader:
    """Reads one append-only stream of NCCL debug output. Time is linear and memory bounded, whatever it contains."""

    def __init__(self, context: Context) -> None:
        self._file = context.name
        self._notes = NoteReader(context.name)
        self._counts = EnqueueCounter()
        self._rest = b""
        self._number = 1

    def feed(self, data: bytes) -> Iterator[Observation]:
        """Observations of the lines that these bytes complete; an unfinished last line waits for its rest."""
        for at in range(0, len(data), PIECE_BYTES):
            lines = (self._rest + data[at : at + PIECE_BYTES]).split(b"\n")
            self._rest = lines.pop()[:LINE_CAP]
            numbers = range(self._number, self._number + len(lines))
            self._number += len(lines)
            yield from self.take(lines, numbers)

    def take(
        self, lines: Sequence[bytes], numbers: Sequence[int], times: Sequence[float | None] = ()
    ) -> Iterator[Observation]:
        """Observations of whole lines. `times` are those of their frames, used where a line prints none."""
        others = self._counts.add(lines, numbers)
        yield from self._counts.ended(self._file)
        for index in others:
            line = lines[index]
            if b"NCCL" in line:
                at_s = times[index] if times else None
                seen = self._notes.read(line[:LINE_CAP].decode("utf-8", "replace"), numbers[index], at_s)
                if seen is not None:
                    yield seen
                if _CALL in line:
                    self._counts.lose()
            elif b"\0" in line or (len(line) < 200 and _CUT.search(line)):
                self._counts.lose()

    def flush(self, *, ended: bool = False) -> Iterator[Observation]:
        """Counts of the streams that grew since the last call; `ended` takes the unfinished last line too."""
        if ended and self._rest:
            rest, self._rest = self._rest, b""
            yield from self.last(rest, self._number)
        yield from self._counts.fresh(self._file)

    def last(self, line: bytes, number: int, at_s: float | None = None) -> Iterator[Observation]:
        """Take a line behind which nothing may follow: a call cut in the middle is a lost tail, not a glued line."""
        _, named, said = line.partition(b"NCCL ")
        if _CALL in line or not named or _BEGINS_CALL.fullmatch(said):
            self._counts.add_last(line, number)
        else:
            yield from self.take([line], [number], [at_s])


def _start(context: Context) -> Callable[[Iterable[Line]], Iterator[Observation]]:
    reader = NcclReader(context)
    held: list[Line] = []

    def feed(batch: Iterable[Line]) -> Iterator[Observation]:
        given = list(batch)
        lines = [*held, *(line for line in given if "NCCL" in line.text)]
        held[:] = lines[-1:]
        if len(lines) > 1:
            yield from reader.take(
                [_bytes(line) for line in lines[:-1]],
                [line.number for line in lines[:-1]],
                [line.at_s for line in lines[:-1]],
            )
        if not given:
            for line in held:
                yield from reader.last(_bytes(line), line.number, line.at_s)
            held.clear()
            yield from reader.flush()

    return feed


def _bytes(line: Line) -> bytes:
    return line.text[:LINE_CAP].encode("utf-8", "replace")


def _parse(blob: Blob, context: Context) -> Iterator[Observation]:
    """A whole file; one in a transport's frame (which the sample does not show) is read through its lines."""
    reader, framed = NcclReader(context), None
    for chunk in blob.chunks():
        if framed is None:
            framed = not _share(_RAW_LINE, chunk[: 64 << 10].split(b"\n"))
            if framed:
                break
        yield from reader.feed(chunk)
    if framed:
        feed = _start(context)
        lines = blob.lines()
        while batch := list(islice(lines, BATCH_LINES)):
            yield from feed(batch)
        yield from feed(())
    else:
        yield from reader.flush(ended=True)


def _share(pattern: re.Pattern[bytes], lines: Sequence[bytes]) -> bool:
    """Whether at least four in five of the lines that say something are of this kind."""
    said = [line[:1024] for line in lines if line.strip()]
    if len(said) > 1:
        said.pop()
    return bool(said) and sum(1 for line in said if pattern.match(line)) * 5 >= len(said) * 4


def _is_pure(sample: Sample) -> bool:
    """NCCL lines only: a container's log that also holds an engine's lines is left to the log parsers."""
    if _FOREIGN_LINE.search(sample.head) or _FOREIGN_LINE.search(sample.tail):
        return False
    parts = [part.encode("utf-8", "replace").split(b"\n") for part in (sample.head, sample.tail) if part]
    return bool(parts) and all(_share(_RAW_LINE, lines) for lines in parts)


def _has_lines(sample: Sample) -> bool:
    return "NCCL " in sample.head or "NCCL " in sample.tail


PARSERS = (
    DocumentParser(name="nccl_file", recognise=_is_pure, parse=_parse),
    LogParser(name="nccl_lines", recognise=_has_lines, start=_start),
)
