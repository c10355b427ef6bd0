"""Every adapter of the bus, as something that opens a client on the same bus again and again."""

from collections.abc import Callable
from pathlib import Path

from sentinel.bus.bus import Bus
from sentinel.bus.embedded import EmbeddedBus
from sentinel.bus.memory import MemoryBus

Opener = Callable[[], Bus]


def embedded(folder: Path) -> Opener:
    """Clients on one folder."""
    return lambda: EmbeddedBus(folder / "bus")


def memory(folder: Path) -> Opener:
    """Clients of one process."""
    bus = MemoryBus()
    return lambda: bus


ADAPTERS: dict[str, Callable[[Path], Opener]] = {"embedded": embedded, "memory": memory}
