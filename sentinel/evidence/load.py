"""`load`: an evidence folder, one file or one archive becomes a list of observations in the order of time.

Two passes. The first looks at the start and the end of every document: who can read it, which hosts it names, which
times it prints. Hosts, years and zones are settled from all of them together. The second reads each document once
with its parsers.
"""

import gc
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import msgspec

from sentinel.collector import Context, LogParser, Parser
from sentinel.collectors import ALL
from sentinel.evidence.clock import Clock, Times, times_in
from sentinel.evidence.document import NOT_RECOGNISED, Budget, Document
from sentinel.evidence.hosts import LOG_SOURCES, MACHINE_SOURCES, Clue, Hosts, hosts_in
from sentinel.evidence.limits import Limits, Skips
from sentinel.evidence.recognise import Choice, choose, joining
from sentinel.evidence.settle import settle
from sentinel.evidence.stream import Refused
from sentinel.evidence.tree import Tree
from sentinel.model.observation import Notice, Observation
from sentinel.model.verdict import Skipped

_PIECE = 10_000
_NO_EVIDENCE = {
    "<!doctype html": "HTML page: not evidence",
    '{\n "schema": "sentinel.bundle/': "what a bundle says of itself: not evidence",
    '{"schema":"sentinel.verdict/': "an earlier verdict: not evidence",
    '{"at":{"mono_ns":': "what the agent did: not evidence",
    '[{"what":"': "how a capture went: not evidence",
}
"""Starts of files that quote evidence and would be taken for it."""


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
class Gathering:
    """The observations of one document in order; of a very long one the first and the last of each kind."""

    document: Document
    seen: list[Observation] = field(default_factory=list)
    readers: dict[str, None] = field(default_factory=dict)
    dropped: int = 0

    def take(self, parser: str, given: Iterator[Observation]) -> None:
        """Add what a parser gives; one that fails loses its file, not the load.

        Parsers are total, so an exception here is a bug: its type is reported to the person like any other loss.
        """
        before = len(self.seen) + self.dropped
        try:
            while True:
                count = len(self.seen)
                self.seen.extend(islice(given, _PIECE))
                if len(self.seen) < count + _PIECE:
                    break
                if len(self.seen) > 2 * self.document.limits.kept_last:
                    self._thin()
        except Refused:
            raise
        except Exception as error:
            self.document.note(f"the parser {parser} failed with {type(error).__name__}; please report this")
        if len(self.seen) + self.dropped > before:
            self.readers[parser] = None

    def finish(self) -> list[Observation]:
        """What is kept, with a word on what was left out."""
        self._thin()
        if self.dropped:
            self.document.note(f"{self.dropped:,} observations in the middle of it were left out")
        if not self.seen:
            self.document.note(NOT_RECOGNISED)
        return self.seen

    def _thin(self) -> None:
        limits = self.document.limits
        totals, passed = Counter(type(one) for one in self.seen), Counter[type[Observation]]()
        if all(count <= limits.kept_first + limits.kept_last for count in totals.values()):
            return
        kept = []
        for one in self.seen:
            kind = type(one)
            passed[kind] += 1
            if passed[kind] <= limits.kept_first or totals[kind] - passed[kind] < limits.kept_last:
                kept.append(one)
        self.dropped += len(self.seen) - len(kept)
        self.seen = kept


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
    with _without_collector(), Tree(Path(path), limits, skips) as tree:
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
        gatherings = [_read(reading, hosts, clock, parsers) for reading in readings]
        per_document = [gathering.finish() for gathering in gatherings]
    settled = settle(per_document, names, hosts, clock)
    return Loaded(
        observations=tuple(settled[: limits.kept_total]),
        skipped=skips.result(),
        clock_error_s=round(clock.error_s, 3),
        clock_notes=tuple(clock.notes),
        read_files=len(readings),
        bytes_read=budget.read,
        dropped=sum(gathering.dropped for gathering in gatherings) + max(0, len(settled) - limits.kept_total),
        hosts=tuple(hosts.known),
        read_by={name: tuple(gathering.readers) for name, gathering in zip(names, gatherings, strict=True)},
    )


@contextmanager
def _without_collector() -> Iterator[None]:
    """Reading makes many objects and no cycles: the collector would only walk all of them again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _first_look(document: Document, parsers: Sequence[Parser]) -> Reading | None:
    look = document.look()
    if look is None:
        return None
    for start, why in _NO_EVIDENCE.items():
        if look.sample.head.startswith(start):
            document.note(why)
            return None
    choice = choose(look.sample, parsers, binary=document.binary)
    if not choice.names:
        document.note("binary" if document.binary else NOT_RECOGNISED)
        return None
    names = frozenset(choice.names)
    clue = Clue(document.name, hosts_in(look.lines), bool(names & MACHINE_SOURCES), names & LOG_SOURCES)
    return Reading(document, choice, times_in(look.lines, document.found.mtime_s), clue)


def _read(reading: Reading, hosts: Hosts, clock: Clock, parsers: Sequence[Parser]) -> Gathering:
    """All observations of one document."""
    document, choice = reading.document, reading.choice
    document.shift_s = clock.shift_s(document.name)
    context = Context(name=document.name, year=clock.year(document.name), host=hosts.of(document.name))
    gathering = Gathering(document)
    try:
        for parser in choice.documents:
            gathering.take(parser.name, parser.parse(document, context))
            if gathering.readers:  # a document has one owner: the first that finds anything in it
                return gathering
        if choice.logs:
            _read_log(gathering, context, choice.logs, parsers)
    except Refused as refused:
        document.note(str(refused))
    return gathering


def _read_log(gathering: Gathering, context: Context, claimed: Sequence[LogParser], parsers: Sequence[Parser]) -> None:
    """One pass over the lines with all log parsers of the document; more join where their lines first appear.

    Engines come first: a line that an engine's parser takes for a logged request holds a user's words, which may
    imitate any other source, so nobody else sees it.
    """
    ordered = sorted(claimed, key=lambda parser: parser.name not in LOG_SOURCES)
    feeds = {parser.name: parser.start(context) for parser in ordered}
    waiting = [parser for parser in parsers if isinstance(parser, LogParser) and parser.name not in feeds]
    for batch in gathering.document.batches():
        before, shown = len(gathering.seen), batch
        for name, feed in feeds.items():
            since = len(gathering.seen)
            gathering.take(name, feed(shown))
            if name in LOG_SOURCES and (quoted := _requests(gathering.seen[since:])):
                shown = [line for line in shown if line.number not in quoted]
        used = {seen.origin.line for seen in gathering.seen[before:]}
        joined = joining([line for line in shown if line.number not in used], waiting)
        for parser in joined:
            waiting.remove(parser)
            feeds[parser.name] = parser.start(context)
            gathering.take(parser.name, feeds[parser.name](shown))
    for name, feed in feeds.items():
        gathering.take(name, feed(()))


def _requests(seen: list[Observation]) -> set[int | None]:
    """Lines that hold logged requests."""
    return {one.origin.line for one in seen if isinstance(one, Notice) and one.notice == "request"}
