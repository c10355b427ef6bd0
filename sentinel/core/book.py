"""The coordinator's book: groups, hosts and the state that a successor needs, with what every part does to it.

`cluster.py` joins what hosts say, `walking.py` carries plans out, `orders.py` obeys people; all of them write here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from sentinel.core import sight
from sentinel.core.cluster_life import OPEN, GroupCue, GroupPhase, advance_group
from sentinel.core.plan import plan_words, restart_steps, store_steps, unblock_steps
from sentinel.core.policy import Question
from sentinel.core.rules import Rule
from sentinel.model.cluster import (
    Answered,
    AnyClusterEffect,
    ClusterState,
    Delays,
    GroupState,
    Limits,
    Mode,
    Order,
    Plan,
    PlanKind,
    Severity,
    Step,
    Told,
)
from sentinel.model.group import EngineReport, GroupSpec
from sentinel.model.stamp import Stamp

Effects = Iterator[AnyClusterEffect]
RESTARTS_KEPT = 32
ACTIVE = (GroupPhase.ACTING.value, GroupPhase.PROVING.value)


@dataclass(slots=True)
class Book:
    """Times are monotonic seconds of the newest event."""

    rules: Sequence[Rule]
    state: ClusterState = field(default_factory=lambda: ClusterState(saved=Stamp(mono_ns=0, wall_ns=0)))
    epoch: int = 0
    beat: int = 0
    limits: Limits = field(default_factory=Limits)
    delays: Delays = field(default_factory=Delays)
    specs: dict[str, GroupSpec] = field(default_factory=dict)
    hosts: dict[str, sight.HostView] = field(default_factory=dict)
    now_s: float = 0.0

    @property
    def mode(self) -> Mode:
        """The policy mode in force."""
        return self.state.mode or self.limits.mode

    def group(self, name: str) -> GroupState:
        """A group's state, made when it is first asked for."""
        return self.state.groups.setdefault(name, GroupState())

    def seen(self, spec: GroupSpec) -> dict[str, EngineReport]:
        """The group's engine on every host that is heard."""
        return sight.engines(spec, self.hosts, self.now_s, self.delays)

    def question(self, kind: PlanKind, spec: GroupSpec, ordered_by: str = "") -> Question:
        """What policy is asked about this group now."""
        others = [state for name, state in self.state.groups.items() if name != spec.name]
        around = sight.Surroundings(
            limits=self.limits,
            delays=self.delays,
            acting=sum(other.phase in ACTIVE for other in others),
            groups=len(self.specs),
        )
        return Question(
            kind=kind,
            spec=spec,
            group=self.group(spec.name),
            cluster=self.state,
            limits=self.limits,
            mode=self.mode,
            view=sight.view_of(spec, self.group(spec.name), self.hosts, self.now_s, around),
            now_s=self.now_s,
            ordered_by=ordered_by,
        )

    def steps(self, kind: PlanKind, spec: GroupSpec, mode: str = "", ordered_by: str = "") -> tuple[Step, ...]:
        """The steps that a plan would have if it were made now."""
        if kind == "store":
            return store_steps(spec, self.delays, mode)
        if kind == "unblock":
            return unblock_steps(sight.lane_hosts(spec, self.seen(spec)), self.delays)
        state = self.group(spec.name)
        # What was taken of an earlier incident says nothing about now.
        captured = bool(state.captures) and GroupPhase(state.phase) in OPEN
        return restart_steps(spec, self.delays, fresh_capture=not captured, ask=not ordered_by, mode=mode)

    def begin(self, kind: PlanKind, spec: GroupSpec, cue: GroupCue, steps: tuple[Step, ...], **fields: str) -> Effects:
        """Make a plan and reserve what it costs; `fields` are those of `Plan`. The caller has asked policy."""
        state = self.group(spec.name)
        if state.phase == GroupPhase.CALM.value:
            self.open(spec, state)
        seen = self.seen(spec)
        state.tried = (*state.tried, kind)
        state.plan = plan = Plan(
            id=f"{state.incident}/{kind}{len(state.tried)}",
            kind=kind,
            cause=fields["cause"],
            incarnations={host: engine.incarnation for host, engine in seen.items()},
            steps=steps,
            step_began_s=self.now_s,
            store_mode=fields.get("store_mode", ""),
            store_before=sight.store_modes(seen),
            by=fields.get("by", ""),
            rollback=cue is GroupCue.ROLL_BACK,
        )
        if kind == "restart":
            state.restarts = [*state.restarts[1 - RESTARTS_KEPT :], self.now_s]
        if plan.store_mode:
            state.toggled_s, state.auto_toggled = self.now_s, not plan.by
        self.advance(state, cue)
        words = "\n".join(plan_words(kind, steps, plan.incarnations))
        yield self.told("acting", plan.id, "warning", words, spec)

    def open(self, spec: GroupSpec, state: GroupState) -> None:
        """Begin an incident: what the group looked like now is what later progress is compared with."""
        state.number += 1
        # A host keeps its answers by name for ever. With the epoch no name comes back, not even after a wiped bus.
        state.incident = f"{spec.name}-{self.epoch}.{state.number}"
        self.meet_anew(spec, state)
        state.captures, state.captures_sent_s, state.rounds, state.verdict = {}, None, 1, None
        state.refusals, state.told_guards, state.tried, state.plan = (), (), (), None
        state.asked_kind, state.approved_by, state.mode_refused = "", "", False

    def meet(self, spec: GroupSpec, state: GroupState) -> None:
        """Note what runs on each host, and this instant on its own clock: only later progress speaks against a stall.

        A host that is first heard in the middle of an incident is met then.
        """
        for host, engine in self.seen(spec).items():
            if host not in state.incarnations:
                state.incarnations = {**state.incarnations, host: engine.incarnation}
                state.opened_there_s = {**state.opened_there_s, host: self.hosts[host].there_s(self.now_s)}

    def meet_anew(self, spec: GroupSpec, state: GroupState) -> None:
        """From now on, only progress after this instant speaks against a stall.

        How long a host's newest report was under way is not known, so what it saw before may look like progress after.
        """
        state.incarnations, state.opened_there_s = {}, {}
        self.meet(spec, state)

    def close(self, spec: GroupSpec, state: GroupState, cue: GroupCue, why: str) -> Effects:
        """End an incident."""
        self.advance(state, cue)
        yield self.told("closed", f"{state.incident}/closed", "info", why, spec)
        state.plan, state.refusals, state.verdict = None, (), None

    def fail(self, spec: GroupSpec, state: GroupState, why: str) -> Effects:
        """Stop acting on a group until a person looks."""
        state.breaker = why
        self.advance(state, GroupCue.FAILED)
        yield self.told("page", f"{state.incident}/page/{len(state.tried)}", "critical", why, spec)

    def give_up_plan(self, spec: GroupSpec, state: GroupState, what: str, why: str, *, refund: bool) -> Effects:
        """Let go of a plan and decide anew. `refund`: nothing was done yet, so it does not count as a restart."""
        plan = state.plan
        assert plan is not None
        if refund and plan.kind == "restart":
            state.restarts = state.restarts[:-1]
        state.plan = None
        self.advance(state, GroupCue.NOT_ENOUGH)
        yield self.told(what, f"{plan.id}/{what}", "warning", why, spec)

    def release(self, state: GroupState) -> None:
        """A person takes a halted group back into the watch; its old verdict no longer counts."""
        state.breaker = ""
        if state.phase == GroupPhase.HALTED.value:
            self.advance(state, GroupCue.RELEASED)
            state.plan, state.verdict = None, None

    def advance(self, state: GroupState, cue: GroupCue) -> None:
        """Move along the table of lives. Raises IllegalTransition."""
        state.phase = advance_group(GroupPhase(state.phase), cue).value

    def told(self, what: str, key: str, severity: Severity, words: str, spec: GroupSpec | None = None) -> Told:
        """A notice. `key` is unique to the change that it tells."""
        state = None if spec is None else self.group(spec.name)
        ongoing = state is not None and (GroupPhase(state.phase) in OPEN or what == "closed")
        return Told(
            what=what,
            key=key,
            severity=severity,
            words=words,
            group="" if spec is None else spec.name,
            incident=state.incident if state is not None and ongoing else "",
            verdict=state.verdict if state is not None and what == "verdict" else None,
        )

    def answer(self, order: Order, ok: bool, *says: str) -> Answered:
        """The answer to an order."""
        return Answered(order=order, ok=ok, says=says)


def rebased(state: ClusterState, now: Stamp) -> ClusterState:
    """A predecessor's state on this clock. Another boot or host counts as no time passed: waits only grow longer."""
    if state.saved.boot_id == now.boot_id and state.saved.mono_ns <= now.mono_ns:
        return state
    shift_s = now.mono_s - state.saved.mono_s
    for group in state.groups.values():
        for name in ("captures_began_s", "judged_s", "proving_s", "approved_s"):
            setattr(group, name, getattr(group, name) + shift_s)
        group.restarts = [at_s + shift_s for at_s in group.restarts]
        group.toggled_s = _shifted(group.toggled_s, shift_s)
        group.captures_sent_s = _shifted(group.captures_sent_s, shift_s)
        if group.plan is not None:
            group.plan.step_began_s += shift_s
            group.plan.sent_s = _shifted(group.plan.sent_s, shift_s)
    state.suspected = [(at_s + shift_s, name) for at_s, name in state.suspected]
    state.paused_until_s = _shifted(state.paused_until_s, shift_s)
    return state


def _shifted(at_s: float | None, by_s: float) -> float | None:
    return None if at_s is None else at_s + by_s
