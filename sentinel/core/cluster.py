"""The coordinator's core: reports, acknowledgements and orders in; commands, notices and answers out.

It joins what the hosts of a group say, keeps the incident's life (`cluster_life.py`), asks policy, and walks plans.
An incident ends only with an observation of progress, of absence, or with a person. `state` is what a successor needs;
the shell saves it before it carries out any effect.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from sentinel.core import sight
from sentinel.core.book import Book, Effects, rebased
from sentinel.core.cluster_life import OPEN, GroupCue, GroupPhase
from sentinel.core.judge import judge_picture
from sentinel.core.orders import carry_out
from sentinel.core.picture import Picture
from sentinel.core.plan import note_ack
from sentinel.core.policy import Refusal, refusals, remedy, wants_ram
from sentinel.core.walking import prove, walk
from sentinel.model.cluster import (
    Acked,
    AnyClusterEffect,
    AnyClusterEvent,
    Beat,
    EvidenceRead,
    Exposure,
    GroupState,
    Leading,
    Ordered,
    ReadEvidence,
    Reported,
    Send,
    Severity,
)
from sentinel.model.group import Command, EngineReport, GroupSpec

P, C = GroupPhase, GroupCue
EVIDENCE_MAX = 20_000
SERVED_STEP_MAX_S = 5.0
ROUNDS_MAX = 10
"""Evidence that does not decide is taken at most this often in one incident; what moved and stands still again is
judged anew besides."""
CLEARABLE = (P.SUSPECTED, P.CAPTURING, P.READING, P.JUDGED, P.HALTED)


@dataclass(slots=True)
class ClusterCore(Book):
    """`step` is the only entry. Without `Leading` it does nothing."""

    _silent: set[str] = field(default_factory=set)
    _mixed_s: dict[str, float] = field(default_factory=dict)
    _read_s: dict[str, float] = field(default_factory=dict)

    def step(self, event: AnyClusterEvent) -> tuple[AnyClusterEffect, ...]:
        """Take one event; return what is to be done, in order."""
        dt_s = max(0.0, event.at.mono_s - self.now_s)
        self.now_s = event.at.mono_s
        if isinstance(event, Leading):
            self._lead(event)
            return ()
        if not self.epoch:
            return ()
        self.state.saved = event.at
        match event:
            case Beat(beat=beat):
                self.beat = beat
                return tuple(self._beat(min(dt_s, SERVED_STEP_MAX_S)))
            case Reported(report=report):
                skew_s = event.at.wall_s - report.at.wall_s
                self.hosts[report.host] = sight.HostView(report, self.now_s, skew_s)
            case Acked(ack=ack):
                for state in self.state.groups.values():
                    if state.plan is not None:
                        note_ack(state.plan, ack)
                    if ack.id == _capture_id(state, ack.host):
                        state.captures = {ack.host: ack, **state.captures}
            case Ordered():
                return tuple(carry_out(self, event))
            case EvidenceRead():
                return tuple(self._judge_evidence(event))
        return ()

    def _lead(self, event: Leading) -> None:
        self.epoch, self.limits, self.delays = event.epoch, event.limits, event.delays
        self.specs = {spec.name: spec for spec in event.groups}
        if event.state is not None:
            self.state = rebased(event.state, event.at)
        self.state.saved = event.at

    def _beat(self, dt_s: float) -> Effects:
        yield from self._hosts_heard()
        if self.state.paused_until_s is not None and self.now_s >= self.state.paused_until_s:
            key = f"pause/{self.epoch}/{self.state.paused_until_s:.0f}"
            self.state.paused_until_s = None
            yield self.told("pause_over", key, "info", "the pause has run out")
        for spec in self.specs.values():
            yield from self._turn(spec, self.group(spec.name), dt_s)

    def _hosts_heard(self) -> Effects:
        """Say once when an agent falls silent and once when it is back; neither is a word about its engines."""
        for host, view in self.hosts.items():
            silent = view.age_s(self.now_s) >= self.delays.silent_s
            if silent != (host in self._silent):
                (self._silent.add if silent else self._silent.discard)(host)
                what = "agent_silent" if silent else "agent_back"
                words = f"the agent on {host} " + ("is silent: its engines are unknown" if silent else "reports again")
                key = f"host/{host}/{self.epoch}/{what}/{view.heard_s:.3f}"
                yield self.told(what, key, "warning" if silent else "info", words)

    def _turn(self, spec: GroupSpec, state: GroupState, dt_s: float) -> Effects:
        seen = self.seen(spec)
        phase = GroupPhase(state.phase)
        if phase in OPEN:
            self.meet(spec, state)
        if phase in CLEARABLE and sight.back(spec, state, seen):
            yield from self.close(spec, state, C.PROGRESS, "progress came back")
            return
        if phase in CLEARABLE and phase is not P.HALTED and sight.gone(spec, seen):
            yield from self.close(spec, state, C.GONE, "no host runs the engine any more")
            return
        match phase:
            case P.CALM:
                yield from self._calm(spec, state, seen, dt_s)
            case P.SUSPECTED if sight.captures(seen.values()):
                self.advance(state, C.CAPTURE)
                state.captures_began_s = self.now_s
            case P.CAPTURING:
                yield from self._capture(spec, state)
            case P.READING:
                yield from self._read(spec, state)
            case P.JUDGED:
                yield from self._decide(spec, state)
            case P.ACTING:
                yield from walk(self, spec, state)
            case P.PROVING:
                yield from prove(self, spec, state)

    def _calm(self, spec: GroupSpec, state: GroupState, seen: Mapping[str, EngineReport], dt_s: float) -> Effects:
        if sight.suspected(seen.values()):
            yield from self._suspect(spec, state)
            return
        yield from self._store_modes(spec, state, sight.store_modes(seen))
        if state.store_mode and any(engine.outstanding for engine in seen.values()):
            state.exposure.setdefault(state.store_mode, Exposure()).served_s += dt_s
        wanted = state.store_wanted or self._reverts_to(state)
        live = sight.switchable(spec, seen)
        if wanted and live and wanted != state.store_mode and not refusals(self.question("store", spec)):
            state.store_wanted = ""
            steps = self.steps("store", spec, wanted)
            yield from self.begin("store", spec, C.ORDER, steps, cause="store", store_mode=wanted)

    def _store_modes(self, spec: GroupSpec, state: GroupState, modes: Mapping[str, str]) -> Effects:
        """Keep the mode in force; hosts that differ for longer than a switch takes are an alert."""
        if len(set(modes.values())) <= 1:
            self._mixed_s.pop(spec.name, None)
            state.store_mode = next(iter(modes.values()), state.store_mode)
            return
        state.store_mode = ""
        since_s = self._mixed_s.setdefault(spec.name, self.now_s)
        if since_s >= 0 and self.now_s - since_s >= self.delays.late_s:
            self._mixed_s[spec.name] = -1.0
            words = "row-store modes differ: " + ", ".join(f"{host} {mode}" for host, mode in modes.items())
            yield self.told("mixed_modes", f"mixed/{spec.name}/{self.epoch}/{since_s:.3f}", "critical", words, spec)

    def _reverts_to(self, state: GroupState) -> str:
        """The mode to return to after a change of ours that has held for as long as configured; empty when none."""
        if self.limits.store_revert_s <= 0 or not state.auto_toggled or state.toggled_s is None:
            return ""
        held = self.now_s - state.toggled_s >= self.limits.store_revert_s
        return "nvme" if held and state.store_mode == "ram" else ""

    def _suspect(self, spec: GroupSpec, state: GroupState) -> Effects:
        self.open(spec, state)
        self.advance(state, C.SUSPECT)
        if state.store_mode:
            state.exposure.setdefault(state.store_mode, Exposure()).stalls += 1
        yield self.told("suspected", f"{state.incident}/suspected", "info", "the group stands still", spec)
        recent = [(at_s, name) for at_s, name in self.state.suspected if self.now_s - at_s < self.limits.storm_s]
        self.state.suspected = [*recent[-255:], (self.now_s, spec.name)]
        hit = {name for _, name in self.state.suspected}
        many = len(hit) >= self.limits.storm_groups and len(hit) >= self.limits.storm_share * len(self.specs)
        if many and not self.state.breaker:
            words = f"{len(hit)} of {len(self.specs)} groups stood still within {self.limits.storm_s:g} s"
            self.state.breaker = words
            yield self.told("breaker_open", f"{state.incident}/storm", "critical", words)

    def _capture(self, spec: GroupSpec, state: GroupState) -> Effects:
        late = [host for host in spec.hosts if host not in state.captures]
        if not late or self.now_s - state.captures_began_s > self.delays.capture_s:
            self.advance(state, C.CAPTURED)
            self._read_s.pop(spec.name, None)
            yield from self._read(spec, state)
        elif state.captures_sent_s is None or self.now_s - state.captures_sent_s >= self.delays.resend_s:
            state.captures_sent_s = self.now_s
            for host in late:
                yield Send(command=self._capture_command(spec, state, host))

    def _capture_command(self, spec: GroupSpec, state: GroupState, host: str) -> Command:
        return Command(
            id=_capture_id(state, host),
            epoch=self.epoch,
            beat=self.beat,
            verb="capture",
            group=spec.name,
            host=host,
            incarnation=state.incarnations.get(host, ""),
            incident=state.incident,
        )

    def _read(self, spec: GroupSpec, state: GroupState) -> Effects:
        """One host has judged everything it saw; the evidence of several is judged together, here."""
        if len(spec.hosts) == 1:
            if self._verdict_of_one(spec, state):
                yield from self._judged(spec, state)
        elif self.now_s - self._read_s.get(spec.name, float("-inf")) >= self.delays.resend_s:
            self._read_s[spec.name] = self.now_s
            digests = {host: ack.evidence for host, ack in state.captures.items() if ack.evidence}
            yield ReadEvidence(group=spec.name, incident=state.incident, digests=digests)

    def _verdict_of_one(self, spec: GroupSpec, state: GroupState) -> bool:
        engine = self.seen(spec).get(spec.hosts[0])
        if len(spec.hosts) == 1 and engine is not None and engine.verdict is not None:
            state.verdict = engine.verdict
            return True
        return False

    def _judge_evidence(self, event: EvidenceRead) -> Effects:
        spec, state = self.specs.get(event.group), self.state.groups.get(event.group)
        if spec is None or state is None or state.incident != event.incident or state.phase != P.READING.value:
            return
        picture = Picture(keep=EVIDENCE_MAX, clock_error_s=sight.clock_error_s(spec, self.hosts))
        for host, observations in sorted(event.by_host.items()):
            for seen in observations[:EVIDENCE_MAX]:
                # A host speaks for itself only, whatever its evidence claims.
                picture.note(msgspec.structs.replace(seen, host=host))
        times = [seen.at_s for taken in event.by_host.values() for seen in taken if seen.at_s is not None]
        picture.now_s = max(times, default=None)
        verdict = judge_picture(picture, self.rules).verdict
        unseen = tuple(f"evidence of {host}" for host in spec.hosts if host not in event.by_host)
        state.verdict = msgspec.structs.replace(verdict, missing=(*unseen, *verdict.missing))
        yield from self._judged(spec, state)

    def _judged(self, spec: GroupSpec, state: GroupState) -> Effects:
        self.advance(state, C.JUDGE)
        state.judged_s = self.now_s
        verdict = state.verdict
        assert verdict is not None
        severity: Severity = "critical" if verdict.stalled else "warning"
        key = f"{state.incident}/verdict{state.rounds}/{verdict.kind}"
        yield self.told("verdict", key, severity, verdict.summary, spec)
        yield from self._decide(spec, state)

    def _decide(self, spec: GroupSpec, state: GroupState) -> Effects:
        before = state.verdict
        self._verdict_of_one(spec, state)
        verdict = state.verdict
        assert verdict is not None
        if before is not None and before.kind != verdict.kind:
            yield self.told("verdict", f"{state.incident}/verdict/{verdict.kind}", "warning", verdict.summary, spec)
        if state.asked_kind != verdict.kind:
            # An approval is for what was told; what is found later is asked for anew.
            state.asked_kind, state.approved_by, state.told_guards = verdict.kind, "", ()
        question = self.question("restart", spec)
        if question.view.stands_again(self.limits.hold_s) and self._due(state):
            self.meet_anew(spec, state)
            self._again(state)
            return
        if self._decides_nothing(spec, state):
            self._again(state)
            return
        kind = remedy(verdict, question)
        against: tuple[Refusal, ...] = (Refusal(guard="remedy", why="nothing that can be done here is advised"),)
        if kind is not None:
            against = refusals(self.question(kind, spec))
        state.refusals = tuple(map(str, against))
        if kind is not None and not against:
            mode = "ram" if kind == "restart" and wants_ram(verdict, question) and not state.mode_refused else ""
            steps = self.steps(kind, spec, mode)
            yield from self.begin(kind, spec, C.ACT, steps, cause=verdict.kind, store_mode=mode)
            return
        guards = tuple(sorted({refusal.guard for refusal in against}))
        if guards != state.told_guards:
            state.told_guards = guards
            what = "approval_wanted" if guards == ("approval",) else "refused"
            yield self.told(
                what,
                f"{state.incident}/{what}/{verdict.kind}/{'+'.join(guards)}",
                "warning",
                "; ".join(state.refusals),
                spec,
            )

    def _decides_nothing(self, spec: GroupSpec, state: GroupState) -> bool:
        """Whether the hosts' evidence is taken anew: it was taken too early, or did not suffice. One host's agent
        judges again by itself."""
        verdict = state.verdict
        decided = verdict is not None and verdict.stalled is True and verdict.confidence != "low"
        return len(spec.hosts) > 1 and not decided and self._due(state) and state.rounds < ROUNDS_MAX

    def _due(self, state: GroupState) -> bool:
        return self.now_s - state.judged_s >= self.delays.recapture_s

    def _again(self, state: GroupState) -> None:
        self.advance(state, C.AGAIN)
        state.captures, state.captures_sent_s, state.captures_began_s = {}, None, self.now_s
        state.rounds += 1


def _capture_id(state: GroupState, host: str) -> str:
    return f"{state.incident}/capture{state.rounds}/{host}"
