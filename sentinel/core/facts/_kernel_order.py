"""Kernel events in the order of causes: which could have brought the stall about, and which only followed it."""

from typing import Literal

from sentinel.core.facts._devices import rank_of_bus
from sentinel.core.facts._moments import failure_s, kill_s, moment_s
from sentinel.core.picture import Picture
from sentinel.core.placing import rank_of_pid, ranks_by_host
from sentinel.core.timeline import end_s, progress
from sentinel.core.xid import effect_of
from sentinel.model.observation import KernelEvent, KernelLog

Order = Literal["before", "during", "late", "after", "old", "unknown"]
"""Against the stall. `before`: shortly before T0 or up to it. `during`: soon after T0, before the engine ended itself.
`late`: so long after T0 that it is no part of how the silence began. `after`: after the engine began to end its
processes. `old`: progress went on for long after it. `unknown`: no common time."""

RECENT_S = 120.0
"""A fault that stops a rank stops its peers within one collective; progress that goes on for longer was not stopped."""
STORAGE_RECENT_S = 900.0
"""A disk that starts to fail may stall its readers minutes later, when caches run dry."""
LATE_S = 180.0
"""The driver reports a hung GPU after its own time-outs of up to a minute, several in a row."""
SLACK_S = 2.0


def order_of(picture: Picture, event: KernelEvent, recent_s: float = RECENT_S) -> Order:
    """Where an event lies against T0 and against the engine's own kill on the event's host."""
    at_s, killed = moment_s(picture, event), kill_s(picture, event.host)
    t0 = picture.memo(progress).t0
    if at_s is None:
        return "unknown"
    if killed is not None and at_s > killed + SLACK_S + picture.clock_error_s:
        return "after"
    if t0 is None:
        return "unknown" if killed is None else "before"
    if at_s < t0.at_s - recent_s - picture.clock_error_s:
        return "old"
    if at_s <= t0.at_s + SLACK_S + picture.clock_error_s:
        return "before"
    return "during" if at_s <= t0.at_s + LATE_S + picture.clock_error_s else "late"


def is_consequence(picture: Picture, event: KernelEvent) -> bool:
    """An application's fault that the driver reports after the engine already said that it failed, or when its silence
    was already too long for the fault to have begun it: such a fault ends its process at once."""
    at_s, failed, learned = moment_s(picture, event), picture.memo(failure_s), picture.memo(progress)
    if at_s is not None and learned.t0 is not None:
        limit_s = learned.limit_s + SLACK_S + picture.clock_error_s
        if at_s > learned.t0.at_s + limit_s:
            return True
    return at_s is not None and failed is not None and at_s > failed + SLACK_S + picture.clock_error_s


def rank_of_event(picture: Picture, event: KernelEvent) -> int | None:
    """Rank that an event speaks of: by pid, by the GPU's address, or by another event of that GPU which has a pid."""
    rank = rank_of_pid(picture, event.host, event.pid)
    if rank is None and event.pci is not None:
        rank = rank_of_bus(picture, event.host, event.pci)
    if rank is None and event.pci is not None:
        for other in picture.all(KernelEvent):
            if other.pid is not None and _same_gpu(event, other):
                rank = rank_of_pid(picture, other.host, other.pid)
                if rank is not None:
                    break
    return rank


def _same_gpu(one: KernelEvent, other: KernelEvent) -> bool:
    """Same slot of the same host; Xid lines print no function number, other lines do."""
    return (
        one.host == other.host
        and one.pci is not None
        and other.pci is not None
        and one.pci.partition(".")[0] == other.pci.partition(".")[0]
    )


def gpu_faults(picture: Picture) -> list[KernelEvent]:
    """Events that say that a GPU, its memory, its links or its driver failed, whenever that was."""
    events = list(picture.all(KernelEvent))
    lost_hosts = {event.host for event in events if event.event == "gpu_lost" or event.code == 79}
    found: list[KernelEvent] = []
    for event in events:
        if event.event == "xid" and event.code is not None:
            fault = effect_of(event.code, event.text, event.cause_code) == "fault"
        elif event.event == "sxid":
            fault = event.severity == "fatal"
        elif event.event == "pcie_link_down":
            # A slot may hold anything; with a lost GPU on the host it is the other half of the same story.
            fault = event.host in lost_hosts
        elif event.event == "aer":
            fault = event.severity == "fatal" and rank_of_bus(picture, event.host, event.pci) is not None
        else:
            fault = event.event == "gpu_lost"
        if fault:
            found.append(event)
    return found


def application_faults(picture: Picture) -> list[KernelEvent]:
    """Xids that a program's own fault causes (illegal access and alike)."""
    return [
        event for event in picture.all(KernelEvent)
        if event.event == "xid" and event.code is not None
        and effect_of(event.code, event.text, event.cause_code) == "application"
    ]  # fmt: skip


def causes(picture: Picture) -> list[KernelEvent]:
    """GPU faults that could have caused the stall, oldest first."""
    return _timely(picture, picture.memo(gpu_faults))


def _timely(picture: Picture, events: list[KernelEvent]) -> list[KernelEvent]:
    kept = [event for event in events if order_of(picture, event) in ("before", "during", "unknown")]
    return sorted(kept, key=lambda event: (moment_s(picture, event) or 0.0, event.origin))


def application_causes(picture: Picture) -> list[KernelEvent]:
    """Application faults at or before the death of their process, not its echo."""
    timely = _timely(picture, picture.memo(application_faults))
    return [event for event in timely if not is_consequence(picture, event)]


def during_evidence(picture: Picture, event: KernelEvent, recent_s: float) -> bool:
    """Whether an event is recent against T0, or against the end of the evidence when nothing progressed."""
    if picture.memo(progress).t0 is not None:
        return order_of(picture, event, recent_s) in ("before", "during", "late", "unknown")
    at_s, end = moment_s(picture, event), picture.memo(end_s)
    return at_s is None or end is None or end - recent_s - picture.clock_error_s <= at_s


def unread_hosts(picture: Picture) -> tuple[str, ...]:
    """Hosts of the engine whose kernel log is not in the evidence; a log that names no host counts for all."""
    read = {log.host for log in picture.all(KernelLog)}
    hosts = {host for host in picture.memo(ranks_by_host) if host is not None}
    return () if None in read else tuple(sorted(hosts - read))
