"""An engine's log, a file or its part of the journal, followed and parsed as it grows."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from sentinel.agent.journal_follow import COMMAND, PREFIX, JournalFollow
from sentinel.agent.ring import Ring
from sentinel.agent.source import Said
from sentinel.agent.tail import Tail
from sentinel.collector import Context, Line, LogParser
from sentinel.collectors import packaged_log, sglang_log, torch_log, trtllm_log, vllm_log
from sentinel.evidence.framing import Unframer, detect
from sentinel.model.engine import Engine
from sentinel.model.observation import Observation
from sentinel.model.stamp import Stamp

PARSERS: dict[str, tuple[LogParser, ...]] = {
    "sglang": (sglang_log.PARSER, torch_log.PARSER),
    "vllm": (vllm_log.PARSER, torch_log.PARSER),
    "packaged": (packaged_log.PARSER, torch_log.PARSER),
    "trtllm": (trtllm_log.PARSER, torch_log.PARSER),
}
PIECES_PER_POLL = 4
QUIET_S = 2.0


def logs_of(engine: Engine) -> dict[str, int]:
    """Each log of an engine and the pid of the root that writes it: where nodes share this box, there are several."""
    logs: dict[str, int] = {}
    writer = engine.root.pid
    for process in engine.processes:
        writer = process.id.pid if process.id in engine.roots else writer
        if process.log:
            logs.setdefault(process.log, writer)
    return logs


def log_name(engine: Engine, writer: int) -> str:
    """Name of the source of one of an engine's logs. The path is no name: it changes when a log is rotated."""
    return f"log:{engine.key}" if writer == engine.called_pid else f"log:{writer}:{engine.key}"


class EngineLog:
    """Says what the log says. Lines that arrive are stamped with their arrival; history keeps its printed times.

    `writer`: the pid of the root whose log it is, None for the one that the engine is called by.
    """

    every_s = 0.5

    def __init__(
        self, engine: Engine, log: str, ring: Ring, journal: Sequence[str] = COMMAND, *, writer: int | None = None
    ) -> None:
        called = engine.called_pid
        self.name = log_name(engine, writer or called)
        self._kept_as = f"engine{'' if writer in (None, called) else writer}-{called}.log"
        self._engine, self._ring = engine, ring
        in_journal = log.startswith(PREFIX)
        self._tail = JournalFollow(log.removeprefix(PREFIX), journal) if in_journal else Tail(Path(log))
        self._unframer: Unframer | None = None
        self._feeds: list[Callable[[Iterable[Line]], Iterator[Observation]]] = []
        self._flush_at_s: float | None = None
        self.log = log
        self._live = False
        self._polled_s = 0.0

    @property
    def lost_bytes(self) -> int:
        """Bytes skipped because the log grew faster than it was read."""
        return self._tail.lost_bytes

    @property
    def why(self) -> str:
        """Why the log cannot be read; empty while it can."""
        return self._tail.why

    def poll(self, now: Stamp) -> Iterator[Said]:
        """Observations of the lines that were completed since; held-back ones once the log has been quiet."""
        quiet = True
        for data in islice(self._tail.read(), PIECES_PER_POLL):
            quiet = False
            if self._unframer is None:
                self._start(data, now)
            assert self._unframer is not None
            self._ring.write(self._kept_as, data, now.mono_s)
            yield from self._parsed(self._unframer.feed(data), self._arrival_s(now))
            self._flush_at_s = now.mono_s + QUIET_S
        if quiet and self._flush_at_s is not None and now.mono_s >= self._flush_at_s:
            self._flush_at_s = None
            yield from self._parsed([], now.wall_s)
        self._live |= self._unframer is not None
        self._polled_s = now.wall_s

    def close(self) -> None:
        """Let go of the file."""
        self._tail.close()

    def _arrival_s(self, now: Stamp) -> float:
        """When the newest line was written: the file's own time stamp, when it can be true, is closer than the poll.

        The journal has none (0).
        """
        written_s = self._tail.written_s
        return written_s if written_s and self._polled_s <= written_s <= now.wall_s else now.wall_s

    def _parsed(self, lines: list[Line], at_s: float) -> Iterator[Said]:
        for feed in self._feeds:
            for seen in feed(lines):
                yield Said(self._engine.key, self._stamped(seen, at_s))

    def _start(self, head: bytes, now: Stamp) -> None:
        self._unframer = Unframer(detect(head))
        year = time.gmtime(now.wall_s).tm_year
        context = Context(name=self.log, year=year)
        self._feeds = [parser.start(context) for parser in PARSERS[self._engine.adapter]]

    def _stamped(self, seen: Observation, at_s: float) -> Any:
        if self._live:
            return msgspec.structs.replace(seen, at_s=at_s)
        if seen.at_s is None:
            return seen
        # Engines print local time; the agent reads it in the host's zone.
        return msgspec.structs.replace(seen, at_s=min(seen.at_s - _zone_s(seen.at_s), at_s))


def _zone_s(at_s: float) -> int:
    """Seconds by which the host's local time is ahead of UTC at that time."""
    return time.localtime(at_s).tm_gmtoff
