"""The coordinator in numbers: what its last state holds and what it did, as the metrics of `metrics.registry`.

Everything is counted on the coordinator's own thread and put into an immutable snapshot. What serves the snapshot asks
neither the bus nor a host. A process that stands by tells about itself and the lease alone: groups are told of by the
one that leads, and counts begin anew with each that begins to lead.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sentinel.coordinator.hand import Hand
from sentinel.coordinator.leader import Leader
from sentinel.coordinator.notices import Notifier
from sentinel.core import sight
from sentinel.core.cluster import ClusterCore
from sentinel.core.cluster_life import OPEN, GroupPhase
from sentinel.core.policy import budget_left
from sentinel.metrics.registry import (
    COORDINATOR,
    GLOBAL,
    GROUP,
    GROUP_STATE,
    GROUPS,
    HAND,
    LEAD,
    NODE,
    NODE_STATE,
    OTHER,
    RESTART_REASON,
    SEVERITY,
    Label,
)
from sentinel.metrics.tally import Snapshot, Tally, Values, gauges
from sentinel.model.cluster import Answered, AnyClusterEffect, GroupState, Told
from sentinel.model.stamp import Stamp

Gauges = defaultdict[str, dict[Values, float]]
EVERY_S = 2.0
STEPS: Mapping[str, str] = {"start_first": "start", "start_rest": "start"}
"""Steps of a restart that are told under another name."""
NOT_MEANT = ("supervisor", "policy")
"""Where one of these stands against it, Sentinel is not meant to act, and the other guards say nothing."""


@dataclass(slots=True)
class Known:
    """What was last seen of a group, to tell what is new."""

    incident: str = ""
    opened_s: float | None = None
    cause: str = ""
    acks: frozenset[str] = frozenset()
    relaunches: Mapping[str, int] = field(default_factory=dict)
    guards: tuple[str, ...] = ()
    phase: str = ""


@dataclass(slots=True)
class ClusterFigures:
    """Call `look` after every turn, on the thread that turns; `effect` hears what the leader carried out.

    `hand`: the one of this host, where there is one.
    """

    leader: Leader
    notifier: Notifier
    hand: Hand | None = None
    tally: Tally = field(default_factory=lambda: Tally(COORDINATOR))
    measured: Snapshot | None = None
    _known: dict[str, Known] = field(default_factory=dict)
    _core: ClusterCore | None = None
    _due_s: float = 0.0

    def __post_init__(self) -> None:
        self.leader.listeners.append(self.effect)

    def look(self, now: Stamp) -> None:
        """Count what changed; replace the snapshot when it is due."""
        began = self.leader.core is not self._core
        self._adopt(now)
        core = self.leader.core
        for name, known in self._known.items():
            assert core is not None
            self._group(core, name, core.group(name), known)
        if began or now.mono_s >= self._due_s:
            self._due_s = now.mono_s + EVERY_S
            self.measured = self.snapshot(now)

    def fell(self) -> None:
        """A defect ended the lead: until the next look nothing is told but that nobody leads here."""
        self.measured, self._due_s = unavailable(), 0.0

    def effect(self, at: Stamp, effect: AnyClusterEffect) -> None:
        """Something was carried out."""
        self._adopt(at)
        match effect:
            case Told(what="verdict", verdict=verdict) if verdict is not None:
                known = self._incident(effect.group, effect.incident, at)
                self.tally.add("sentinel_classifications_total", verdict.kind, verdict.confidence)
                if not known.cause:
                    self.tally.add("sentinel_incidents_total", verdict.kind, effect.severity)
                known.cause = verdict.kind
            case Told(what="closed"):
                known = self._incident(effect.group, effect.incident, at)
                if known.cause and known.opened_s is not None:
                    lasted_s = max(0.0, at.mono_s - known.opened_s)
                    self.tally.observe("sentinel_group_incident_duration_seconds", lasted_s)
            case Answered(order=order, ok=True) if order.verb == "feedback" and not order.dry_run:
                self.tally.add("sentinel_verdict_feedback_total", order.value)

    def _adopt(self, now: Stamp) -> None:
        """Begin anew with whoever leads now: what its predecessor did was counted there."""
        core = self.leader.core
        if core is self._core:
            return
        self._core, self._known = core, {}
        if core is None:
            return
        for name in core.specs:
            state = core.group(name)
            self._known[name] = Known(
                incident=state.incident,
                opened_s=max((at_s for at_s, group in core.state.suspected if group == name), default=now.mono_s),
                cause="" if state.verdict is None else state.verdict.kind,
                acks=frozenset(_acks(state)),
                relaunches=dict(state.relaunches),
                guards=state.told_guards,
                phase=state.phase,
            )
            for reason in RESTART_REASON.values or ():
                self.tally.add("sentinel_restarts_total", self._named(core, name), reason, by=0.0)

    def _incident(self, group: str, incident: str, now: Stamp) -> Known:
        """What is known of a group, of this incident alone."""
        known = self._known.setdefault(group, Known())
        if known.incident != incident:
            known.incident, known.opened_s, known.cause, known.guards = incident, now.mono_s, "", ()
        return known

    def _group(self, core: ClusterCore, name: str, state: GroupState, known: Known) -> None:
        if GroupPhase(state.phase) in OPEN:
            self._incident(name, state.incident, core.state.saved)
        self._restarts(core, name, state, known)
        self._guards(state, known)
        if known.phase == GroupPhase.PROVING.value and state.phase != known.phase:
            waited_s = core.now_s - state.proving_s
            self.tally.observe("sentinel_restart_phase_duration_seconds", waited_s, "prove")
        known.phase = state.phase

    def _restarts(self, core: ClusterCore, name: str, state: GroupState, known: Known) -> None:
        for cause, count in state.relaunches.items():
            new = count - known.relaunches.get(cause, 0)
            if new > 0:
                group = self._named(core, name)
                self.tally.add("sentinel_restarts_total", group, cause.partition(".")[0], by=float(new))
        known.relaunches = dict(state.relaunches)
        acks = _acks(state)
        for ack_id, took_s in acks.items():
            if ack_id not in known.acks:
                step = ack_id.split("/")[-2]
                self.tally.observe("sentinel_restart_phase_duration_seconds", took_s, STEPS.get(step, step))
        known.acks = frozenset(acks)

    def _guards(self, state: GroupState, known: Known) -> None:
        new = set(state.told_guards) - set(known.guards)
        known.guards = state.told_guards
        decisive = [guard for guard in NOT_MEANT if guard in state.told_guards]
        for guard in new:
            if not decisive or guard in decisive:
                self.tally.add("sentinel_actions_suppressed_total", guard)

    def snapshot(self, now: Stamp) -> Snapshot:
        """Everything, now."""
        leader, found = self.leader, Gauges(dict)
        for name, count in (
            ("sentinel_coordinator_transitions_total", leader.transitions),
            ("sentinel_coordinator_lease_renew_failures_total", leader.renew_failures),
            ("sentinel_notifications_total", self.notifier.sent),
            ("sentinel_notification_failures_total", self.notifier.failed),
        ):
            self.tally.grown(name, "coordinator", float(count))
        found["sentinel_coordinator_leader"][()] = float(leader.leading)
        found["sentinel_loop_last_tick_timestamp_seconds"]["coordinator",] = now.wall_s
        if leader.watch.seen is not None:
            found["sentinel_coordinator_epoch"][()] = float(leader.watch.seen.epoch)
        if leader.renewed is not None:
            found["sentinel_coordinator_lease_last_renew_timestamp_seconds"][()] = leader.renewed.wall_s
        if self.hand is not None:
            self._hand(self.hand, found)
        if leader.core is not None:
            self._hosts(leader.core, now, found)
            self._groups(leader.core, found)
        parts = (LEAD, HAND if self.hand is not None else (), GROUPS if leader.core is not None else ())
        told = {metric.name for part in parts for metric in part}
        return (*gauges(found), *(series for series in self.tally.series() if series.metric.name in told))

    def _hand(self, hand: Hand, found: Gauges) -> None:
        found["sentinel_fencing_epoch"][()] = float(hand.fence.epoch_max)
        for verb, count in hand.received.items():
            self.tally.grown("sentinel_commands_received_total", verb, float(count), verb)
        for guard, count in hand.rejected.items():
            self.tally.grown("sentinel_commands_rejected_total", guard, float(count), guard)

    def _hosts(self, core: ClusterCore, now: Stamp, found: Gauges) -> None:
        hosts = sorted({host for spec in core.specs.values() for host in spec.hosts})
        states = Counter(_host_state(core, host) for host in hosts)
        found["sentinel_nodes"] = {(state,): float(states[state]) for state in NODE_STATE.values or ()}
        for host in hosts:
            view = core.hosts.get(host)
            if view is not None:
                heard_s = now.wall_s - view.age_s(now.mono_s)
                label = bounded(NODE, host, hosts)
                # Hosts beyond the bound are told together, and the one that was heard longest ago counts.
                known = found["sentinel_node_last_heartbeat_timestamp_seconds"].get((label,), heard_s)
                found["sentinel_node_last_heartbeat_timestamp_seconds"][label,] = min(known, heard_s)

    def _groups(self, core: ClusterCore, found: Gauges) -> None:
        states = {name: core.group(name) for name in core.specs}
        phases = Counter(state.phase for state in states.values())
        found["sentinel_groups"] = {(phase,): float(phases[phase]) for phase in GROUP_STATE.values or ()}
        open_ones = Counter(_severity(state) for state in states.values() if GroupPhase(state.phase) in OPEN)
        found["sentinel_incidents_open"] = {(name,): float(open_ones[name]) for name in SEVERITY.values or ()}
        paused_s = core.state.paused_until_s
        found["sentinel_paused"][()] = float(paused_s is not None and core.now_s < paused_s)
        found["sentinel_restart_breaker_open"][GLOBAL,] = float(bool(core.state.breaker))
        for name, state in states.items():
            label = self._named(core, name)
            modes = set(sight.store_modes(core.seen(core.specs[name])).values())
            for metric, value, worst in (
                ("sentinel_restart_breaker_open", float(bool(state.breaker)), max),
                ("sentinel_restart_budget_remaining", float(budget_left(state, core.limits, core.now_s)), min),
                ("sentinel_group_store_modes", float(len(modes)), max),
            ):
                known = found[metric].get((label,), value)
                found[metric][label,] = worst(known, value)

    def _named(self, core: ClusterCore, name: str) -> str:
        return bounded(GROUP, name, core.specs)


def bounded(label: Label, name: str, names: Iterable[str]) -> str:
    """The name as a label value; names beyond the label's bound are told together as `other`."""
    kept = sorted(names)
    return name if len(kept) <= label.bound or name in kept[: label.bound - 1] else OTHER


def unavailable() -> Snapshot:
    """What is told where groups are configured and coordination cannot be had."""
    return tuple(gauges({"sentinel_coordinator_leader": {(): 0.0}}))


def _acks(state: GroupState) -> dict[str, float]:
    plan = state.plan
    return {} if plan is None or plan.kind != "restart" else {ack.id: ack.took_s for ack in plan.acks.values()}


def _host_state(core: ClusterCore, host: str) -> str:
    if host in core.state.maintenance:
        return "maintenance"
    view = core.hosts.get(host)
    if view is None or view.age_s(core.now_s) >= core.delays.silent_s:
        return "unknown"
    return "suspect" if view.age_s(core.now_s) >= core.delays.late_s else "healthy"


def _severity(state: GroupState) -> str:
    if state.phase == GroupPhase.HALTED.value:
        return "critical"
    if state.verdict is None:
        return "info"
    return "critical" if state.verdict.stalled else "warning"
