"""Reads text with a parser as the product does: recognition on a sample, then the feed, then the flush."""

from collections.abc import Iterator

from sentinel.collector import Blob, Context, DocumentParser, Line, LogParser, Sample
from sentinel.core.picture import Picture
from sentinel.model.observation import AnyObservation, Observation

DAY_S = 1795910400.0  # 2026-11-29T00:00:00Z


class Text(Blob):
    """A document held in memory."""

    def __init__(self, text: str) -> None:
        self._text = text

    def chunks(self) -> Iterator[bytes]:
        yield self._text.encode(errors="surrogateescape")

    def lines(self) -> Iterator[Line]:
        for number, text in enumerate(self._text.split("\n"), start=1):
            yield Line(number, text)

    def text(self, limit: int = 8 << 20) -> str:
        return self._text[:limit]


def recognised(parser: LogParser | DocumentParser, text: str) -> bool:
    """Whether the parser claims this text."""
    return parser.recognise(Sample(text[: 64 << 10], text[-(64 << 10) :]))


def read(parser: LogParser | DocumentParser, text: str, *, name: str = "engine.log") -> list[Observation]:
    """All observations of a text."""
    context = Context(name=name, year=2026)
    if isinstance(parser, DocumentParser):
        return list(parser.parse(Text(text), context))
    feed = parser.start(context)
    return [*feed(list(Text(text).lines())), *feed([])]


def picture_of(*observations: Observation, now_s: float | None = None) -> Picture:
    """A picture in which these were seen."""
    picture = Picture(now_s=now_s)
    for seen in observations:
        picture.note(seen)
    return picture


def at(clock: str) -> float:
    """Seconds of a time of day of the test's day."""
    hours, minutes, seconds = clock.split(":")
    return DAY_S + int(hours) * 3600 + int(minutes) * 60 + float(seconds)


__all__ = ["DAY_S", "AnyObservation", "Text", "at", "picture_of", "read", "recognised"]
