"""Facts about the network under the collectives: who reports transport errors, and whether they came first.

What the completion codes mean (`ibv_wc_status`): 12 the peer did not acknowledge (link, route, switch, or its process
is gone) and comes about 30 s after the loss; 13 the peer is there but posts no receives, so it is stuck itself; 5 the
queue was already broken, always a consequence. A dying process makes its peers report transport errors: what follows
a death that has a cause of its own proves nothing about the network.
"""

from collections.abc import Iterator

from sentinel.core.fact import Cite, Fact, FactSpec, unknown
from sentinel.core.facts._rdma import ack_timeouts_rising, bytes_moving, down_ports, gid_mismatch_hosts
from sentinel.core.picture import Picture
from sentinel.core.timeline import progress
from sentinel.model.observation import (
    DeviceCounters,
    KernelEvent,
    KernelLog,
    NcclNote,
    Notice,
    Observation,
    Origin,
    ProcessExit,
)  # fmt: skip

LOGS = "NCCL debug logs (WARN lines) of the ranks on both ends"
KERNEL = "the kernel log or sysfs port states of the hosts"

FLUSHED = "5"
RECEIVER_NOT_READY = "13"
SAME_MOMENT_S = 1.5
"""Engine logs print whole seconds: an exception in the second of its cause may read as earlier."""
RECENT_S = 120.0
"""A link that failed longer before the last progress than this, and let it go on, is not what ended it."""

_DEATHS = frozenset(
    ("exception", "cuda_error", "subprocess_exit", "worker_died", "sigquit", "kill_tree", "sigterm", "exit")
)
_OF_TRANSPORT = ("nccl", "distbackenderror", "remote error", "unhandled system error", "connection closed by peer")
_LINK_EVENTS = frozenset(("link_down", "cable"))
_NIC_EVENTS = _LINK_EVENTS | {"nic_health"}
_FATAL_ASYNC = ("port error", "catastrophic", "device fatal", "fatal")


def first_death_s(picture: Picture) -> float | None:
    """When a process first ended or raised for a reason of its own, not of a transport error; None = never seen.

    Older failures that the engine survived (progress went on after them) do not count.
    """
    t0 = picture.memo(progress).t0
    begin = t0.at_s - SAME_MOMENT_S if t0 is not None else None
    times = [at_s for at_s in _deaths(picture) if begin is None or at_s >= begin]
    return min(times, default=None)


def _deaths(picture: Picture) -> Iterator[float]:
    for notice in picture.all(Notice):
        if notice.notice in _DEATHS and notice.at_s is not None:
            said = f"{notice.text} {' '.join(notice.fields.values())}".lower()
            if not any(word in said for word in _OF_TRANSPORT):
                yield notice.at_s
    for event in picture.all(KernelEvent):
        if event.event in ("oom_kill", "segfault") and event.at_s is not None:
            yield event.at_s
    for gone in picture.all(ProcessExit):
        if gone.at_s is not None:
            yield gone.at_s


def _came_first(picture: Picture, seen: Observation) -> bool | None:
    """Whether a sign precedes every death. Without a time it counts only when nothing died for its own reason."""
    death = picture.memo(first_death_s)
    if death is None:
        return True
    if seen.at_s is None:
        return None
    return seen.at_s <= death + SAME_MOMENT_S + picture.clock_error_s


def _completions(picture: Picture) -> list[NcclNote]:
    return [note for note in picture.all(NcclNote) if note.topic == "ib_completion"]


def _hard(picture: Picture) -> list[NcclNote]:
    """Completion errors that speak of the path, not of a queue already broken or a peer that does not receive."""
    return [note for note in _completions(picture) if note.fields.get("status") not in (FLUSHED, RECEIVER_NOT_READY)]


def _listed(
    picture: Picture, names: set[str] | set[int], cites: tuple[Cite, ...], kinds: tuple[type[Observation], ...]
) -> Fact:
    """A set with its places; an empty one cites a source that was looked through."""
    if not cites:
        looked = next(seen for kind in kinds for seen in picture.all(kind))
        cites = (Cite("nothing of the kind in here", looked.origin),)
    numbers = tuple(sorted(name for name in names if isinstance(name, int)))
    return Fact(value=numbers or tuple(sorted(name for name in names if isinstance(name, str))), cites=cites)


def _cite(note: NcclNote) -> Cite:
    return Cite(f"{note.host}: {note.text[:160]}", note.origin)


def _completion_errors(picture: Picture) -> Fact:
    if not picture.has(NcclNote):
        return unknown(LOGS)
    hard = _hard(picture)
    if not hard:
        first = next(picture.all(NcclNote))
        return Fact(value=False, cites=(Cite("no completion error in the NCCL log", first.origin),))
    order = [_came_first(picture, note) for note in hard]
    cites = tuple(_cite(note) for note in hard[:6])
    if True in order:
        return Fact(value=True, cites=cites)
    return Fact(value=False if None not in order else None, cites=cites, missing=("times of the NCCL warnings",))


def _receiver_not_ready(picture: Picture) -> Fact:
    if not picture.has(NcclNote):
        return unknown(LOGS)
    found = [note for note in _completions(picture) if note.fields.get("status") == RECEIVER_NOT_READY]
    hosts = {host for note in found if (host := _peer_host(picture, note)) is not None}
    return _listed(picture, hosts, tuple(_cite(note) for note in found[:6]), (NcclNote,))


def addresses(picture: Picture) -> dict[str, str]:
    """Address -> host, from each process's bootstrap line."""
    found: dict[str, str] = {}
    for note in picture.all(NcclNote):
        if note.topic == "bootstrap" and note.host and ":" in note.text and "<" in note.text:
            address = note.text.rpartition("<")[0].rpartition(":")[2]
            found.setdefault(address, note.host)
    return found


def _peer_host(picture: Picture, note: NcclNote) -> str | None:
    return picture.memo(addresses).get(note.fields.get("peer", "").partition("<")[0])


def _port_errors(picture: Picture) -> list[NcclNote]:
    return [
        note
        for note in picture.all(NcclNote)
        if note.topic == "ib_async" and any(word in note.fields.get("event", "").lower() for word in _FATAL_ASYNC)
    ]


def _hosts(picture: Picture) -> Fact:
    """Both ends of the broken path: a report names its own host and, through the peer's address, the other one."""
    if not picture.has(NcclNote):
        return unknown(LOGS)
    told = [note for note in (*_hard(picture), *_port_errors(picture)) if _came_first(picture, note) is not False]
    hosts = {note.host for note in told if note.host}
    hosts |= {host for note in told if note.topic == "ib_completion" and (host := _peer_host(picture, note))}
    return _listed(picture, hosts, tuple(_cite(note) for note in told[:6]), (NcclNote,))


def _devices(picture: Picture) -> Fact:
    if not picture.has(NcclNote):
        return unknown(LOGS)
    told = [note for note in (*_hard(picture), *_port_errors(picture)) if note.fields.get("device")]
    names = {f"{note.host}:{note.fields['device']}" for note in told}
    return _listed(picture, names, tuple(_cite(note) for note in told[:6]), (NcclNote,))


def _first_cause(picture: Picture) -> Fact:
    """True: a transport error, a port error or rising ack time-outs stand before every death."""
    signs: list[tuple[bool | None, Cite]] = [
        (_came_first(picture, note), _cite(note)) for note in (*_hard(picture), *_port_errors(picture))
    ]
    signs += [
        (_came_first(picture, event), Cite(event.text[:160], event.origin))
        for event in picture.all(KernelEvent)
        if event.event in _LINK_EVENTS and _is_recent(picture, event)
    ]
    rising = ack_timeouts_rising(picture)
    if not signs:
        if rising.value:
            return Fact(value=True, cites=rising.cites)
        if not picture.has(NcclNote):
            return unknown(LOGS)
        return Fact(value=False, cites=(Cite("no transport error", next(picture.all(NcclNote)).origin),))
    order = [first for first, _ in signs]
    value = True if True in order else None if None in order else False
    return Fact(value=value, cites=tuple(cite for _, cite in signs[:6]))


def _peer_closed(picture: Picture) -> Fact:
    """These ranks are victims: they report that another one went away."""
    if not picture.has(NcclNote) and not picture.has(Notice):
        return unknown(LOGS)
    told: list[NcclNote | Notice] = [note for note in picture.all(NcclNote) if note.topic == "peer_closed"]
    told += [notice for notice in picture.all(Notice) if notice.notice == "peer_closed"]
    ranks = {rank for seen in told if (rank := picture.rank_of(seen)) is not None}
    cites = tuple(Cite(seen.text[:160], seen.origin) for seen in told[:6])
    return _listed(picture, ranks, cites, (NcclNote, Notice))


# --- the card itself ---------------------------------------------------------------------------------------------


def _is_recent(picture: Picture, seen: Observation) -> bool:
    """Near or after the last progress; an old flap that decode survived does not count."""
    t0 = picture.memo(progress).t0
    if seen.at_s is None:
        return t0 is None
    return t0 is None or seen.at_s >= t0.at_s - RECENT_S


def _signs(picture: Picture, events: frozenset[str]) -> list[tuple[str, str, Origin]]:
    """(host, words, place) of signs on the card or its link that come before every death."""
    found: list[tuple[str, str, Origin]] = []
    for event in picture.all(KernelEvent):
        fatal = event.event == "mlx5" and event.severity == "fatal" and "nic_health" in events
        counts = (event.event in events or fatal) and event.severity != "info"
        if counts and event.host and _is_recent(picture, event) and _came_first(picture, event):
            found.append((event.host, event.text[:160], event.origin))
    found += [
        (note.host, note.text[:160], note.origin)
        for note in _port_errors(picture)
        if note.host and _is_recent(picture, note) and _came_first(picture, note) is not False
    ]
    down = [(seen.host, f"{seen.device} is down", seen.origin) for seen in down_ports(picture) if seen.host]
    return found + down


def _card(events: frozenset[str], picture: Picture) -> Fact:
    sources = (KernelLog, KernelEvent, NcclNote, DeviceCounters)
    if not any(picture.has(kind) for kind in sources):
        return unknown(KERNEL)
    found = _signs(picture, events)
    cites = tuple(Cite(f"{host}: {words}", origin) for host, words, origin in found[:6])
    if not found and not picture.has(KernelLog) and not picture.has(KernelEvent):
        return unknown(KERNEL)
    return _listed(picture, {host for host, _, _ in found}, cites, (KernelLog, KernelEvent))


def _link_down(picture: Picture) -> Fact:
    return _card(_LINK_EVENTS, picture)


def _nic_fault(picture: Picture) -> Fact:
    return _card(_NIC_EVENTS, picture)


FACTS: tuple[FactSpec, ...] = (
    FactSpec(
        name="network.completion_errors",
        unit="bool",
        about="RDMA completions failed before any process died.",
        compute=_completion_errors,
    ),
    FactSpec(
        name="network.receiver_not_ready_hosts",
        unit="hosts",
        about="Hosts whose processes posted no receives (stuck themselves).",
        compute=_receiver_not_ready,
    ),
    FactSpec(
        name="network.hosts",
        unit="hosts",
        about="Hosts on both ends of a failed path.",
        compute=_hosts,
    ),
    FactSpec(
        name="network.devices",
        unit="word",
        about="Devices that failed operations name, as host:device.",
        compute=_devices,
    ),
    FactSpec(
        name="network.first_cause",
        unit="bool",
        about="A transport error precedes every process death.",
        compute=_first_cause,
    ),
    FactSpec(
        name="network.ack_timeouts_rising",
        unit="hosts",
        about="Hosts whose acknowledgement time-outs rise between samples.",
        compute=ack_timeouts_rising,
    ),
    FactSpec(
        name="network.peer_closed_ranks",
        unit="ranks",
        about="Ranks that report a closed peer: victims.",
        compute=_peer_closed,
    ),
    FactSpec(
        name="network.bytes_moving",
        unit="bool",
        about="RDMA bytes move between the newest samples.",
        compute=bytes_moving,
    ),
    FactSpec(
        name="network.gid_mismatch_hosts",
        unit="hosts",
        about="Hosts without the configured RoCE GID index.",
        compute=gid_mismatch_hosts,
    ),
    FactSpec(
        name="nic.link_down_hosts",
        unit="hosts",
        about="Hosts whose link went down before anything died.",
        compute=_link_down,
    ),
    FactSpec(
        name="nic.fault_hosts",
        unit="hosts",
        about="Hosts with a sign on the card or its link before anything died.",
        compute=_nic_fault,
    ),
)
