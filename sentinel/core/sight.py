"""What the coordinator sees of a group, from the reports of its hosts. A silent agent is not a stalled rank.

A host that does not report is unknown: it is neither healthy nor accused, and it forbids every plan for its groups.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sentinel.core.policy import View
from sentinel.model.cluster import Delays, GroupState, Limits
from sentinel.model.group import EngineReport, GroupSpec, HostReport

PRINTED_S = 1.0
"""Resolution of the times that engines print: an agent that reads a log anew may date the same line this much later."""


@dataclass(slots=True)
class HostView:
    """The newest report of a host and when it arrived, on the coordinator's own clock."""

    report: HostReport
    heard_s: float
    skew_s: float = 0.0

    def age_s(self, now_s: float) -> float:
        """Seconds since it was last heard."""
        return now_s - self.heard_s

    def there_s(self, now_s: float) -> float:
        """The present instant on the host's own monotonic clock, late by what its last report took to arrive."""
        return self.report.at.mono_s + self.age_s(now_s)


Hosts = Mapping[str, HostView]


def engines(spec: GroupSpec, hosts: Hosts, now_s: float, delays: Delays) -> dict[str, EngineReport]:
    """The group's engine on every host that is heard and reports it."""
    found = {}
    for host in spec.hosts:
        view = hosts.get(host)
        if view is not None and view.age_s(now_s) < delays.silent_s:
            for engine in view.report.engines:
                if engine.group == spec.name:
                    found[host] = engine
    return found


def blindness(spec: GroupSpec, hosts: Hosts, now_s: float, delays: Delays) -> Iterator[str]:
    """Why this group is not completely seen, one sentence a reason."""
    shows_progress = False
    for host in spec.hosts:
        view = hosts.get(host)
        if view is None:
            yield f"no agent has reported from {host}"
            continue
        if view.age_s(now_s) >= delays.late_s:
            yield f"the agent on {host} has been silent for {view.age_s(now_s):.0f} s"
        engine = next((engine for engine in view.report.engines if engine.group == spec.name), None)
        if engine is None:
            yield f"the agent on {host} does not know the group"
            continue
        yield from (f"{host}: {why}" for why in engine.unseen)
        shows_progress |= engine.moved_s is not None or not engine.incarnation
    if not shows_progress:
        yield "no host shows whether the group makes progress"


def suspected(engines_seen: Iterable[EngineReport]) -> bool:
    """Whether any host suspects the engine or has gone further."""
    return any(engine.phase not in ("watching", "absent") for engine in engines_seen)


def captures(engines_seen: Iterable[EngineReport]) -> bool:
    """Whether any host takes evidence or has it."""
    return any(engine.phase in ("capturing", "judged") for engine in engines_seen)


def gone(spec: GroupSpec, seen: Mapping[str, EngineReport]) -> bool:
    """Whether every host is heard and none runs the engine."""
    return len(seen) == len(spec.hosts) and not any(engine.incarnation or engine.unseen for engine in seen.values())


def back(spec: GroupSpec, state: GroupState, seen: Mapping[str, EngineReport]) -> bool:
    """Whether every host is heard and runs the engine, none suspects it, and one saw it move since the incident began.

    A half that starts beside one that is gone prints lines too: that is no progress of the group.
    """
    whole = len(seen) == len(spec.hosts) and all(engine.phase == "watching" for engine in seen.values())
    return whole and any(moved(state, host, engine) for host, engine in seen.items())


def moved(state: GroupState, host: str, engine: EngineReport) -> bool:
    """Whether a host saw progress since the incident began; another incarnation has moved if it moved at all."""
    if engine.moved_s is None:
        return False
    if engine.incarnation != state.incarnations.get(host):
        return bool(engine.incarnation)
    return engine.moved_s > state.opened_there_s.get(host, engine.moved_s) + PRINTED_S


def proved(spec: GroupSpec, before: Mapping[str, str], seen: Mapping[str, EngineReport]) -> bool:
    """Whether a restart is seen to have worked: another incarnation everywhere, calm everywhere, and it moves.

    `before`: host -> the incarnation that was stopped.
    """
    return (
        len(seen) == len(spec.hosts)
        and all(engine.incarnation not in ("", before.get(host)) for host, engine in seen.items())
        and not suspected(seen.values())
        and any(engine.moved_s is not None for engine in seen.values())
    )


def store_modes(seen: Mapping[str, EngineReport]) -> dict[str, str]:
    """Host -> row-store mode in force, where one is known."""
    return {host: engine.store.mode for host, engine in seen.items() if engine.store is not None}


def switchable(spec: GroupSpec, seen: Mapping[str, EngineReport]) -> bool:
    """Whether every host's store can change its mode while the engine serves."""
    return len(seen) == len(spec.hosts) and all(engine.store and engine.store.live for engine in seen.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What is the same for all groups: settings, and how many there are and are being acted on."""

    limits: Limits
    delays: Delays
    acting: int
    groups: int


def view_of(spec: GroupSpec, state: GroupState, hosts: Hosts, now_s: float, around: Surroundings) -> View:
    """Everything that policy asks about a group's present state."""
    seen = engines(spec, hosts, now_s, around.delays)
    reports = [hosts[host].report for host in seen]
    return View(
        blind=tuple(blindness(spec, hosts, now_s, around.delays)),
        moving=tuple(f"{host} saw progress" for host, engine in seen.items() if moved(state, host, engine)),
        starved=tuple(f"{report.host}: {report.starved}" for report in reports if report.starved),
        jumped=tuple(
            f"{report.host}: its clock jumped {report.jumped_s:.0f} s ago"
            for report in reports
            if report.jumped_s is not None and report.jumped_s < around.limits.jump_s
        ),
        young=tuple(
            f"{report.host}: its agent began {report.age_s:.0f} s ago"
            for report in reports
            if report.age_s < around.limits.young_s
        ),
        long_phase=tuple(f"{host}: {engine.long_phase}" for host, engine in seen.items() if engine.long_phase),
        still_s=_still_s(seen, hosts, now_s),
        acting_groups=around.acting,
        groups=around.groups,
        lanes=tuple(lane for engine in seen.values() if engine.store for lane in engine.store.stuck_lanes),
    )


def lane_hosts(spec: GroupSpec, seen: Mapping[str, EngineReport]) -> tuple[str, ...]:
    """Hosts whose row store has a stuck lane, in the order of the start."""
    return tuple(host for host in spec.hosts if (e := seen.get(host)) is not None and e.store and e.store.stuck_lanes)


def clock_error_s(spec: GroupSpec, hosts: Hosts) -> float:
    """How far the wall clocks of a group's hosts may differ, as their heartbeats show."""
    skews: Sequence[float] = [hosts[host].skew_s for host in spec.hosts if host in hosts]
    return max(skews) - min(skews) if skews else 0.0


def _still_s(seen: Mapping[str, EngineReport], hosts: Hosts, now_s: float) -> float | None:
    """The shortest silence that any host reports: nobody saw progress for at least this long."""
    silences = [
        engine.silence_s + hosts[host].age_s(now_s) for host, engine in seen.items() if engine.silence_s is not None
    ]
    return min(silences, default=None)
