"""What a person may ask of the coordinator, and the answer: the plan first, or the reasons against."""

import re
from typing import get_args

from sentinel.core.book import Book, Effects
from sentinel.core.cluster_life import GroupCue, GroupPhase
from sentinel.core.plan import plan_words
from sentinel.core.policy import refusals
from sentinel.core.sight import switchable
from sentinel.model.cluster import Mode, Order, Ordered, PlanKind, Step, Told
from sentinel.model.group import GroupSpec

PAUSE_MAX_S = 24 * 3600.0
KEPT_MAX = 500
FEEDBACK = ("confirmed", "false_alarm")


def carry_out(book: Book, asked: Ordered) -> Effects:
    """Do what is asked, once, and answer. What was asked before the newest known number was dealt with already."""
    order = asked.order
    if asked.number <= book.state.orders_after:
        return
    book.state.orders_after = asked.number
    if asked.stale:
        yield book.answer(order, False, "it was given while nobody coordinated; give it again if it is still meant")
        return
    if not order.reason.strip():
        yield book.answer(order, False, "a reason is needed: --reason")
        return
    match order.verb:
        case "pause" | "resume" | "policy":
            yield from _cluster(book, order)
        case "maintenance":
            yield from _maintenance(book, order)
        case "breaker_reset":
            yield from _breaker(book, order)
        case "approve" | "feedback":
            yield from _incident(book, order)
        case "restart" | "store" | "unblock":
            yield from _plan(book, order)


def _audit(order: Order, words: str) -> Told:
    """Every change that a person made is told, with the name and the reason."""
    text = f"{words}; by {order.by}: {order.reason}"
    return Told(what="order", key=f"order/{order.id}", severity="info", words=text, group=order.group)


def _cluster(book: Book, order: Order) -> Effects:
    if order.verb == "policy":
        if order.value not in get_args(Mode):
            yield book.answer(order, False, f"no mode {order.value}; choose observe, approve or auto")
            return
        words = f"policy {book.mode} -> {order.value}"
    elif order.verb == "pause":
        if not 0 < order.seconds <= PAUSE_MAX_S:
            yield book.answer(order, False, "a pause lasts more than 0 and at most 24 h")
            return
        words = f"no action by itself for {order.seconds:.0f} s; watching and capturing go on"
    else:
        words = "actions are allowed again"
    if not order.dry_run:
        if order.verb == "policy":
            book.state.mode = next(mode for mode in get_args(Mode) if mode == order.value)
        elif order.verb == "pause":
            book.state.paused_until_s = book.now_s + order.seconds
            book.state.paused_why = _kept(f"paused by {order.by}: {order.reason}")
        else:
            book.state.paused_until_s = None
        yield _audit(order, words)
    yield book.answer(order, True, words)


def _maintenance(book: Book, order: Order) -> Effects:
    known = {host for spec in book.specs.values() for host in spec.hosts}
    if order.group not in known:
        yield book.answer(order, False, f"no host {order.group}; known: {', '.join(sorted(known)) or 'none'}")
        return
    words = f"maintenance of {order.group} {order.value}"
    if not order.dry_run:
        if order.value == "on":
            book.state.maintenance[order.group] = _kept(f"maintenance by {order.by}: {order.reason}")
        else:
            book.state.maintenance.pop(order.group, None)
        yield _audit(order, words)
    yield book.answer(order, True, words)


def _breaker(book: Book, order: Order) -> Effects:
    if order.group == "_global":
        words = f"closes the global breaker ({book.state.breaker or 'it is closed'})"
        if not order.dry_run:
            book.state.breaker, book.state.suspected = "", []
            yield _audit(order, words)
        yield book.answer(order, True, words)
        return
    spec = book.specs.get(order.group)
    if spec is None:
        yield book.answer(order, False, _unknown(book, order))
        return
    state = book.group(spec.name)
    words = f"closes the breaker of {spec.name} ({state.breaker or 'it is closed'}) and forgets its old verdict"
    if not order.dry_run:
        book.release(state)
        yield _audit(order, words)
    yield book.answer(order, True, words)


def _incident(book: Book, order: Order) -> Effects:
    found = [(name, state) for name, state in book.state.groups.items() if _belongs(state.incident, order.group)]
    if not found and order.verb == "feedback":
        found = [(name, state) for name, state in book.state.groups.items() if _earlier(name, order.group)]
    if not found:
        yield book.answer(order, False, f"no incident {order.group}; `sentinel incidents` lists them")
        return
    name, state = found[0]
    if order.verb == "feedback":
        if order.value not in FEEDBACK:
            yield book.answer(order, False, f"say {' or '.join(FEEDBACK)}")
            return
        words = f"{order.group} was {order.value.replace('_', ' ')}"
        if not order.dry_run:
            kept = list(state.feedback.items())[-63:]
            state.feedback = {**dict(kept), order.group: order.value}
            yield _audit(order, words)
        yield book.answer(order, True, words)
        return
    if state.phase != GroupPhase.JUDGED.value:
        yield book.answer(order, False, f"{order.group} is {state.phase}; only a judged incident can be approved")
        return
    lines = plan_words("restart", book.steps("restart", book.specs[name]), state.incarnations)
    if not order.dry_run:
        state.approved_by, state.approved_s = order.by, book.now_s
        yield _audit(order, f"approved {order.group}")
    yield book.answer(order, True, *lines, *(f"still against it: {why}" for why in state.refusals))


def _plan(book: Book, order: Order) -> Effects:
    spec = book.specs.get(order.group)
    if spec is None:
        yield book.answer(order, False, _unknown(book, order))
        return
    state = book.group(spec.name)
    kind, mode = _kind(book, order, spec)
    steps = book.steps(kind, spec, mode, order.by)
    seen = book.seen(spec)
    lines = plan_words(kind, steps, {host: engine.incarnation for host, engine in seen.items()})
    against = [str(refusal) for refusal in refusals(book.question(kind, spec, order.by))]
    if order.verb == "store" and kind == "restart":
        against += [str(each) for each in refusals(book.question("store", spec, order.by)) if each.guard == "toggle"]
    against += _impossible(order, spec, mode, steps)
    if GroupPhase(state.phase) not in (GroupPhase.CALM, GroupPhase.SUSPECTED, GroupPhase.JUDGED):
        against.append(f"phase: the group is {state.phase}")
    elif kind == "store" and state.phase != GroupPhase.CALM.value:
        against.append(f"phase: the group is {state.phase}; the mode is switched live only in calm")
    if against or order.dry_run:
        yield book.answer(order, not against, *lines, *against)
        return
    yield _audit(order, f"{order.verb} {order.group} {mode}".strip())
    yield from book.begin(kind, spec, GroupCue.ORDER, steps, cause="ordered", store_mode=mode, by=order.by)
    yield book.answer(order, True, *lines)


def _kind(book: Book, order: Order, spec: GroupSpec) -> tuple[PlanKind, str]:
    """A mode is switched live where every host's store can; otherwise with a restart."""
    if order.verb == "unblock":
        return "unblock", ""
    if order.verb == "restart":
        return "restart", ""
    return ("store" if switchable(spec, book.seen(spec)) else "restart"), order.value


def _impossible(order: Order, spec: GroupSpec, mode: str, steps: tuple[Step, ...]) -> list[str]:
    against = []
    if order.verb == "store" and mode not in ("ram", "nvme"):
        against.append(f"store: no mode {mode}; choose ram or nvme")
    if order.verb == "store" and not spec.stores:
        against.append(f"store: no row store is known; set groups.{spec.name}.store")
    if order.verb == "unblock" and not any(step.hosts for step in steps):
        against.append("store: no host reports a stuck lane")
    return against


def _belongs(incident: str, named: str) -> bool:
    return bool(named) and incident == named


def _earlier(group: str, named: str) -> bool:
    """Whether a name is one of a group's incidents, as far as its form tells."""
    return re.fullmatch(re.escape(group) + r"-[0-9]{1,20}\.[0-9]{1,20}", named) is not None


def _kept(words: str) -> str:
    """What of a person's words stays in the state; the notice of the order has all of them."""
    return words[:KEPT_MAX]


def _unknown(book: Book, order: Order) -> str:
    return f"no group {order.group}; known: {', '.join(sorted(book.specs)) or 'none, add groups to sentinel.yaml'}"
