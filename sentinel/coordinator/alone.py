"""Coordination in a process of its own: leader, notifier and metrics page over the bus of this box, without an agent.

It and a coordinator inside `sentinel watch` may run at once: the lease decides who leads, the other stands by.
"""

import contextlib
import platform
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from sentinel import __version__
from sentinel.agent.serve import exporter, turned
from sentinel.bus.bus import Bus
from sentinel.bus.embedded import EmbeddedBus
from sentinel.config import Config, address
from sentinel.coordinator.candidate import TICK_S, candidate
from sentinel.coordinator.figures import ClusterFigures
from sentinel.coordinator.leader import Leader
from sentinel.coordinator.names import bus_folder
from sentinel.coordinator.notices import Notifier
from sentinel.core.rules import Rule
from sentinel.groups import Coordination
from sentinel.metrics.exporter import Health, Pages, write_textfile
from sentinel.metrics.tally import Snapshot, gauges, merged
from sentinel.model.stamp import Stamp
from sentinel.plumbing.clock import Clock
from sentinel.plumbing.notify import Heartbeat, notify


@dataclass(slots=True)
class Alone:
    """`run` until `stop` is set; `turn` is one round, for tests."""

    bus: Bus
    leader: Leader
    notifier: Notifier
    figures: ClusterFigures
    clock: Clock
    tick_s: float = TICK_S
    textfile: str = ""
    stop: threading.Event = field(default_factory=threading.Event)
    turned: Stamp | None = None
    _heartbeat: Heartbeat = field(default_factory=Heartbeat)
    _said: str = ""
    _written: Snapshot | None = None
    _unwritten: str = ""

    def run(self) -> None:
        """Turn until stopped."""
        try:
            while not self.stop.wait(self.tick_s):
                self.turn()
                self._heartbeat.beat(self.clock.now().mono_s)
        finally:
            self.notifier.close()
            self.bus.close()

    def turn(self) -> None:
        """One round: lead or stand by, tell, count."""
        now = self.clock.now()
        self.leader.turn(now)
        self.notifier.turn(now.mono_s, self.leader.leading)
        self.figures.look(now)
        self._write()
        self.turned = now
        says = self.leader.trouble or ("leading" if self.leader.leading else "standing by")
        if says != self._said:
            self._said = says
            structlog.get_logger().info("coordination", says=says)
            notify(STATUS=says)

    def _write(self) -> None:
        """Bring the file for node_exporter up to date; what keeps it from being written is said once."""
        told, page = self.figures.measured, self.page()
        if not self.textfile or page is None or told is self._written:
            return
        self._written = told
        trouble = write_textfile(Path(self.textfile), page)
        if trouble and trouble != self._unwritten:
            structlog.get_logger().error("metrics_unavailable", why=trouble)
        self._unwritten = trouble

    def page(self) -> Snapshot | None:
        """What a scrape shows."""
        told = self.figures.measured
        build = gauges({"sentinel_build_info": {(__version__, platform.python_version()): 1.0}})
        return None if told is None else merged(tuple(build), told)

    def healthy(self) -> Health:
        """Whether the loop turns."""
        turn = self.turned
        return Health(True, "starting") if turn is None else turned(self.clock.now().mono_s - turn.mono_s)

    def ready(self) -> Health:
        """Whether the bus answers."""
        return Health(
            self.turned is not None and not self.leader.trouble, self.leader.trouble or self._said or "starting"
        )


def open_alone(config: Config, found: Coordination, rules: Sequence[Rule], clock: Clock) -> Alone:
    """All parts, wired. Raises BusDown."""
    scale = config.timing.time_scale
    bus = EmbeddedBus(bus_folder(Path(config.folders.state)))
    leader = candidate(bus, found, rules, clock.now(), scale)
    notifier, textfile = Notifier(bus, found.coordinator), found.coordinator.metrics_textfile
    return Alone(bus, leader, notifier, ClusterFigures(leader, notifier), clock, TICK_S / scale, textfile)


@contextlib.contextmanager
def page_of(alone: Alone, config: Config, found: Coordination) -> Iterator[int | None]:
    """Serve its metrics while the block runs; yields the port, None when nothing listens. It cannot stop the lead."""
    listen = found.coordinator.metrics_listen
    if not listen:
        yield None
        return
    try:
        pages = Pages(snapshot=alone.page, healthy=alone.healthy, ready=alone.ready)
        page = exporter(config.metrics, address("coordinator.metrics_listen", listen), pages)
        port = page.open()
    except OSError as error:
        structlog.get_logger().error("metrics_unavailable", why=f"{listen}: {error.strerror or error}")
        yield None
        return
    try:
        yield port
    finally:
        page.close()
