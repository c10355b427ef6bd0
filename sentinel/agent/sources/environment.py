"""Settings and arguments of an engine's processes, read once a process; secrets are left out by the parser."""

from collections.abc import Iterator

from sentinel.agent import procfs
from sentinel.agent.source import Said
from sentinel.collectors.environment import arguments, assignments
from sentinel.model.engine import Engine, ProcessId
from sentinel.model.observation import Environment, Origin
from sentinel.model.stamp import Stamp


class ProcessSettings:
    """Says how each process of an engine was started."""

    every_s = 5.0

    def __init__(self, engine: Engine) -> None:
        self.name = f"settings:{engine.key}"
        self.engine = engine
        self._told: set[ProcessId] = set()

    def poll(self, now: Stamp) -> Iterator[Said]:
        """One observation a process that was not there before."""
        present = {process.id: process for process in self.engine.processes}
        self._told &= present.keys()
        for identity, process in present.items():
            view = procfs.view(identity.pid) if identity not in self._told else None
            if view is None or view.id != identity:
                continue
            self._told.add(identity)
            values = assignments("\0".join(f"{name}={value}" for name, value in view.environ.items()) + "\0")
            argv = arguments("\0".join(view.argv) + "\0")
            if values or argv:
                origin = Origin(f"proc/{identity.pid}/environ")
                seen = Environment(
                    origin=origin, at_s=now.wall_s, pid=identity.pid, tags=process.tags, values=values, argv=argv
                )
                yield Said(self.engine.key, seen)

    def close(self) -> None:
        """Nothing is held."""
