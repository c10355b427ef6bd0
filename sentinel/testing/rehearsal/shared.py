"""What the processes of one rehearsal engine share: load, phase and counters, in one mapped page.

A page and not a queue: a reader of counters must get an answer while every rank hangs.
"""

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

_FIELDS = ("running", "waiting", "prefill_tokens", "paused", "tokens", "steps", "ready", "resting")
_SIZE = 4096


@dataclass(slots=True)
class Shared:
    """Integers by name. Each is written by one process only, so no lock is needed."""

    path: Path

    def __post_init__(self) -> None:
        if not self.path.exists() or self.path.stat().st_size < _SIZE:
            self.path.write_bytes(bytes(_SIZE))
        with self.path.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), _SIZE)

    _page: mmap.mmap = None  # type: ignore[assignment]

    def get(self, name: str) -> int:
        """Current value."""
        value: int = struct.unpack_from("<q", self._page, 8 * _FIELDS.index(name))[0]
        return value

    def put(self, name: str, value: int) -> None:
        """Set it."""
        struct.pack_into("<q", self._page, 8 * _FIELDS.index(name), value)
