"""RDMA counters, port states and GID tables, compared between samples and with the configuration."""

from collections import defaultdict
from itertools import pairwise

from sentinel.core.fact import Cite, Fact, unknown
from sentinel.core.picture import Picture
from sentinel.model.observation import DeviceCounters, Environment, KernelEvent, NcclNote, NicGids

SAMPLES = "two samples of the RDMA counters, some seconds apart"
RISE = 3.0
"""Ack time-outs between two samples: a lost packet or two is healthy, a dead path gives several a second."""
MOVING_BYTES_PER_S = 64 * 1024.0
MOVING_OPS_PER_S = 20.0
ASSUMED_S = 10.0
"""Distance of two samples that carry no times."""

_TIMEOUTS = (
    "local_ack_timeout_err", "req_transport_retries_exceeded", "retry_exceeded_err", "retrans_timeout_events",
    "max_retry_exceeded",
)  # fmt: skip
_WORDS = ("port_xmit_data", "port_rcv_data")
_OPERATIONS = ("rx_write_requests", "rx_read_requests", "rx_atomic_requests")


def samples(picture: Picture) -> dict[tuple[str, str], list[DeviceCounters]]:
    """RDMA samples by (host, device), oldest first."""
    found: dict[tuple[str, str], list[DeviceCounters]] = defaultdict(list)
    for seen in picture.all(DeviceCounters):
        if seen.family == "rdma":
            found[seen.host or "", seen.device].append(seen)
    for seen_list in found.values():
        seen_list.sort(key=lambda seen: (_time(seen) or 0.0, seen.origin))
    return dict(found)


def _time(seen: DeviceCounters) -> float | None:
    return seen.at_s if seen.at_s is not None else seen.clock_s


def ack_timeouts_rising(picture: Picture) -> Fact:
    """Hosts on which acknowledgement time-outs rise; needs two samples of one device."""
    hosts: set[str] = set()
    cites: list[Cite] = []
    compared: DeviceCounters | None = None
    for (host, device), found in sorted(picture.memo(samples).items()):
        for name in _TIMEOUTS:
            values = [seen.values[name] for seen in found if name in seen.values]
            if len(values) < 2:
                continue
            compared = found[-1]
            if values[-1] - values[0] >= RISE:
                hosts.add(host)
                cites.append(Cite(f"{host} {device}: {name} {values[0]:.0f} -> {values[-1]:.0f}", found[-1].origin))
    if compared is None:
        return unknown(SAMPLES)
    return Fact(
        value=tuple(sorted(hosts)), cites=tuple(cites[:8]) or (Cite("ack time-outs do not rise", compared.origin),)
    )


def bytes_moving(picture: Picture) -> Fact:
    """Whether the newest two samples of any device differ by more than keep-alive traffic."""
    compared: tuple[float, float, DeviceCounters] | None = None
    for found in picture.memo(samples).values():
        for earlier, later in list(pairwise(found))[-1:]:
            rate = _rates(earlier, later)
            if rate is not None and (compared is None or rate > compared[:2]):
                compared = (*rate, later)
    if compared is None:
        return unknown(SAMPLES)
    bytes_s, operations_s, seen = compared
    says = f"{seen.host or ''} {seen.device}: {bytes_s / 1e6:.3f} MB/s and {operations_s:.0f} operations/s".strip()
    moving = bytes_s >= MOVING_BYTES_PER_S or operations_s >= MOVING_OPS_PER_S
    return Fact(value=moving, cites=(Cite(says, seen.origin),))


def _rates(earlier: DeviceCounters, later: DeviceCounters) -> tuple[float, float] | None:
    """(bytes, operations) a second; None when the samples share no such counter."""
    begin, end = _time(earlier), _time(later)
    elapsed_s = end - begin if begin is not None and end is not None and end > begin else ASSUMED_S
    both = set(earlier.values) & set(later.values)
    moved = {name: max(0.0, later.values[name] - earlier.values[name]) for name in both}
    data = [name for name in both if name in _WORDS or name.endswith("_bytes")]
    calls = [name for name in both if name in _OPERATIONS]
    if not data and not calls:
        return None
    total = sum(moved[name] * (4 if name in _WORDS else 1) for name in data)
    return total / elapsed_s, sum(moved[name] for name in calls) / elapsed_s


def down_ports(picture: Picture) -> list[DeviceCounters]:
    """Newest samples of ports that are down and that something else shows to be in use.

    Every server has ports without a cable; they are down all their life and mean nothing.
    """
    used = _used_devices(picture)
    return [
        found[-1]
        for (host, device), found in picture.memo(samples).items()
        if found[-1].states.get("state") == "DOWN" and ((host, device) in used or _has_flapped(found[-1]))
    ]


def _has_flapped(seen: DeviceCounters) -> bool:
    return any(seen.values.get(name, 0.0) > 1 for name in ("link_downed", "carrier_changes", "carrier_down_count"))


def _used_devices(picture: Picture) -> set[tuple[str, str]]:
    used: set[tuple[str, str]] = set()
    for note in picture.all(NcclNote):
        if note.topic == "network" and note.host:
            used.update((note.host, name) for name in note.fields.get("devices", "").split(",") if name)
        elif note.topic == "ib_async" and note.host and note.fields.get("device"):
            used.add((note.host, note.fields["device"]))
    for event in picture.all(KernelEvent):
        if event.event == "link_down" and event.host and event.device:
            used.add((event.host, event.device))
    return used


def gid_mismatch_hosts(picture: Picture) -> Fact:
    """Hosts on which a device that NCCL may use has no GID at the configured index."""
    tables: dict[str | None, NicGids] = {seen.host: seen for seen in picture.all(NicGids)}
    settings = [seen for seen in picture.all(Environment) if seen.values.get("NCCL_IB_GID_INDEX", "").isdecimal()]
    if not tables or not settings:
        return unknown("GID tables of the hosts (show_gids) and the value of NCCL_IB_GID_INDEX")
    hosts: set[str] = set()
    cites: list[Cite] = []
    for setting in settings:
        index = int(setting.values["NCCL_IB_GID_INDEX"])
        for host, table in tables.items():
            if setting.host is not None and host is not None and setting.host != host:
                continue
            lacking = sorted(
                device
                for device, indices in table.gids.items()
                if index not in indices and _may_use(setting.values.get("NCCL_IB_HCA", ""), device)
            )
            if lacking:
                hosts.add(host or "")
                cites.append(Cite(f"{host}: no GID {index} on {', '.join(lacking[:6])}", table.origin))
    first = settings[0]
    return Fact(
        value=tuple(sorted(hosts)), cites=tuple(cites[:6]) or (Cite("the GID index exists everywhere", first.origin),)
    )


def _may_use(hca: str, device: str) -> bool:
    """NCCL_IB_HCA: names are prefixes, `=` asks for the exact name, `^` excludes; empty allows all.

    >>> _may_use("^mlx5_1", "mlx5_1"), _may_use("mlx5", "mlx5_1"), _may_use("=mlx5_1:1", "mlx5_10")
    (False, True, False)
    """
    names = [part.partition(":")[0] for part in hca.lstrip("^=").split(",") if part]
    if not names:
        return True
    exact = "=" in hca[:2]
    listed = any(device == name if exact else device.startswith(name) for name in names)
    return not listed if hca.startswith("^") else listed
