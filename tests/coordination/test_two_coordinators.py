"""A coordinator inside the watch and one of its own over one bus: real processes, killed and frozen."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
import yaml
from structlog.testing import capture_logs

from sentinel.bus.embedded import EmbeddedBus
from sentinel.bus.memory import MemoryBus
from sentinel.config import Config, Folders, Metrics
from sentinel.coordinator.alone import open_alone, page_of
from sentinel.coordinator.asking import notices
from sentinel.coordinator.candidate import HolderGone, pid_namespace
from sentinel.coordinator.names import LEASE, NOTICES, bus_folder
from sentinel.coordinator.notices import Notifier
from sentinel.groups import Coordination, Coordinator, Group
from sentinel.model.cluster import Told
from sentinel.model.group import Lease
from sentinel.plumbing.clock import SystemClock
from sentinel.testing.ports import free_port
from sentinel.testing.virtual import VirtualClock
from tests.agent.targets import IDLE, eventually, identity, python
from tests.coordination.cluster_world import RULES
from tests.metrics.scrapes import get, scraped, value

SCALE = 5.0
WITHIN_S = 60.0


@dataclass
class Box:
    """A state folder and a configuration with one group; metrics of the two processes on ports of their own."""

    folder: Path
    embedded: bool = True

    def __post_init__(self) -> None:
        self.ports = {"watch": free_port(), "coordinate": free_port()}
        self.config = self.folder / "sentinel.yaml"
        self.config.write_text(yaml.safe_dump({
            "folders": {"state": str(self.folder / "state")}, "timing": {"time_scale": SCALE},
            "metrics": {"listen": f"127.0.0.1:{self.ports['watch']}"}, "groups": {"chat": {"hosts": ["here"]}},
            "coordinator": {"host": "here", "metrics_listen": f"127.0.0.1:{self.ports['coordinate']}",
                            "embedded": self.embedded},
        }))  # fmt: skip

    @contextlib.contextmanager
    def running(self, verb: str, **environ: str) -> Iterator["subprocess.Popen[bytes]"]:
        """`sentinel watch` or `sentinel coordinate`, killed with the block."""
        # With clocks divided, every other engine of this host would look slow.
        words = (verb, "--only-named", "none") if verb == "watch" else (verb,)
        argv = [sys.executable, "-m", "sentinel", *words, "--config", str(self.config)]
        with (self.folder / f"{verb}.log").open("ab") as log:
            process = subprocess.Popen(argv, stdout=log, stderr=log, env={**os.environ, **environ})
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def leads(self, verb: str) -> bool:
        """Whether this process says on its page that it leads."""
        with contextlib.suppress(OSError, AssertionError):
            return value(scraped(self.ports[verb]), "sentinel_coordinator_leader") == 1
        return False

    def lease(self) -> Lease:
        bus = EmbeddedBus(bus_folder(self.folder / "state"))
        slot = bus.read(LEASE)
        bus.close()
        assert slot is not None
        return msgspec.json.decode(slot.data, type=Lease)

    def pause(self) -> int:
        """An order of a person; its exit status."""
        argv = [sys.executable, "-m", "sentinel", "pause", "--reason", "test", "--config", str(self.config)]
        return subprocess.run(argv, capture_output=True, timeout=60, check=False).returncode


@pytest.mark.timeout(240)
@pytest.mark.parametrize("order", [("watch", "coordinate"), ("coordinate", "watch")])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_when_the_one_that_leads_is_gone_the_other_takes_over(
    tmp_path: Path, order: tuple[str, str], how: signal.Signals
) -> None:
    """False: a box with two coordinators has none, or two, after one of them dies or freezes."""
    box, (first, second) = Box(tmp_path), order
    with box.running(first) as leading:
        eventually(lambda: box.leads(first), WITHIN_S)
        before = box.lease()
        with box.running(second) as standing:
            eventually(lambda: get_ok(box, second), WITHIN_S)
            assert not box.leads(second) and box.lease().holder == before.holder
            assert f":{leading.pid}:" in before.holder
            os.kill(leading.pid, how)
            eventually(lambda: box.leads(second), WITHIN_S)
            after = box.lease()
            assert f":{standing.pid}:" in after.holder and after.epoch == before.epoch + 1
            assert box.pause() == 0
            if how == signal.SIGSTOP:
                os.kill(leading.pid, signal.SIGCONT)
                eventually(lambda: get_ok(box, first) and not box.leads(first), WITHIN_S)
                assert box.lease().holder == after.holder and box.leads(second)

    kept = EmbeddedBus(bus_folder(tmp_path / "state"))
    orders = [told for told in notices(kept) if told.what == "order"]
    kept.close()
    assert len(orders) == 1, "an order is obeyed once, by the one that leads"


def get_ok(box: Box, verb: str) -> bool:
    """Whether the process has turned, its page is served and its loop is well."""
    with contextlib.suppress(OSError, AssertionError):
        known = value(scraped(box.ports[verb]), "sentinel_coordinator_leader") is not None
        return known and get(box.ports[verb], "/healthz").status == 200
    return False


def test_systemd_hears_the_loop_and_learns_who_leads(tmp_path: Path) -> None:
    """False: systemd kills a coordinator that is well, or never notices one that hangs."""
    box, heard = Box(tmp_path), set()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(WITHIN_S)
        with box.running("coordinate", NOTIFY_SOCKET=str(tmp_path / "notify"), WATCHDOG_USEC="800000") as process:
            pings = 0
            while pings < 3:
                message = systemd.recv(1000)
                heard.add(message)
                pings += message == b"WATCHDOG=1"
            process.terminate()
            process.wait(timeout=WITHIN_S)
            systemd.settimeout(1.0)
            with contextlib.suppress(TimeoutError):
                while True:
                    heard.add(systemd.recv(1000))

    assert {b"READY=1\nSTATUS=standing by", b"STATUS=leading", b"STOPPING=1"} <= heard


@pytest.mark.timeout(180)
def test_a_watch_that_is_told_so_leaves_the_lead_to_the_other(tmp_path: Path) -> None:
    """False: where the separate coordinator is wanted, the agent goes on leading with the agent's limits."""
    box = Box(tmp_path, embedded=False)
    with box.running("watch") as watch:
        eventually(lambda: get_ok(box, "watch"), WITHIN_S)
        with box.running("coordinate") as coordinate:
            eventually(lambda: box.leads("coordinate"), WITHIN_S)
            eventually(lambda: value(scraped(box.ports["coordinate"]), "sentinel_nodes", state="healthy") == 1)
            assert not box.leads("watch") and f":{coordinate.pid}:" in box.lease().holder
            assert get(box.ports["coordinate"], "/readyz").text == "leading\n"
            coordinate.terminate()
            assert coordinate.wait(timeout=WITHIN_S) == 0
        assert watch.poll() is None


def test_a_configuration_without_groups_is_an_error_and_no_loop_of_restarts(tmp_path: Path) -> None:
    """False: a unit that has nothing to do is started again every five seconds for ever."""
    config = tmp_path / "sentinel.yaml"
    config.write_text("policy: {mode: observe}")
    argv = [sys.executable, "-m", "sentinel", "coordinate", "--config", str(config), "--state", str(tmp_path)]
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 2 and "add groups" in ran.stderr

    config.write_text("groups: {chat: {}}\ncoordinator: {metrics_listen: '0.0.0.0:9470'}")
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 2 and "coordinator.metrics_listen: 0.0.0.0 is not loopback" in ran.stderr

    config.write_text("groups: {chat: {}}")
    (tmp_path / "coordination").write_text("in the way")
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 4 and "check space and permissions" in ran.stderr


def test_a_rival_is_gone_only_when_that_is_certain() -> None:
    """False: a process that a sandbox hides is taken for dead, and two lead at once."""
    boot, pids = "b-1", pid_namespace()
    gone = HolderGone("here", boot, pids)
    with python(IDLE) as child:
        mine = identity(child.pid)
        name = f"here:{mine.pid}:{mine.started_ticks}"
        assert not gone(f"{name}:{boot}:{pids}")
        assert gone(f"here:{mine.pid}:{mine.started_ticks + 1}:{boot}:{pids}"), "the pid belongs to somebody else now"
        assert gone(f"{name}:another-boot:{pids}")
    ended = f"{name}:{boot}:{pids}"
    assert pids and gone(ended)
    assert not gone(f"there:{mine.pid}:{mine.started_ticks}:{boot}:{pids}"), "nothing is known of other hosts"
    assert not gone(f"{name}::{pids}") and not HolderGone("here", "", pids)(ended), "the boot cannot be told"
    assert not gone(f"{name}:{boot}:7") and not HolderGone("here", boot, "")(f"{name}:{boot}:"), "pids of a container"
    assert not gone(f"{name}:{boot}"), "a name of another form"


def test_the_page_of_a_process_that_coordinates_alone(tmp_path: Path) -> None:
    """False: whoever moves coordination out of the agent cannot scrape it, or a hung loop looks healthy."""
    config = Config(folders=Folders(state=str(tmp_path)), metrics=Metrics(listen=""))
    found = Coordination(groups={"chat": Group()}, coordinator=Coordinator(metrics_listen="127.0.0.1:0"))
    clock = VirtualClock()
    alone = open_alone(config, found, RULES, clock)
    with page_of(alone, config, found) as port:
        assert port is not None
        assert [get(port, path).status for path in ("/metrics", "/healthz", "/readyz")] == [503, 200, 503]
        alone.turn()
        assert [get(port, path).status for path in ("/metrics", "/healthz", "/readyz")] == [200, 200, 200]
        page = scraped(port)
        with capture_logs() as logged, page_of(alone, config, taken(port)) as second:
            assert second is None
        clock.run_until(60.0)
        assert [get(port, path).status for path in ("/metrics", "/healthz")] == [200, 503]
    alone.bus.close()

    assert value(page, "sentinel_coordinator_leader") == 1 and value(page, "sentinel_groups", state="calm") == 1
    assert any(sample.name == "sentinel_build_info" for sample in page)
    assert [entry["event"] for entry in logged] == ["metrics_unavailable"]


def test_where_nobody_scrapes_the_values_are_in_a_file(tmp_path: Path) -> None:
    """False: a site that has only node_exporter does not see who leads, or the log says so every other second."""
    config = Config(folders=Folders(state=str(tmp_path / "state")), metrics=Metrics(listen=""))
    clock, file = VirtualClock(), tmp_path / "textfiles" / "coordinator.prom"
    settings = Coordinator(metrics_listen="", metrics_textfile=str(file))
    found = Coordination(groups={"chat": Group()}, coordinator=settings)
    alone = open_alone(config, found, RULES, clock)
    with capture_logs() as logged, page_of(alone, config, found) as port:
        assert port is None
        for second in (3.0, 6.0, 9.0):
            clock.run_until(second)
            alone.turn()
        file.parent.mkdir()
        clock.run_until(12.0)
        alone.turn()
    alone.bus.close()

    text = file.read_text()
    assert "sentinel_coordinator_leader 1.0" in text and "sentinel_build_info{" in text
    assert [entry["event"] for entry in logged if entry["log_level"] == "error"] == ["metrics_unavailable"]


def taken(port: int) -> Coordination:
    """A configuration whose port is in use."""
    return Coordination(groups={"chat": Group()}, coordinator=Coordinator(metrics_listen=f"127.0.0.1:{port}"))


def test_only_the_one_that_leads_tells_anybody() -> None:
    """False: with two processes every notice is sent twice."""
    bus = MemoryBus()
    first, second = Notifier(bus, Coordinator()), Notifier(bus, Coordinator())

    def tell(number: int) -> list[str]:
        told = Told(what="order", key=str(number), severity="info", words=f"number {number}")
        bus.append(NOTICES, msgspec.json.encode(told), told.key)
        with capture_logs() as logged:
            first.turn(float(number), leading=number < 3)
            second.turn(float(number), leading=number >= 3)
        return [entry["words"] for entry in logged]

    assert [tell(number) for number in range(5)] == [[f"number {number}"] for number in range(5)]


def test_the_clock_of_the_product_knows_its_boot() -> None:
    """False: no rival is ever known to be dead, and every takeover takes the whole lease."""
    assert SystemClock().now().boot_id
