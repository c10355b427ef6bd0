"""Chooses parsers for a document by its content alone; file names are never looked at."""

from collections.abc import Iterable
from dataclasses import dataclass

from sentinel.collector import DocumentParser, Line, LogParser, Parser, Sample

SAMPLE_CHARS = 64 << 10


@dataclass(frozen=True, slots=True)
class Choice:
    """Who may read a document: document parsers, each for the whole of it, or else log parsers together."""

    documents: tuple[DocumentParser, ...] = ()
    logs: tuple[LogParser, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the chosen parsers."""
        every: tuple[Parser, ...] = (*self.documents, *self.logs)
        return tuple(parser.name for parser in every)


def choose(sample: Sample, parsers: Iterable[Parser], *, binary: bool = False) -> Choice:
    """Parsers that claim a sample, in the order of the list; log parsers never claim a binary document."""
    claiming = [parser for parser in parsers if (parser.kind == "document" or not binary) and parser.recognise(sample)]
    return Choice(
        tuple(parser for parser in claiming if isinstance(parser, DocumentParser)),
        tuple(parser for parser in claiming if isinstance(parser, LogParser)),
    )


def joining(lines: list[Line], waiting: Iterable[LogParser]) -> tuple[LogParser, ...]:
    """Log parsers that recognise lines of theirs in a later part of a log that they did not claim by its sample."""
    if not lines:
        return ()
    text = "\n".join(line.text for line in lines)
    sample = Sample(text[:SAMPLE_CHARS], text[-SAMPLE_CHARS:] if len(text) > SAMPLE_CHARS else "")
    return tuple(parser for parser in waiting if parser.recognise(sample))
