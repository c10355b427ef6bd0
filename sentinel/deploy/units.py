"""Which files an installation consists of, and where each goes below a root folder."""

from dataclasses import dataclass
from pathlib import Path

SHIPPED = Path(__file__).resolve().parent.parent / "systemd"
SHIPPED_PREFIX = "/opt/sentinel"
PLACES = {
    "sentinel-agent.service": "etc/systemd/system/sentinel-agent.service",
    "sentinel-coordinator.service": "etc/systemd/system/sentinel-coordinator.service",
    "sentinel-helper.socket": "etc/systemd/system/sentinel-helper.socket",
    "sentinel-helper@.service": "etc/systemd/system/sentinel-helper@.service",
    "sentinel-kstack.socket": "etc/systemd/system/sentinel-kstack.socket",
    "sentinel-kstack@.service": "etc/systemd/system/sentinel-kstack@.service",
    "sentinel.slice": "etc/systemd/system/sentinel.slice",
    "sentinel.sysusers.conf": "etc/sysusers.d/sentinel.conf",
    "sentinel.tmpfiles.conf": "etc/tmpfiles.d/sentinel.conf",
    "helper.conf": "etc/sentinel/helper.conf",
}
OURS_TO_KEEP = {"helper.conf"}
"""Files that an operator edits: never replaced, and kept when the rest is removed."""
ENABLED = ("sentinel-helper.socket", "sentinel-agent.service")
KERNEL_STACKS = "sentinel-kstack.socket"
"""Enabled only where it is asked for: what it starts holds CAP_SYS_ADMIN."""
COORDINATOR = "sentinel-coordinator.service"
"""Enabled only where it is asked for: without it the agent coordinates."""


@dataclass(frozen=True, slots=True)
class Install:
    """One file of an installation as it should be. `state`: new, changed, same, or kept."""

    path: Path
    text: str
    state: str


def wanted(root: Path, prefix: Path) -> tuple[Install, ...]:
    """All files for a Sentinel that is installed in the virtual environment `prefix`. Raises OSError."""
    found = []
    for name, place in PLACES.items():
        text = (SHIPPED / name).read_text().replace(f"{SHIPPED_PREFIX}/", f"{prefix}/")
        path = root / place
        present = path.read_text() if path.is_file() else None
        if present is None:
            state = "new"
        elif present == text:
            state = "same"
        else:
            state = "kept" if name in OURS_TO_KEEP else "changed"
        found.append(Install(path, text, state))
    return tuple(found)


def present(root: Path) -> tuple[Path, ...]:
    """Files of an installation that a removal takes away."""
    paths = (root / place for name, place in PLACES.items() if name not in OURS_TO_KEEP)
    return tuple(path for path in paths if path.is_file())
