"""Real engines: supervisors, ranks and front ends as processes, reached over real sockets."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from sentinel_engine.collectives import RingView, read_ring
from sentinel_engine.config import EngineConfig, dump_config, parse_config

WAIT_S = 240.0
TOKEN = "secret"


def free_port() -> int:
    """A port that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(eq=False)
class Node:
    """A supervisor with the log of its tree, which `wait_for` follows."""

    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _ended: bool = False

    def __post_init__(self) -> None:
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._changed:
                self.lines.append(line.rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def wait_for(self, pattern: str, *, after: int = 0) -> str:
        """The first line from number `after` on that matches; fails when the log ends first."""
        wanted = re.compile(pattern)

        def found() -> str | None:
            return next((one for one in self.lines[after:] if wanted.search(one)), None)

        with self._changed:
            good = self._changed.wait_for(lambda: found() is not None or self._ended, WAIT_S)
            line = found()
        assert good and line is not None, "\n".join([f"never said: {pattern}", *self.lines[-40:]])
        return line

    def end(self) -> int:
        """SIGTERM, and the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(WAIT_S)


@dataclass(frozen=True)
class Cluster:
    """An engine of one or more nodes; the API is that of the first."""

    config: EngineConfig
    nodes: list[Node]

    @property
    def head(self) -> Node:
        return self.nodes[0]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.config.port}"

    def post(self, path: str, body: Any, **headers: str) -> httpx.Response:
        """One POST with a deadline."""
        return httpx.post(self.url + path, json=body, headers=headers, timeout=WAIT_S)

    def complete(self, prompt: str, tokens: int = 24, **options: Any) -> dict[str, Any]:
        """A greedy completion that goes on to its last token."""
        body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
        answer = self.post("/v1/completions", body | options)
        assert answer.status_code == 200, answer.text
        result: dict[str, Any] = answer.json()
        return result

    def text(self, prompt: str, tokens: int = 24) -> str:
        text: str = self.complete(prompt, tokens)["choices"][0]["text"]
        return text

    def control(self, path: str, body: Any) -> Any:
        """POST with the admin token."""
        answer = self.post(path, body, authorization=f"Bearer {TOKEN}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def ring(self, rank: int) -> RingView:
        return read_ring(Path(self.config.runtime_dir) / f"rank{rank}.ring")

    def page(self, rank: int) -> bytes:
        """The telemetry page of a rank's row store."""
        return (Path(self.config.runtime_dir) / f"rank{rank}.page").read_bytes()

    def metric(self, name: str) -> float:
        """A number of `/metrics`, summed over its labels."""
        text = httpx.get(self.url + "/metrics", timeout=WAIT_S).text
        return sum(float(one.split()[-1]) for one in text.splitlines() if one.startswith(name))


Start = Callable[..., Cluster]


def start_node(folder: Path, config: EngineConfig, ranks: str, *prefix: str) -> Node:
    """One supervisor; `prefix` is a command that runs it elsewhere."""
    path = folder / f"config.{ranks}.json"
    path.write_text(json.dumps(dump_config(config)))
    master = f"{config.master_host}:{config.master_port}"
    command = [*prefix, sys.executable, "-m", "sentinel_engine.worker", "--config", str(path),
               "--rank", ranks, "--world", str(config.world), "--master", master]  # fmt: skip
    return Node(
        subprocess.Popen(
            command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
            errors="replace", env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
    )  # fmt: skip


def settings(folder: Path, **given: Any) -> EngineConfig:
    """Settings of a two-rank engine that takes faults."""
    return parse_config(
        {
            "rows": str(folder / "rows"), "runtime_dir": str(folder / "run"), "world": 2,
            "port": free_port(), "master_port": free_port(), "admin_token": TOKEN,
            "faults_allowed": True, "max_running": 4, "batch_shapes": [4], "kv_pages": 400,
            "decode_log_interval": 5, **given,
        }
    )  # fmt: skip
