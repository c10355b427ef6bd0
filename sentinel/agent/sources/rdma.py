"""RDMA devices: port states and counters from /sys/class/infiniband, enumerated, every ten seconds.

Reading a counter asks the device's firmware, so it is done sparingly and on a thread of its own; a device that answers
with an error is left alone for good. Names and units are the kernel's, see `collectors/rdma_counters`.
"""

import time
from collections.abc import Iterator
from pathlib import Path

from sentinel.agent.ring import Ring
from sentinel.agent.source import Said
from sentinel.agent.sources.background import Background
from sentinel.model.observation import DeviceCounters, Origin, Unavailable
from sentinel.model.stamp import Stamp
from sentinel.plumbing.clock import local_text

FOLDER = Path("/sys/class/infiniband")
EVERY_S = 10.0
DEVICES_MAX = 64
FILES_MAX = 256
COUNTERS = ("counters", "hw_counters")
STATES = ("state", "phys_state", "rate", "link_layer")


class RdmaDevices:
    """Says what every port shows. A host without such devices has no thread either."""

    name = "rdma"
    every_s = 1.0

    def __init__(self, ring: Ring, folder: Path = FOLDER, read_every_s: float = EVERY_S) -> None:
        self._ring, self._folder = ring, folder
        self._left_out: set[str] = set()
        present = folder.is_dir() and any(folder.iterdir())
        self._background = Background(self.name, read_every_s, self._read) if present else None

    def poll(self, now: Stamp) -> Iterator[Said]:
        """Samples that arrived since."""
        for said in self._background.drain() if self._background is not None else ():
            if isinstance(said.seen, DeviceCounters):
                self._keep(said.seen, now)
            yield said

    def close(self) -> None:
        """Stop reading."""
        if self._background is not None:
            self._background.close()

    def _read(self) -> list[Said]:
        said = []
        for device in sorted(self._folder.iterdir())[:DEVICES_MAX]:
            if device.name in self._left_out:
                continue
            try:
                said += [Said(None, self._port(device.name, port)) for port in sorted((device / "ports").iterdir())]
            except OSError as error:
                self._left_out.add(device.name)
                reason = f"{error.strerror}; it is not asked again"
                origin = Origin(str(device))
                said.append(Said(None, Unavailable(origin=origin, source=f"RDMA device {device.name}", reason=reason)))
        return said

    def _port(self, device: str, port: Path) -> DeviceCounters:
        values, states = {}, {}
        for folder in (port / name for name in COUNTERS if (port / name).is_dir()):
            for path in sorted(folder.iterdir())[:FILES_MAX]:
                text = path.read_text().strip()
                if text.lstrip("-").isdecimal():
                    values[path.name] = float(text)
        for name in STATES:
            if (port / name).is_file():
                # "4: ACTIVE"
                states[name] = (port / name).read_text().strip().rpartition(": ")[2]
        name = device if port.name == "1" else f"{device}:{port.name}"
        at_s = time.time_ns() / 1e9
        return DeviceCounters(
            origin=Origin(str(port)), at_s=at_s, device=name, family="rdma", values=values, states=states
        )

    def _keep(self, seen: DeviceCounters, now: Stamp) -> None:
        rows = [f"{seen.origin.file}/{name}: {state}" for name, state in seen.states.items()]
        rows += [f"{seen.origin.file}/counters/{name}: {value:.0f}" for name, value in seen.values.items()]
        text = local_text(now.wall_s, "# %Y-%m-%d %H:%M:%S\n") + "\n".join(rows) + "\n"
        self._ring.write("rdma_counters.txt", text.encode(), now.mono_s)
