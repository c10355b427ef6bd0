"""Block devices of the host: /proc/diskstats, of which `in_flight` tells whether requests never come back.

Loop, RAM and compressed-memory devices and partitions are left out: nothing hangs there that does not hang below.
"""

from collections.abc import Iterator
from pathlib import Path

from sentinel.agent.ring import Ring
from sentinel.agent.source import Said
from sentinel.collectors.host_counters import disk_of
from sentinel.model.observation import DeviceCounters, Origin
from sentinel.model.stamp import Stamp
from sentinel.plumbing.clock import local_text

DISKSTATS = Path("/proc/diskstats")
BLOCK = Path("/sys/block")
LEFT_OUT = ("loop", "ram", "zram")
DEVICES_MAX = 256
TELL_IDLE_EVERY = 12


class BlockDevices:
    """One read every five seconds; a device that does nothing is told once a minute."""

    name = "block"
    every_s = 5.0

    def __init__(self, ring: Ring, diskstats: Path = DISKSTATS, block: Path = BLOCK) -> None:
        self._ring, self._diskstats, self._block = ring, diskstats, block
        self._before: dict[str, dict[str, float]] = {}
        self._turn = 0

    def poll(self, now: Stamp) -> Iterator[Said]:
        """Counters of the devices that did something, or have something outstanding."""
        try:
            lines = self._diskstats.read_text().splitlines()
        except OSError:
            return
        self._turn = (self._turn + 1) % TELL_IDLE_EVERY
        kept = []
        for line in lines:
            found = disk_of(line)
            if found is None or found[0].startswith(LEFT_OUT) or not (self._block / found[0]).is_dir():
                continue
            device, values = found
            quiet = self._before.get(device) == values and values.get("in_flight", 0.0) == 0
            if len(self._before) < DEVICES_MAX or device in self._before:
                self._before[device] = values
            if quiet and self._turn:
                continue
            kept.append(line)
            origin = Origin(str(self._diskstats))
            seen = DeviceCounters(origin=origin, at_s=now.wall_s, device=device, family="block", values=values)
            yield Said(None, seen)
        if kept:
            stamp = local_text(now.wall_s, "# %Y-%m-%d %H:%M:%S\n")
            self._ring.write("diskstats.txt", (stamp + "\n".join(kept) + "\n").encode(), now.mono_s)

    def close(self) -> None:
        """Nothing is held."""
