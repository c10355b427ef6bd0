"""The part of an agent's journal that concerns one incident: what its core saw of the engine and of the host, and said.

Ticks are left out. The newest records win where there are too many, because the end is where the verdict was made.
"""

from collections import deque
from collections.abc import Iterator
from pathlib import Path

import msgspec

from sentinel.model.effect import Effect
from sentinel.model.event import AnyEvent, CaptureEnded, EngineGone, EngineSeen, Observed, Started
from sentinel.record.journal import Entry, entries, segments

NAME = "journal.jsonl"
BYTES_MAX = 4 << 20
BEFORE_S = 120.0
"""What led to an incident: a pace is learned within this time before its first word."""


def journal_slice(journal: Path, engine: str, incident: str, since_s: float) -> bytes:
    """JSON lines of `sentinel/record/journal.py` from some time before `since_s` (UTC) on. Raises OSError.

    Empty when the journal does not reach back so far, or knows nothing of the engine.
    """
    kept: deque[bytes] = deque()
    size = 0
    for entry in _since(journal, since_s - BEFORE_S):
        if _concerns(entry, engine, incident):
            line = msgspec.json.encode(entry) + b"\n"
            kept.append(line)
            size += len(line)
            while size > BYTES_MAX:
                size -= len(kept.popleft())
    return b"".join(kept)


def _since(journal: Path, start_s: float) -> Iterator[Entry]:
    """Records from a time on; an effect belongs to the event before it."""
    # A segment that was last written before the start holds nothing later.
    newer = [path for path in segments(journal) if path.stat().st_mtime >= start_s]
    late = False
    for path in newer:
        for entry in entries(path):
            if entry.e is not None:
                late = entry.e.at.wall_s >= start_s
            if late:
                yield entry


def _concerns(entry: Entry, engine: str, incident: str) -> bool:
    if isinstance(entry.f, Effect):
        return entry.f.engine == engine
    return entry.e is not None and _is_about(entry.e, engine, incident)


def _is_about(event: AnyEvent, engine: str, incident: str) -> bool:
    match event:
        case Observed():
            return event.engine in (engine, None)
        case EngineSeen():
            return event.engine.key == engine
        case EngineGone():
            return event.key == engine
        case CaptureEnded():
            return event.incident == incident
        case Started():
            return True
        case _:
            return False
