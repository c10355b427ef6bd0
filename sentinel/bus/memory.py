"""A bus in the memory of one process, for simulations: the same promises, without a disk. It ends with its process."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256

from sentinel.bus.bus import (
    BLOB_BYTES_MAX,
    LOG_RECORDS_MAX,
    RECORD_BYTES_MAX,
    SLOT_BYTES_MAX,
    Conflict,
    Presence,
    Record,
    Slot,
    bounded,
)


@dataclass(slots=True)
class MemoryBus:
    """Not for several threads at once."""

    _slots: dict[str, Slot] = field(default_factory=dict)
    _hosts: dict[str, Presence] = field(default_factory=dict)
    _logs: dict[str, dict[str, Record]] = field(default_factory=dict)
    _blobs: dict[str, bytes] = field(default_factory=dict)
    _last: int = 0

    def announce(self, host: str, data: bytes) -> None:
        """Say that a host is there."""
        bounded("an announcement", data, RECORD_BYTES_MAX)
        self._last += 1
        self._hosts[host] = Presence(data, self._last)

    def present(self) -> Mapping[str, Presence]:
        """The newest announcement of every host."""
        return dict(self._hosts)

    def read(self, slot: str) -> Slot | None:
        """A slot."""
        return self._slots.get(slot)

    def write(self, slot: str, data: bytes, expected: int) -> int:
        """Compare and set."""
        bounded(f"slot {slot}", data, SLOT_BYTES_MAX)
        known = self._slots.get(slot)
        if (0 if known is None else known.revision) != expected:
            raise Conflict(f"slot {slot} is not at revision {expected}")
        self._last += 1
        self._slots[slot] = Slot(data, self._last)
        return self._last

    def append(self, log: str, data: bytes, key: str) -> int:
        """Add a record once."""
        bounded(f"a record of {log}", data, RECORD_BYTES_MAX)
        records = self._logs.setdefault(log, {})
        if key not in records:
            self._last += 1
            records[key] = Record(self._last, key, data)
            if len(records) > LOG_RECORDS_MAX:
                del records[next(iter(records))]
        return records[key].number

    def follow(self, log: str, after: int, limit: int = 256) -> tuple[Record, ...]:
        """Records after a number."""
        found: list[Record] = []
        # Newest first, so that a reader who is up to date pays for what is new only.
        for record in reversed(self._logs.get(log, {}).values()):
            if record.number <= after:
                break
            found.append(record)
        return tuple(reversed(found))[:limit]

    def put(self, data: bytes) -> str:
        """Store a blob."""
        bounded("a blob", data, BLOB_BYTES_MAX)
        digest = sha256(data).hexdigest()
        self._blobs[digest] = data
        return digest

    def get(self, digest: str) -> bytes | None:
        """A blob."""
        return self._blobs.get(digest)

    def close(self) -> None:
        """Nothing to let go of."""
