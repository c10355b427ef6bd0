"""The limits of the units under control groups v2, in a virtual machine, because most hosts of tests have v1 or both.

Needs root, debootstrap, qemu-system-x86, cpio, a Debian mirror and some minutes: `SENTINEL_QEMU=1 pytest
tests/deploy/test_qemu.py`. The whole system is one initial RAM file system: no module, disk or network is needed.
"""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.test_booted import base_system, put_package

TOOLS = ("debootstrap", "qemu-system-x86_64", "cpio", "dpkg-deb", "apt-get")
WITHIN_S = 900
MIB = 1 << 20
pytestmark = [
    pytest.mark.timeout(2400),
    pytest.mark.skipif(os.environ.get("SENTINEL_QEMU") != "1", reason="takes minutes and a machine; SENTINEL_QEMU=1"),
]
PROBE = r"""#!/bin/sh
say() { echo "PROBE $*" > /dev/ttyS0; }
like() {  # a unit of ours with another program: name, program
    sed -e "s|^ExecStart=.*|ExecStart=$3|" -e '/^WatchdogSec/d' -e 's/^Type=.*/Type=exec/' \
        -e 's/^Restart=.*/Restart=no/' -e 's/^RuntimeMaxSec=.*/RuntimeMaxSec=60/' -e '/^CollectMode/d' \
        "/etc/systemd/system/$1" > "/etc/systemd/system/$2"
    systemctl daemon-reload
    systemctl start "$2"
}
group() { echo /sys/fs/cgroup"$(systemctl show --value --property=ControlGroup "$1")"; }

say hierarchy "$(stat -f -c %T /sys/fs/cgroup)" "$(cat /sys/fs/cgroup/cgroup.controllers)"
/opt/sentinel/bin/sentinel install > /tmp/install 2>&1 || say install "$(tail -1 /tmp/install)"
for _ in $(seq 60); do
    systemctl is-active --quiet sentinel-agent.service && break
    sleep 5
done
say agent "$(systemctl is-active sentinel-agent.service)"
for file in memory.max memory.high cpu.max pids.max cpu.weight; do
    say "agent.$file" "$(cat "$(group sentinel-agent.service)/$file")"
done
say slice.memory.max "$(cat /sys/fs/cgroup/sentinel.slice/memory.max)"
sleep 15
say agent.memory.current "$(cat "$(group sentinel-agent.service)/memory.current")"
systemctl stop sentinel-agent.service

like sentinel-agent.service busy.service "/usr/bin/python3 -c 'while True: pass'"
busy=$(group busy.service)
before=$(awk '/usage_usec/{print $2}' "$busy/cpu.stat"); sleep 10
after=$(awk '/usage_usec/{print $2}' "$busy/cpu.stat")
say busy.usec_in_10_s $((after - before))
say busy.throttled "$(awk '/nr_throttled/{print $2}' "$busy/cpu.stat")"
systemctl kill --signal=KILL busy.service

like sentinel-agent.service many.service "/usr/bin/python3 /many.py"
sleep 10
say many.pids "$(cat "$(group many.service)/pids.current")" "$(cat "$(group many.service)/pids.events")"
systemctl kill --signal=KILL many.service

like sentinel-helper@.service greedy.service "/usr/bin/python3 -c 'x = bytearray(900 << 20)'"
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    systemctl is-active --quiet greedy.service || break
    sleep 1
done
say greedy.result "$(systemctl show --value --property=Result greedy.service)"

like sentinel-agent.service creeping.service "/usr/bin/python3 -c 'x = bytearray(900 << 20)'"
sleep 15
say creeping.memory.current "$(cat "$(group creeping.service)/memory.current" 2>/dev/null || echo ended)"
say creeping.events "$(tr '\n' ' ' < "$(group creeping.service)/memory.events" 2>/dev/null)"
say creeping.result "$(systemctl show --value --property=Result creeping.service)"
say end
systemctl poweroff --force --force
"""
MANY = """
import threading
over = threading.Event()
try:
    for _ in range(500):
        threading.Thread(target=over.wait).start()
except RuntimeError:
    pass
over.wait()
"""
SLOW = """[Service]
# The processor is emulated: what takes a second takes half a minute.
TimeoutStartSec=600
WatchdogSec=600
"""
UNIT = """[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/probe.sh
"""


def put_dependencies(root: Path) -> None:
    """What the package needs, and what that needs, from this interpreter."""
    target, waiting, done = root / "opt" / "dependencies", ["engine-sentinel"], set[str]()
    while waiting:
        name = waiting.pop()
        if name in done:
            continue
        done.add(name)
        wishes = [wish for wish in importlib.metadata.requires(name) or () if "extra ==" not in wish]
        waiting += [re.split(r"[^A-Za-z0-9._-]", wish)[0] for wish in wishes]
        if name != "engine-sentinel":
            for file in importlib.metadata.files(name) or ():
                source = Path(str(file.locate()))
                if ".." not in file.parts and source.is_file():
                    (target / file).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(source, target / file)


def kernel(folder: Path) -> Path:
    """Debian's kernel for virtual machines."""
    shown = subprocess.run(
        ["apt-cache", "depends", "linux-image-cloud-amd64"], capture_output=True, text=True, check=True
    )
    name = next(line.split()[-1] for line in shown.stdout.splitlines() if "Depends: linux-image" in line)
    subprocess.run(["apt-get", "download", "-q", name], cwd=folder, check=True, capture_output=True, timeout=300)
    subprocess.run(
        ["dpkg-deb", "-x", next(folder.glob("linux-image*.deb")), folder / "kernel"], check=True, timeout=300
    )
    return next((folder / "kernel" / "boot").glob("vmlinuz-*"))


def image(root: Path, target: Path) -> Path:
    """The system as an initial RAM file system."""
    for noise in ("var/cache/apt", "usr/share/doc", "usr/share/locale", "usr/share/man", "var/lib/apt/lists"):
        shutil.rmtree(root / noise, ignore_errors=True)
    with target.open("wb") as file:
        names = subprocess.run(["find", ".", "-xdev", "-print0"], cwd=root, check=True, capture_output=True).stdout
        subprocess.run(["cpio", "--quiet", "-0", "-o", "-H", "newc"], cwd=root, input=names, stdout=file, check=True)
    return target


def said(folder: Path) -> Iterator[tuple[str, str]]:
    """What the probe inside says, from boot to power-off."""
    root = base_system(folder)
    put_package(root, "1.0.0")
    put_dependencies(root)
    (root / "probe.sh").write_text(PROBE)
    (root / "probe.sh").chmod(0o755)
    (root / "many.py").write_text(MANY)
    units = root / "etc" / "systemd" / "system"
    (units / "probe.service").write_text(UNIT)
    (units / "sentinel-agent.service.d").mkdir(exist_ok=True)
    (units / "sentinel-agent.service.d" / "slow.conf").write_text(SLOW)
    (units / "default.target.wants").mkdir(exist_ok=True)
    (units / "default.target.wants" / "probe.service").symlink_to("../probe.service")
    initrd, vmlinuz = image(root, folder / "image"), kernel(folder)
    argv = [
        "qemu-system-x86_64",
        "-accel",
        "tcg",
        "-m",
        "4096",
        "-smp",
        "1",
        "-nographic",
        "-no-reboot",
        "-nic",
        "none",
    ]
    argv += ["-kernel", str(vmlinuz), "-initrd", str(initrd)]
    argv += ["-append", "console=ttyS0 quiet rdinit=/lib/systemd/systemd systemd.show_status=0"]
    ran = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=WITHIN_S)
    for line in ran.stdout.splitlines():
        if found := re.search(r"PROBE (\S+) ?(.*?)\s*$", line):
            yield found[1], found[2]


def test_the_limits_of_the_units_hold(tmp_path: Path) -> None:
    """If false, the watcher takes from the engine what it was promised not to take."""
    lacking = [tool for tool in TOOLS if shutil.which(tool) is None]
    assert lacking == [] and os.geteuid() == 0 and sys.version_info[:2] == (3, 11), (
        f"lacks {lacking}; as root, on Debian 12"
    )
    told = dict(said(tmp_path))
    for name, value in told.items():
        sys.stdout.write(f"{name}: {value}\n")

    assert "end" in told and told["hierarchy"].startswith("cgroup2fs"), told
    assert told["agent"] == "active", told
    limits = {name: told[f"agent.{name}"] for name in ("memory.max", "memory.high", "cpu.max", "pids.max")}
    assert limits == {
        "memory.max": str(256 * MIB), "memory.high": str(192 * MIB), "cpu.max": "50000 100000", "pids.max": "64",
    }  # fmt: skip
    assert told["slice.memory.max"] == str(2048 * MIB)
    assert int(told["agent.memory.current"]) < 192 * MIB
    assert int(told["busy.usec_in_10_s"]) < 6_500_000 and int(told["busy.throttled"]) > 0
    assert int(told["many.pids"].split()[0]) <= 64 and "max 0" not in told["many.pids"]
    assert told["greedy.result"] == "oom-kill"
    assert told["creeping.memory.current"] == "ended" or int(told["creeping.memory.current"]) <= 256 * MIB
