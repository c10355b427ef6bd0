"""What agents and the coordinator need of a bus. Every adapter passes `tests/bus/contract`.

Presence is lossy and never stored durably. A slot holds one record and is changed only by compare-and-set: it carries
the coordinator's lease, each host's command, plans and policy. A log is append-only and drops a key that it has seen.
Nothing on the bus is a source of truth about an engine: a wiped bus loses history, never safety.
"""

from collections.abc import Mapping
from typing import Protocol

import msgspec

SLOT_BYTES_MAX = 256 << 10
RECORD_BYTES_MAX = 64 << 10
BLOB_BYTES_MAX = 64 << 20
LOG_RECORDS_MAX = 20_000
"""Older records of a log are dropped beyond this many."""


class BusError(Exception):
    """The bus did not do what was asked; the message says what to do."""


class Conflict(BusError):
    """Somebody else changed the slot first. Read it again; nothing was written."""


class TooLarge(BusError):
    """The data exceeds the bound of its kind; nothing was written."""


class BusDown(BusError):
    """The bus did not answer. A write may or may not have happened: read back before anything else."""


def bounded(what: str, data: bytes, limit: int) -> None:
    """Raises TooLarge when there is more data than the limit."""
    if len(data) > limit:
        raise TooLarge(f"{what} of {len(data)} bytes exceeds {limit}")


class Slot(msgspec.Struct, frozen=True):
    """The content of a slot and its revision, which only grows."""

    data: bytes
    revision: int


class Record(msgspec.Struct, frozen=True):
    """One record of a log; `number` only grows. A gap means that older records were dropped."""

    number: int
    key: str
    data: bytes


class Presence(msgspec.Struct, frozen=True):
    """The newest announcement of a host. `count` differs from one announcement to the next: compare, do not date."""

    data: bytes
    count: int


class Bus(Protocol):
    """All methods raise BusDown; those that write raise TooLarge."""

    def announce(self, host: str, data: bytes) -> None: ...
    def present(self) -> Mapping[str, Presence]: ...
    def read(self, slot: str) -> Slot | None: ...
    def write(self, slot: str, data: bytes, expected: int) -> int:
        """Set a slot that is at revision `expected` (0: absent); returns the new revision. Raises Conflict."""

    def append(self, log: str, data: bytes, key: str) -> int:
        """Add a record and return its number; a key that the log still holds adds nothing and returns the old one."""

    def follow(self, log: str, after: int, limit: int = 256) -> tuple[Record, ...]:
        """Records with a number above `after`, oldest first."""

    def put(self, data: bytes) -> str:
        """Store a blob; returns its SHA-256 in hexadecimal, which is its name."""

    def get(self, digest: str) -> bytes | None:
        """A blob whose content still has this digest; None when it is absent or damaged."""

    def close(self) -> None: ...
