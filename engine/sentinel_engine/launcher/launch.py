"""Checks, starts, shows and stops all nodes: workers up first, head down first."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from ..config import parse_config
from .checks import Check
from .cluster import Cluster
from .errors import LaunchError, NodeLost, Refused
from .plan import NodePlan, new_incarnation
from .session import Session

PINGS = 5
PROVE_LIMIT_S = 30.0
POLL_S = 0.25
MARGIN_S = 20.0
LOCAL_SETTINGS = {"rows", "model", "runtime_dir", "log_file", "interface", "rows_mode",
                  "rows_settings", "admin_token"}  # fmt: skip
"""Settings that may differ between nodes: paths, network names and the store."""
LOCAL_ENVIRONMENT = {"CUDA_VISIBLE_DEVICES"}
"""And so may the GPUs that a node gives to its ranks."""

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Nodes:
    """Sessions to all nodes of a cluster, in the order of the file."""

    cluster: Cluster
    plans: tuple[NodePlan, ...]
    sessions: tuple[Session, ...]

    def pairs(self, head_first: bool) -> list[tuple[NodePlan, Session]]:
        """Plan and session of each node; the head is the first in the file."""
        pairs = list(zip(self.plans, self.sessions, strict=True))
        return pairs if head_first else pairs[:0:-1] + pairs[:1]


@contextmanager
def connect(cluster: Cluster, plans: tuple[NodePlan, ...]) -> Iterator[Nodes]:
    """Open all sessions; they close with the context, engines stay."""
    with ExitStack() as stack:
        sessions = tuple(stack.enter_context(Session(plan.node)) for plan in plans)
        yield Nodes(cluster, plans, sessions)


def _skew(session: Session, limit_s: float, deadline_s: float) -> Check:
    """Clock offset by the quickest of some round trips, certain to half of it."""
    best: tuple[float, float] | None = None
    for _ in range(PINGS):
        before = time.time_ns()
        there = session.ask("clock", deadline_s)
        after = time.time_ns()
        trip = ((after - before) / 1e9, (there - (before + after) / 2) / 1e9)
        best = min(best, trip) if best else trip
    assert best is not None
    trip_s, offset_s = best
    says = f"{offset_s * 1e3:+.1f} ms, certain to {trip_s * 500:.1f} ms"
    todo = "let chrony or ntpd set the clocks: logs of nodes cannot be compared"
    return Check("clock", abs(offset_s) <= limit_s + trip_s / 2, says, todo)


def _settings(nodes: Nodes) -> list[tuple[str, Check]]:
    """One finding per node whose settings or environment differ from the head's."""
    def shared(plan: NodePlan) -> dict[str, Any]:
        both = {name: v for name, v in plan.settings.items() if name not in LOCAL_SETTINGS}
        environment = nodes.cluster.env | plan.node.env
        return both | {f"env {name}": environment[name]
                       for name in environment.keys() - LOCAL_ENVIRONMENT}

    head, found = shared(nodes.plans[0]), []
    for plan in nodes.plans:
        mine = shared(plan)
        other = sorted(key for key in head.keys() | mine.keys() if head.get(key) != mine.get(key))
        says = f"differ from the head: {', '.join(other)}" if other else "equal"
        todo = "move them to the cluster's [engine] or [env]"
        found.append((plan.node.name, Check("settings", not other, says, todo)))
    return found


def _compare(found: list[tuple[str, Check]]) -> list[tuple[str, Check]]:
    """Turn what must be the same and is not into failures, the head being right."""
    first: dict[str, str] = {}
    out = []
    for node, check in found:
        wanted = first.setdefault(check.name, check.same) if check.ok and check.same else ""
        if wanted and check.same != wanted:
            says = f"{check.says}, but {wanted} elsewhere"
            check = Check(check.name, False, says, check.todo, check.same)
        out.append((node, check))
    return out


def check_all(nodes: Nodes) -> list[tuple[str, Check]]:
    """Every check of every node, none left out because another failed."""
    found = _settings(nodes)
    for at, (plan, session) in enumerate(nodes.pairs(head_first=True)):
        node, cluster = plan.node, nodes.cluster
        answer = session.ask(
            "check", cluster.reach_s, name=cluster.name, settings=plan.settings, ranks=plan.ranks,
            address=node.address, hca=node.hca, gid=node.gid, head=at == 0, state=node.state,
            memory_floor_bytes=cluster.memory_floor_bytes,
        )  # fmt: skip
        found += [(node.name, Check(**each)) for each in answer]
        found.append((node.name, _skew(session, cluster.clock_skew_s, cluster.reach_s)))
    return _compare(found)


def _start(nodes: Nodes, plan: NodePlan, session: Session, incarnation: str) -> dict[str, Any]:
    answer: dict[str, Any] = session.ask(
        "start", nodes.cluster.reach_s, incarnation=incarnation, config=plan.config,
        config_path=plan.config_path, command=plan.command,
        environment=plan.environment | plan.passed,
    )  # fmt: skip
    return {"node": plan.node.name, "ranks": list(plan.ranks)} | answer


def url(plans: tuple[NodePlan, ...]) -> str:
    """Where the head serves, as seen from the head."""
    config = parse_config(plans[0].settings)
    host = "127.0.0.1" if config.host in ("0.0.0.0", "::") else config.host
    return f"http://{host}:{config.port}"


def _prove(nodes: Nodes) -> dict[str, Any]:
    """Whether the head can generate a token now, and why not."""
    answer: dict[str, Any] = nodes.sessions[0].ask(
        "prove", PROVE_LIMIT_S * 2 + MARGIN_S, url=url(nodes.plans), limit_s=PROVE_LIMIT_S
    )
    return answer


def _wait_ready(nodes: Nodes, report: Report) -> str:
    """Until the engine has generated a token; LaunchError when a node ended or time is up."""
    give_up = time.monotonic() + nodes.cluster.ready_s
    said = ""
    while time.monotonic() < give_up:
        for plan, session in nodes.pairs(head_first=False):
            found = _status(nodes, plan, session)
            if not found["running"]:
                ended = found["exit"] or {"status": "unknown"}
                raise LaunchError(f"{plan.node.name} ended with status {ended['status']}; "
                                  f"log {found['log']}:\n{found['tail']}")  # fmt: skip
        proof = _prove(nodes)
        if proof["ready"]:
            return str(proof["why"])
        if proof["why"] != said:
            said = str(proof["why"])
            report(f"not ready: {said}")
        time.sleep(POLL_S)
    raise LaunchError(f"no token within {nodes.cluster.ready_s:g} s (last: {said}); read the logs")


def launch(nodes: Nodes, report: Report) -> dict[str, Any]:
    """Start workers, then the head, and wait for a token; a failed launch is stopped again."""
    incarnation = new_incarnation(nodes.cluster.name)
    started: list[dict[str, Any]] = []
    try:
        for plan, session in nodes.pairs(head_first=False):
            started.append(_start(nodes, plan, session, incarnation))
            report(f"{plan.node.name}: ranks {plan.ranks} started, log {started[-1]['log']}")
        proof = _wait_ready(nodes, report)
    except (LaunchError, KeyboardInterrupt):
        begun = {each["node"] for each in started}
        stop(nodes, incarnation, report, only=begun)
        raise
    return {"incarnation": incarnation, "url": url(nodes.plans), "proof": proof, "nodes": started}


def _status(nodes: Nodes, plan: NodePlan, session: Session) -> dict[str, Any]:
    answer: dict[str, Any] = session.ask("status", nodes.cluster.reach_s, name=nodes.cluster.name,
                                         node=plan.node.name, state=plan.node.state)  # fmt: skip
    return answer


def status(nodes: Nodes) -> dict[str, Any]:
    """Each node's newest incarnation; serving means a token was generated just now."""
    found = {plan.node.name: _status(nodes, plan, session)
             for plan, session in nodes.pairs(head_first=True)}  # fmt: skip
    incarnations = {each["incarnation"] for each in found.values()}
    proof = _prove(nodes)
    whole = len(incarnations) == 1 and all(each["running"] for each in found.values())
    return {"serving": bool(proof["ready"]) and whole, "proof": proof["why"],
            "incarnations": sorted(map(str, incarnations)), "nodes": found}  # fmt: skip


def stop(
    nodes: Nodes, incarnation: str, report: Report, only: set[str] | None = None
) -> dict[str, Any]:
    """End the head, then the workers; goes on past nodes that are lost and names them."""
    out: dict[str, Any] = {}
    for plan, session in nodes.pairs(head_first=True):
        if only is not None and plan.node.name not in only:
            continue
        try:
            out[plan.node.name] = session.ask(
                "stop", nodes.cluster.stop_s + MARGIN_S, name=nodes.cluster.name,
                node=plan.node.name, state=plan.node.state, incarnation=incarnation,
                grace_s=nodes.cluster.stop_s,
            )  # fmt: skip
        except (NodeLost, Refused) as error:
            out[plan.node.name] = {"refused": str(error)}
        report(f"{plan.node.name}: {out[plan.node.name]}")
    return out
