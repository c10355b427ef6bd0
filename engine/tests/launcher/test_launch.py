"""Launching on several nodes for real: processes, sockets, namespaces, ssh; a scripted worker."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from small_cluster import (
    PACKAGE,
    SmallCluster,
    free_port,
    namespaces,
    run,
    small_cluster,
    write_slices,
)

from sentinel_engine.cli import NO_ANSWER, NOT_WELL, OK, main
from sentinel_engine.launcher.processes import alive, members
from sentinel_engine.rowstore.manifest import read_manifest
from sentinel_engine.rowstore.reader import read_header, written_pages

pytestmark = pytest.mark.timeout(600)  # dozens of processes, on machines that have other work
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder whose path leaves room for the names of sockets."""
    with tempfile.TemporaryDirectory(prefix="se-") as folder:
        yield Path(folder)


@pytest.fixture
def small(short_path: Path) -> Iterator[SmallCluster]:
    """A cluster of two nodes on this host, stopped afterwards whatever happened."""
    cluster = small_cluster(short_path)
    yield cluster
    for member in members(cluster.top["name"]):
        os.kill(member.pid, signal.SIGKILL)


def files(folder: Path) -> set[tuple[str, int]]:
    return {(str(path), path.stat().st_mtime_ns) for path in folder.rglob("*")}


def test_a_dry_run_touches_nothing(small: SmallCluster) -> None:
    """False: checking a cluster in service disturbs it."""
    small.write()
    before = files(small.folder)
    ran = run(small, "launch", "--dry-run")
    assert ran.code == OK, ran.err
    changed = {name for name, _ in files(small.folder) ^ before}
    assert changed <= {str(small.folder / "cluster.toml"), str(small.folder)}
    assert members(small.top["name"]) == []
    names = {check["check"] for check in ran.answer["checks"] if check["node"] == "one"}
    assert names == {"reachable", "settings", "no such engine", "engine", "state", "address",
                     "ports", "model", "slice", "direct reads", "memlock", "memory",
                     "clock"}  # fmt: skip


def test_every_fault_is_found_in_one_pass(small: SmallCluster) -> None:
    """False: faults are found one launch at a time, each after minutes of loading."""
    one, two = small.nodes
    with (Path(two["model"]) / "more.safetensors").open("w") as file:
        file.write("of another revision")
    (table,) = Path(two["rows"]).glob("*.rws")
    with table.open("r+b") as raw:
        raw.seek(5000)
        raw.write(b"x")
    (table,) = Path(one["rows"]).glob("*.rws")
    table.with_name(table.name + ".manifest.json").unlink()
    one["interface"], two["address"], two["hca"] = "nosuch0", "192.0.2.7", "mlx5_9"
    two["engine"] = {"draft_tokens": 1}
    small.top["memory_floor_bytes"] = 1 << 50
    with socket.create_server(("127.0.0.1", small.engine["port"])):
        ran = run(small, "launch", "--dry-run")
    failed = ran.failed()
    assert ran.code == NOT_WELL
    assert set(failed) == {
        "one slice", "two slice", "two model", "one address", "two address", "two hca",
        "two settings", "one ports", "one memory", "two memory",
    }  # fmt: skip
    assert "draft_tokens" in failed["two settings"] and "manifest" in failed["one slice"]
    assert f"{small.engine['port']}" in failed["one ports"]
    assert all(check["todo"] for check in ran.answer["checks"] if not check["ok"])


def test_a_slice_of_another_rank_is_found(small: SmallCluster) -> None:
    """False: a rank serves its neighbour's rows, every one of them a good row."""
    two = small.nodes[1]
    (table,) = Path(two["rows"]).glob("*.rws")
    (other,) = Path(small.nodes[0]["rows"]).glob("*.rws")
    for suffix in ("", ".manifest.json"):
        shutil.copy(other.with_name(other.name + suffix), table.with_name(table.name + suffix))
    failed = run(small, "launch", "--dry-run").failed()
    assert list(failed) == ["two slice"] and "another rank" in failed["two slice"]
    for node in small.nodes:
        (Path(node["model"]) / "model.safetensors").write_bytes(b"another revision")
    failed = run(small, "launch", "--dry-run").failed()
    assert set(failed) == {"one slice", "two slice"} and "another model" in failed["one slice"]


def test_slices_of_published_size_are_checked_and_named(small: SmallCluster) -> None:
    """False: a launch cannot tell its tables, serves lost rows as zeros, or locks 100 gigabytes."""
    small.engine["geometry"] = "deepseek-v4.1-flash"
    ran = run(small, "launch", "--dry-run")
    todo = {check["todo"] for check in ran.answer["checks"] if check["check"] == "slice"}
    assert len(todo) == 2 and all("stage --world 2" in one for one in todo)
    assert all("--geometry deepseek-v4.1-flash" in one and "/rows`" in one for one in todo)
    for rank, node in enumerate(small.nodes):
        (path,) = write_slices(Path(node["model"]), Path(node["rows"]), range(rank, rank + 1), 2,
                               small.engine["geometry"])  # fmt: skip
    ran = run(small, "launch", "--dry-run")
    assert ran.code == OK, ran.failed()
    says = [check["says"] for check in ran.answer["checks"] if check["check"] == "slice"]
    assert all("geometry deepseek-v4.1-flash, 192,0" in one for one in says) and len(says) == 2
    planned = run(small, "plan").answer["nodes"]
    assert [node["settings"]["geometry"] for node in planned] == ["deepseek-v4.1-flash"] * 2
    small.top |= {"mode": "ram", "memory_floor_bytes": 1 << 50}
    ran = run(small, "launch", "--dry-run")
    assert {"one memory", "two memory"} <= set(ran.failed())
    locks = [check["says"] for check in ran.answer["checks"] if check["check"] == "memlock"]
    assert all(", 52,4" in says for says in locks)
    small.top |= {"mode": "nvme", "memory_floor_bytes": 0}
    header = read_header(path)
    with path.open("r+b") as file:
        file.seek(header.data_offset + int(written_pages(header, read_manifest(path))[5]) * 4096)
        file.write(bytes(4096))
    failed = run(small, "launch", "--dry-run").failed()
    assert list(failed) == ["two slice"] and "1 of " in failed["two slice"]


@AS_ROOT
def test_a_memory_lock_limit_is_found(short_path: Path) -> None:
    """False: RAM mode dies at start, minutes after the launch."""
    wrap = "prlimit --memlock=4096:4096 setpriv --bounding-set -ipc_lock"
    small = small_cluster(short_path, prefix=wrap)
    assert run(small, "launch", "--dry-run").code == OK
    small.top["mode"] = "ram"
    failed = run(small, "launch", "--dry-run").failed()
    assert {"one memlock", "two memlock"} <= set(failed)
    assert "4,096 bytes" in failed["one memlock"]


def test_a_clock_that_is_off_is_found(small: SmallCluster) -> None:
    """False: logs of two nodes are put in the wrong order, and the victim is blamed."""
    shifted = small.folder / "shifted"
    source = (
        "import time\nreal = time.time_ns\ntime.time_ns = lambda: real() + 2 * 10**9\n"
        "from sentinel_engine.launcher.node import main\nmain()\n"
    )
    (small.folder / "shifted.py").write_text(source)
    shifted.write_text(
        f"#!/bin/sh\nexport PYTHONPATH={PACKAGE}\n"
        f"exec {sys.executable} {small.folder / 'shifted.py'}\n"
    )
    shifted.chmod(0o755)
    small.nodes[1]["python"] = str(shifted)
    failed = run(small, "launch", "--dry-run").failed()
    assert set(failed) == {"two clock"} and failed["two clock"].startswith("+2")


def test_a_node_without_the_engine_is_named(small: SmallCluster) -> None:
    """False: a node that cannot answer is a traceback, or nothing at all."""
    small.nodes[1]["python"] = "/bin/false"
    ran = run(small, "launch", "--dry-run")
    assert ran.code == NO_ANSWER
    assert "two:" in ran.answer["error"] and "/bin/false" in ran.answer["error"]


def test_a_node_whose_shell_talks_is_named(small: SmallCluster) -> None:
    """False: a greeting in a start-up file is a traceback in the launcher."""
    greeting = small.folder / "greeting"
    greeting.write_text("#!/bin/sh\necho Welcome\nexec tail -f /dev/null\n")
    greeting.chmod(0o755)
    small.nodes[0]["python"] = str(greeting)
    ran = run(small, "launch", "--dry-run")
    assert ran.code == NO_ANSWER and "Welcome" in ran.answer["error"]


def test_a_node_that_never_answers_costs_its_deadline(small: SmallCluster) -> None:
    """False: one dead host hangs the launch of all."""
    mute = small.folder / "mute"
    mute.write_text("#!/bin/sh\nexec tail -f /dev/null\n")
    mute.chmod(0o755)
    small.nodes[0]["python"] = str(mute)
    small.top["reach_s"] = 3
    ran = run(small, "launch", "--dry-run")
    assert ran.code == NO_ANSWER and "within 3 s" in ran.answer["error"]


def test_launch_status_stop(small: SmallCluster) -> None:
    """False: an engine is called ready before it can generate, or stopped in the wrong order."""
    started = run(small, "launch")
    assert started.code == OK, started.err
    incarnation = started.answer["incarnation"]
    assert "1 tokens" in started.answer["proof"]
    assert [node["node"] for node in started.answer["nodes"]] == ["two", "one"]
    found = members(small.top["name"])
    assert {each.incarnation for each in found} == {incarnation}
    assert {each.node for each in found} == {"one", "two"} and len(found) == 4

    shown = run(small, "status")
    assert shown.code == OK and shown.answer["serving"]
    assert shown.answer["incarnations"] == [incarnation]

    refused = run(small, "launch")
    assert refused.code == NOT_WELL
    assert "one no such engine, one ports, two no such engine" in refused.answer["error"]
    assert members(small.top["name"]) == found, "a refused launch changes nothing"
    assert run(small, "stop", "--incarnation", "another").code == NOT_WELL
    assert members(small.top["name"]) == found

    stopped = run(small, "stop", "--incarnation", incarnation)
    assert stopped.code == OK
    assert list(stopped.answer["nodes"]) == ["one", "two"]
    assert all(node["killed"] == 0 for node in stopped.answer["nodes"].values())
    assert members(small.top["name"]) == []
    ended = [json.loads((Path(node["state"]) / small.top["name"] / incarnation / "exit.json")
                        .read_text()) for node in small.nodes]  # fmt: skip
    assert [each["status"] for each in ended] == [0, 0]
    assert ended[0]["ended"] <= ended[1]["ended"], "the head goes first"
    assert not run(small, "status").answer["serving"]

    again = run(small, "launch")
    assert again.code == OK and again.answer["incarnation"] > incarnation
    logs = {Path(node["log"]) for node in started.answer["nodes"]}
    assert all(log.read_text().startswith("scripted worker") for log in logs), "nothing is deleted"


def test_a_worker_that_ends_fails_the_launch_and_is_shown(small: SmallCluster) -> None:
    """False: the launch waits its whole time for an engine that is dead."""
    small.nodes[1]["env"] = {"SCRIPTED_WORKER": "exit131"}
    small.nodes[0]["env"] = {"SCRIPTED_WORKER": "serve-not"}
    ran = run(small, "launch")
    assert ran.code == NOT_WELL and "settings" in ran.answer["error"], "other environments"
    small.nodes[0]["env"] = {"SCRIPTED_WORKER": "exit131"}
    ran = run(small, "launch")
    assert ran.code == NOT_WELL
    assert "ended with status 131" in ran.answer["error"]
    assert "scripted worker exit131" in ran.answer["error"]
    assert members(small.top["name"]) == []


def test_processes_that_are_up_are_not_ready(small: SmallCluster) -> None:
    """False: a cluster is handed over that has never generated a token."""
    small.env["SCRIPTED_WORKER"] = "mute"
    small.top["ready_s"] = 3
    ran = run(small, "launch")
    assert ran.code == NOT_WELL and "no token within 3 s" in ran.answer["error"]
    assert members(small.top["name"]) == [], "a failed launch is stopped again"


def test_what_ignores_the_request_is_killed(small: SmallCluster) -> None:
    """False: a hung engine cannot be stopped, and the next launch is refused for ever."""
    small.env["SCRIPTED_WORKER"] = "deaf"
    small.top["stop_s"] = 1
    assert run(small, "launch").code == OK
    stopped = run(small, "stop")
    assert stopped.code == OK
    assert all(node["killed"] > 0 for node in stopped.answer["nodes"].values())
    assert members(small.top["name"]) == []


def test_a_frozen_engine_can_be_stopped(small: SmallCluster) -> None:
    """False: SIGTERM waits behind SIGSTOP, and so does the operator."""
    small.top["stop_s"] = 1
    assert run(small, "launch").code == OK
    for member in members(small.top["name"]):
        os.kill(member.pid, signal.SIGSTOP)
    assert run(small, "stop").code == OK
    assert members(small.top["name"]) == []


def test_a_lost_node_is_not_serving(small: SmallCluster) -> None:
    """False: half an engine counts as an engine."""
    assert run(small, "launch").code == OK
    (victim,) = [each for each in members(small.top["name"])
                 if each.node == "two" and "--role holder" not in each.command]  # fmt: skip
    os.kill(victim.pid, signal.SIGKILL)
    shown = run(small, "status")
    assert shown.code == NOT_WELL and not shown.answer["serving"]
    assert shown.answer["nodes"]["one"]["running"] and not shown.answer["nodes"]["two"]["running"]
    assert shown.answer["nodes"]["two"]["exit"]["status"] == -signal.SIGKILL


def test_a_worker_whose_holder_was_killed_still_holds_the_name(small: SmallCluster) -> None:
    """False: a second engine starts on the first one's GPUs and state."""
    assert run(small, "launch").code == OK
    holders = [each for each in members(small.top["name"]) if "--role holder" in each.command]
    for each in holders:
        os.kill(each.pid, signal.SIGKILL)
    refused = run(small, "launch")
    assert {"one no such engine", "two no such engine"} <= set(
        refused.answer["error"].partition("failed ")[2].split(", "))  # fmt: skip
    assert run(small, "stop").code == OK
    assert members(small.top["name"]) == []
    assert not any(alive(each.pid, each.started_ticks) for each in holders)


@AS_ROOT
def test_nodes_in_network_namespaces(small: SmallCluster) -> None:
    """False: the launcher reaches nodes only where it runs itself."""
    with namespaces(str(os.getpid())) as names:
        for k, (node, name) in enumerate(zip(small.nodes, names, strict=True), 1):
            node |= {"netns": name, "address": f"10.231.0.{k}", "interface": "se0"}
        small.engine["host"] = "10.231.0.1"
        started = run(small, "launch")
        assert started.code == OK, started.err
        with pytest.raises(OSError):
            socket.create_connection(("10.231.0.1", small.engine["port"]), 0.2)
        pids = ["self", *(each.pid for each in members(small.top["name"]))]
        mine, *theirs = (Path(f"/proc/{pid}/ns/net").readlink() for pid in pids)
        assert len(set(theirs)) == 2 and mine not in theirs
        small.nodes[1]["interface"] = "se1"
        assert "two address" in run(small, "launch", "--dry-run").failed()
        assert run(small, "stop").code == OK
        assert members(small.top["name"]) == []


@contextmanager
def ssh_server(folder: Path) -> Iterator[list[str]]:
    """A real sshd on loopback that knows one key; yields the options to reach it."""
    port = free_port()
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name],
                       check=True, timeout=20)  # fmt: skip
    Path("/run/sshd").mkdir(exist_ok=True)
    server = subprocess.Popen(
        ["/usr/sbin/sshd", "-D", "-e", "-f", "/dev/null", "-p", str(port), "-h", folder / "host",
         "-o", "ListenAddress=127.0.0.1", "-o", f"AuthorizedKeysFile={folder / 'user.pub'}",
         "-o", "StrictModes=no", "-o", "UsePAM=no", "-o", "PidFile=none"],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert server.stderr is not None and "listening" in server.stderr.readline()
        yield ["-F", "/dev/null", "-p", str(port), "-i", str(folder / "user"),
               "-o", "StrictHostKeyChecking=no", "-o", f"UserKnownHostsFile={folder / 'known'}",
               "-o", "LogLevel=ERROR"]  # fmt: skip
    finally:
        server.terminate()
        server.communicate()


@AS_ROOT
@pytest.mark.skipif(not Path("/usr/sbin/sshd").exists(), reason="needs openssh-server")
def test_a_node_over_ssh(small: SmallCluster) -> None:
    """False: the launcher works on one machine only, or engines die with the connection."""
    with ssh_server(small.folder) as options:
        small.nodes[1] |= {"ssh": "127.0.0.1", "ssh_options": options}
        started = run(small, "launch")
        assert started.code == OK, started.err
        assert run(small, "status").answer["serving"], "outlives the session that started it"
        small.nodes[1]["ssh_options"] = [*options, "-o", "IdentityFile=none",
                                         "-o", "PubkeyAuthentication=no"]  # fmt: skip
        lost = run(small, "status")
        assert lost.code == NO_ANSWER and "two:" in lost.answer["error"]
        small.nodes[1]["ssh_options"] = options
        assert run(small, "stop").code == OK
        assert members(small.top["name"]) == []


def test_an_interrupted_launch_is_stopped_again(small: SmallCluster) -> None:
    """False: Ctrl-C leaves half an engine, and its name taken."""
    small.env["SCRIPTED_WORKER"] = "mute"
    launcher = subprocess.Popen(
        [sys.executable, "-m", "sentinel_engine.cli", *small.command("launch")], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        env=os.environ | {"PYTHONPATH": str(PACKAGE)},
        # Programs that a script starts in the background ignore Ctrl-C, and so do their children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    assert launcher.stderr is not None
    assert any(line.startswith("not ready") for line in launcher.stderr)
    assert len(members(small.top["name"])) == 4
    os.killpg(launcher.pid, signal.SIGINT)
    launcher.communicate(timeout=60)
    assert launcher.returncode != OK
    assert members(small.top["name"]) == []


def test_people_and_programs_get_their_own_output(
    small: SmallCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """False: a script cannot read the answer, or a person cannot."""
    assert main(small.command("launch", "--dry-run")) == OK
    both = capsys.readouterr()
    assert json.loads(both.out)["name"] == small.top["name"] and "memlock" in both.err
    assert main(small.command("launch", "--dry-run")[1:]) == OK
    both = capsys.readouterr()
    assert "ok     two          memlock" in both.out and not both.err
