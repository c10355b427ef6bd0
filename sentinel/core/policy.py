"""May this be done to a group now? Every reason against is given, not only the first.

A rule suggests, this decides, a host acts, and only an observation closes. Nothing here knows how anything is done.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from sentinel.model.cluster import ClusterState, GroupState, Limits, Mode, PlanKind
from sentinel.model.group import GroupSpec
from sentinel.model.verdict import Verdict

RESTART_CLASSES_NEVER = frozenset({
    "none", "quiet.idle", "quiet.paused", "busy.boot", "busy.graph_capture", "busy.jit", "busy.prefill",
    "slow.straggler", "slow.recovered", "unknown",
})  # fmt: skip
"""Classes that do not say "stalled for good", whatever a rule suggests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """One reason against, with the guard that gives it (a constant word, also a metrics label)."""

    guard: str
    why: str

    def __str__(self) -> str:
        return f"{self.guard}: {self.why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What is visible of a group at this instant, as sentences; empty tuples where there is nothing to object to."""

    blind: tuple[str, ...] = ()
    moving: tuple[str, ...] = ()
    starved: tuple[str, ...] = ()
    jumped: tuple[str, ...] = ()
    young: tuple[str, ...] = ()
    long_phase: tuple[str, ...] = ()
    still_s: float | None = None
    acting_groups: int = 0
    groups: int = 1
    lanes: tuple[int, ...] = ()

    def stands_again(self, hold_s: float) -> bool:
        """Whether all is seen, progress was seen since the incident began, and none for `hold_s` by now.

        What was judged is over then, and what stands still now has to be judged.
        """
        return bool(self.moving) and not self.blind and self.still_s is not None and self.still_s >= hold_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is to be decided. `ordered_by` is empty unless a person asks for it by name."""

    kind: PlanKind
    spec: GroupSpec
    group: GroupState
    cluster: ClusterState
    limits: Limits
    mode: Mode
    view: View
    now_s: float
    ordered_by: str = ""


def refusals(question: Question) -> tuple[Refusal, ...]:
    """Everything that speaks against it; empty: go."""
    found = [*_always(question), *_sight(question)]
    if question.kind == "restart":
        found += _restarts(question)
    if question.kind == "store":
        found += _toggles(question)
    if not question.ordered_by:
        found += _by_itself(question)
    return tuple(found)


def remedy(verdict: Verdict, question: Question) -> PlanKind | None:
    """What a verdict suggests that can be done to this group: a mild remedy first, None when it needs a person."""
    forbidden = {action.action for action in verdict.do_not}
    wanted = {action.action for action in verdict.actions} - forbidden
    tried = question.group.tried
    if "unblock_lane" in wanted and question.view.lanes and question.limits.unblock_first and "unblock" not in tried:
        return "unblock"
    if wanted & {"restart_engine", "unblock_lane"} and "restart_engine" not in forbidden:
        return "restart"
    return None


def wants_ram(verdict: Verdict, question: Question) -> bool:
    """Whether the row store should leave NVMe with this restart."""
    spec, group = question.spec, question.group
    suggested = any(action.action == "rowstore_mode" and action.to == "ram" for action in verdict.actions)
    window = group.toggled_s is None or question.now_s - group.toggled_s >= question.limits.store_window_s
    return suggested and spec.stores and question.limits.store_to_ram and group.store_mode != "ram" and window


def budget_left(group: GroupState, limits: Limits, now_s: float) -> int:
    """Restarts that may still be begun in the present window."""
    return max(0, limits.restarts_max - len(_recent(group, limits, now_s)))


def cooldown_left_s(group: GroupState, limits: Limits, now_s: float) -> float:
    """Seconds until the next restart may begin; 0 when it may."""
    if not group.restarts:
        return 0.0
    quiet_s = now_s - max(group.restarts)
    if quiet_s >= limits.calm_s:
        return 0.0
    recent = len(_recent(group, limits, now_s))
    return max(0.0, limits.backoff_s[min(recent, len(limits.backoff_s) - 1)] - quiet_s)


def _recent(group: GroupState, limits: Limits, now_s: float) -> list[float]:
    return [at_s for at_s in group.restarts if now_s - at_s < limits.window_s]


def _always(question: Question) -> Iterator[Refusal]:
    spec, group, cluster, view = question.spec, question.group, question.cluster, question.view
    if not spec.acts:
        why = f"no supervisor is known; set groups.{spec.name}.supervisor"
        yield Refusal(guard="supervisor", why=why)
    if group.breaker:
        yield Refusal(guard="breaker", why=f"{group.breaker}; `sentinel breaker reset {spec.name}` closes it")
    if cluster.breaker:
        yield Refusal(guard="breaker", why=f"{cluster.breaker}; `sentinel breaker reset _global` closes it")
    for host in spec.hosts:
        if host in cluster.maintenance:
            yield Refusal(guard="maintenance", why=f"{host}: {cluster.maintenance[host]}")
    limit = max(question.limits.groups_at_once, int(question.limits.groups_share * view.groups))
    if view.acting_groups >= limit:
        yield Refusal(guard="concurrency", why=f"{view.acting_groups} groups are being acted on, {limit} are allowed")


def _sight(question: Question) -> Iterator[Refusal]:
    """Nobody acts on what is not seen, not even by order: a plan needs every host's acknowledgement."""
    for words in question.view.blind:
        yield Refusal(guard="blind", why=words)


def _restarts(question: Question) -> Iterator[Refusal]:
    left = budget_left(question.group, question.limits, question.now_s)
    if left == 0:
        limits = question.limits
        yield Refusal(guard="budget", why=f"{limits.restarts_max} restarts in {limits.window_s:g} s are spent")
    wait_s = cooldown_left_s(question.group, question.limits, question.now_s)
    if wait_s > 0:
        yield Refusal(guard="cooldown", why=f"{wait_s:.0f} s left after the last restart")


def _toggles(question: Question) -> Iterator[Refusal]:
    group, limits = question.group, question.limits
    if not question.spec.stores:
        yield Refusal(guard="store", why=f"no row store is known; set groups.{question.spec.name}.store")
    if group.toggled_s is not None and question.now_s - group.toggled_s < limits.store_window_s:
        left_s = limits.store_window_s - (question.now_s - group.toggled_s)
        yield Refusal(guard="toggle", why=f"the mode was changed lately; {left_s:.0f} s left of the window")


def _by_itself(question: Question) -> Iterator[Refusal]:
    """What stands against acting without a person's order."""
    cluster, group, limits = question.cluster, question.group, question.limits
    if cluster.paused_until_s is not None and question.now_s < cluster.paused_until_s:
        left_s = cluster.paused_until_s - question.now_s
        yield Refusal(guard="paused", why=f"{cluster.paused_why}; {left_s:.0f} s left")
    if question.mode == "observe":
        yield Refusal(guard="policy", why="the mode is observe; `sentinel policy set auto` lets it act")
    if question.mode == "approve" and not _approved(group, limits, question.now_s):
        yield Refusal(guard="approval", why=f"waits for `sentinel approve {group.incident}`")
    if question.kind != "store":
        yield from _interlocks(question.view, limits)
        yield from _verdict(group.verdict)


def _approved(group: GroupState, limits: Limits, now_s: float) -> bool:
    return bool(group.approved_by) and now_s - group.approved_s < limits.approval_s


def _interlocks(view: View, limits: Limits) -> Iterator[Refusal]:
    for guard in ("moving", "starved", "jumped", "young", "long_phase"):
        for words in getattr(view, guard):
            yield Refusal(guard="disagreement" if guard == "moving" else guard, why=words)
    if view.still_s is None:
        yield Refusal(guard="hold", why="how long the group has stood still cannot be told")
    elif view.still_s < limits.hold_s:
        yield Refusal(guard="hold", why=f"it has stood still for {view.still_s:.0f} s of {limits.hold_s:g} s")


def _verdict(verdict: Verdict | None) -> Iterator[Refusal]:
    if verdict is None:
        yield Refusal(guard="verdict", why="there is none yet")
        return
    if verdict.kind in RESTART_CLASSES_NEVER or verdict.stalled is not True:
        yield Refusal(guard="verdict", why=f"{verdict.kind} does not call for it")
    if verdict.confidence == "low":
        yield Refusal(guard="confidence", why="the verdict has low confidence")
