"""Coordination inside `sentinel watch` on one box: bus, leader, hand, uplink and notifier, beside the agent.

The thread cannot stop the watch: what fails is told in the log once and tried again. After a defect of ours it leads no
longer until it has turned well again.
"""

import contextlib
import os
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from sentinel.agent.loop import AgentLoop
from sentinel.bus.bus import Bus, BusDown
from sentinel.bus.embedded import EmbeddedBus
from sentinel.coordinator.candidate import TICK_S, candidate, host_of
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
from sentinel.groups import Coordination, Coordinator, specs
from sentinel.plumbing.clock import Clock

PAUSE_MAX_S = 60.0
"""Between two tries after defects, before clocks are divided; each pause is twice the last."""
WHERE_MAX = 2_000
"""Characters of a traceback that are logged, its end."""


@dataclass(slots=True)
class Coordinated:
    """The parts, for displays and tests. `leads` False: another process does, this one reports and obeys."""

    loop: AgentLoop
    bus: EmbeddedBus
    leader: Leader
    hand: Hand
    uplink: Uplink
    worker: Worker
    notifier: Notifier
    figures: ClusterFigures
    leads: bool = True
    stop: threading.Event = field(default_factory=threading.Event)
    _trouble: str = ""

    def run(self) -> None:
        """Turn until stopped. A defect ends the lead, not the thread."""
        scale = self.loop.config.timing.time_scale
        pause_s = TICK_S
        while not self.stop.wait(pause_s / scale):
            try:
                self.turn()
                pause_s = TICK_S
            except Exception as error:
                self._fell(error)
                pause_s = min(2.0 * pause_s, PAUSE_MAX_S)

    def turn(self) -> None:
        """One round: report, lead, obey, tell, count."""
        now = self.loop.clock.now()
        self.uplink.turn(now)
        if self.leads:
            self.leader.turn(now)
        self.hand.turn(now.mono_s)
        self.notifier.turn(now.mono_s, self.leader.leading)
        self.figures.look(now)
        troubles = (self.uplink.trouble, self.leader.trouble, self.hand.trouble)
        trouble = "; ".join(filter(None, troubles))
        if trouble != self._trouble:
            self._trouble = trouble
            structlog.get_logger().warning("coordination", trouble=trouble or "none any more")

    def _fell(self, error: Exception) -> None:
        """Let go of the lead, on the page too, and say why with the place; the same is said once."""
        why = f"{type(error).__name__}: {error}"
        self.leader.fall(why)
        self.figures.fell()
        if why != self._trouble:
            self._trouble = why
            where = "".join(traceback.format_tb(error.__traceback__))[-WHERE_MAX:]
            structlog.get_logger().error("coordination_failed", why=why, where=where)


@contextlib.contextmanager
def coordinating(loop: AgentLoop, found: Coordination, rules: Sequence[Rule]) -> Iterator[Coordinated | None]:
    """Coordinate while the block runs; yields None when it is off or cannot be had, and the watch goes on alone."""
    if not found.coordinator.enabled or not found.groups:
        yield None
        return
    try:
        together = build(loop, found, rules)
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


def build(loop: AgentLoop, found: Coordination, rules: Sequence[Rule]) -> Coordinated:
    """All parts, wired. Raises BusDown and LedgerError."""
    state, scale, host = Path(loop.config.folders.state), loop.config.timing.time_scale, host_of(found)
    bus = EmbeddedBus(bus_folder(state))
    mine = {spec.name: found.groups[spec.name] for spec in specs(found, host) if host in spec.hosts}
    evidence = Evidence(loop)
    worker = Worker(host, mine, bus, loop.clock, state / FOLDER, evidence.of, evidence.taking, time_scale=scale)
    ledger = DiskLedger(state / FOLDER / "ledger.db")
    hand = Hand(host, tuple(mine), bus, ledger, worker, live_s=LIVE_S / scale)
    leader = candidate(bus, found, rules, loop.clock.now(), scale)
    uplink = Uplink(
        host, mine, bus, loop.clock, worker, lambda: loop.latest, lambda: hand.fence.epoch_max, leader.me,
        time_scale=scale,
    )  # fmt: skip
    notifier = Notifier(bus, found.coordinator)
    figures = ClusterFigures(leader, notifier, hand)
    return Coordinated(loop, bus, leader, hand, uplink, worker, notifier, figures, found.coordinator.embedded)


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

    def taking(self, key: str) -> bool:
        """Whether the agent takes evidence of an engine just now."""
        latest = self.loop.latest
        return latest is not None and any(one.key == key and one.phase == "capturing" for one in latest.engines)
