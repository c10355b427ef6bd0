"""The kernel log from /dev/kmsg, from now on; records are parsed by `collectors/kernel_log`.

Format: Documentation/ABI/testing/dev-kmsg. EPIPE means that records were overwritten before they were read.
"""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from sentinel.agent.helper import HELPER, LOOP_DEADLINE_S
from sentinel.agent.ring import Ring
from sentinel.agent.source import Said
from sentinel.collector import Context, Line
from sentinel.collectors import kernel_log
from sentinel.model.observation import Origin, Unavailable
from sentinel.model.stamp import Stamp

DEVICE = Path("/dev/kmsg")
RECORD_BYTES = 16 << 10
RECORDS_PER_POLL = 2000


def opened(device: Path = DEVICE) -> int:
    """A descriptor of the kernel log, the caller's to close; from the helper, when that may and we may not.

    Raises OSError when neither may open it.
    """
    try:
        return os.open(device, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        told = HELPER.ask("kernel_log", deadline_s=LOOP_DEADLINE_S) if HELPER.wanted() else None
        if told is None or told.fd < 0:
            raise
        return told.fd


class KernelRecords:
    """Follows the kernel log without blocking. A device that cannot be opened is said once to be unavailable."""

    name = "kernel"
    every_s = 1.0

    def __init__(self, ring: Ring, device: Path = DEVICE) -> None:
        self._ring, self._device = ring, device
        self._fd = -1
        self._refused = ""
        self.overwritten = 0
        self._feed = kernel_log.PARSER.start(Context(name=str(device), year=1970))
        self._number = 0

    def poll(self, now: Stamp) -> Iterator[Said]:
        """Events of the records that came since."""
        if self._fd < 0 and not self._open():
            if self._refused:
                reason, self._refused = self._refused, ""
                origin = Origin(str(self._device))
                yield Said(None, Unavailable(origin=origin, at_s=now.wall_s, source="kernel log", reason=reason))
            return
        lines = list(self._records(now))
        for seen in (*self._feed(lines), *self._feed([])) if lines else ():
            yield Said(None, msgspec.structs.replace(seen, at_s=now.wall_s))  # type: ignore[arg-type]

    def close(self) -> None:
        """Let go of the device."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open(self) -> bool:
        if self._number:
            return False
        self._number = 1
        try:
            self._fd = opened(self._device)
            os.lseek(self._fd, 0, os.SEEK_END)
        except OSError as error:
            self._refused = f"{self._device}: {error.strerror}; it needs CAP_SYSLOG when kernel.dmesg_restrict is 1"
            return False
        return True

    def _records(self, now: Stamp) -> Iterator[Line]:
        for _ in range(RECORDS_PER_POLL):
            try:
                record = os.read(self._fd, RECORD_BYTES)
            except OSError as error:
                if error.errno == errno.EPIPE:
                    self.overwritten += 1
                    continue
                return
            if not record:
                return
            self._ring.write("kmsg.txt", record if record.endswith(b"\n") else record + b"\n", now.mono_s)
            for text in record.decode(errors="replace").splitlines()[:1]:
                self._number += 1
                yield Line(self._number, text)
