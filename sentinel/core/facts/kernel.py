"""Facts of the kernel log: GPU faults, OOM kills, storage, network adapters; causes told from echoes by time."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from sentinel.core.fact import Cite, Fact, FactSpec, Value, unknown
from sentinel.core.facts._kernel_order import (
    STORAGE_RECENT_S,
    Order,
    application_causes,
    application_faults,
    causes,
    during_evidence,
    gpu_faults,
    order_of,
    rank_of_event,
    unread_hosts,
)  # fmt: skip
from sentinel.core.facts._moments import failure_s, in_order, moment_s
from sentinel.core.picture import Picture
from sentinel.core.placing import rank_of_pid
from sentinel.core.syscalls import is_storage_wait
from sentinel.core.timeline import progress
from sentinel.core.xid import xid
from sentinel.model.observation import DeviceCounters, KernelEvent, KernelLog

MISSING = "the kernel log of every host"
CITED = 8
OOM_KILLS = "memory.events.oom_kill"
_NIC = ("link_down", "nic_health", "cable")
_STORAGE = ("nvme", "io_error", "nfs")
_STORAGE_TASKS = (
    "jbd2/",
    "xfs-",
    "xfsaild",
    "kworker/u",
    "flush-",
    "lvm",
    "nfs",
    "mount",
    "dmsetup",
    "kjournald",
    "btrfs-",
    "md",
)
"""Beginnings of names of tasks that only ever block on storage."""
_ENGINE_COMMS = ("sglang::", "VLLM::", "python", "pt_main_thread", "trtllm", "vllm", "ray::")
NIC_RECENT_S = 900.0
_ORDERS: dict[Order, str] = {
    "before": ", before the stall", "during": ", during the stall", "late": ", late in the stall",
    "after": ", after the engine's own kill", "old": ", long before the stall", "unknown": "",
}  # fmt: skip


def _readable(picture: Picture) -> Fact:
    logs = list(picture.all(KernelLog))
    if not logs and not picture.has(KernelEvent):
        return unknown(MISSING)
    cites = [Cite(f"kernel log{f' of {log.host}' if log.host else ''}: {log.lines} lines", log.origin) for log in logs]
    return Fact(value=True, cites=tuple(cites[:CITED]))


def _blind(picture: Picture) -> bool:
    return not picture.has(KernelLog) and not picture.has(KernelEvent)


def _nothing(picture: Picture, value: Value) -> Fact:
    """A known "none" when the kernel log of every host was read; unknown when one was not."""
    if unread := picture.memo(unread_hosts):
        return unknown(f"kernel log of {', '.join(unread[:4])}")
    return Fact(value=value, cites=_readable(picture).cites)


def _says(picture: Picture, event: KernelEvent) -> str:
    """The event with its time and its place against the stall."""
    at_s = moment_s(picture, event)
    stamp = "" if at_s is None else f"{datetime.fromtimestamp(at_s, UTC):%H:%M:%S} "
    name = f" ({xid(event.code).name})" if event.event == "xid" and event.code is not None else ""
    return f"{stamp}{event.text[:140]}{name}{_ORDERS[order_of(picture, event)]}"


def _ranks(picture: Picture, events: Iterable[KernelEvent], missing: str) -> Fact:
    """Ranks that events speak of; unknown when there are events and none is placed."""
    if _blind(picture):
        return unknown(MISSING)
    ranks: set[int] = set()
    cites: list[Cite] = []
    for event in events:
        rank = rank_of_event(picture, event)
        ranks |= {rank} if rank is not None else set()
        cites.append(Cite(_says(picture, event), event.origin))
    if not cites:
        return _nothing(picture, ())
    if not ranks:
        return Fact(value=None, cites=tuple(cites[:CITED]), missing=(missing,))
    return Fact(value=tuple(sorted(ranks)), cites=tuple(cites[:CITED]))


def _hosts(picture: Picture, events: Iterable[KernelEvent]) -> Fact:
    """Hosts of events; unknown when there are events and their log names no host."""
    if _blind(picture):
        return unknown(MISSING)
    shown = list(events)
    hosts = {event.host for event in shown if event.host is not None}
    cites = tuple(Cite(_says(picture, event), event.origin) for event in shown[:CITED])
    if not shown:
        return _nothing(picture, ())
    if not hosts:
        return Fact(value=None, cites=cites, missing=("the host of the kernel log",))
    return Fact(value=tuple(sorted(hosts)), cites=cites)


def _gpu_fault(picture: Picture) -> Fact:
    if _blind(picture):
        return unknown(MISSING)
    found = picture.memo(causes)
    cites = tuple(Cite(_says(picture, event), event.origin) for event in found[:CITED])
    return Fact(value=True, cites=cites) if found else _nothing(picture, False)


def _gpu_fault_ranks(picture: Picture) -> Fact:
    return _ranks(picture, picture.memo(causes), "which rank uses the faulty GPU")


def _gpu_fault_hosts(picture: Picture) -> Fact:
    return _hosts(picture, picture.memo(causes))


def _gpu_fault_text(picture: Picture) -> Fact:
    found = picture.memo(causes)
    if not found:
        return unknown(MISSING)
    worst = max(found, key=lambda event: (event.severity == "fatal", event.event != "pcie_link_down"))
    return Fact(value=worst.text[:160], cites=(Cite(_says(picture, worst), worst.origin),))


def _app_xid_ranks(picture: Picture) -> Fact:
    return _ranks(picture, picture.memo(application_causes), "which rank uses that GPU")


def _app_xid_late(picture: Picture) -> Fact:
    """Application faults are only reported after the engine had failed or begun to end itself."""
    return _only_late(picture, picture.memo(application_faults), picture.memo(application_causes))


def _gpu_fault_late(picture: Picture) -> Fact:
    found = [*picture.memo(gpu_faults), *picture.memo(application_faults)]
    return _only_late(picture, found, [*picture.memo(causes), *picture.memo(application_causes)])


def _only_late(picture: Picture, everything: list[KernelEvent], timely: list[KernelEvent]) -> Fact:
    if _blind(picture):
        return unknown(MISSING)
    late = [event for event in everything if event not in timely and order_of(picture, event) != "old"]
    cites = tuple(Cite(_says(picture, event), event.origin) for event in late[:CITED])
    return Fact(value=not timely, cites=cites) if late else _nothing(picture, False)


def _oom_kills(picture: Picture) -> list[KernelEvent]:
    return [event for event in picture.all(KernelEvent) if event.event == "oom_kill"]


def _is_engine(picture: Picture, event: KernelEvent) -> bool:
    """Whether a killed process was one of the engine's: a rank, or one that bears an engine's short name."""
    if rank_of_pid(picture, event.host, event.pid) is not None:
        return True
    return (event.comm or "").startswith(_ENGINE_COMMS)


def _oom_ranks(picture: Picture) -> Fact:
    kills = [event for event in picture.memo(_oom_kills) if _is_engine(picture, event)]
    return _ranks(picture, kills, "the rank of the killed process")


def _cgroup_events(picture: Picture) -> list[DeviceCounters]:
    """The newest memory.events of each cgroup that was looked at."""
    newest = {
        (seen.host, seen.device): seen
        for seen in in_order(picture, picture.all(DeviceCounters))
        if seen.family == "cgroup" and OOM_KILLS in seen.values
    }
    return list(newest.values())


def _cgroup_oom(picture: Picture) -> Fact:
    """A cgroup counts its OOM kills since it was made, whether anybody reads the kernel log or not."""
    found = picture.memo(_cgroup_events)
    if not found:
        return unknown("memory.events of the engine's cgroup")
    counted = [seen for seen in found if seen.values[OOM_KILLS] > 0]
    cites = tuple(Cite(f"cgroup {seen.device}: oom_kill {seen.values[OOM_KILLS]:.0f}", seen.origin)
                  for seen in counted or found)  # fmt: skip
    return Fact(value=bool(counted), cites=cites[:CITED])


def _oom_hosts(picture: Picture) -> Fact:
    counted = [seen for seen in picture.memo(_cgroup_events) if seen.values[OOM_KILLS] > 0 and seen.host is not None]
    if _blind(picture) and not counted:
        return unknown(MISSING)
    fact = _hosts(picture, picture.memo(_oom_kills)) if not _blind(picture) else Fact(value=())
    named = fact.value if isinstance(fact.value, tuple) else ()
    hosts = {str(host) for host in named} | {seen.host for seen in counted if seen.host is not None}
    cites = fact.cites + tuple(
        Cite(f"{seen.values[OOM_KILLS]:.0f} OOM kills in cgroup {seen.device}", seen.origin) for seen in counted
    )
    return Fact(
        value=None if fact.value is None and not hosts else tuple(sorted(hosts)), cites=cites, missing=fact.missing
    )


def _oom_killed(picture: Picture) -> Fact:
    """Any OOM kill of a process of the engine."""
    if _blind(picture):
        return unknown(MISSING)
    kills = [event for event in picture.memo(_oom_kills) if _is_engine(picture, event)]
    cites = tuple(Cite(_says(picture, event), event.origin) for event in kills[:CITED])
    return Fact(value=True, cites=cites) if kills else _nothing(picture, False)


def _oom_other(picture: Picture) -> Fact:
    if _blind(picture):
        return unknown(MISSING)
    kills = [event for event in picture.memo(_oom_kills) if not _is_engine(picture, event)]
    cites = tuple(Cite(_says(picture, event), event.origin) for event in kills[:CITED])
    if not kills:
        return _nothing(picture, ())
    return Fact(value=tuple(sorted({event.comm or "?" for event in kills})), cites=cites)


def _hung_hosts(picture: Picture) -> Fact:
    return _hosts(picture, _of(picture, STORAGE_RECENT_S, "hung_task", "soft_lockup"))


def _of(picture: Picture, recent_s: float, *kinds: str) -> list[KernelEvent]:
    return [
        event for event in picture.all(KernelEvent)
        if event.event in kinds and event.severity != "info" and during_evidence(picture, event, recent_s)
    ]  # fmt: skip


def _storage_events(picture: Picture) -> list[KernelEvent]:
    hung = [event for event in _of(picture, STORAGE_RECENT_S, "hung_task") if _waits_for_disk(event)]
    return [*_of(picture, STORAGE_RECENT_S, *_STORAGE), *hung]


def _waits_for_disk(event: KernelEvent) -> bool:
    return is_storage_wait((event.device or "",)) or (event.comm or "").startswith(_STORAGE_TASKS)


def _storage_hosts(picture: Picture) -> Fact:
    return _hosts(picture, picture.memo(_storage_events))


def _storage_ranks(picture: Picture) -> Fact:
    events = [event for event in picture.memo(_storage_events) if event.event == "hung_task"]
    ranks = [event for event in events if rank_of_pid(picture, event.host, event.pid) is not None]
    return _ranks(picture, ranks, "the ranks of the hung tasks")


def _nic_events(picture: Picture) -> list[KernelEvent]:
    """Adapter events at or before the first failure; a link that came back before T0 and stayed up harmed nobody."""
    failed, t0 = picture.memo(failure_s), picture.memo(progress).t0
    kept: list[KernelEvent] = []
    for event in _of(picture, NIC_RECENT_S, *_NIC):
        at_s = moment_s(picture, event)
        late = at_s is not None and failed is not None and at_s > failed + picture.clock_error_s
        healed = at_s is not None and t0 is not None and any(
            other.event == "link_up" and other.host == event.host and other.device == event.device
            and at_s < (moment_s(picture, other) or 0.0) < t0.at_s
            for other in picture.all(KernelEvent)
        )  # fmt: skip
        if not late and not healed:
            kept.append(event)
    return kept


def _nic_hosts(picture: Picture) -> Fact:
    return _hosts(picture, picture.memo(_nic_events))


def _machine_check_hosts(picture: Picture) -> Fact:
    return _hosts(picture, _of(picture, STORAGE_RECENT_S, "mce", "panic"))


def _segfault_ranks(picture: Picture) -> Fact:
    events = [event for event in picture.all(KernelEvent) if event.event == "segfault"]
    mine = [event for event in events if rank_of_pid(picture, event.host, event.pid) is not None]
    return _ranks(picture, mine, "the rank of the crashed process")


def _spec(name: str, unit: str, about: str, compute: Callable[[Picture], Fact]) -> FactSpec:
    return FactSpec(name=name, unit=unit, about=about, compute=compute)


FACTS: tuple[FactSpec, ...] = (
    _spec("kernel.readable", "bool", "A kernel log was read, so that its silence means something.", _readable),
    _spec("kernel.gpu_fault", "bool", "The kernel log shows a GPU or driver fault before or in the stall.", _gpu_fault),
    _spec("kernel.gpu_fault_ranks", "ranks", "Ranks whose GPU failed before or in the stall.", _gpu_fault_ranks),
    _spec("kernel.gpu_fault_hosts", "hosts", "Hosts on which a GPU failed before or in the stall.", _gpu_fault_hosts),
    _spec("kernel.gpu_fault_text", "word", "The gravest GPU fault that may be the cause, as printed.", _gpu_fault_text),
    _spec("kernel.gpu_fault_late", "bool", "GPU faults and errors only came after the engine had failed.",
          _gpu_fault_late),
    _spec("kernel.app_xid_ranks", "ranks", "Ranks whose program faulted on the GPU at or before its death.",
          _app_xid_ranks),
    _spec("kernel.app_xid_late", "bool", "Program faults are reported only after the engine had failed.",
          _app_xid_late),
    _spec("kernel.oom_ranks", "ranks", "Ranks whose process the OOM killer ended.", _oom_ranks),
    _spec("kernel.oom_killed", "bool", "The OOM killer ended a process of the engine.", _oom_killed),
    _spec("kernel.oom_hosts", "hosts", "Hosts on which the OOM killer ended something.", _oom_hosts),
    _spec("kernel.cgroup_oom", "bool", "A cgroup's memory.events counts processes that the OOM killer ended.",
          _cgroup_oom),
    _spec("kernel.oom_other", "requests", "Names of killed processes that are none of the engine's.", _oom_other),
    _spec("kernel.hung_hosts", "hosts", "Hosts with tasks hung in the kernel, or CPUs locked up.", _hung_hosts),
    _spec("kernel.storage_hosts", "hosts", "Hosts whose storage fails, or hangs its users.", _storage_hosts),
    _spec("kernel.storage_ranks", "ranks", "Ranks that the kernel reports as hung in storage.", _storage_ranks),
    _spec("kernel.nic_hosts", "hosts", "Hosts whose network adapter lost its link or its health.", _nic_hosts),
    _spec("kernel.machine_check_hosts", "hosts", "Hosts with uncorrected memory or machine errors.",
          _machine_check_hosts),
    _spec("kernel.segfault_ranks", "ranks", "Ranks whose process crashed with a segmentation fault.", _segfault_ranks),
)  # fmt: skip
