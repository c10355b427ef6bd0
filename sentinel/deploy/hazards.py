"""What could hurt an engine when units are installed now, or keep them from working.

The gravest one: `systemctl daemon-reload`, which any installation of units needs, makes systemd rewrite the device
rules of running containers. Where GPUs were given to a container behind systemd's back, it loses them at that moment
(nvidia-container-toolkit, issues 48 and 1227). Links in /dev/char, or containers made with CDI, are safe.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sentinel.plumbing.subprocesses import run_bounded

SYSTEMD_MIN = 250
_CONTAINER = re.compile(r"(?:docker|containerd|crio|podman|kubepods|libpod)")
_GPU = re.compile(r"/dev/nvidia\d+$")
TOOL_S = 5.0


@dataclass(frozen=True, slots=True)
class Hazard:
    """Something that stands against an installation. `forcible`: `--force` may overrule it."""

    what: str
    fix: str
    forcible: bool


def hazards(root: Path, prefix: Path, proc: Path = Path("/proc"), dev: Path = Path("/dev")) -> Iterator[Hazard]:
    """Everything that is wrong with installing now; nothing is a good answer."""
    if os.geteuid() != 0:
        yield Hazard("not root", "run it with sudo; --plan needs no rights", forcible=False)
    if not (prefix / "bin" / "sentinel").is_file():
        yield Hazard(
            f"{prefix}/bin/sentinel does not exist",
            f"python3 -m venv {prefix} && {prefix}/bin/pip install engine-sentinel, or give --prefix",
            forcible=False,
        )
    if prefix.is_relative_to("/home") or prefix.is_relative_to("/root"):
        yield Hazard(f"{prefix} is below a home folder, which the units cannot see", "install to /opt/sentinel", False)
    if root == Path("/"):
        yield from _systemd()
        yield from containers(proc, dev)


def _systemd() -> Iterator[Hazard]:
    ran = run_bounded(["systemctl", "--version"], deadline_s=TOOL_S)
    found = re.match(rb"systemd (\d+)", ran.stdout)
    if found is None:
        yield Hazard(
            "no systemd on this host", "start `sentinel watch` with the supervisor that there is", forcible=False
        )
    elif int(found[1]) < SYSTEMD_MIN:
        yield Hazard(
            f"systemd {int(found[1])} is older than {SYSTEMD_MIN}",
            "upgrade it, or start `sentinel watch` another way",
            True,
        )
    elif not Path("/run/systemd/system").is_dir():
        yield Hazard("systemd does not run this host", "start `sentinel watch` with the supervisor that does", False)


def containers(proc: Path = Path("/proc"), dev: Path = Path("/dev")) -> Iterator[Hazard]:
    """Containers that a reload of systemd would take the GPUs from."""
    pids = sorted(gpu_containers(proc))
    missing = sorted(name for name in _gpu_devices(dev) if not _has_link(dev, name))
    if pids and missing:
        yield Hazard(
            f"containers use GPUs (pids {', '.join(map(str, pids[:8]))}) and /dev/char has no link to "
            f"{', '.join(missing)}: daemon-reload would take the GPUs away from them",
            "create the links: `nvidia-ctk system create-dev-char-symlinks --create-all`, or use CDI, or wait for a "
            "maintenance window",
            forcible=True,
        )


def gpu_containers(proc: Path) -> Iterator[int]:
    """Processes in containers that hold a GPU open."""
    for entry in proc.iterdir():
        if entry.name.isdecimal():
            try:
                group = (entry / "cgroup").read_text(errors="replace")
                if _CONTAINER.search(group) and any(_GPU.search(str(fd.readlink())) for fd in (entry / "fd").iterdir()):
                    yield int(entry.name)
            except OSError:
                continue


def _gpu_devices(dev: Path) -> list[str]:
    return [path.name for path in dev.glob("nvidia*") if re.fullmatch(r"nvidia(\d+|ctl|-uvm|-modeset)", path.name)]


def _has_link(dev: Path, name: str) -> bool:
    try:
        number = (dev / name).stat().st_rdev
    except OSError:
        return True
    return (dev / "char" / f"{os.major(number)}:{os.minor(number)}").exists()
