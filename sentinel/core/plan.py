"""Plans: barriers that every host acknowledges before the next begins. Pure; commands out, acknowledgements in.

A command's id follows from its plan and step, so that a coordinator that begins again after a crash asks for the same
thing under the same name, and a host that did it already says so instead of doing it twice.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from sentinel.model.cluster import Delays, Plan, PlanKind, Step
from sentinel.model.group import Ack, Command, GroupSpec

WITHIN = "within_s"
SHARE = 0.9
"""Of a step's limit a host gets this much, so that its own words arrive before the coordinator gives up on it."""
FATAL: Mapping[str, str] = {
    "unverified": "the stop of {host} could not be verified: {why}",
    "refused": "{host} refused: {why}",
    "failed": "{host} failed: {why}",
    "abandoned": "{host} lost its agent in the middle: {why}",
}


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing new; `send` holds the commands that have no acknowledgement yet and are due."""

    send: tuple[Command, ...] = ()


@dataclass(frozen=True, slots=True)
class Finished:
    """Every step is acknowledged."""


@dataclass(frozen=True, slots=True)
class Nothing:
    """The plan found nothing left to do."""

    why: str


@dataclass(frozen=True, slots=True)
class Halted:
    """It cannot go on and must not be begun again by itself."""

    why: str


Turn = Wait | Finished | Nothing | Halted


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What a plan's commands carry besides: the present lease and names."""

    group: str
    incident: str
    epoch: int
    beat: int


def restart_steps(spec: GroupSpec, delays: Delays, *, fresh_capture: bool, ask: bool, mode: str) -> tuple[Step, ...]:
    """Steps of a restart. `fresh_capture`: evidence was not taken yet; `ask`: try to get a token out of it first."""
    hosts, first = spec.hosts, spec.hosts[:1]
    args = {"mode": mode} if mode else {}
    start = {**args, **_within(delays.start_s)}
    steps = []
    if mode:
        steps.append(Step(name="fits", verb="store_check", hosts=hosts, limit_s=delays.store_s, args=args))
    if fresh_capture:
        steps.append(Step(name="capture", verb="capture", hosts=hosts, limit_s=delays.capture_s))
    if ask:
        steps.append(Step(name="ask", verb="probe", hosts=hosts, limit_s=delays.probe_s))
    steps.append(Step(name="stop", verb="stop", hosts=hosts, limit_s=delays.stop_s))
    steps.append(Step(name="start_first", verb="start", hosts=first, limit_s=delays.start_s, args=start))
    if len(hosts) > 1:
        steps.append(Step(name="start_rest", verb="start", hosts=hosts[1:], limit_s=delays.start_s, args=start))
    ready = _within(delays.ready_s)
    steps.append(Step(name="ready", verb="ready", hosts=hosts, limit_s=delays.ready_s, args=ready))
    return tuple(steps)


def store_steps(spec: GroupSpec, delays: Delays, mode: str) -> tuple[Step, ...]:
    """Steps of a live switch: every host says that it can, then every host does."""
    args = {"mode": mode}
    return (
        Step(name="fits", verb="store_check", hosts=spec.hosts, limit_s=delays.store_s, args=args),
        switch_step(spec.hosts, delays, mode),
    )


def switch_step(hosts: tuple[str, ...], delays: Delays, mode: str) -> Step:
    """Every named host's running store changes its mode."""
    args = {"mode": mode, **_within(delays.store_s)}
    return Step(name="switch", verb="store_set", hosts=hosts, limit_s=delays.store_s, args=args)


def unblock_steps(hosts: tuple[str, ...], delays: Delays) -> tuple[Step, ...]:
    """Steps of an unblocking: the hosts with a stuck lane end the gather that it waits in."""
    return (Step(name="unblock", verb="unblock", hosts=hosts, limit_s=delays.unblock_s),)


def advance_plan(plan: Plan, stage: Stage, now_s: float, resend_s: float) -> Turn:
    """Go on as far as the acknowledgements reach. Changes `plan`; the caller saves it before it sends anything."""
    while plan.at < len(plan.steps):
        step = plan.steps[plan.at]
        acks = {host: plan.acks[ack_id] for host in step.hosts if (ack_id := _id(plan, step, host)) in plan.acks}
        if (end := _judge_step(step, acks)) is not None:
            return end
        if len(acks) < len(step.hosts):
            return _waiting(plan, step, acks, stage, now_s, resend_s)
        plan.at += 1
        plan.step_began_s, plan.sent_s = now_s, None
    return Finished()


def note_ack(plan: Plan, ack: Ack) -> None:
    """Take an acknowledgement if it belongs to this plan; the first of two counts."""
    if any(ack.host in step.hosts and ack.id == _id(plan, step, ack.host) for step in plan.steps):
        plan.acks.setdefault(ack.id, ack)


def plan_words(kind: PlanKind, steps: tuple[Step, ...], incarnations: Mapping[str, str]) -> tuple[str, ...]:
    """What the plan would do, one line a step."""
    words = [f"{kind}:"]
    for number, step in enumerate(steps, 1):
        args = "".join(f" {name}={value}" for name, value in step.args.items() if name != WITHIN)
        named = ", ".join(f"{host} ({incarnations.get(host) or 'nothing runs'})" for host in step.hosts)
        words.append(f"  {number}. {step.name}{args} on {named}; at most {step.limit_s:g} s")
    return tuple(words)


def _judge_step(step: Step, acks: Mapping[str, Ack]) -> Turn | None:
    """An end that the acknowledgements of one step call for; None when the plan goes on."""
    if step.verb == "probe":
        if any(ack.checks.get("token") for ack in acks.values()):
            return Nothing("the engine generated a token when it was asked")
        if len(acks) == len(step.hosts) and not any(ack.checks.get("token") is False for ack in acks.values()):
            return Halted("no host could ask the engine for a token; its endpoint is not known")
        return None
    if step.verb == "ready" and len(acks) == len(step.hosts):
        proofs = [ack.checks.get("token") for ack in acks.values()]
        if True not in proofs and all(ack.outcome == "done" for ack in acks.values()):
            return Halted("no host serves an API, so nothing proves that the engine generates")
    if step.verb == "capture":
        return None  # A capture that failed is a loss of evidence, never a reason to leave the engine stuck.
    for host, ack in acks.items():
        if (words := FATAL.get(ack.outcome)) is not None:
            return Halted(words.format(host=host, why=ack.why))
    if step.verb == "stop" and len(acks) == len(step.hosts) and all(ack.outcome == "noop" for ack in acks.values()):
        return Nothing("the engine was gone on every host already")
    return None


def _waiting(plan: Plan, step: Step, acks: Mapping[str, Ack], stage: Stage, now_s: float, resend_s: float) -> Turn:
    late = [host for host in step.hosts if host not in acks]
    if now_s - plan.step_began_s > step.limit_s:
        return Halted(f"no acknowledgement of `{step.name}` from {', '.join(late)} within {step.limit_s:g} s")
    if plan.sent_s is not None and now_s - plan.sent_s < resend_s:
        return Wait()
    plan.sent_s = now_s
    return Wait(tuple(_command(plan, step, host, stage) for host in late))


def _command(plan: Plan, step: Step, host: str, stage: Stage) -> Command:
    return Command(
        id=_id(plan, step, host),
        epoch=stage.epoch,
        beat=stage.beat,
        verb=step.verb,
        group=stage.group,
        host=host,
        incarnation=plan.incarnations.get(host, ""),
        incident=stage.incident,
        plan=plan.id,
        args=step.args,
    )


def _id(plan: Plan, step: Step, host: str) -> str:
    return f"{plan.id}/{step.name}/{host}"


def _within(limit_s: float) -> dict[str, str]:
    return {WITHIN: f"{SHARE * limit_s:g}"}
