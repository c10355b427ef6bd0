"""What every process that may coordinate has: a name in the lease, a leader over the bus, an eye for dead rivals."""

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sentinel.agent import procfs
from sentinel.agent.status import ourselves
from sentinel.bus.bus import Bus
from sentinel.coordinator.leader import Leader
from sentinel.core.rules import Rule
from sentinel.groups import Coordination, scaled, specs
from sentinel.model.engine import ProcessId
from sentinel.model.stamp import Stamp

TICK_S = 0.5
"""Between two turns, before clocks are divided."""


def host_of(found: Coordination) -> str:
    """This host's name in groups."""
    return found.coordinator.host or socket.gethostname().partition(".")[0]


def candidate(bus: Bus, found: Coordination, rules: Sequence[Rule], now: Stamp, scale: float) -> Leader:
    """A leader that stands by until the lease is its own. Times are divided by `scale`."""
    host, me, namespace = host_of(found), ourselves(), pid_namespace()
    name = f"{host}:{me.pid}:{me.started_ticks}:{now.boot_id}:{namespace}"
    limits, delays = scaled(found, scale)
    gone = HolderGone(host, now.boot_id, namespace)
    return Leader(name, bus, rules, specs(found, host), limits, delays, holder_gone=gone, time_scale=scale)


@dataclass(frozen=True, slots=True)
class HolderGone:
    """Whether a holder of the lease was a process of this host and boot that has ended: nobody needs to wait for it."""

    host: str
    boot_id: str
    namespace: str

    def __call__(self, holder: str) -> bool:
        """Certain only for this host and for pids that are counted as ours; what cannot be told is not gone."""
        words = holder.split(":")
        if len(words) != 5 or words[0] != self.host or not (words[1].isdecimal() and words[2].isdecimal()):
            return False
        if not words[3] or not self.boot_id:
            return False
        if words[3] != self.boot_id:
            return True
        return words[4] == self.namespace != "" and _ended(ProcessId(int(words[1]), int(words[2])))


def pid_namespace() -> str:
    """A name for whose pids this process sees: a container shares the host's boot and not its pids. Empty: unknown."""
    try:
        return str(Path("/proc/self/ns/pid").stat().st_ino)
    except OSError:
        return ""


def _ended(process: ProcessId) -> bool:
    """Whether a process has ended. One that a sandbox hides from /proc is seen by the kernel's answer to a signal."""
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    visible = procfs.stat_fields(process.pid) is not None
    return visible and not procfs.still_same(process)
