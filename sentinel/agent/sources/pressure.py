"""Pressure-stall information of the host, parsed by `collectors/pressure`."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from sentinel.agent.source import Said
from sentinel.collector import Context, Line
from sentinel.collectors import pressure
from sentinel.model.stamp import Stamp

FOLDER = Path("/proc/pressure")
RESOURCES = ("cpu", "memory", "io")


class HostPressure:
    """Reads three small files."""

    name = "pressure"
    every_s = 5.0

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder

    def poll(self, now: Stamp) -> Iterator[Said]:
        """One observation a resource; a kernel without PSI says nothing."""
        for resource in RESOURCES:
            path = self._folder / resource
            try:
                text = path.read_text()
            except OSError:
                continue
            feed = pressure.PARSER.start(Context(name=str(path), year=1970))
            lines = [Line(0, f"== {path}"), *(Line(n, line) for n, line in enumerate(text.splitlines(), 1))]
            for seen in (*feed(lines), *feed([])):
                yield Said(None, msgspec.structs.replace(seen, at_s=now.wall_s))  # type: ignore[arg-type]

    def close(self) -> None:
        """Nothing is held."""
