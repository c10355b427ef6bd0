"""A defect of ours in what coordinates."""

import threading
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from sentinel.agent.loop import AgentLoop
from sentinel.config import Config, Folders, Metrics, Timing
from sentinel.coordinator.alone import open_alone
from sentinel.coordinator.embed import Coordinated, coordinating
from sentinel.coordinator.names import ORDERS
from sentinel.groups import Coordination, Group
from sentinel.metrics.exposition import encode
from sentinel.model.cluster import AnyClusterEffect, Order
from sentinel.model.stamp import Stamp
from sentinel.plumbing.clock import SystemClock
from tests.agent.targets import eventually
from tests.coordination.cluster_world import RULES
from tests.metrics.scrapes import OPENMETRICS, samples, value

SCALE = 20.0


@pytest.mark.timeout(120)
def test_a_defect_ends_the_lead_and_not_the_thread(tmp_path: Path) -> None:
    """False: nobody coordinates any more, nobody takes over, and the page says for ever that this process leads."""
    folders, timing = Folders(state=str(tmp_path / "state")), Timing(time_scale=SCALE)
    loop = AgentLoop(Config(folders=folders, metrics=Metrics(listen=""), timing=timing), RULES, SystemClock())
    broken = threading.Event()
    broken.set()

    def hear(_at: Stamp, _effect: AnyClusterEffect) -> None:
        if broken.is_set():
            raise RuntimeError("a listener that fails")

    with capture_logs() as logged, coordinating(loop, Coordination(groups={"chat": Group()}), RULES) as together:
        assert together is not None
        eventually(lambda: leads(together) == 1)
        before = epoch(together)
        together.leader.listeners.append(hear)
        order = Order(id="1", verb="pause", reason="test", by="somebody", seconds=3600.0)
        together.bus.append(ORDERS, msgspec.json.encode(order), order.id)
        eventually(lambda: leads(together) == 0)
        broken.clear()
        eventually(lambda: leads(together) == 1)
        core = together.leader.core
        assert epoch(together) > before
        assert core is not None and core.state.paused_until_s is not None, "it goes on from the saved state"
    loop.close()

    (failed,) = [entry for entry in logged if entry["event"] == "coordination_failed"]
    assert "a listener that fails" in failed["why"] and "in hear" in failed["where"]


def test_a_defect_ends_a_process_of_its_own(tmp_path: Path) -> None:
    """False: systemd takes a coordinator for well that will never decide anything again."""
    config = Config(folders=Folders(state=str(tmp_path)), timing=Timing(time_scale=SCALE))
    alone = open_alone(config, Coordination(groups={"chat": Group()}), RULES, SystemClock())

    def hear(_at: Stamp, _effect: AnyClusterEffect) -> None:
        raise RuntimeError("a listener that fails")

    alone.leader.listeners.append(hear)
    alone.turn()
    order = Order(id="1", verb="pause", reason="test", by="somebody", seconds=3600.0)
    alone.bus.append(ORDERS, msgspec.json.encode(order), order.id)

    with pytest.raises(RuntimeError, match="a listener that fails"):
        alone.run()


def leads(together: Coordinated) -> float | None:
    """What the page says now about who leads."""
    told = together.figures.measured
    page = () if told is None else samples(encode(told, OPENMETRICS)[0].decode())
    return value(list(page), "sentinel_coordinator_leader")


def epoch(together: Coordinated) -> int:
    """The epoch of the lease as the leader knows it."""
    seen = together.leader.watch.seen
    return 0 if seen is None else seen.epoch
