"""Finds engines on this host: root processes, their descendants, roles, ranks, logs and kill deadlines.

A scan costs one directory listing and one small read for each engine process and each pid that was not there before.
Containers share the host's process table, so their engines are seen too; paths they print are reached through
/proc/PID/root.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sentinel.agent import procfs
from sentinel.engines import ADAPTERS
from sentinel.engines.adapter import Adapter, ProcessView
from sentinel.model.engine import Engine, EngineProcess, ProcessId

_CONTAINER = re.compile(r"(?:docker[-/]|cri-containerd[-:]|crio-|libpod-|/)([0-9a-f]{64})")
DOCKER_LOGS = Path("/var/lib/docker/containers")


@dataclass(slots=True)
class Discovery:
    """Call `scan` every few seconds; it returns all engines that run now, unchanged ones as equal records."""

    adapters: Sequence[Adapter] = ADAPTERS
    proc: Path = procfs.PROC
    _known: dict[int, ProcessView] = field(default_factory=dict)
    _engine_pids: set[int] = field(default_factory=set)

    def scan(self) -> tuple[Engine, ...]:
        """One look at the process table."""
        self._refresh()
        roots = [
            (adapter, view)
            for view in sorted(self._known.values(), key=lambda view: view.id)
            for adapter in self.adapters
            if adapter.claims(view) and not self._has_root_above(view, adapter)
        ]
        engines = tuple(self._engine(adapter, root) for adapter, root in roots)
        self._engine_pids = {process.id.pid for engine in engines for process in engine.processes}
        return engines

    def _refresh(self) -> None:
        present = set(procfs.pids(self.proc))
        for pid in self._known.keys() - present:
            del self._known[pid]
        for pid in present:
            known = self._known.get(pid)
            # Titles are set some time after the start, so processes of engines are looked at again.
            if known is None or pid in self._engine_pids or known.ppid in self._engine_pids:
                view = procfs.view(pid, self.proc)
                if view is None:
                    self._known.pop(pid, None)
                else:
                    self._known[pid] = view

    def _has_root_above(self, view: ProcessView, adapter: Adapter) -> bool:
        seen: set[int] = set()
        parent = self._known.get(view.ppid)
        while parent is not None and parent.id.pid not in seen:
            if adapter.claims(parent):
                return True
            seen.add(parent.id.pid)
            parent = self._known.get(parent.ppid)
        return False

    def _family(self, root: ProcessView) -> list[ProcessView]:
        children: dict[int, list[ProcessView]] = {}
        for view in self._known.values():
            children.setdefault(view.ppid, []).append(view)
        family, queue = [root], [root.id.pid]
        while queue:
            for child in sorted(children.get(queue.pop(0), []), key=lambda view: view.id):
                if child not in family:
                    family.append(child)
                    queue.append(child.id.pid)
        return family

    def _engine(self, adapter: Adapter, root: ProcessView) -> Engine:
        family = self._family(root)
        log, container = self._log_of(root), self._container_of(root.id.pid)
        processes = []
        for view in family:
            place = adapter.place(view, family)
            if place.role == "other" and view is not root:
                continue
            processes.append(
                EngineProcess(
                    id=view.id,
                    role=place.role,
                    title=view.title[:200],
                    rank=place.rank if place.rank is not None else _plain_rank(place.tags),
                    tags=place.tags,
                    log=log,
                    nccl_debug_file=view.environ.get("NCCL_DEBUG_FILE") or root.environ.get("NCCL_DEBUG_FILE"),
                    container=container,
                )
            )
        return Engine(
            key=f"{adapter.name}:{root.id.pid}:{root.id.started_ticks}",
            adapter=adapter.name,
            root=root.id,
            processes=tuple(processes),
            url=adapter.url(root),
            deadline=adapter.deadline(root),
            world_size=adapter.world_size(root),
        )

    def _log_of(self, root: ProcessView) -> str | None:
        """The file that stderr or stdout goes to, or the container's json-file; None for pipes and terminals."""
        for name in ("fd/2", "fd/1"):
            target = procfs.link(root.id.pid, name, self.proc)
            if target is not None and target.startswith("/") and not target.startswith("/dev/"):
                inside = Path(target)
                through_root = self.proc / str(root.id.pid) / "root" / target.lstrip("/")
                return str(inside if inside.is_file() else through_root)
        container = self._container_of(root.id.pid)
        if container is not None:
            path = DOCKER_LOGS / container / f"{container}-json.log"
            if path.is_file():
                return str(path)
        return None

    def _container_of(self, pid: int) -> str | None:
        try:
            text = (self.proc / str(pid) / "cgroup").read_text(errors="replace")
        except OSError:
            return None
        found = _CONTAINER.search(text)
        return None if found is None else found[1]


def processes_of(engine: Engine) -> dict[ProcessId, EngineProcess]:
    """An engine's processes by identity."""
    return {process.id: process for process in engine.processes}


def _plain_rank(tags: object) -> int | None:
    """The tensor rank when it is the only coordinate; anything else is joined in the core."""
    tp, pp, dp = (getattr(tags, name, None) for name in ("tp", "pp", "dp"))
    return tp if pp in (None, 0) and dp in (None, 0) else None
