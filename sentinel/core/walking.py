"""Carrying plans out: from barrier to barrier, back before the first harm, and to the proof by observation."""

from sentinel.core import sight
from sentinel.core.book import Book, Effects
from sentinel.core.cluster_life import GroupCue
from sentinel.core.plan import Finished, Halted, Nothing, Stage, Wait, advance_plan, switch_step
from sentinel.core.policy import refusals, wants_ram
from sentinel.model.cluster import GroupState, Plan, Send
from sentinel.model.group import GroupSpec

RESERVED = frozenset({"budget", "cooldown", "concurrency", "toggle"})
"""Guards that a plan has paid for when it was made."""
HARMLESS = frozenset({"store_check", "capture", "probe"})


def walk(book: Book, spec: GroupSpec, state: GroupState) -> Effects:
    """One turn of the plan of a group that is acted on."""
    plan = state.plan
    assert plan is not None
    if (why := withdrawn(book, spec, plan)) is not None:
        yield from book.give_up_plan(spec, state, "withdrawn", why, refund=True)
        return
    stage = Stage(group=spec.name, incident=state.incident, epoch=book.epoch, beat=book.beat)
    match advance_plan(plan, stage, book.now_s, book.delays.resend_s):
        case Wait(send=commands):
            # The step may have changed in this turn, and its harm must not begin on what was true in the last one.
            if commands and commands[0].verb == "stop" and (why := withdrawn(book, spec, plan, now=True)) is not None:
                yield from book.give_up_plan(spec, state, "withdrawn", why, refund=True)
                return
            yield from (Send(command=command) for command in commands)
        case Finished():
            if plan.kind == "restart":
                state.relaunches = {**state.relaunches, plan.cause: state.relaunches.get(plan.cause, 0) + 1}
            state.proving_s = book.now_s
            book.advance(state, GroupCue.CARRIED_OUT)
            yield book.told("carried_out", f"{plan.id}/done", "info", "every step is acknowledged", spec)
        case Nothing(why=why):
            yield from book.close(spec, state, GroupCue.NOTHING_TO_DO, why)
        case Halted(why=why):
            yield from _halted(book, spec, state, why)


def withdrawn(book: Book, spec: GroupSpec, plan: Plan, *, now: bool = False) -> str | None:
    """Why a plan of our own is taken back before its first harm; None when it goes on or is past that.

    `now`: the commands of the step were made in this turn and are not sent yet.
    """
    step = plan.steps[plan.at] if plan.at < len(plan.steps) else None
    if step is None or plan.by or plan.kind == "store" or any("/stop/" in ack_id for ack_id in plan.acks):
        return None
    before_harm = step.verb in HARMLESS or plan.sent_s is None or (now and plan.sent_s == plan.step_began_s)
    if not before_harm or step.verb in ("start", "ready"):
        return None
    against = [each for each in refusals(book.question(plan.kind, spec)) if each.guard not in RESERVED]
    return "; ".join(map(str, against)) if against else None


def prove(book: Book, spec: GroupSpec, state: GroupState) -> Effects:
    """Close a plan by what is seen, or find that it did not help."""
    plan = state.plan
    assert plan is not None
    if _worked(book, spec, state, plan):
        if plan.kind == "unblock" and state.verdict and wants_ram(state.verdict, book.question("store", spec)):
            state.store_wanted = "ram"
        yield from book.close(spec, state, GroupCue.PROVED, f"{plan.kind} worked, as observed")
    elif book.now_s - state.proving_s > book.delays.prove_s:
        why = f"nothing shows within {book.delays.prove_s:g} s that the {plan.kind} worked"
        if plan.kind == "unblock":
            yield from book.give_up_plan(spec, state, "not_enough", why, refund=False)
        else:
            yield from book.fail(spec, state, why)


def _worked(book: Book, spec: GroupSpec, state: GroupState, plan: Plan) -> bool:
    seen = book.seen(spec)
    if plan.kind == "restart":
        return sight.proved(spec, plan.incarnations, seen)
    if plan.kind == "unblock":
        return sight.back(spec, state, seen)
    modes = sight.store_modes(seen)
    return len(modes) == len(spec.hosts) and set(modes.values()) == {plan.store_mode}


def _halted(book: Book, spec: GroupSpec, state: GroupState, why: str) -> Effects:
    plan = state.plan
    assert plan is not None
    verb = plan.steps[plan.at].verb
    switched = tuple(ack.host for ack in plan.acks.values() if "/switch/" in ack.id and ack.outcome == "done")
    if plan.kind == "unblock":
        yield from book.give_up_plan(spec, state, "not_enough", why, refund=False)
    elif verb == "store_check" and plan.kind == "restart" and not plan.by:
        # The engine was not touched: it can still be restarted in the mode it has.
        state.mode_refused = True
        yield from book.give_up_plan(spec, state, "mode_refused", why, refund=True)
    elif verb == "store_check":
        yield from book.close(spec, state, GroupCue.NOTHING_TO_DO, f"the mode stays as it was: {why}")
    elif plan.kind == "store" and switched and not plan.rollback:
        before = plan.store_before.get(switched[0], "")
        steps = (switch_step(switched, book.delays, before),)
        yield book.told("rollback", f"{plan.id}/rollback", "critical", f"{why}; back to {before}", spec)
        fields = {"cause": "rollback", "store_mode": before, "by": plan.by}
        yield from book.begin("store", spec, GroupCue.ROLL_BACK, steps, **fields)
    else:
        yield from book.fail(spec, state, why)
