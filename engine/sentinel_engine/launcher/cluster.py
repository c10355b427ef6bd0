"""The cluster file: one TOML for all nodes, read strictly. The first node is the head."""

import re
from pathlib import Path
from typing import Any

import msgspec

from ..config import BadConfig, parse_config
from .errors import BadCluster

SOCKET_FOLDER_MAX = 85
"""A Unix socket's path has at most 107 bytes; the engine puts its sockets into `run`."""
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")
OWN_SETTINGS = ("world", "master_host", "master_port", "interface", "rows", "runtime_dir", "model",
                "rows_mode", "admin_token")  # fmt: skip
"""Engine settings that the launcher derives from the fields of cluster and nodes."""


class Node(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One host. Reached directly, or in the network namespace `netns`, or as `ssh` target."""

    name: str
    address: str
    """Address that the other nodes connect to."""
    ranks: int
    rows: str
    """Folder of this node's row-store slices."""
    state: str
    """Folder for configuration, logs and process records; grows, nothing in it is deleted."""
    model: str = ""
    """Folder of the model; empty: the small one that comes with the engine."""
    mode: str = ""
    """Store mode of this node, if not that of the cluster."""
    interface: str = ""
    hca: str = ""
    gid: int | None = None
    """Index in the GID table of the HCA's first port."""
    netns: str = ""
    ssh: str = ""
    ssh_options: tuple[str, ...] = ()
    python: str = ""
    """Interpreter that has the engine installed; empty: this one, over ssh `python3`."""
    env: dict[str, str] = {}
    engine: dict[str, Any] = {}
    """Engine settings of this node alone."""


class Cluster(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file. Durations in seconds."""

    name: str
    nodes: tuple[Node, ...]
    master_port: int = 29500
    mode: str = "nvme"
    memory_floor_bytes: int = 4 << 30
    """Memory that must be available on each node, locked tables not counted."""
    clock_skew_s: float = 0.5
    reach_s: float = 60.0
    """Deadline of one answer of a node; checking slices is the longest."""
    ready_s: float = 900.0
    """Deadline from start to the first generated token."""
    stop_s: float = 60.0
    """From the request to end until what is left is killed."""
    admin_token_file: str = ""
    """File on the launching machine whose first line becomes the engine's admin token."""
    env: dict[str, str] = {}
    pass_env: tuple[str, ...] = ()
    """Variables handed on from the launching shell; their values appear in no plan."""
    engine: dict[str, Any] = {}

    @property
    def world(self) -> int:
        """Ranks of all nodes."""
        return sum(node.ranks for node in self.nodes)

    def in_mode(self, mode: str) -> "Cluster":
        """The same cluster with every node's store in this mode; empty: as the file says."""
        if not mode:
            return self
        nodes = tuple(msgspec.structs.replace(node, mode="") for node in self.nodes)
        return msgspec.structs.replace(self, mode=mode, nodes=nodes)

    def ranks(self, node: Node) -> tuple[int, ...]:
        """Ranks of a node: consecutive in the order of the file."""
        first = sum(each.ranks for each in self.nodes[: self.nodes.index(node)])
        return tuple(range(first, first + node.ranks))

    def settings(self, node: Node, token: str = "") -> dict[str, Any]:
        """Contents of a node's engine configuration; BadCluster when the engine would refuse it."""
        given = self.engine | node.engine
        if taken := sorted(set(given) & set(OWN_SETTINGS)):
            raise BadCluster(f"[engine] sets {', '.join(taken)}: use the fields of cluster or node")
        run = str(Path(node.state) / self.name / "run")
        if len(run) > SOCKET_FOLDER_MAX:
            raise BadCluster(f"node {node.name}: {run} is too long for sockets; shorten `state`")
        own = {
            "world": self.world, "master_host": self.nodes[0].address,
            "master_port": self.master_port, "interface": node.interface, "rows": node.rows,
            "runtime_dir": run, "admin_token": token,
            "rows_mode": node.mode or self.mode,
        }  # fmt: skip
        settings = given | own | ({"model": node.model} if node.model else {})
        try:
            parse_config(settings)
        except BadConfig as error:
            raise BadCluster(f"node {node.name}: {error}") from error
        return settings


def load(path: Path) -> Cluster:
    """Read and check a cluster file; BadCluster names the field."""
    try:
        cluster = msgspec.toml.decode(path.read_bytes(), type=Cluster)
    except (OSError, msgspec.MsgspecError, ValueError) as error:
        raise BadCluster(f"{path}: {error}") from error
    _check(cluster)
    for node in cluster.nodes:
        cluster.settings(node)
    return cluster


def _check(cluster: Cluster) -> None:
    names = [node.name for node in cluster.nodes]
    if not names:
        raise BadCluster("no [[nodes]]: name at least one")
    for name in (cluster.name, *names):
        if not NAME.fullmatch(name):
            raise BadCluster(f"name {name!r}: use up to 31 of a-z, 0-9 and -")
    places = [(node.netns, node.ssh, node.state) for node in cluster.nodes]
    if len(set(names)) < len(names) or len(set(places)) < len(places):
        raise BadCluster("two nodes have the same name, or share a host and its state folder")
    for node in cluster.nodes:
        if node.ranks < 1:
            raise BadCluster(f"node {node.name}: ranks must be at least 1")
        if node.netns and node.ssh:
            raise BadCluster(f"node {node.name}: give netns or ssh, not both")
        for folder in (node.rows, node.state, node.model or "/"):
            if not Path(folder).is_absolute():
                raise BadCluster(f"node {node.name}: {folder} is not an absolute path")
