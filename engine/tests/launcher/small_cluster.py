"""A small model, its slices and a cluster file on one machine, and a worker that a test scripts.

The scripted worker stands for engines that misbehave on request: it serves, never gets ready, ends
by itself or ignores SIGTERM. Everything around it is the launcher as it is shipped.
"""

import io
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import sentinel_engine
from sentinel_engine.cli import main
from sentinel_engine.config import parse_config
from sentinel_engine.launcher.checks import tables
from sentinel_engine.modelfile import Tables, load_model_config
from sentinel_engine.rowstore import Header, formula_source, write_table
from sentinel_engine.rowstore.writer import Provenance
from sentinel_engine.stage import model_digest

SIZES = {
    "name": "small", "dim": 8, "layers": 2, "heads": 2, "kv_heads": 1, "head_dim": 4, "experts": 2,
    "experts_per_token": 1, "expert_hidden": 8, "shared_hidden": 8, "engram_layers": [1],
    "engram_heads_per_order": 2, "engram_rows": 997, "engram_dim": 32, "draft_hidden": 8,
}  # fmt: skip
PACKAGE = Path(sentinel_engine.__file__).parents[1]
WORKER = """
import json, os, signal, socket, sys, threading
sys.path.insert(0, {tests!r})
kind = os.environ.get("SCRIPTED_WORKER", "serve")
config = json.load(open(sys.argv[sys.argv.index("--config") + 1]))
print("scripted worker", kind, sys.argv[sys.argv.index("--rank") + 1], flush=True)
if kind.startswith("exit"):
    sys.exit(int(kind[4:]))
signal.signal(signal.SIGTERM, signal.SIG_IGN if kind == "deaf" else lambda *_: os._exit(0))
if kind in ("serve", "deaf") and sys.argv[sys.argv.index("--rank") + 1].startswith("0"):
    import uvicorn
    from tiny_server import Behaviour, application
    listener = socket.create_server((config["host"], config["port"]))
    server = uvicorn.Server(uvicorn.Config(application(Behaviour()), log_level="error"))
    threading.Thread(target=server.run, kwargs={{"sockets": [listener]}}, daemon=True).start()
while True:
    signal.pause()
"""


def free_port() -> int:
    """A port on which nothing listens now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def interpreter(folder: Path, prefix: str = "") -> Path:
    """A `python` that is this one, except that the engine's worker is the scripted one.

    `prefix` is a command that wraps it, such as one that takes rights away.
    """
    script = folder / "worker.py"
    script.write_text(WORKER.format(tests=str(Path(__file__).parent)))
    program = folder / "python"
    program.write_text(
        f'#!/bin/sh\nexport PYTHONPATH={PACKAGE}\nif [ "$2" = sentinel_engine.worker ]; then\n'
        f'shift 2; exec {sys.executable} {script} "$@"\nfi\nexec {prefix} {sys.executable} "$@"\n'
    )
    program.chmod(0o755)
    return program


def toml(value: object) -> str:
    """A value as TOML writes it, tables on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml(each)}" for key, each in value.items()) + "}"
    return json.dumps(value)


@dataclass
class SmallCluster:
    """Files of a cluster below one folder; change `top`, `engine` or a node, then `write`."""

    folder: Path
    nodes: list[dict[str, Any]]
    top: dict[str, Any] = field(default_factory=dict)
    engine: dict[str, Any] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)

    def write(self) -> str:
        """The path of the cluster file, written anew."""
        whole = self.top | {"engine": self.engine, "env": self.env}
        lines = [f"{key} = {toml(value)}" for key, value in whole.items()]
        for node in self.nodes:
            lines += ["[[nodes]]", *(f"{key} = {toml(value)}" for key, value in node.items())]
        path = self.folder / "cluster.toml"
        path.write_text("\n".join(lines) + "\n")
        return str(path)

    def command(self, verb: str, *more: str) -> list[str]:
        """Arguments of `sentinel-engine`, plans kept below the folder."""
        return ["--json", verb, self.write(), "--state", str(self.folder / "plans"), *more]


def write_slices(
    folder: Path, rows: Path, ranks: range, world: int, geometry: str = ""
) -> list[Path]:
    """The slices that these ranks need; of a geometry with the first row of each head alone."""
    rows.mkdir(exist_ok=True)
    config = parse_config({"rows": str(rows), "runtime_dir": "/tmp", "model": str(folder),
                           "world": world, "geometry": geometry})  # fmt: skip
    row_format = Tables(load_model_config(folder), config.geometry_rows).row_format
    origin = Provenance(hash_parameters={}, source={}, source_digest=model_digest(folder))
    found = tables(config, ranks)
    for table in found:
        header = Header(layer=table.layer, row_format=row_format, slice=table.slice)
        firsts = np.array([one.start for one in table.slice.ranges]) if geometry else None
        write_table(
            table.path, header, formula_source(header), provenance=origin, only=firsts
        )
    return [table.path for table in found]


def small_cluster(folder: Path, *, prefix: str = "") -> SmallCluster:
    """Two nodes with one rank each on this host, loopback addresses of their own."""
    python = interpreter(folder, prefix)
    nodes = []
    for rank, name in enumerate(("one", "two")):
        home = folder / name
        model = home / "model"
        model.mkdir(parents=True)
        (model / "config.json").write_text(json.dumps(SIZES))
        (model / "model.safetensors").write_bytes(b"the weights")
        write_slices(model, home / "rows", range(rank, rank + 1), 2)
        nodes.append({
            "name": name, "address": f"127.0.0.{rank + 1}", "ranks": 1, "python": str(python),
            "model": str(model), "rows": str(home / "rows"), "state": str(home / "state"),
        })  # fmt: skip
    top = {"name": f"small-{os.getpid()}", "master_port": free_port(), "memory_floor_bytes": 0,
           "ready_s": 60, "stop_s": 20}  # fmt: skip
    return SmallCluster(folder, nodes, top, {"port": free_port(), "host": "127.0.0.1"})


class Ran:
    """What a command of `sentinel-engine` answered."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.err = code, err
        self.answer: dict[str, Any] = json.loads(out)

    def failed(self) -> dict[str, str]:
        """Checks that failed, with what they say, by node and name."""
        return {f"{check['node']} {check['check']}": check["says"]
                for check in self.answer["checks"] if not check["ok"]}  # fmt: skip


def run(small: SmallCluster, verb: str, *more: str) -> Ran:
    """One command; nodes and engines are processes of their own."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(small.command(verb, *more))
    return Ran(code, out.getvalue(), err.getvalue())


def ip(*arguments: str) -> None:
    """Run iproute2."""
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=20)


@contextmanager
def namespaces(tag: str) -> Iterator[tuple[str, str]]:
    """Two network namespaces joined by a veth pair, 10.231.0.1 and 10.231.0.2."""
    with ExitStack() as stack:
        names = (f"se{tag}a", f"se{tag}b")
        for name in names:
            ip("netns", "add", name)
            stack.callback(ip, "netns", "del", name)
        ip("link", "add", "se0", "netns", names[0], "type", "veth", "peer", "name", "se0",
           "netns", names[1])  # fmt: skip
        for k, name in enumerate(names, 1):
            ip("-n", name, "addr", "add", f"10.231.0.{k}/24", "dev", "se0")
            ip("-n", name, "link", "set", "se0", "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield names
