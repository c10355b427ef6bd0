"""Who owns an engine: how it is stopped, started and told apart from its next life. Fixed arguments, bounded, no shell.

systemd 252 (`systemctl show`), Docker 24 (`docker inspect`), a pair of commands, and the co-packaged engine's launcher.
Nothing is ever killed behind a supervisor's back: it would start one rank again, alone.
"""

import os
import signal
from collections.abc import Mapping, Sequence
from typing import Protocol

from sentinel.agent import procfs
from sentinel.groups import Supervisor
from sentinel.model.engine import ProcessId
from sentinel.plumbing.subprocesses import Ran, run_bounded

ASK_S = 10.0
START_MARK = "SENTINEL_START"
MODE_MARK = "SENTINEL_STORE_MODE"
INCARNATION_MARK = "SENTINEL_ENGINE_INCARNATION"
"""Set by the launcher of the co-packaged engine for every process of one launch."""


class Owner(Protocol):
    """All calls return within their bound. `running`: see `Actor.running`; `found` is the root that discovery sees."""

    def running(self, found: ProcessId | None) -> str | None: ...
    def stop(self, incarnation: str, within_s: float) -> Ran: ...
    def kill(self, processes: Sequence[ProcessId]) -> None: ...
    def start(self, mark: str, mode: str, within_s: float) -> Ran: ...
    def cgroup(self) -> str | None:
        """The control group that holds the engine alone; None when there is none of its own."""


def owner_of(supervisor: Supervisor) -> Owner:
    """The supervisor of a group."""
    match supervisor.kind:
        case "systemd":
            return Systemd(supervisor.unit)
        case "docker":
            return Docker(supervisor.container)
        case "packaged":
            return Packaged(supervisor.cluster)
        case _:
            return CommandPair(supervisor.start, supervisor.stop)


def by_process(found: ProcessId | None) -> str:
    """The incarnation of an engine that nobody names: its root process, which no later process can be."""
    return "" if found is None else f"proc:{found.pid}:{found.started_ticks}"


class CommandPair:
    """Two commands that return at once. The start command gets the store's mode and a mark in its environment."""

    def __init__(self, start: Sequence[str], stop: Sequence[str]) -> None:
        self._start, self._stop = tuple(start), tuple(stop)

    def running(self, found: ProcessId | None) -> str | None:
        """The root process."""
        return by_process(found)

    def stop(self, incarnation: str, within_s: float) -> Ran:
        """Run the stop command."""
        return run_bounded(self._stop, deadline_s=within_s, env=_environ({"SENTINEL_STOP": incarnation}))

    def kill(self, processes: Sequence[ProcessId]) -> None:
        """SIGKILL, each to the very process that was meant."""
        kill_exactly(processes)

    def start(self, mark: str, mode: str, within_s: float) -> Ran:
        """Run the start command."""
        marks = {START_MARK: mark, **({MODE_MARK: mode} if mode else {})}
        return run_bounded(self._start, deadline_s=within_s, env=_environ(marks))

    def cgroup(self) -> str | None:
        """A command pair has none."""
        return None


class Systemd:
    """A unit. Its incarnation is the InvocationID, new with every start."""

    def __init__(self, unit: str) -> None:
        self._unit = unit

    def running(self, found: ProcessId | None) -> str | None:
        """The InvocationID while the unit is anything but inactive or failed."""
        del found
        shown = self._show("ActiveState", "InvocationID")
        if shown is None:
            return None
        return "" if shown["ActiveState"] in ("inactive", "failed") else f"systemd:{shown['InvocationID']}"

    def stop(self, incarnation: str, within_s: float) -> Ran:
        """`systemctl stop`, which waits."""
        del incarnation
        return run_bounded(("systemctl", "stop", self._unit), deadline_s=within_s)

    def kill(self, processes: Sequence[ProcessId]) -> None:
        """SIGKILL to the unit's control group."""
        del processes
        run_bounded(("systemctl", "kill", "--signal=KILL", self._unit), deadline_s=ASK_S)

    def start(self, mark: str, mode: str, within_s: float) -> Ran:
        """Hand the mode over in the unit's environment of the manager, then `systemctl start`."""
        del mark
        if mode:
            set_mode = run_bounded(("systemctl", "set-environment", f"{MODE_MARK}={mode}"), deadline_s=ASK_S)
            if not set_mode.ok:
                return set_mode
        return run_bounded(("systemctl", "start", "--no-block", self._unit), deadline_s=within_s)

    def cgroup(self) -> str | None:
        """The unit's control group."""
        shown = self._show("ControlGroup")
        return None if shown is None else shown["ControlGroup"] or None

    def _show(self, *names: str) -> dict[str, str] | None:
        ran = run_bounded(("systemctl", "show", f"--property={','.join(names)}", self._unit), deadline_s=ASK_S)
        pairs = (line.partition("=") for line in ran.stdout.decode(errors="replace").splitlines())
        found = {name: value for name, equals, value in pairs if equals}
        return found if ran.ok and set(names) <= found.keys() else None


class Docker:
    """A container, by name. Its incarnation is its id with the instant of its start. The mode cannot be handed over."""

    def __init__(self, container: str) -> None:
        self._container = container

    def running(self, found: ProcessId | None) -> str | None:
        """Id and start, as `docker inspect` tells."""
        del found
        form = "{{json .State.Running}} {{.Id}} {{.State.StartedAt}}"
        ran = run_bounded(("docker", "inspect", "--format", form, self._container), deadline_s=ASK_S)
        words = ran.stdout.decode(errors="replace").split()
        if not ran.ok or len(words) != 3:
            return None
        return f"docker:{words[1]}@{words[2]}" if words[0] == "true" else ""

    def stop(self, incarnation: str, within_s: float) -> Ran:
        """`docker stop`, which sends SIGTERM and after the time given SIGKILL."""
        del incarnation
        argv = ("docker", "stop", "--time", str(max(1, int(within_s))), self._container)
        return run_bounded(argv, deadline_s=within_s + ASK_S)

    def kill(self, processes: Sequence[ProcessId]) -> None:
        """`docker kill`."""
        del processes
        run_bounded(("docker", "kill", self._container), deadline_s=ASK_S)

    def start(self, mark: str, mode: str, within_s: float) -> Ran:
        """`docker start`; another store mode needs another container."""
        del mark
        if mode:
            why = "a container's environment cannot be changed; recreate it with the other store mode"
            return Ran(argv=("docker", "start"), status=None, why=why)
        return run_bounded(("docker", "start", self._container), deadline_s=within_s)

    def cgroup(self) -> str | None:
        """Docker removes the group with the container."""
        return None


class Packaged:
    """The co-packaged engine's launcher: `sentinel-engine launch|stop|status CLUSTER`."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster

    def running(self, found: ProcessId | None) -> str | None:
        """The name that the launcher gave the processes of this launch; another launch gives another name."""
        view = None if found is None else procfs.view(found.pid)
        if view is None:
            return ""
        named = view.environ.get(INCARNATION_MARK)
        return f"packaged:{named}" if named and view.id == found else None

    def stop(self, incarnation: str, within_s: float) -> Ran:
        """Head first, then the workers; refuses any other incarnation by itself too."""
        named = ("--incarnation", incarnation.removeprefix("packaged:"))
        return run_bounded(("sentinel-engine", "stop", self._cluster, *named), deadline_s=within_s)

    def kill(self, processes: Sequence[ProcessId]) -> None:
        """SIGKILL, each to the very process that was meant; the launcher has no other means either."""
        kill_exactly(processes)

    def start(self, mark: str, mode: str, within_s: float) -> Ran:
        """Workers, then the head; returns when a token was generated."""
        del mark
        with_mode = ("--mode", mode) if mode else ()
        return run_bounded(("sentinel-engine", "--json", "launch", self._cluster, *with_mode), deadline_s=within_s)

    def cgroup(self) -> str | None:
        """None of its own."""
        return None


def kill_exactly(processes: Sequence[ProcessId]) -> None:
    """SIGKILL by identity: a pidfd is opened first, then the identity is compared, then the signal is sent."""
    for process in processes:
        try:
            fd = os.pidfd_open(process.pid)
        except OSError:
            continue
        try:
            if procfs.still_same(process):
                signal.pidfd_send_signal(fd, signal.SIGKILL)
        except ProcessLookupError:
            continue
        finally:
            os.close(fd)


def _environ(marks: Mapping[str, str]) -> dict[str, str]:
    return {**os.environ, **marks}
