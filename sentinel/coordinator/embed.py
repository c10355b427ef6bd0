"""Coordination inside `sentinel watch` on one box: bus, leader, hand, uplink and notifier, beside the agent.

The thread cannot stop the watch: what fails is told in the log once and tried again.
"""

import contextlib
import os
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from sentinel.agent import procfs
from sentinel.agent.loop import AgentLoop
from sentinel.agent.status import ourselves
from sentinel.bus.bus import Bus, BusDown
from sentinel.bus.embedded import EmbeddedBus
from sentinel.coordinator.figures import ClusterFigures, unavailable
from sentinel.coordinator.hand import Hand
from sentinel.coordinator.leader import Leader
from sentinel.coordinator.ledger import DiskLedger, LedgerError
from sentinel.coordinator.names import FOLDER, bus_folder
from sentinel.coordinator.notices import Notifier
from sentinel.coordinator.uplink import Uplink
from sentinel.coordinator.worker import Worker
from sentinel.core.fence import LIVE_S
from sentinel.core.rules import Rule
from sentinel.groups import Coordination, Coordinator, scaled, specs
from sentinel.model.engine import ProcessId
from sentinel.plumbing.clock import Clock

TICK_S = 0.5


@dataclass(slots=True)
class Coordinated:
    """The parts, for displays and tests."""

    loop: AgentLoop
    bus: EmbeddedBus
    leader: Leader
    hand: Hand
    uplink: Uplink
    worker: Worker
    notifier: Notifier
    figures: ClusterFigures
    stop: threading.Event = field(default_factory=threading.Event)
    _trouble: str = ""

    def run(self) -> None:
        """Turn until stopped."""
        tick_s = TICK_S / self.loop.config.timing.time_scale
        while not self.stop.wait(tick_s):
            self.turn()

    def turn(self) -> None:
        """One round: report, lead, obey, tell, count."""
        now = self.loop.clock.now()
        self.uplink.turn(now)
        self.leader.turn(now)
        self.hand.turn(now.mono_s)
        self.notifier.turn(now.mono_s)
        self.figures.look(now, self.hand.fence.epoch_max)
        troubles = (self.uplink.trouble, self.leader.trouble, self.hand.trouble)
        trouble = "; ".join(filter(None, troubles))
        if trouble != self._trouble:
            self._trouble = trouble
            structlog.get_logger().warning("coordination", trouble=trouble or "none any more")


@contextlib.contextmanager
def coordinating(loop: AgentLoop, found: Coordination, rules: Sequence[Rule]) -> Iterator[Coordinated | None]:
    """Coordinate while the block runs; yields None when it is off or cannot be had, and the watch goes on alone."""
    host = found.coordinator.host or socket.gethostname().partition(".")[0]
    if not found.coordinator.enabled or not found.groups:
        yield None
        return
    try:
        together = build(loop, found, rules, host)
    except (BusDown, LedgerError) as error:
        structlog.get_logger().error("coordination_unavailable", why=str(error))
        loop.beside.append(unavailable)
        yield None
        return
    loop.beside.append(lambda: together.figures.measured)
    thread = threading.Thread(target=together.run, name="coordinator", daemon=True)
    thread.start()
    try:
        with served_api(together.bus, loop.clock, found.coordinator):
            yield together
    finally:
        together.stop.set()
        together.worker.stop.set()
        thread.join(timeout=10.0)
        together.notifier.close()
        together.bus.close()


@contextlib.contextmanager
def served_api(bus: Bus, clock: Clock, settings: Coordinator) -> Iterator[None]:
    """The local API on socket and port, where they are configured; without it all else goes on."""
    if not (settings.socket or settings.listen):
        yield
        return
    with contextlib.ExitStack() as stack:
        try:
            from sentinel.coordinator import api  # an extra: most boxes need no API

            asked = api.Api(bus, clock, f"api socket (uid {os.getuid()})")
            if settings.socket:
                stack.enter_context(api.on_socket(asked, Path(settings.socket)))
            if settings.listen:
                port = stack.enter_context(api.on_port(asked, settings))
                structlog.get_logger().info("api_served", address=settings.listen, port=port)
        except (ImportError, OSError) as error:
            missing = "; the API needs `pip install engine-sentinel[api]`" if isinstance(error, ImportError) else ""
            why = f"{error}{missing}"
            structlog.get_logger().error("api_unavailable", socket=settings.socket, listen=settings.listen, why=why)
        yield


def build(loop: AgentLoop, found: Coordination, rules: Sequence[Rule], host: str) -> Coordinated:
    """All parts, wired. Raises BusDown and LedgerError."""
    state, scale, me = Path(loop.config.folders.state), loop.config.timing.time_scale, ourselves()
    bus = EmbeddedBus(bus_folder(state))
    groups = specs(found, host)
    mine = {spec.name: found.groups[spec.name] for spec in groups if host in spec.hosts}
    limits, delays = scaled(found, scale)
    worker = Worker(host, mine, bus, loop.clock, state / FOLDER, Evidence(loop).of, time_scale=scale)
    ledger = DiskLedger(state / FOLDER / "ledger.db")
    hand = Hand(host, tuple(mine), bus, ledger, worker, live_s=LIVE_S / scale)
    name = f"{host}:{me.pid}:{me.started_ticks}:{loop.clock.now().boot_id}"
    gone = HolderGone(host, loop.clock.now().boot_id)
    leader = Leader(name, bus, rules, groups, limits, delays, holder_gone=gone, time_scale=scale)
    uplink = Uplink(
        host, mine, bus, loop.clock, worker, lambda: loop.latest, lambda: hand.fence.epoch_max, name, time_scale=scale
    )  # fmt: skip
    notifier = Notifier(bus, found.coordinator)
    return Coordinated(loop, bus, leader, hand, uplink, worker, notifier, ClusterFigures(leader, notifier))


@dataclass(frozen=True, slots=True)
class HolderGone:
    """Whether a holder of the lease was a process of this host and boot that has ended: nobody needs to wait for it."""

    host: str
    boot_id: str

    def __call__(self, holder: str) -> bool:
        """Certain only for this host."""
        host, _, rest = holder.partition(":")
        words = rest.split(":")
        if host != self.host or len(words) != 3 or not (words[0].isdecimal() and words[1].isdecimal()):
            return False
        return words[2] != self.boot_id or not procfs.still_same(ProcessId(int(words[0]), int(words[1])))


@dataclass(frozen=True, slots=True)
class Evidence:
    """Where the agent keeps the evidence of an engine's open incident, once its capture has ended."""

    loop: AgentLoop

    def of(self, key: str) -> Path | None:
        """The folder, None while there is none."""
        latest = self.loop.latest
        engines = () if latest is None else latest.engines
        incidents: Mapping[str, str] = {one.key: one.incident for one in engines if one.phase == "judged"}
        folder = self.loop.evidence_of(incidents[key]) if incidents.get(key) else None
        return folder if folder is not None and folder.is_dir() else None
