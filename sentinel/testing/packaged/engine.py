"""The co-packaged engine for drills: two ranks, a `legacy` row store on disk, the small model, its own launcher.

With root and iproute2 each rank is a node in a network namespace of its own; else both are ranks of one local node.
Everything goes through the engine's own tools, installed beside this interpreter. On GPUs each rank has one of its own;
between namespaces NCCL then speaks over the network, as between two machines.
"""

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from sentinel.agent import procfs
from sentinel.agent.discovery import NAME_MARK, Discovery
from sentinel.model.engine import Engine
from sentinel.plumbing.subprocesses import Ran, run_bounded
from sentinel.testing.packaged import streams
from sentinel.testing.packaged.namespaces import Namespaces, inside
from sentinel.testing.ports import free_port

BIN = Path(sys.executable).parent
WORLD, CLIENTS = 2, 3
LAUNCH_S, STOP_S, STAGE_S, FAULT_S = 300.0, 120.0, 120.0, 90.0
WATCHDOG_S = 300.0
KILLS, KILL_WAIT_S = 3, 0.3
STALL_MS, STALL_COUNT = 3_600_000, 1_000_000
CPU = "cpu"
DEVICES = (CPU, "cuda")
BETWEEN_HOSTS = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_IB_DISABLE": "1"}


def installed() -> bool:
    """Whether the engine is installed beside this interpreter."""
    return all((BIN / name).is_file() for name in ("sentinel-engine", "rowstore"))


@dataclass(slots=True)
class PackagedEngine:
    """`folder` must have a short path: sockets lie below it. Raises RuntimeError for what does not work."""

    folder: Path
    spaces: Namespaces | None = None
    time_scale: float = 1.0
    device: str = CPU
    name: str = field(default_factory=lambda: f"drill-{os.getpid()}-{secrets.token_hex(2)}")
    port: int = field(default_factory=free_port)
    _token: str = field(default_factory=lambda: secrets.token_hex(16))

    @property
    def cluster(self) -> Path:
        """The file of the launcher."""
        return self.folder / "cluster.toml"

    @property
    def url(self) -> str:
        """Where it serves, seen from the head's network."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def head(self) -> str:
        """The namespace of the head; empty for the machine's own network."""
        return "" if self.spaces is None else self.spaces.names[0]

    @property
    def run_folder(self) -> Path:
        """Where the head keeps telemetry pages, sockets and rings."""
        return self.folder / "one" / self.name / "run"

    def environ(self) -> dict[str, str]:
        """What commands need: the tools on the path, and the launcher's memory below the folder."""
        path = f"{BIN}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        return {**os.environ, "PATH": path, "XDG_STATE_HOME": str(self.folder / "plans")}

    def prepare(self) -> None:
        """Write the cluster file and the slices of the row store."""
        self.run_folder.mkdir(parents=True)
        if self.spaces is not None:
            # A group's store is one folder on a host, and both nodes are on this one.
            other = self.folder / "two" / self.name
            other.mkdir(parents=True)
            (other / "run").symlink_to(self.run_folder)
        (self.folder / "token").touch(mode=0o600)
        (self.folder / "token").write_text(self._token)
        self.cluster.write_text(self.cluster_file())
        ran = self.tool(sys.executable, "-m", "sentinel_engine.stage", "--world", str(WORLD), str(self.folder / "rows"),
                        within_s=STAGE_S)  # fmt: skip
        if not ran.ok:
            raise RuntimeError(f"the row store could not be written: {_said(ran)}")

    def cluster_file(self) -> str:
        """What the launcher reads, in TOML."""
        scale = self.time_scale
        top = {"name": self.name, "master_port": free_port(), "mode": "legacy", "memory_floor_bytes": 0,
               "ready_s": LAUNCH_S - 20.0, "stop_s": 10.0, "admin_token_file": str(self.folder / "token")}  # fmt: skip
        engine = {"host": "127.0.0.1", "port": self.port, "device": self.device, "faults_allowed": True,
                  "max_running": 4, "batch_shapes": [4], "kv_pages": 400, "decode_log_interval": 5, "stop_grace_s": 1.0,
                  "watchdog_timeout_s": WATCHDOG_S / scale, "rows_settings": {"cache_bytes": 0}}  # fmt: skip
        both = self.spaces
        nodes: list[dict[str, object]] = [{"name": "one", "address": "127.0.0.1", "ranks": WORLD}]
        if both is not None:
            pairs = zip(("one", "two"), both.names, both.addresses, strict=True)
            nodes = [
                {
                    "name": name,
                    "address": address,
                    "netns": space,
                    "interface": "sentinel0",
                    "ranks": 1,
                    "env": self._own_gpu(number),
                }
                for number, (name, space, address) in enumerate(pairs)
            ]
        for node in nodes:
            node |= {"rows": str(self.folder / "rows"), "state": str(self.folder / str(node["name"]))}
        lines = [f"{key} = {_toml(value)}" for key, value in {**top, "engine": engine}.items()]
        for node in nodes:
            lines += ["[[nodes]]", *(f"{key} = {_toml(value)}" for key, value in node.items())]
        return "\n".join(lines) + "\n"

    def _own_gpu(self, node: int) -> dict[str, str]:
        """Both nodes are on this machine: each sees one of its GPUs."""
        return {} if self.device == CPU else {**BETWEEN_HOSTS, "CUDA_VISIBLE_DEVICES": str(node)}

    def tool(self, *argv: str, within_s: float) -> Ran:
        """Run a tool in the head's network."""
        return run_bounded((*inside(self.head), *argv), deadline_s=within_s, env=self.environ())

    def launch(self) -> None:
        """Start, and wait for a token."""
        ran = self.tool("sentinel-engine", "--json", "launch", str(self.cluster), within_s=LAUNCH_S)
        if not ran.ok:
            raise RuntimeError(f"the packaged engine did not start: {_said(ran)}")

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Prepared and launched; nothing of it is left afterwards, whoever started it last."""
        self.prepare()
        try:
            self.launch()
            yield
        finally:
            self._kill()

    def _kill(self) -> None:
        """More than once: what is being started may appear in between."""
        for _ in range(KILLS):
            for pid in self.pids():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            threading.Event().wait(KILL_WAIT_S)

    def pids(self) -> list[int]:
        """Every process that carries the engine's name."""
        views = ((pid, procfs.view(pid)) for pid in procfs.inodes(procfs.PROC))
        return [pid for pid, view in views if view is not None and view.environ.get(NAME_MARK) == self.name]

    def seen(self) -> Engine | None:
        """The engine as the agent discovers it."""
        mine = set(self.pids())
        return next((engine for engine in Discovery().scan() if engine.root.pid in mine), None)

    def stall_reads(self, count: int = STALL_COUNT) -> None:
        """From now on reads of rank 1's store do not come back."""
        spec = json.dumps({"kind": "store_stall", "rank": 1, "ms": STALL_MS, "count": count})
        argv = (*inside(self.head), sys.executable, "-m", streams.__name__, self.url, "--fault", spec)
        environ = {**self.environ(), streams.TOKEN_VARIABLE: self._token}
        ran = run_bounded(argv, deadline_s=FAULT_S, env=environ)
        if not ran.ok:
            raise RuntimeError(f"the fault could not be switched on: {_said(ran)}")

    @contextlib.contextmanager
    def clients(self) -> Iterator[Path]:
        """Clients stream while the block runs; yields the file of what they meet."""
        log = self.folder / "clients.log"
        log.touch()
        argv = [*inside(self.head), sys.executable, "-m", streams.__name__, self.url, str(log), str(CLIENTS)]
        process = subprocess.Popen(argv, env=self.environ(), start_new_session=True)
        try:
            yield log
        finally:
            process.terminate()
            try:
                process.wait(timeout=10.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _toml(value: object) -> str:
    """A value in TOML, tables on one line; for all else that is used here it is written as in JSON."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(each)}" for key, each in value.items()) + "}"
    return json.dumps(value)


def _said(ran: Ran) -> str:
    return ran.why or ran.stderr.decode(errors="replace").strip()[-1500:] or f"status {ran.status}"
