"""Kernel messages with a known meaning: one function from the text of a line (frame taken off) to its event.

Sources of the formats: NVIDIA open kernel modules 595 and older prints, Linux 4.15 to 6.17 (hung_task, oom_kill,
nvme pci, AER, pciehp, APEI, EDAC), mlx5 core. Patterns are anchored on the invariant part of each message only.
"""

import re
from collections.abc import Callable
from typing import Literal, NamedTuple

from sentinel.core.xid import xid
from sentinel.model.observation import KernelKind

Severity = Literal["info", "warning", "error", "fatal"]

XID = re.compile(
    r"NVRM: Xid \((?:PCI:)?(?P<pci>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})(?:\.[0-7])?"
    r"(?: GPU-I:(?P<gi>\d{1,18}))?(?: GPU-CI:(?P<ci>\d{1,18}))?\): (?P<xid>\d{1,5})(?:, pid='?"
    r"(?P<pid>\d{1,10}|<unknown>)'?)?"
    r"(?:, name=(?P<name>[^,]*))?,? ?(?P<text>.*?)(?: caused by previous Xid (?P<cause>\d{1,5}))?$"
)
SXID = re.compile(
    r"(?P<dev>nvidia-[\w-]{1,40}): SXid \(PCI:(?P<pci>[0-9a-fA-F:.]+)\): (?P<sxid>\d{1,6}), (?P<text>.*)$"
)
MLX5 = re.compile(
    r"mlx5_(?:core|ib) (?P<pci>[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])(?: (?P<netdev>[\w.@-]{1,32}))?: "
    r"(?:(?P<func>\w{1,64}):(?P<line>\d{1,6})(?::\(pid (?P<pid>\d{1,10})\))?: )?(?P<text>.*)$"
)
HUNG = re.compile(
    r"INFO: task (?P<comm>.{1,16}):(?P<pid>\d{1,10}) (?:blocked for more than (?P<secs>\d{1,18}) seconds\."
    r"|(?:<\w+> )?(?:is )?blocked on an? (?P<lock>[\w-]+)"
    r"(?:,| likely (?:owned|last held) by task (?P<ocomm>.{1,16}):(?P<opid>\d{1,10})))"
)
OOM = re.compile(
    r"(?P<scope>Out of memory|Memory cgroup out of memory)(?: \([^)]*\))?: "
    r"Kill(?:ed)? process (?P<pid>\d{1,10}) \((?P<comm>[^)]*)\)"
    r"(?: total-vm:(?P<vm>\d{1,18})kB, anon-rss:(?P<anon>\d{1,18})kB, file-rss:(?P<file>\d{1,18})kB"
    r"(?:, shmem-rss:(?P<shmem>\d{1,18})kB)?)?"
)
NVME = re.compile(
    r"nvme (?P<ctrl>nvme\d+): (?:I/O (?:tag )?(?P<tag>\d{1,18})(?: \((?P<cid>[^)]*)\))?"
    r"(?: opcode (?P<opc>0x[0-9a-f]+) \((?P<opname>[^)]*)\))? QID (?P<qid>\d{1,18}) timeout, "
    r"(?P<act>aborting|reset controller|completion polled|disable controller)"
    r"|(?P<down>controller is down; will reset: CSTS=0x[0-9a-f]+|Device not ready"
    r"|Disabling device after reset failure|Removing after probe failure))"
)
AER = re.compile(
    r"(?:(?P<drv>\w{1,32}) )?(?P<pci>[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])(?: \w{1,32})?: (?:AER: )?"
    r"(?:PCIe Bus Error: severity=(?P<sev>[\w ()-]+), type=(?P<type>[\w ]+)"
    r"|(?P<multi>Multiple )?(?P<msev>Corrected|Correctable|Uncorrect(?:ed|able) \((?:Non-)?Fatal\)) error "
    r"(?:message )?received(?: from|:) (?P<src>[0-9a-f:.]+))"
)

_BDF = re.compile(r"(?P<pci>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)")
_GPU_LOST = re.compile(r"NVRM: .{0,40}GPU.{0,60}(?:has fallen off the bus|is lost)|NVRM: .{0,100}RmInitAdapter failed")
_LOCKUP = re.compile(
    r"soft lockup - CPU#\d+ stuck for \d+s! \[(?P<comm>.{1,16}):(?P<pid>\d{1,10})\]|hard LOCKUP on cpu"
)
_SEGFAULT = re.compile(
    r"(?:traps: )?(?P<comm>[^\[\]]{1,32})\[(?P<pid>\d{1,10})\]:? (?:segfault at|general protection|trap )"
)
_DISK = re.compile(r"\bdev (?P<dev>[\w/-]{1,32})|\((?P<fs>[\w-]{1,32})\)")
_SERVER = re.compile(r"server (?P<server>\S{1,128}) (?:not responding|OK)")
_NETDEV = re.compile(r"(?P<netdev>[\w.@-]{1,32}): (?:NIC )?[Ll]ink (?:is )?(?P<way>[Uu]p|[Dd]own)\b")
_IB_PORT = re.compile(r"(?P<dev>\w{1,32}): Port: \d+ Link (?P<way>DOWN|ACTIVE)")


class Event(NamedTuple):
    """What one kernel line says; pids and devices as printed, PCI addresses in lower case."""

    kind: KernelKind
    severity: Severity = "error"
    code: int | None = None
    pci: str | None = None
    device: str | None = None
    comm: str | None = None
    pid: int | None = None
    cause: int | None = None


def _int(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _xid(text: str) -> Event | None:
    found = XID.search(text)
    if found is None:
        return None
    code = int(found["xid"])
    name = found["name"] if found["name"] != "<unknown>" else None
    return Event(
        "xid", xid(code).severity, code, found["pci"].lower(), comm=name or None, pid=_int(found["pid"]),
        cause=_int(found["cause"]),
    )  # fmt: skip


def _sxid(text: str) -> Event | None:
    found = SXID.search(text)
    if found is None:
        return None
    fatal = found["text"].startswith("Fatal")
    return Event("sxid", "fatal" if fatal else "warning", int(found["sxid"]), found["pci"].lower(), found["dev"])


def _nvrm(text: str) -> Event | None:
    if _GPU_LOST.search(text):
        pci = _BDF.search(text)
        return Event("gpu_lost", "fatal", pci=pci["pci"].lower() if pci else None)
    return Event("other", "info") if "Rate limiting GSP" in text else None


def _hung(text: str) -> Event | None:
    found = HUNG.search(text)
    if found is None:
        return None
    return Event("hung_task", "error", _int(found["secs"]), comm=found["comm"], pid=int(found["pid"]))


def _lockup(text: str) -> Event | None:
    found = _LOCKUP.search(text)
    if found is None:
        return None
    return Event("soft_lockup", "error", comm=found["comm"], pid=_int(found["pid"]))


def _rcu(text: str) -> Event | None:
    return Event("soft_lockup", "error") if "stall" in text else None


def _oom(text: str) -> Event | None:
    found = OOM.search(text)
    if found is None:
        return None
    device = "cgroup" if found["scope"].startswith("Memory cgroup") else None
    return Event("oom_kill", "fatal", device=device, comm=found["comm"], pid=int(found["pid"]))


def _nvme(text: str) -> Event | None:
    found = NVME.search(text)
    if found is None:
        return None
    return Event("nvme", "warning" if found["act"] == "completion polled" else "error", device=found["ctrl"])


def _io_error(text: str) -> Event:
    found = _DISK.search(text)
    return Event("io_error", "error", device=(found["dev"] or found["fs"]) if found else None)


def _nfs(text: str) -> Event:
    found = _SERVER.search(text)
    back = text.rstrip().endswith(" OK")
    return Event("nfs", "info" if back else "error", device=found["server"] if found else None)


def _aer(text: str) -> Event | None:
    found = AER.search(text)
    if found is None:
        return None
    level = found["sev"] or found["msev"]
    if level.startswith("Correct"):
        severity: Severity = "info"
    else:
        severity = "warning" if "Non-Fatal" in level else "fatal"
    return Event("aer", severity, pci=(found["src"] or found["pci"]).lower())


def _pcie_down(text: str) -> Event:
    found = _BDF.search(text)
    return Event("pcie_link_down", "error", pci=found["pci"].lower() if found else None)


def _memory_error(text: str) -> Event:
    corrected = any(word in text for word in (" CE ", "severity: corrected", "Corrected error", "severity: info"))
    return Event("mce", "info" if corrected else "error")


def _segfault(text: str) -> Event | None:
    found = _SEGFAULT.search(text)
    return Event("segfault", "error", comm=found["comm"].strip(), pid=int(found["pid"])) if found else None


_MLX5_TEXTS: tuple[tuple[str, KernelKind, Severity], ...] = (
    ("ACCESS_REG", "other", "info"),
    ("Link down", "link_down", "error"),
    ("Link up", "link_up", "info"),
    ("Cable plugged", "cable", "info"),
    ("Port module event", "cable", "error"),
    ("health compromised", "nic_health", "fatal"),
    ("Health issue observed", "nic_health", "error"),
    ("Fatal error", "nic_health", "fatal"),
    ("Will cause a leak", "nic_health", "fatal"),
    ("No done completion", "nic_health", "fatal"),
    ("handling bad device", "nic_health", "fatal"),
    ("mlx5_pci_err_detected", "nic_health", "fatal"),
    ("TX timeout", "nic_health", "error"),
    ("RX timeout", "nic_health", "error"),
)


def _mlx5(text: str) -> Event | None:
    found = MLX5.search(text)
    if found is None:
        return _ib_port(text)
    device = found["netdev"] or found["pci"]
    for needle, kind, severity in _MLX5_TEXTS:
        if needle in found["text"]:
            return Event(kind, severity, pci=found["pci"], device=device)
    return Event("mlx5", "info", pci=found["pci"], device=device)


def _ib_port(text: str) -> Event | None:
    if found := _IB_PORT.search(text):
        down = found["way"] == "DOWN"
        return Event("link_down" if down else "link_up", "error" if down else "info", device=found["dev"])
    return Event("mlx5", "error") if "dump_cqe" in text and "error" in text else None


def _netdev(text: str) -> Event | None:
    found, pci = _NETDEV.search(text), _BDF.search(text)
    if found is None:
        return None
    down = found["way"].lower() == "down"
    address = pci["pci"].lower() if pci else None
    return Event("link_down" if down else "link_up", "error" if down else "info", pci=address, device=found["netdev"])


def _always(kind: KernelKind, severity: Severity) -> Callable[[str], Event | None]:
    return lambda _text: Event(kind, severity)


_READERS: tuple[tuple[str, Callable[[str], Event | None]], ...] = (
    ("NVRM: Xid", _xid),
    (": SXid (", _sxid),
    ("NVRM:", _nvrm),
    ("mlx5_", _mlx5),
    ("INFO: task ", _hung),
    ("soft lockup", _lockup),
    ("hard LOCKUP", _lockup),
    ("rcu: INFO:", _rcu),
    ("ut of memory", _oom),
    ("nvme nvme", _nvme),
    ("I/O error", _io_error),
    ("Remounting filesystem read-only", _io_error),
    ("EXT4-fs error", _io_error),
    ("rejecting I/O to", _io_error),
    ("not responding, still trying", _nfs),
    ("not responding, timed out", _nfs),
    ("nfs: server", _nfs),
    ("PCIe Bus Error", _aer),
    ("error received", _aer),
    ("error message received", _aer),
    ("DPC: containment event", _always("aer", "fatal")),
    ("pciehp: Slot", _pcie_down),
    ("[Hardware Error]", _memory_error),
    ("EDAC ", _memory_error),
    ("Memory failure:", _memory_error),
    ("segfault at", _segfault),
    ("general protection", _segfault),
    ("traps: ", _segfault),
    ("Kernel panic", _always("panic", "fatal")),
    ("NETDEV WATCHDOG", _always("nic_health", "error")),
    ("ink is ", _netdev),
    ("link down", _netdev),
    ("cpu clock throttled", _always("throttle", "warning")),
    ("nv_get_p2p_free_callback", _always("other", "info")),
)
"""Substring that a line must hold -> the reader that decides; the first reader that knows the line wins."""


def event_of(text: str) -> Event | None:
    """Event of one kernel message; None when it has no known meaning.

    >>> event_of("mlx5_core 0000:01:00.0 enp1s0f0np0: Link down").kind
    'link_down'
    """
    for needle, read in _READERS:
        if needle in text and (event := read(text)) is not None:
            return event
    return None
