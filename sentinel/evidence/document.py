"""A document of the evidence: its bytes, its lines and its sample, within the budgets of the load."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from sentinel.collector import Line, Sample
from sentinel.evidence.archive import Found
from sentinel.evidence.framing import Frame, Unframer, detect, strip_escapes, unframe
from sentinel.evidence.limits import Limits, Skips, printable
from sentinel.evidence.stream import Refused

SAMPLE_BYTES = 64 << 10
LEAST_BYTES = 8
"""No source can be told from less; so folders of very many tiny files cost little."""
NOT_RECOGNISED = "nothing in it was recognised"
_SAMPLE_SEARCH_BYTES = 64 << 20
_ODD_SHARE = 0.15
_CONTROLS = bytes(code for code in range(1, 32) if code not in b"\t\n\r\x1b\x08\x0c")


@dataclass(slots=True)
class Budget:
    """Bytes that all documents together may still give."""

    left: int
    read: int = 0

    def take(self, count: int) -> bool:
        """Count bytes; False when the budget is used up."""
        self.left -= count
        self.read += count
        return self.left >= 0


@dataclass(slots=True)
class Document:
    """Implements `sentinel.collector.Blob` over a found document; `shift_s` moves frame times to local ones."""

    found: Found
    limits: Limits
    skips: Skips
    budget: Budget
    name: str = field(init=False)
    frame: Frame = "plain"
    binary: bool = False
    shift_s: float = 0.0

    def __post_init__(self) -> None:
        self.name = printable(self.found.name)

    def chunks(self) -> Iterator[bytes]:
        """The bytes, within the budgets; of a file above the limit for one file, its start and, if plain, its end."""
        given = 0
        for chunk in self._pieces():
            if not self.budget.take(len(chunk)):
                self.note(f"evidence exceeds {self.limits.total_bytes >> 20} MiB: not or not wholly read")
                return
            given += len(chunk)
            if given > self.limits.file_bytes:
                self.note(f"larger than {self.limits.file_bytes >> 20} MiB: the rest was left out")
                return
            yield chunk

    def lines(self) -> Iterator[Line]:
        """Unframed lines."""
        for batch in self.batches():
            yield from batch

    def batches(self) -> Iterator[list[Line]]:
        """Unframed lines, as many at a time as one chunk completes."""
        return unframe(self.chunks(), self.frame, self.shift_s)

    def text(self, limit: int = 8 << 20) -> str:
        """The unframed text up to `limit` characters; lines of any length stay whole in unframed documents."""
        parts: list[str] = []
        size = 0
        if self.frame != "plain":
            for line in self.lines():
                parts.append(line.text)
                size += len(line.text) + 1
                if size > limit:
                    break
            return "\n".join(parts)[:limit]
        raw: list[bytes] = []
        for chunk in self.chunks():
            raw.append(chunk)
            size += len(chunk)
            if size > limit:
                break
        text = b"".join(raw).replace(b"\0", b"").decode("utf-8", "replace").replace("\r\n", "\n")
        return strip_escapes(text)[:limit]

    def note(self, why: str) -> None:
        """Record why a part of this document was not used."""
        self.skips.add(self.found.name, why)

    def look(self) -> "Look | None":
        """Start and end for recognition; also settles `frame` and `binary`. None, with a reason, if unreadable."""
        head, whole = self._head()
        if not head.strip(b"\0"):
            self.note("only NUL bytes")
            return None
        if whole and len(head) < LEAST_BYTES:
            self.note(NOT_RECOGNISED)
            return None
        if b"\0" in head and b"\n" not in head:  # /proc/PID/environ and cmdline separate their items by NUL
            head = head.replace(b"\0", b"\n")
        self.binary = looks_binary(head)
        if self.binary:
            return Look(Sample(head.decode("latin-1")), [])
        self.frame = detect(head)
        lines = _unframed(head, self.frame)
        if whole:
            return Look(Sample(_text(lines)), lines)
        tail = _unframed(self._tail().partition(b"\n")[2], self.frame)
        return Look(Sample(_text(lines), _text(tail)), lines + tail)

    def _pieces(self) -> Iterator[bytes]:
        source, limit = self.found.source, self.limits.file_bytes
        if source.size is None or source.size <= limit:
            yield from source.chunks(self.note)
            return
        self.note(f"larger than {limit >> 20} MiB: the middle was left out")
        given = 0
        for chunk in source.chunks(self.note):
            yield chunk
            given += len(chunk)
            if given >= limit // 4:
                break
        rest = source.chunks(self.note, source.size - (limit - given) + 1)
        # A line that starts in the part left out would look like a line of its own.
        yield b"\n" + next(rest, b"").partition(b"\n")[2]
        yield from rest

    def _head(self) -> tuple[bytes, bool]:
        """The first bytes that are not NUL, and whether that is all there is."""
        source, head = self.found.source, self.found.first
        self.found.first = b""
        if len(head) == source.size:
            head = head.lstrip(b"\0")
            return head[:SAMPLE_BYTES], len(head) <= SAMPLE_BYTES
        head, looked = b"", 0
        try:
            for chunk in source.chunks(self.note):
                if len(head) >= SAMPLE_BYTES or looked > _SAMPLE_SEARCH_BYTES:
                    return head[:SAMPLE_BYTES], False
                looked += len(chunk)
                head += chunk if head else chunk.lstrip(b"\0")
        except Refused as refused:
            self.note(str(refused))
            return b"", True
        return head[:SAMPLE_BYTES], len(head) <= SAMPLE_BYTES

    def _tail(self) -> bytes:
        """The last bytes of a document that can be read from anywhere; of a stream nothing."""
        size = self.found.source.size
        if size is None:
            return b""
        try:
            return b"".join(self.found.source.chunks(self.note, max(0, size - SAMPLE_BYTES)))
        except Refused as refused:
            self.note(str(refused))
            return b""


@dataclass(frozen=True, slots=True)
class Look:
    """What a first look at a document shows: the sample, and its lines with what their frames say."""

    sample: Sample
    lines: list[Line]


def _unframed(raw: bytes, frame: Frame) -> list[Line]:
    unframer = Unframer(frame)
    return [*unframer.feed(raw), *unframer.flush()]


def _text(lines: list[Line]) -> str:
    return "\n".join(line.text for line in lines)


def looks_binary(head: bytes) -> bool:
    """Whether bytes are not text of any kind: too many control characters or invalid UTF-8 sequences."""
    clean = head.replace(b"\0", b"")
    if not clean:
        return False
    controls = len(clean) - len(clean.translate(None, _CONTROLS))
    invalid = clean.decode("utf-8", "replace").count("\ufffd") - clean.count(b"\xef\xbf\xbd")
    return (controls + invalid) / len(clean) > _ODD_SHARE
