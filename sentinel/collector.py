"""What a collector is: a name, a way to recognise its source by content, and a pure parser.

A parser is total: any bytes give observations or nothing, never an exception, in time linear in the input.
Two kinds exist. A *document* parser owns a whole file (a table, a dump). A *log* parser picks its own lines out of a
stream that may interleave several writers (engine, NCCL, torch, stacks printed by a watchdog); several log parsers may
run over one file, each ignoring what is not its own.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, Protocol

import msgspec

from sentinel.model.observation import Observation


class Line(msgspec.Struct, frozen=True, gc=False):
    """One line with its transport framing (Docker JSON, CRI, journald, ANSI, carriage returns) taken off.

    `at_s` is the time that the frame carried, in UTC seconds; None without a frame. `pid` and `host` likewise.
    """

    number: int
    text: str
    at_s: float | None = None
    pid: int | None = None
    host: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What the reader knows about a document besides its content.

    `year` completes times that print none (vLLM, torch, syslog). `host` comes from a folder or a frame and may be
    None. `name` is the path inside the evidence folder, used for origins only.
    """

    name: str
    year: int
    host: str | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """The start and the end of a document, unframed, for recognition; at most 64 KiB each."""

    head: str
    tail: str = ""


class Blob(Protocol):
    """A document as bytes in bounded chunks; `lines()` is the unframed text view (any bytes, never raises)."""

    def chunks(self) -> Iterator[bytes]: ...

    def lines(self) -> Iterator[Line]: ...

    def text(self, limit: int = 8 << 20) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LogParser:
    """Picks observations out of an interleaved log.

    `recognise` says whether the sample holds lines of this source. `start` returns a fresh stateful feed for one
    stream: call it with batches of lines as they come (offline: the whole file, live: what was appended), then with
    an empty batch at the end of the stream to flush what was held back.
    """

    name: str
    recognise: Callable[[Sample], bool]
    start: Callable[[Context], Callable[[Iterable[Line]], Iterator[Observation]]]
    kind: Literal["log"] = field(default="log", init=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentParser:
    """Owns a whole file. `recognise` must be specific: at most one document parser may claim a sample."""

    name: str
    recognise: Callable[[Sample], bool]
    parse: Callable[[Blob, Context], Iterator[Observation]]
    kind: Literal["document"] = field(default="document", init=False)


Parser = LogParser | DocumentParser
