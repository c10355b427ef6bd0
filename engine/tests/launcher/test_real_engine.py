"""The engine as it is shipped, launched on two nodes and loaded by the load tools."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_cluster import PACKAGE, SmallCluster, free_port, namespaces, run

from sentinel_engine.cli import NOT_WELL, OK
from sentinel_engine.config import TINY_MODEL, EngineConfig
from sentinel_engine.launcher.processes import members
from sentinel_engine.stage import stage
from sentinel_engine.worker import EXIT_FORCED

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
    pytest.mark.skipif(not (TINY_MODEL / "model.safetensors").exists(), reason="no small model"),
]
NODES = ("one", "two")
TOKEN = "for-this-test-alone"
STALL = """
import json, sys, urllib.request
spec = {"kind": "store_stall", "rank": 1, "ms": 3_600_000, "count": 1}
ask = urllib.request.Request(sys.argv[1] + "/faults", json.dumps(spec).encode())
ask.add_header("Authorization", "Bearer " + sys.argv[2])
print(urllib.request.urlopen(ask, timeout=60).status)
"""
URL = "http://10.231.0.1:30000"


@pytest.fixture
def cluster() -> Iterator[SmallCluster]:
    """Two nodes with a rank each in namespaces of their own, rows staged, nothing started."""
    with tempfile.TemporaryDirectory(prefix="se-") as path, namespaces(f"r{os.getpid()}") as names:
        folder = Path(path)
        rows = str(folder / "rows")
        stage(EngineConfig(rows=rows, runtime_dir=rows, world=len(NODES)), (0, 1))
        nodes = [{"name": name, "address": f"10.231.0.{k}", "interface": "se0", "netns": space,
                  "ranks": 1, "rows": rows, "state": str(folder / name)}
                 for k, (name, space) in enumerate(zip(NODES, names, strict=True), 1)]  # fmt: skip
        top = {"name": f"real-{os.getpid()}", "master_port": free_port(), "ready_s": 300,
               "memory_floor_bytes": 0}  # fmt: skip
        (folder / "token").write_text(TOKEN)
        top |= {"mode": "legacy", "admin_token_file": str(folder / "token")}
        engine = {"host": "10.231.0.1", "port": 30000, "admin_host": "10.231.0.1",
                  "faults_allowed": True}  # fmt: skip
        cluster = SmallCluster(folder, nodes, top, engine)
        yield cluster
        for member in members(str(top["name"])):
            os.kill(member.pid, signal.SIGKILL)


def stall_a_read(cluster: SmallCluster) -> None:
    """The next read of rank 1's store does not come back for an hour."""
    python = [sys.executable, "-c", STALL, URL, TOKEN]
    subprocess.run(["ip", "netns", "exec", cluster.nodes[0]["netns"], *python], check=True,
                   capture_output=True, timeout=100)  # fmt: skip


def inside(cluster: SmallCluster, *command: str) -> subprocess.CompletedProcess[str]:
    """Run `sentinel-engine` in the head's namespace against its address."""
    tool = [sys.executable, "-m", "sentinel_engine.cli", "--json", *command]
    return subprocess.run(
        ["ip", "netns", "exec", cluster.nodes[0]["netns"], *tool, "--url", URL],
        capture_output=True, text=True, timeout=300, check=False,
        env=os.environ | {"PYTHONPATH": str(PACKAGE)},
    )  # fmt: skip


def test_two_nodes_serve_are_loaded_and_hang(cluster: SmallCluster) -> None:
    """False: the parts work and the whole does not."""
    started = run(cluster, "launch")
    assert started.code == OK, started.err
    assert started.answer["proof"] == "1 tokens from sentinel-tiny"
    assert [node["ranks"] for node in started.answer["nodes"]] == [[1], [0]]

    out = cluster.folder / "matrix.jsonl"
    size = ["--input", "48", "--output", "12"]
    ran = inside(cluster, "bench", "matrix", *size, "--concurrency", "1,2", "--passes", "2",
                 "--out", str(out))  # fmt: skip
    assert ran.returncode == OK, ran.stderr
    cells = json.loads(ran.stdout)["cells"]
    assert all(cell["failed"] == cell["short"] == 0 for cell in cells)
    passes = [json.loads(line) for line in out.read_text().splitlines()][:4]
    prompts = {one["prompt_tokens"] for each in passes for one in each["requests"]}
    assert max(prompts) - min(prompts) <= 1, "a token is a byte, and a mark begins the text"

    ran = inside(cluster, "bench", "smoke", "--only", "json-schema")
    assert ran.returncode == OK, ran.stdout
    provoke = ("provoke", "--arm", "legacy", "--concurrency", "2", *size,
               "--out", str(cluster.folder / "cases.jsonl"))  # fmt: skip
    ran = inside(cluster, *provoke, "--cases", "2")
    assert json.loads(ran.stdout)["clean"] == 2, ran.stderr

    stall_a_read(cluster)
    ran = inside(cluster, *provoke, "--cases", "30", "--silence-s", "20")
    assert ran.returncode == NOT_WELL and json.loads(ran.stdout)["hang"] == 1, ran.stderr
    shown = run(cluster, "status").answer
    assert not shown["serving"] and all(node["running"] for node in shown["nodes"].values())

    stopped = run(cluster, "stop")
    assert stopped.code == OK
    assert members(cluster.top["name"]) == []
    ends = {json.loads(path.read_text())["status"] for path in cluster.folder.rglob("exit.json")}
    assert ends == {EXIT_FORCED}, "ranks inside a hung step cannot end by themselves"
