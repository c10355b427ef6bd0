"""Stop an engine and prove it: processes gone, control group empty, GPUs let go, ports free.

Each check is true, false or could not be told; only "all true" is a stop. A process in uninterruptible sleep keeps its
memory and its GPU whatever is sent to it, so nothing may be started beside it.
"""

import shutil
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sentinel.actions.supervisors import Owner
from sentinel.agent import procfs
from sentinel.model.engine import ProcessId
from sentinel.plumbing.subprocesses import run_bounded

POLL_S = 0.2
CGROUPS = Path("/sys/fs/cgroup")
GPU_ASK_S = 10.0
Wait = Callable[[float], object]
Seconds = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """What a stop came to. `checks` None: it could not be told. `why` names what is left."""

    checks: dict[str, bool | None]
    why: str

    @property
    def verified(self) -> bool:
        """Nothing of the engine is left, as far as every check can tell."""
        return all(self.checks.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """One stop. Times in seconds of `now`; `wait` sleeps."""

    owner: Owner
    incarnation: str
    processes: tuple[ProcessId, ...]
    ports: tuple[int, ...]
    term_s: float
    verify_s: float
    now: Seconds
    wait: Wait

    def run(self) -> Stopped:
        """Ask the supervisor, wait, kill what is left, and look until all is gone or time is up."""
        until_s = self.now() + self.term_s
        asked = self.owner.stop(self.incarnation, self.term_s)
        while self._left() and self.now() < until_s:
            self.wait(POLL_S)
        if left := self._left():
            self.owner.kill(left)
        until_s = self.now() + self.verify_s
        stopped = self._look(asked.why)
        while not stopped.verified and self.now() < until_s:
            self.wait(POLL_S)
            stopped = self._look(asked.why)
        return stopped

    def _left(self) -> list[ProcessId]:
        return [process for process in self.processes if procfs.still_same(process)]

    def _look(self, asked: str) -> Stopped:
        left = self._left()
        checks: dict[str, bool | None] = {"processes_gone": not left, "ports_free": ports_free(self.ports)}
        if (group := self.owner.cgroup()) is not None:
            checks["cgroup_empty"] = cgroup_empty(group)
        if shutil.which("nvidia-smi") is not None:
            checks["gpu_released"] = gpus_released(self.processes)
        words = [name for name, well in checks.items() if not well]
        words += [f"pid {process.pid} in state {_state(process.pid)}" for process in left[:8]]
        return Stopped(checks=checks, why="; ".join(filter(None, [*words, asked])))


def ports_free(ports: Sequence[int]) -> bool:
    """Whether nobody answers on the engine's own ports of this host."""
    for port in ports:
        with socket.socket() as probe:
            probe.settimeout(1.0)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return False
    return True


def cgroup_empty(group: str) -> bool | None:
    """Whether a control group (v2) and those below it hold no process; a group that is gone is empty."""
    try:
        text = (CGROUPS / group.lstrip("/") / "cgroup.events").read_text()
    except FileNotFoundError:
        return True
    except OSError:
        return None
    return "populated 0" in text.splitlines()


def gpus_released(processes: Sequence[ProcessId]) -> bool | None:
    """Whether no GPU names one of the processes; None when that cannot be told.

    `nvidia-smi --query-compute-apps=pid` (driver 535 and later) prints one pid a line.
    """
    argv = ("nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader")
    ran = run_bounded(argv, deadline_s=GPU_ASK_S, bytes_max=1 << 20)
    if not ran.ok:
        return None
    pids = {int(word) for word in ran.stdout.decode(errors="replace").split() if word.isdecimal()}
    return not pids & {process.pid for process in processes}


def _state(pid: int) -> str:
    fields = procfs.stat_fields(pid)
    return fields[0] if fields else "?"
