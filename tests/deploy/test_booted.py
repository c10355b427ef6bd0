"""A whole life under a systemd that really booted: install, watch, hang, restart, ask the helper, upgrade, remove.

Needs root, debootstrap, systemd-nspawn, the Python of Debian 12 (3.11) and some minutes: `make booted`, or
`SENTINEL_BOOTED=1 pytest tests/deploy/test_booted.py`. A folder in SENTINEL_BOOTED_ROOT with an earlier debootstrap is
used as it is, and changed.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.agent.targets import eventually
from tests.tidy.sources import ROOT

TOOLS = ("debootstrap", "systemd-nspawn", "nsenter")
pytestmark = [
    pytest.mark.timeout(1200),
    pytest.mark.skipif(
        os.environ.get("SENTINEL_BOOTED") != "1", reason="takes minutes and a system; SENTINEL_BOOTED=1"
    ),
]
SITE = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
PATIENCE_S = 180.0


@dataclass(frozen=True)
class Machine:
    """A booted system, entered through the namespaces of its first process."""

    root: Path
    leader: int

    def run(self, *argv: str, check: bool = True) -> str:
        """What a command inside says."""
        entered = ["nsenter", "--target", str(self.leader), "--all", "--wd=/", *argv]
        ran = subprocess.run(
            entered, capture_output=True, text=True, check=False, timeout=180, env={"PATH": "/usr/bin:/usr/sbin:/bin"}
        )
        assert not check or ran.returncode == 0, (argv, ran.stdout, ran.stderr)
        return ran.stdout.strip()

    def stop(self, pid: str) -> None:
        """SIGSTOP to a process inside."""
        self.run("/usr/bin/python3", "-c", f"import os, signal; os.kill({pid}, signal.SIGSTOP)")

    def shows(self, unit: str, field: str) -> str:
        """A property of a unit."""
        return self.run("systemctl", "show", "--value", f"--property={field}", unit)

    def status(self) -> dict[str, Any]:
        """What the agent knows, asked as its user."""
        told = self.run("/opt/sentinel/bin/sentinel", "status", "--json", check=False)
        found: dict[str, Any] = json.loads(told) if told.startswith("{") else {}
        return found


def lacking() -> list[str]:
    """What this host lacks; whoever asks for this test must not believe that it ran."""
    wanted = {tool: shutil.which(tool) is not None for tool in TOOLS}
    wanted |= {"root": os.geteuid() == 0, "Python 3.11, as in Debian 12": sys.version_info[:2] == (3, 11)}
    return [name for name, there in wanted.items() if not there]


def base_system(folder: Path) -> Path:
    """A minimal Debian with systemd."""
    given = os.environ.get("SENTINEL_BOOTED_ROOT")
    if given:
        return Path(given)
    root = folder / "rootfs"
    argv = ["debootstrap", "--variant=minbase", "--include=systemd,dbus,python3", "bookworm", str(root)]
    subprocess.run(argv, check=True, capture_output=True, timeout=900)
    return root


def put_package(root: Path, version: str) -> None:
    """The package in a virtual environment at /opt/sentinel, with the dependencies of this test's interpreter."""
    home = root / "opt" / "sentinel"
    shutil.rmtree(home, ignore_errors=True)
    (home / "bin").mkdir(parents=True)
    (home / SITE).mkdir(parents=True)
    (home / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (home / "bin" / "python").symlink_to("/usr/bin/python3")
    script = home / "bin" / "sentinel"
    script.write_text("#!/opt/sentinel/bin/python\nfrom sentinel.cli import main\nmain()\n")
    script.chmod(0o755)
    shutil.copy(Path(sys.executable).parent / "py-spy", home / "bin" / "py-spy")
    (home / SITE / "dependencies.pth").write_text("/opt/dependencies\n")
    shutil.copytree(
        ROOT / "sentinel", home / SITE / "sentinel", ignore=shutil.ignore_patterns("__pycache__", ".mypy_cache")
    )
    init = home / SITE / "sentinel" / "__init__.py"
    init.write_text(f'"""Sentinel."""\n\n__version__ = "{version}"\n')
    subprocess.run(["chmod", "-R", "a+rX", str(home)], check=True)


def systemd_of(nspawn: int) -> int:
    """The first process inside; 0 before it is what it will be."""
    for pid in Path(f"/proc/{nspawn}/task/{nspawn}/children").read_text().split():
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text() == "systemd\n":
                return int(pid)
    return 0


@contextlib.contextmanager
def booted(root: Path) -> Iterator[Machine]:
    """The system, from boot to power-off."""
    (root / "etc" / "systemd" / "system" / "sentinel-agent.service.d").mkdir(parents=True, exist_ok=True)
    (root / "etc" / "systemd" / "system" / "sentinel-agent.service.d" / "test.conf").write_text(
        "[Service]\nWatchdogSec=6\nTimeoutAbortSec=3\nEnvironment=SENTINEL_TIMING_TIME_SCALE=5\nEnvironment=SENTINEL_TIMING_CAPTURE_BUDGET_S=100\n"
    )
    (root / "etc" / "systemd" / "system" / "sentinel-coordinator.service.d").mkdir(parents=True, exist_ok=True)
    (root / "etc" / "systemd" / "system" / "sentinel-coordinator.service.d" / "test.conf").write_text(
        "[Service]\nWatchdogSec=6\nTimeoutAbortSec=3\nRestartSec=1\nEnvironment=SENTINEL_TIMING_TIME_SCALE=5\n"
    )
    argv = [
        "systemd-nspawn",
        "--quiet",
        "--boot",
        "--register=no",
        "--keep-unit",
        "--private-network",
        f"--directory={root}",
    ]
    argv += [f"--bind-ro={Path(sys.prefix) / SITE}:/opt/dependencies", "--console=pipe"]
    with (root.parent / "boot.log").open("wb") as log:
        nspawn = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        # nspawn's first child only prepares; the one that becomes systemd is process 1 inside.
        eventually(lambda: systemd_of(nspawn.pid), PATIENCE_S)
        machine = Machine(root, systemd_of(nspawn.pid))
        eventually(
            lambda: machine.run("systemctl", "is-system-running", check=False) in ("running", "degraded"), PATIENCE_S
        )
        # nspawn mounts a boot id of its own over the host's; a unit with a /proc of its own would see the other one.
        machine.run("umount", "/proc/sys/kernel/random/boot_id")
        yield machine
    finally:
        nspawn.terminate()
        nspawn.wait(timeout=120)


def test_a_life_under_systemd(tmp_path: Path) -> None:
    """If false, what works in a terminal does not work as the service that people install."""
    assert lacking() == [], "apt-get install debootstrap systemd-container util-linux, and run it as root"
    root = base_system(tmp_path)
    put_package(root, "1.0.0")
    with booted(root) as machine:
        it_is_installed_and_starts(machine)
        pid = it_is_restarted_when_its_loop_hangs(machine)
        it_judges_with_the_helpers_stacks(machine)
        it_is_upgraded_and_keeps_what_it_knows(machine, pid)
        it_coordinates_from_a_unit_of_its_own(machine)
        it_is_removed_and_leaves_the_evidence(machine)


def it_is_installed_and_starts(machine: Machine) -> None:
    planned = machine.run("/opt/sentinel/bin/sentinel", "install", "--plan")
    assert (
        "run systemctl daemon-reload" in planned
        and not (machine.root / "etc/systemd/system/sentinel-agent.service").exists()
    )
    machine.run("/opt/sentinel/bin/sentinel", "install")
    assert machine.run("systemctl", "is-active", "sentinel-agent.service", "sentinel-helper.socket") == "active\nactive"
    eventually(lambda: machine.status().get("agent"), PATIENCE_S)
    owner = machine.run("stat", "-c", "%U %a", "/var/lib/sentinel", "/run/sentinel-helper.sock")
    assert owner == "sentinel 750\nroot 660"
    seen = machine.run("cat", f"/proc/{machine.shows('sentinel-agent.service', 'MainPID')}/status")
    assert "CapEff:\t0000000000000000" in seen and "NoNewPrivs:\t1" in seen


def it_is_restarted_when_its_loop_hangs(machine: Machine) -> str:
    """SIGSTOP is the plainest of hung loops: nothing of the process turns any more."""
    before = machine.shows("sentinel-agent.service", "MainPID")
    machine.stop(before)
    eventually(lambda: machine.shows("sentinel-agent.service", "MainPID") not in (before, "0"), PATIENCE_S)
    eventually(
        lambda: machine.run("systemctl", "is-active", "sentinel-agent.service", check=False) == "active", PATIENCE_S
    )
    assert int(machine.shows("sentinel-agent.service", "NRestarts")) >= 1
    assert "Watchdog timeout" in machine.run("journalctl", "--unit=sentinel-agent.service", "--no-pager")
    return machine.shows("sentinel-agent.service", "MainPID")


def it_judges_with_the_helpers_stacks(machine: Machine) -> None:
    machine.run("mkdir", "-p", "/srv/engine")
    argv = ["/opt/sentinel/bin/python", "-m", "sentinel.testing.rehearsal", "--role", "launcher", "--ranks", "2"]
    machine.run("systemd-run", "--unit=rehearsal", "--", *argv, "--folder", "/srv/engine", "--port", "18000")
    group = machine.run("cat", f"/proc/{machine.shows('rehearsal.service', 'MainPID')}/cgroup")
    path = next(line.rpartition(":")[2] for line in group.splitlines() if line.startswith(("1:name=systemd:", "0::/")))
    policy = machine.root / "etc" / "sentinel" / "helper.conf"
    policy.write_text(policy.read_text() + f"allow-cgroup {path}\n")
    code = (
        "from pathlib import Path; from sentinel.testing.rehearsal.shared import Shared; "
        "Shared(Path('/srv/engine/shared')).put('running', 4)"
    )
    eventually(lambda: "fired up" in machine.run("journalctl", "--unit=rehearsal", "--no-pager"), PATIENCE_S)
    machine.run("/opt/sentinel/bin/python", "-c", code)
    eventually(lambda: [e["serving"] for e in machine.status().get("engines", ())] == ["working"], PATIENCE_S)
    assert machine.shows("sentinel-kstack.socket", "ActiveState") == "inactive", "nobody has asked for it"
    machine.run("systemctl", "start", "sentinel-kstack.socket")
    machine.run("systemctl", "restart", "sentinel-agent.service")
    eventually(
        lambda: any(c["what"] == "stacks" and c["ok"] for c in machine.status().get("readiness", ())), PATIENCE_S
    )
    checks = [check for check in machine.status()["readiness"] if check["what"] == "stacks"]
    assert [check["says"] for check in checks] == ["through the helper"] * 2
    eventually(lambda: [e["serving"] for e in machine.status().get("engines", ())] == ["working"], PATIENCE_S)
    rank = next(p for p in machine.status()["engines"][0]["processes"] if p.get("rank") == 1)
    machine.stop(str(rank["id"]["pid"]))
    eventually(lambda: (machine.status().get("engines") or [{}])[0].get("verdict"), PATIENCE_S)
    verdict = machine.status()["engines"][0]["verdict"]
    assert verdict["class"] == "hang.stopped" and verdict["culprits"]["ranks"] == [1]
    stacks = list((machine.root / "var/lib/sentinel/incidents").glob("*/evidence/pass*-py-spy-*.json"))
    assert len(stacks) >= 2, "both ranks, through the helper"
    asked = machine.run("journalctl", "--no-pager", "--unit=sentinel-helper@*")
    assert "verb=python_stacks" in asked and "verb=describe" in asked
    threads = [
        path.read_text() for path in (machine.root / "var/lib/sentinel/incidents").glob("*/evidence/pass*-threads-*")
    ]
    assert any("stack=[<0>] " in text for text in threads), "from the kernel, through the optional service"
    assert "verb=kernel_stacks" in machine.run("journalctl", "--no-pager", "--unit=sentinel-kstack@*")


def it_is_upgraded_and_keeps_what_it_knows(machine: Machine, pid: str) -> None:
    incidents = sorted(path.name for path in (machine.root / "var/lib/sentinel/incidents").iterdir())
    put_package(machine.root, "2.0.0")
    machine.run("/opt/sentinel/bin/sentinel", "install")
    eventually(lambda: machine.status().get("version") == "2.0.0", PATIENCE_S)
    assert machine.shows("sentinel-agent.service", "MainPID") != pid
    assert sorted(path.name for path in (machine.root / "var/lib/sentinel/incidents").iterdir()) == incidents
    assert machine.run("systemctl", "is-active", "rehearsal.service") == "active", (
        "the engine is none of an upgrade's business"
    )


def it_coordinates_from_a_unit_of_its_own(machine: Machine) -> None:
    config = machine.root / "etc" / "sentinel" / "sentinel.yaml"
    config.write_text("groups: {chat: {port: 18000}}\n")
    config.chmod(0o644)
    assert machine.shows("sentinel-coordinator.service", "ActiveState") == "inactive", "nobody has asked for it yet"
    machine.run("systemctl", "restart", "sentinel-agent.service")
    eventually(lambda: figure(machine, 9469, "sentinel_coordinator_leader") == "1.0", PATIENCE_S)
    machine.run("/opt/sentinel/bin/sentinel", "install", "--coordinator")
    unit = "sentinel-coordinator.service"
    eventually(lambda: figure(machine, 9470, "sentinel_coordinator_leader") is not None, PATIENCE_S)
    leads = [figure(machine, port, "sentinel_coordinator_leader") for port in (9469, 9470)]
    assert sorted(map(str, leads)) == ["0.0", "1.0"], "the sandbox must not take a rival that it cannot see for dead"
    config.write_text("groups: {chat: {port: 18000}}\ncoordinator: {embedded: false}\n")
    machine.run("systemctl", "restart", "sentinel-agent.service")
    eventually(lambda: figure(machine, 9470, "sentinel_coordinator_leader") == "1.0", PATIENCE_S)
    eventually(lambda: figure(machine, 9470, 'sentinel_nodes{state="healthy"}') == "1.0", PATIENCE_S)
    before = machine.shows(unit, "MainPID")
    seen = machine.run("cat", f"/proc/{before}/status")
    assert "CapEff:\t0000000000000000" in seen and "NoNewPrivs:\t1" in seen
    machine.stop(before)
    eventually(lambda: machine.shows(unit, "MainPID") not in (before, "0"), PATIENCE_S)
    assert "Watchdog timeout" in machine.run("journalctl", f"--unit={unit}", "--no-pager")
    eventually(lambda: figure(machine, 9470, "sentinel_coordinator_leader") == "1.0", PATIENCE_S)


def figure(machine: Machine, port: int, name: str) -> str | None:
    """A value of a page inside; None while it is not there."""
    code = f"import urllib.request as u; print(u.urlopen('http://127.0.0.1:{port}/metrics', timeout=5).read().decode())"
    page = machine.run("/usr/bin/python3", "-c", code, check=False)
    return next((line.rpartition(" ")[2] for line in page.splitlines() if line.startswith(f"{name} ")), None)


def it_is_removed_and_leaves_the_evidence(machine: Machine) -> None:
    machine.run("/opt/sentinel/bin/sentinel", "install", "--remove")
    assert machine.run("systemctl", "is-active", "sentinel-agent.service", check=False) in ("inactive", "unknown")
    assert not (machine.root / "etc/systemd/system/sentinel-agent.service").exists()
    assert not (machine.root / "etc/systemd/system/sentinel-coordinator.service").exists()
    assert (
        list((machine.root / "var/lib/sentinel/incidents").iterdir())
        and (machine.root / "etc/sentinel/helper.conf").exists()
    )
    assert machine.run("systemctl", "is-active", "rehearsal.service") == "active"
