"""Two nodes in two network namespaces, joined by a virtual cable."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from clusters import WAIT_S, settings, start_node

from sentinel_engine.collectives import read_ring
from sentinel_engine.config import EXIT_KILLED
from sentinel_engine.stage import stage

CLIENTS = """
import json, sys, urllib.request
from concurrent.futures import ThreadPoolExecutor
url = sys.argv[1]
def stream(k):
    body = {"prompt": f"Return {k} ", "max_tokens": 40, "temperature": 0, "ignore_eos": True,
            "stream": True}
    request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode())
    events = 0
    with urllib.request.urlopen(request, timeout=200) as answer:
        for line in answer:
            events += line.startswith(b"data: {")
    return events
with ThreadPoolExecutor(4) as pool:
    events = list(pool.map(stream, range(4)))
with urllib.request.urlopen(url + "/metrics", timeout=60) as answer:
    lines = answer.read().decode().splitlines()
drafted = [one.split()[-1] for one in lines if one.startswith("sentinel_engine_drafted_total")]
print(json.dumps({"events": events, "drafted": float(drafted[0])}))
"""


def ip(*words: str) -> None:
    """Run `ip`."""
    subprocess.run(["ip", *words], check=True, timeout=WAIT_S)


@pytest.fixture
def namespaces() -> Iterator[tuple[str, str]]:
    """Two namespaces with 10.77.0.1 and 10.77.0.2."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs root and iproute2")
    names = (f"engine-a-{os.getpid()}", f"engine-b-{os.getpid()}")
    made = []
    try:
        for name in names:
            ip("netns", "add", name)
            made.append(name)
        ip("link", "add", "eth0", "netns", names[0], "type", "veth", "peer", "name", "eth0",
           "netns", names[1])  # fmt: skip
        for number, name in enumerate(names, start=1):
            ip("-n", name, "addr", "add", f"10.77.0.{number}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                ip("-n", name, "link", "set", device, "up")
        yield names
    finally:
        for name in made:
            ip("netns", "del", name)


def test_two_nodes_serve_streams_and_end_together(
    namespaces: tuple[str, str], tmp_path: Path
) -> None:
    """False: the engine only works inside one machine, or a lost node leaves the other hanging."""
    shared = settings(tmp_path, master_host="10.77.0.1", interface="eth0")
    nodes = []
    try:
        for rank, name in enumerate(namespaces):
            folder = tmp_path / f"node{rank}"
            folder.mkdir()
            config = replace(shared, rows=str(folder / "rows"), runtime_dir=str(folder / "run"))
            stage(config, (rank,))
            nodes.append(start_node(folder, config, str(rank), "ip", "netns", "exec", name))
        nodes[0].wait_for("ready to roll")
        done = subprocess.run(
            ["ip", "netns", "exec", namespaces[0], sys.executable, "-c", CLIENTS,
             f"http://127.0.0.1:{shared.port}"],
            check=True, capture_output=True, timeout=WAIT_S,
        )  # fmt: skip
        seen = json.loads(done.stdout)
        assert all(one > 1 for one in seen["events"]) and seen["drafted"] > 0
        assert read_ring(tmp_path / "node1/run/rank1.ring").counters["forwards"] > 10
        nodes[1].process.kill()
        assert nodes[0].process.wait(WAIT_S) == EXIT_KILLED
        nodes[0].wait_for("Scheduler hit an exception")
    finally:
        for node in nodes:
            if node.process.poll() is None:
                node.process.kill()
                node.process.wait(WAIT_S)
