"""Finds engines on this host: root processes, their descendants, roles, ranks, logs and kill deadlines.

A scan costs one directory listing and one small read for each engine process and each pid that is new or was reused.
A program may also become an engine without a new pid (`exec` in a start script), so young processes are looked at in
every scan and old ones in turn.
Containers share the host's process table, so their engines are seen too; paths they print are reached through
/proc/PID/root.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from sentinel.agent import procfs
from sentinel.agent.helper import HELPER, Helper
from sentinel.agent.journal_follow import PREFIX
from sentinel.engines import ADAPTERS
from sentinel.engines.adapter import Adapter, ProcessView
from sentinel.model.engine import Engine, EngineProcess, ProcessId

_CONTAINER = re.compile(r"(?:docker[-/]|cri-containerd[-:]|crio-|libpod-|/)([0-9a-f]{64})")
DOCKER_LOGS = Path("/var/lib/docker/containers")
NAME_MARK = "SENTINEL_ENGINE_NAME"
"""Set by the launcher of the co-packaged engine for every process."""
YOUNG_SCANS = 30
OLD_SHARE = 30
"""Every scan looks again at one in this many of the old processes."""


@dataclass(slots=True)
class _Known:
    """A process as last looked at. `inode` is that of its folder in /proc, which a reused pid does not keep."""

    inode: int
    view: ProcessView | None
    adapter: Adapter | None
    cmdline: bytes = b""
    scans: int = 0


@dataclass(frozen=True, slots=True)
class _Launch:
    """The roots of one engine, the head first. `name` is what the launcher called it; empty where nobody did."""

    name: str
    adapter: Adapter
    roots: tuple[ProcessView, ...]


@dataclass(slots=True)
class Discovery:
    """Call `scan` every few seconds; it returns all engines that run now, unchanged ones as equal records."""

    adapters: Sequence[Adapter] = ADAPTERS
    proc: Path = procfs.PROC
    helper: Helper = field(default_factory=lambda: HELPER)
    _known: dict[int, _Known] = field(default_factory=dict)
    _engine_pids: set[int] = field(default_factory=set)
    _turn: int = 0
    _called: dict[str, tuple[ProcessId, frozenset[ProcessId]]] = field(default_factory=dict)
    """Of each launch: the root that it is called by, and the roots that were last seen of it."""

    def scan(self) -> tuple[Engine, ...]:
        """One look at the process table."""
        self._refresh()
        claimed = [(known.adapter, known.view) for known in self._known.values() if known.adapter and known.view]
        roots = [(adapter, view) for adapter, view in claimed if not self._has_root_above(view, adapter)]
        roots.sort(key=lambda root: root[1].id)
        launches = _by_launch(roots)
        engines = tuple(self._engine(launch) for launch in launches)
        self._called = {each.name: self._called[each.name] for each in launches if each.name}
        self._engine_pids = {process.id.pid for engine in engines for process in engine.processes}
        return engines

    def _refresh(self) -> None:
        self._turn = (self._turn + 1) % OLD_SHARE
        present = procfs.inodes(self.proc)
        for pid in self._known.keys() - present.keys():
            del self._known[pid]
        for pid, inode in present.items():
            known = self._known.get(pid)
            if known is None or known.inode != inode:
                self._known[pid] = self._looked_at(pid, inode)
            elif self._is_worth_a_look(pid, known):
                known.scans += 1
                # Same folder, same arguments: the same program, of which nothing else can have changed.
                if procfs.cmdline(pid, self.proc) != known.cmdline:
                    self._known[pid] = self._looked_at(pid, inode)

    def _is_worth_a_look(self, pid: int, known: _Known) -> bool:
        if known.view is None:
            return known.scans < YOUNG_SCANS
        if known.scans < YOUNG_SCANS or pid % OLD_SHARE == self._turn:
            return bool(known.view.argv)
        # Titles are set some time after the start, so processes of engines are looked at again.
        return pid in self._engine_pids or known.view.ppid in self._engine_pids

    def _looked_at(self, pid: int, inode: int) -> _Known:
        cmdline = procfs.cmdline(pid, self.proc)
        view = procfs.view(pid, self.proc)
        adapter = None if view is None else next((one for one in self.adapters if one.claims(view)), None)
        return _Known(inode, view, adapter, cmdline)

    def _view(self, pid: int) -> ProcessView | None:
        known = self._known.get(pid)
        return None if known is None else known.view

    def _has_root_above(self, view: ProcessView, adapter: Adapter) -> bool:
        seen: set[int] = set()
        parent = self._view(view.ppid)
        while parent is not None and parent.id.pid not in seen:
            if adapter.claims(parent):
                return True
            seen.add(parent.id.pid)
            parent = self._view(parent.ppid)
        return False

    def _family(self, root: ProcessView) -> list[ProcessView]:
        children: dict[int, list[ProcessView]] = {}
        for known in self._known.values():
            if known.view is not None:
                children.setdefault(known.view.ppid, []).append(known.view)
        family, queue = [root], [root.id.pid]
        while queue:
            for child in sorted(children.get(queue.pop(0), []), key=lambda view: view.id):
                if child not in family:
                    family.append(child)
                    queue.append(child.id.pid)
        return family

    def _engine(self, launch: _Launch) -> Engine:
        # The head comes last: with the oldest as its root, an engine stays the same one while its nodes come up.
        by_age = sorted(launch.roots, key=lambda each: (each.id.started_ticks, each.id.pid))
        adapter, root, head = launch.adapter, self._described(by_age[0]), self._described(launch.roots[0])
        processes = [process for each in by_age for process in self._processes(adapter, each)]
        called = self._called_by(launch, root.id)
        return Engine(
            key=f"{adapter.name}:{called.pid}:{called.started_ticks}",
            adapter=adapter.name,
            root=root.id,
            processes=tuple(processes),
            url=adapter.url(head),
            deadline=adapter.deadline(root),
            world_size=adapter.world_size(root),
        )

    def _called_by(self, launch: _Launch, oldest: ProcessId) -> ProcessId:
        """The root that names an engine: of several, the one that was the oldest first, also when it has ended."""
        if not launch.name:
            return oldest
        present = frozenset(root.id for root in launch.roots)
        called, before = self._called.get(launch.name, (oldest, present))
        if before.isdisjoint(present):
            called = oldest
        self._called[launch.name] = (called, present)
        return called

    def _processes(self, adapter: Adapter, root: ProcessView) -> Iterator[EngineProcess]:
        family = self._family(root)
        root = self._described(root)
        log, container = self._log_of(root), self._container_of(root.id.pid)
        for view in family:
            place = adapter.place(view, family)
            if place.role == "other" and view.id != root.id:
                continue
            yield EngineProcess(
                id=view.id,
                role=place.role,
                title=view.title[:200],
                rank=place.rank if place.rank is not None else _plain_rank(place.tags),
                tags=place.tags,
                log=log,
                nccl_debug_file=view.environ.get("NCCL_DEBUG_FILE") or root.environ.get("NCCL_DEBUG_FILE"),
                container=container,
            )

    def _log_of(self, root: ProcessView) -> str | None:
        """The file or journal that stderr or stdout goes to, or the container's json-file; None for pipes."""
        for name in ("fd/2", "fd/1"):
            target = procfs.link(root.id.pid, name, self.proc) or self._told_link(root, name)
            if target is not None and target.startswith("/") and not target.startswith("/dev/"):
                inside = Path(target)
                through_root = self.proc / str(root.id.pid) / "root" / target.lstrip("/")
                return str(inside if inside.is_file() else through_root)
            if target is not None and self._is_journal(root, target):
                return self._in_journal(root.id.pid)
        container = self._container_of(root.id.pid)
        if container is not None:
            path = DOCKER_LOGS / container / f"{container}-json.log"
            if path.is_file():
                return str(path)
        return None

    def _described(self, root: ProcessView) -> ProcessView:
        """The root with the settings that the helper may tell, where its environment cannot be read."""
        if root.environ_readable or not self.helper.wanted():
            return root
        settings = self.helper.describe(root.id).settings
        return replace(root, environ=settings, environ_readable=bool(settings)) if settings else root

    def _told_link(self, root: ProcessView, name: str) -> str | None:
        return self.helper.describe(root.id).links.get(name) if self.helper.wanted() else None

    def _is_journal(self, root: ProcessView, target: str) -> bool:
        """Whether a descriptor is the stream to journald that systemd opened for this process and named to it."""
        inode = root.environ.get("JOURNAL_STREAM", "").partition(":")[2]
        return bool(inode) and target == f"socket:[{inode}]"

    def _in_journal(self, pid: int) -> str | None:
        """All of a service writes under its control group, the processes that the engine starts included."""
        groups = (path for number, controllers, path in self._cgroups(pid) if _is_systemds(number, controllers))
        group = next(groups, None)
        return None if group is None else f"{PREFIX}_SYSTEMD_CGROUP={group}"

    def _container_of(self, pid: int) -> str | None:
        found = (_CONTAINER.search(path) for _, _, path in self._cgroups(pid))
        return next((match[1] for match in found if match is not None), None)

    def _cgroups(self, pid: int) -> list[tuple[str, str, str]]:
        """(hierarchy, controllers, path) of each control group of a process; paths may hold colons (cgroups(7))."""
        try:
            text = (self.proc / str(pid) / "cgroup").read_text(errors="replace")
        except OSError:
            return []
        lines = (line.split(":", 2) for line in text.splitlines())
        return [(fields[0], fields[1], fields[2]) for fields in lines if len(fields) == 3]


def is_named(engine: Engine, name: str) -> bool:
    """Whether the launcher of the co-packaged engine gave an engine this name."""
    view = procfs.view(engine.root.pid)
    return view is not None and view.environ.get(NAME_MARK) == name


def _by_launch(roots: Sequence[tuple[Adapter, ProcessView]]) -> list[_Launch]:
    """Roots of one launch together, in their places; all others alone."""
    alone, together = [], dict[str, tuple[Adapter, list[tuple[int, ProcessView]]]]()
    for adapter, root in roots:
        launch = adapter.launch(root)
        if launch is None:
            alone.append(_Launch("", adapter, (root,)))
        else:
            together.setdefault(launch[0], (adapter, []))[1].append((launch[1], root))
    placed = {name: sorted(each, key=lambda one: (one[0], one[1].id)) for name, (_, each) in together.items()}
    return [*alone, *(_Launch(name, together[name][0], tuple(r for _, r in each)) for name, each in placed.items())]


def _is_systemds(number: str, controllers: str) -> bool:
    """Whether systemd manages this hierarchy: the unified one and its own named one."""
    return (number == "0" and not controllers) or controllers == "name=systemd"


def processes_of(engine: Engine) -> dict[ProcessId, EngineProcess]:
    """An engine's processes by identity."""
    return {process.id: process for process in engine.processes}


def _plain_rank(tags: object) -> int | None:
    """The tensor rank when it is the only coordinate; anything else is joined in the core."""
    tp, pp, dp = (getattr(tags, name, None) for name in ("tp", "pp", "dp"))
    return tp if pp in (None, 0) and dp in (None, 0) else None
