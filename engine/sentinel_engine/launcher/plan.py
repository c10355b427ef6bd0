"""What a launch would run: command and environment of every rank, and what differs from the last.

Plans are kept on the launching machine, one file a launch; secrets appear as a short digest.
"""

import difflib
import hashlib
import json
import os
import re
import secrets
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .cluster import Cluster, Node
from .errors import BadCluster

_SECRET = re.compile(r"token$|secret|password|passwd|api_?key|credential", re.IGNORECASE)
NAME_KEY, NODE_KEY = "SENTINEL_ENGINE_NAME", "SENTINEL_ENGINE_NODE"
INCARNATION_KEY = "SENTINEL_ENGINE_INCARNATION"


@dataclass(frozen=True, slots=True)
class NodePlan:
    """One node's process tree: a worker command that starts its ranks."""

    node: Node
    ranks: tuple[int, ...]
    config: str
    """Text of the configuration file, secrets included."""
    config_path: str
    command: tuple[str, ...]
    environment: dict[str, str]
    passed: dict[str, str]
    """Variables of the launching shell, handed on unseen."""

    @property
    def settings(self) -> dict[str, Any]:
        """The configuration as a mapping."""
        found: dict[str, Any] = json.loads(self.config)
        return found

    def shown(self) -> dict[str, Any]:
        """As printed and kept: secrets redacted."""
        return {
            "node": self.node.name, "ranks": list(self.ranks), "command": " ".join(self.command),
            "environment": redact(self.environment), "settings": redact(self.settings),
            "passed": sorted(self.passed),
        }  # fmt: skip


def redact(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values whose name sounds secret become a digest that still tells equal from different."""
    def digest(value: Any) -> str:
        return f"(secret {hashlib.sha256(str(value).encode()).hexdigest()[:8]})"

    return {name: digest(value) if value and _SECRET.search(name) else value
            for name, value in values.items()}  # fmt: skip


def new_incarnation(name: str) -> str:
    """An identifier of one start; later ones sort after earlier ones."""
    return f"{name}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"


def _token(cluster: Cluster) -> str:
    if not cluster.admin_token_file:
        return ""
    try:
        token = Path(cluster.admin_token_file).read_text().partition("\n")[0].strip()
    except OSError as error:
        raise BadCluster(f"admin_token_file {cluster.admin_token_file}: {error}") from error
    if not token:
        raise BadCluster(f"admin_token_file {cluster.admin_token_file} is empty")
    return token


def interpreter(node: Node) -> str:
    """The Python that runs the engine on a node."""
    return node.python or ("python3" if node.ssh else sys.executable)


def _environment(cluster: Cluster, node: Node) -> dict[str, str]:
    environment = {NAME_KEY: cluster.name, NODE_KEY: node.name}
    if node.hca:
        environment["NCCL_IB_HCA"] = node.hca
    if node.gid is not None:
        environment["NCCL_IB_GID_INDEX"] = str(node.gid)
    return environment | cluster.env | node.env


def make(cluster: Cluster) -> tuple[NodePlan, ...]:
    """One plan per node, in the order of the file."""
    token = _token(cluster)
    missing = [name for name in cluster.pass_env if name not in os.environ]
    if missing:
        raise BadCluster(f"pass_env names {', '.join(missing)}, which this shell does not have")
    passed = {name: os.environ[name] for name in cluster.pass_env}
    plans = []
    for node in cluster.nodes:
        config = json.dumps(cluster.settings(node, token), indent=1, sort_keys=True) + "\n"
        # Named by its content: never overwritten, and the command is known before the start.
        digest = hashlib.sha256(config.encode()).hexdigest()[:12]
        path = str(Path(node.state) / cluster.name / f"config-{digest}.json")
        ranks = cluster.ranks(node)
        command = (
            interpreter(node), "-m", "sentinel_engine.worker", "--config", path,
            "--rank", ",".join(map(str, ranks)), "--world", str(cluster.world),
            "--master", f"{cluster.nodes[0].address}:{cluster.master_port}",
        )  # fmt: skip
        environment = _environment(cluster, node)
        plans.append(NodePlan(node, ranks, config, path, command, environment, passed))
    return tuple(plans)


def render(plans: tuple[NodePlan, ...]) -> str:
    """The plan as it is kept and compared."""
    return json.dumps([plan.shown() for plan in plans], indent=1, sort_keys=True) + "\n"


class Kept:
    """Plans of earlier launches in a folder of the launching machine."""

    def __init__(self, state: Path, name: str) -> None:
        self._folder = state / name

    def last(self) -> tuple[str, str] | None:
        """Incarnation and text of the last launch, None before the first."""
        files = sorted(self._folder.glob("*.plan.json"))
        return (files[-1].name.removesuffix(".plan.json"), files[-1].read_text()) if files else None

    def difference(self, plans: tuple[NodePlan, ...]) -> list[str] | None:
        """A unified diff from the last launch; empty when equal, None before the first."""
        last = self.last()
        if last is None:
            return None
        old, new = last[1].splitlines(), render(plans).splitlines()
        return list(difflib.unified_diff(old, new, last[0], "now", n=1, lineterm=""))

    def keep(self, incarnation: str, plans: tuple[NodePlan, ...]) -> None:
        """Write the plan of a launch; the file must be new."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / f"{incarnation}.plan.json").open("x") as file:
            file.write(render(plans))
