"""Chooses parsers for a document by its content alone; file names are never looked at."""

from collections.abc import Iterable
from dataclasses import dataclass

from sentinel.collector import DocumentParser, Line, LogParser, Parser, Sample

SAMPLE_CHARS = 64 << 10


@dataclass(frozen=True, slots=True)
class Choice:
    """Who reads a document: one document parser alone, or any number of log parsers together."""

    document: DocumentParser | None = None
    logs: tuple[LogParser, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the chosen parsers."""
        return tuple(parser.name for parser in ((self.document,) if self.document else self.logs))


def choose(sample: Sample, parsers: Iterable[Parser], *, binary: bool = False) -> Choice:
    """Parsers that claim a sample; of several document parsers the first listed, of a binary one no log parser."""
    logs: list[LogParser] = []
    for parser in parsers:
        if isinstance(parser, DocumentParser):
            if parser.recognise(sample):
                return Choice(document=parser)
        elif not binary and parser.recognise(sample):
            logs.append(parser)
    return Choice(logs=tuple(logs))


def joining(lines: list[Line], waiting: Iterable[LogParser]) -> tuple[LogParser, ...]:
    """Log parsers that recognise lines of theirs in a later part of a log that they did not claim by its sample."""
    if not lines:
        return ()
    text = "\n".join(line.text for line in lines)
    sample = Sample(text[:SAMPLE_CHARS], text[-SAMPLE_CHARS:] if len(text) > SAMPLE_CHARS else "")
    return tuple(parser for parser in waiting if parser.recognise(sample))
