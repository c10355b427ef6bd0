"""The cluster verbs of the command line: what they print and whether all is well."""

import argparse
import os
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from ..console import say
from . import launch as cluster_launch
from .checks import Check
from .cluster import load
from .errors import Refused
from .plan import Kept, NodePlan, make

Output = tuple[Any, bool]

DEFAULT_STATE = (
    Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "sentinel-engine"
)


def _show_plan(options: argparse.Namespace, plans: tuple[NodePlan, ...]) -> None:
    for plan in plans:
        say(options, f"# {plan.node.name}: ranks {', '.join(map(str, plan.ranks))}")
        shown = plan.shown()
        for kind in ("environment", "settings"):
            for name, value in sorted(shown[kind].items()):
                say(options, f"  {name}={value}")
        for name in shown["passed"]:
            say(options, f"  {name} from this shell")
        say(options, f"  {shown['command']}\n")


def plan(options: argparse.Namespace) -> Output:
    """Print the plan and its diff; starts and reaches nothing."""
    cluster = load(options.cluster).in_mode(options.mode)
    plans = make(cluster)
    difference = Kept(options.state, cluster.name).difference(plans)
    _show_plan(options, plans)
    if difference is None:
        say(options, "no earlier launch to compare with")
    else:
        say(options, "\n".join(difference) or "equal to the last launch")
    return {"name": cluster.name, "nodes": [each.shown() for each in plans],
            "difference": difference}, True  # fmt: skip


def _show_checks(options: argparse.Namespace, found: list[tuple[str, Check]]) -> None:
    console = Console(stderr=options.json, soft_wrap=True, highlight=False)
    for node, check in found:
        word = "[green]ok    [/]" if check.ok else "[red]failed[/]"
        console.print(f"{word} {node:<12} {check.name:<15} {escape(check.says)}")
        if not check.ok:
            console.print(f"       {'':<12} {'':<15} -> {escape(check.todo)}")


def launch(options: argparse.Namespace) -> Output:
    """Check everything; unless it is a dry run, and if all is well, start."""
    cluster = load(options.cluster).in_mode(options.mode)
    plans = make(cluster)
    with cluster_launch.connect(cluster, plans) as nodes:
        found = cluster_launch.check_all(nodes)
        _show_checks(options, found)
        failed = [f"{node} {check.name}" for node, check in found if not check.ok]
        checks = [{"node": node, "check": check.name, "ok": check.ok, "says": check.says,
                   "todo": "" if check.ok else check.todo} for node, check in found]  # fmt: skip
        if options.dry_run:
            return {"name": cluster.name, "checks": checks}, not failed
        if failed:
            raise Refused(f"nothing was started: failed {', '.join(failed)}")
        started = cluster_launch.launch(nodes, lambda line: say(options, line))
    Kept(options.state, cluster.name).keep(started["incarnation"], plans)
    say(options, f"{started['incarnation']} serves at {started['url']}: {started['proof']}")
    return started | {"checks": checks}, True


def status(options: argparse.Namespace) -> Output:
    """Print the state of each node; well means that a token was generated."""
    cluster = load(options.cluster)
    with cluster_launch.connect(cluster, make(cluster)) as nodes:
        found = cluster_launch.status(nodes)
    say(options, f"{'serving' if found['serving'] else 'not serving'}: {found['proof']}")
    for name, node in found["nodes"].items():
        word = "running" if node["running"] else f"not running, exit {node.get('exit')}"
        say(options, f"{name}: {node['incarnation'] or 'never started'} {word}")
        for process in node["processes"]:
            say(options, f"  {process['pid']:>8} {process['state']} {process['command'][:100]}")
    return found, found["serving"]


def stop(options: argparse.Namespace) -> Output:
    """Stop the newest incarnation, or the named one and no other."""
    cluster = load(options.cluster)
    with cluster_launch.connect(cluster, make(cluster)) as nodes:
        found = cluster_launch.stop(nodes, options.incarnation, lambda line: say(options, line))
    well = all("refused" not in each and not each["left"] for each in found.values())
    return {"name": cluster.name, "nodes": found}, well
