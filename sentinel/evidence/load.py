"""`load`: an evidence folder, one file or one archive becomes a list of observations in the order of time.

Two passes. The first looks at the start and the end of every document: who can read it, which hosts it names, which
times it prints. Hosts, years and zones are settled from all of them together. The second reads each document once
with its parsers.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from sentinel.collector import Context, LogParser, Parser
from sentinel.collectors import ALL
from sentinel.evidence.clock import Clock, Times, times_in
from sentinel.evidence.document import Budget, Document
from sentinel.evidence.hosts import MACHINE_SOURCES, Clue, Hosts, hosts_in
from sentinel.evidence.limits import Limits, Skips
from sentinel.evidence.recognise import Choice, choose, joining
from sentinel.evidence.settle import settle
from sentinel.evidence.stream import Refused
from sentinel.evidence.tree import Tree
from sentinel.model.observation import Observation
from sentinel.model.verdict import Skipped

_JOIN_EVERY_BATCH = 64
_JOIN_STRIDE = 16
"""Every batch of a log's first 8 MiB and every 16th after that is looked at for lines of further sources."""


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """What a load gave.

    `observations` are in order of time (those without a time follow what precedes them in their document).
    `clock_error_s` is how far two times of different sources may disagree. `dropped` counts observations left out of
    the middle of very long logs. `read_by` maps each document to the parsers that read it.
    """

    observations: tuple[Observation, ...]
    skipped: tuple[Skipped, ...]
    clock_error_s: float
    clock_notes: tuple[str, ...]
    read_files: int
    bytes_read: int
    dropped: int
    hosts: tuple[str, ...]
    read_by: dict[str, tuple[str, ...]]


@dataclass(slots=True)
class Kept:
    """The observations of one kind from one document: the first and the last ones, within the limits."""

    limits: Limits
    first: list[tuple[int, Observation]] = field(default_factory=list)
    last: deque[tuple[int, Observation]] = field(default_factory=deque)
    dropped: int = 0

    def add(self, order: int, seen: Observation) -> None:
        """Keep one observation, perhaps in the place of an older one."""
        if len(self.first) < self.limits.kept_first:
            self.first.append((order, seen))
            return
        self.last.append((order, seen))
        if len(self.last) > self.limits.kept_last:
            self.last.popleft()
            self.dropped += 1


@dataclass(slots=True)
class Reading:
    """A document with what the first pass found out about it."""

    document: Document
    choice: Choice
    times: Times
    clue: Clue


def load(path: Path | str, *, limits: Limits | None = None, parsers: Sequence[Parser] = ALL) -> Loaded:
    """Read evidence; raises OSError only when `path` itself cannot be opened."""
    limits = limits or Limits()
    skips, budget = Skips(), Budget(limits.total_bytes)
    with Tree(Path(path), limits, skips) as tree:
        readings = [
            reading
            for found in tree.documents()
            if (reading := _first_look(Document(found, limits, skips, budget), parsers)) is not None
        ]
        hosts = Hosts(reading.clue for reading in readings)
        names = [reading.document.name for reading in readings]
        clock = Clock(
            {reading.document.name: reading.times for reading in readings}, {name: hosts.of(name) for name in names}
        )
        per_document: list[list[Observation]] = []
        dropped, read_by = 0, {}
        for reading in readings:
            seen, lost, readers = _read(reading, hosts, clock, parsers)
            per_document.append(seen)
            dropped += lost
            read_by[reading.document.name] = readers
    settled = settle(per_document, names, hosts, clock)
    return Loaded(
        observations=tuple(settled[: limits.kept_total]),
        skipped=skips.result(),
        clock_error_s=round(clock.error_s, 3),
        clock_notes=tuple(clock.notes),
        read_files=len(readings),
        bytes_read=budget.read,
        dropped=dropped + max(0, len(settled) - limits.kept_total),
        hosts=tuple(hosts.known),
        read_by=read_by,
    )


def _first_look(document: Document, parsers: Sequence[Parser]) -> Reading | None:
    look = document.look()
    if look is None:
        return None
    choice = choose(look.sample, parsers, binary=document.binary)
    if choice.document is None and not choice.logs:
        document.note("binary" if document.binary else "nothing in it was recognised")
        return None
    clue = Clue(
        document.name, hosts_in(look.lines), any(name in MACHINE_SOURCES for name in choice.names), bool(choice.logs)
    )
    return Reading(document, choice, times_in(look.lines, document.found.mtime_s), clue)


def _read(
    reading: Reading, hosts: Hosts, clock: Clock, parsers: Sequence[Parser]
) -> tuple[list[Observation], int, tuple[str, ...]]:
    """All observations of one document, in order; how many were dropped; which parsers gave any."""
    document = reading.document
    document.shift_s = clock.shift_s(document.name)
    context = Context(name=document.name, year=clock.year(document.name), host=hosts.of(document.name))
    kept: dict[type[Observation], Kept] = {}
    readers: dict[str, None] = {}
    for order, (reader, seen) in enumerate(_observations(reading, context, parsers)):
        kept.setdefault(type(seen), Kept(document.limits)).add(order, seen)
        readers[reader] = None
    dropped = sum(one.dropped for one in kept.values())
    if dropped:
        document.note(f"{dropped:,} observations in the middle of it were left out")
    ordered = sorted((pair for one in kept.values() for pair in (*one.first, *one.last)), key=lambda pair: pair[0])
    return [seen for _, seen in ordered], dropped, tuple(readers)


def _observations(reading: Reading, context: Context, parsers: Sequence[Parser]) -> Iterator[tuple[str, Observation]]:
    document, choice = reading.document, reading.choice
    try:
        if choice.document is not None:
            name = choice.document.name
            for seen in _guarded(document, name, choice.document.parse(document, context)):
                yield name, seen
        else:
            yield from _from_log(document, context, choice.logs, parsers)
    except Refused as refused:
        document.note(str(refused))


def _from_log(
    document: Document, context: Context, claimed: Sequence[LogParser], parsers: Sequence[Parser]
) -> Iterator[tuple[str, Observation]]:
    """One pass over the lines with all log parsers of the document; more join where their lines first appear."""
    feeds = {parser.name: parser.start(context) for parser in claimed}
    waiting = [parser for parser in parsers if isinstance(parser, LogParser) and parser.name not in feeds]
    for index, batch in enumerate(document.batches()):
        if waiting and index and (index < _JOIN_EVERY_BATCH or index % _JOIN_STRIDE == 0):
            joined = joining(batch, waiting)
            feeds.update((parser.name, parser.start(context)) for parser in joined)
            waiting = [parser for parser in waiting if parser not in joined]
        for name, feed in feeds.items():
            for seen in _guarded(document, name, feed(batch)):
                yield name, seen
    for name, feed in feeds.items():
        for seen in _guarded(document, name, feed(())):
            yield name, seen


def _guarded(document: Document, parser: str, given: Iterator[Observation]) -> Iterator[Observation]:
    """The observations of a parser; one that fails loses its file, not the load.

    Parsers are total, so an exception here is a bug: its type is reported to the person like any other loss.
    """
    try:
        yield from given
    except Refused:
        raise
    except Exception as error:
        document.note(f"the parser {parser} failed with {type(error).__name__}; please report this")
