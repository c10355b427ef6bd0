"""The last minutes of every signal, always on disk, in formats that `sentinel analyze` reads.

An engine may be gone before anybody asks, so nothing here waits for a suspicion. Each signal has two segments; the
older one is dropped when the newer is full or old, which bounds space and keeps at least half of the time span.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path

SEGMENT_S = 300.0
SEGMENT_BYTES = 4 << 20
NAMES_MAX = 256


@dataclass(slots=True)
class _Signal:
    fd: int
    size: int
    since_s: float


@dataclass(slots=True)
class Ring:
    """`write` appends to a signal; `files` lists what there is, oldest segment first. Disk errors are counted."""

    folder: Path
    segment_s: float = SEGMENT_S
    segment_bytes: int = SEGMENT_BYTES
    lost: int = 0
    why: str = ""
    _signals: dict[str, _Signal] = field(default_factory=dict)

    def write(self, name: str, data: bytes, now_s: float, header: bytes = b"") -> None:
        """Append to signal `name` (a file name); `header` starts each segment."""
        try:
            signal = self._signals.get(name)
            full = signal is not None and (
                signal.size + len(data) > self.segment_bytes or now_s - signal.since_s > self.segment_s
            )
            if signal is None or full:
                signal = self._start(name, now_s, header)
            os.write(signal.fd, data)
            signal.size += len(data)
        except OSError as error:
            self.lost += 1
            self.why = f"{self.folder}: {error.strerror}"

    def files(self) -> list[Path]:
        """All segments, older before newer."""
        return sorted(self.folder.glob("*"), key=lambda path: (path.name.removeprefix("old-"), path.name[:4] != "old-"))

    def close(self) -> None:
        """Close all segments."""
        for signal in self._signals.values():
            os.close(signal.fd)
        self._signals.clear()

    def _start(self, name: str, now_s: float, header: bytes) -> _Signal:
        old = self._signals.pop(name, None)
        if old is not None:
            os.close(old.fd)
        if len(self._signals) >= NAMES_MAX:
            raise OSError(0, f"more than {NAMES_MAX} signals")
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / name
        if path.exists():
            path.replace(self.folder / f"old-{name}")
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
        os.write(fd, header)
        signal = _Signal(fd, len(header), now_s)
        self._signals[name] = signal
        return signal
