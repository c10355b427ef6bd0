"""Abuse of the helper: floods, slow and endless clients, pids and control groups that are not what they seem."""

import contextlib
import errno
import json
import os
import pwd
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sentinel.helper import server
from sentinel.helper.policy import Policy, parse
from sentinel.model.engine import ProcessId
from tests.agent.targets import IDLE, identity, python

ME = pwd.getpwuid(os.geteuid()).pw_name
SYSTEMD = Path("/sys/fs/cgroup/systemd")
LAST_PID = Path("/proc/sys/kernel/ns_last_pid")
OURS = f"sentinel-test-{os.getpid()}"
pytestmark = pytest.mark.timeout(120)
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make control groups and choose process numbers")


@contextlib.contextmanager
def listening(policy: Policy, path: Path) -> Iterator[Path]:
    """The helper behind a socket, a thread a connection as systemd has a process a connection."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(128)

        def serve(client: socket.socket) -> None:
            with client:
                server.serve(client, policy)

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    threading.Thread(target=serve, args=(client,), daemon=True).start()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield path
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def connected(path: Path) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(60)
    client.connect(str(path))
    return client


def rest(client: socket.socket) -> tuple[dict[str, object], bytes]:
    """What comes until the helper closes."""
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while part := client.recv(1 << 16):
            data += part
    line, _, body = data.partition(b"\n")
    return json.loads(line), body


def request(target: ProcessId, verb: str = "threads") -> bytes:
    return json.dumps({"v": 1, "verb": verb, "pid": target.pid, "started_ticks": target.started_ticks}).encode() + b"\n"


def allowed(pid: int) -> Policy:
    """A policy that allows us to ask about the control group of a process, or about none where that is the root."""
    names = "\n".join(f"allow-cgroup {group}" for group in server.cgroups(pid) if group != "/")
    return parse(f"user {ME}\n{names}")


def test_a_flood_of_clients_gets_an_answer_each(tmp_path: Path) -> None:
    """False: whoever opens many connections keeps the agent from its evidence for longer than they are open."""
    with listening(parse(f"user {ME}"), tmp_path / "s") as path, contextlib.ExitStack() as stack:
        idle = [stack.enter_context(connected(path)) for _ in range(60)]
        asking = [stack.enter_context(connected(path)) for _ in range(60)]
        for client in asking:
            client.sendall(request(ProcessId(os.getpid(), 1)))
        answers = [rest(client)[0] for client in asking]
        for client in idle:
            client.shutdown(socket.SHUT_WR)
        unasked = [rest(client)[0] for client in idle]

    assert [answer["why"] for answer in answers] == ["the process is gone"] * 60
    assert all("newline" in str(answer["why"]) for answer in unasked)


def test_a_client_that_trickles_is_shown_out(tmp_path: Path) -> None:
    """False: a byte now and then holds one of four connections until systemd ends the service."""
    line, over = request(ProcessId(os.getpid(), 1)), threading.Event()
    with listening(parse(f"user {ME}"), tmp_path / "s") as path, connected(path) as client:

        def trickle() -> None:
            for byte in line * 100:
                with contextlib.suppress(OSError):
                    client.sendall(bytes([byte]).replace(b"\n", b" "))
                if over.wait(0.2):
                    return

        thread = threading.Thread(target=trickle, daemon=True)
        thread.start()
        header, _ = rest(client)
        over.set()
        thread.join(10)

    assert header["ok"] is False and "timed out" in str(header["why"])


def test_a_request_without_end_is_cut_at_a_kibibyte(tmp_path: Path) -> None:
    """False: the process that runs with rights is filled with whatever a client sends."""
    with listening(parse(f"user {ME}"), tmp_path / "s") as path, connected(path) as client:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            client.sendall(b'{"v":1,' + b" " * (64 << 20))
        header, body = rest(client)

    assert header["ok"] is False and "longer than 1024 bytes" in str(header["why"]) and body == b""


@as_root
def test_a_process_number_that_was_given_away_again_is_refused(tmp_path: Path) -> None:
    """False: the stacks of whoever got the number next end up in the evidence of an engine."""
    with python(IDLE) as first:
        engine = identity(first.pid)
        policy = allowed(first.pid)
    for _ in range(50):
        LAST_PID.write_text(str(engine.pid - 1))
        heir = subprocess.Popen(["/bin/sleep", "60"])
        try:
            if heir.pid == engine.pid:
                ours, theirs = socket.socketpair()
                with ours, theirs:
                    ours.sendall(request(engine))
                    server.serve(theirs, policy)
                    theirs.close()
                    assert rest(ours)[0]["why"] == "the process is gone"
                return
        finally:
            heir.kill()
            heir.wait()
    pytest.skip("other processes took the number first, fifty times")


@contextlib.contextmanager
def control_group(name: str) -> Iterator[Path]:
    """A control group of systemd's own hierarchy, removed at the end with those above it that are ours."""
    path = SYSTEMD / OURS / name
    path.mkdir(parents=True)
    try:
        yield path
    finally:
        while path != SYSTEMD:
            with contextlib.suppress(OSError):
                path.rmdir()
            path = path.parent


@as_root
@pytest.mark.skipif(not (SYSTEMD / "cgroup.procs").exists(), reason="needs systemd's hierarchy of control groups")
@pytest.mark.parametrize(
    ("name", "answered"),
    [
        ("vllm.service", True),
        ("vllm.service/worker", True),
        ("vllm.service-evil", False),
        ("evil/vllm.service", False),
        ("VLLM.service", False),
        ("vllm.servic", False),
        ("vllm.service\x1b[2J", False),
        ("..vllm.service", False),
    ],
)
def test_the_control_group_that_counts_is_the_one_the_kernel_names(name: str, answered: bool, tmp_path: Path) -> None:
    """False: a name that looks like the engine's opens every process to a taken-over agent."""
    policy = parse(f"user {ME}\nallow-cgroup /{OURS}/vllm.service")
    with python(IDLE) as child, control_group(name) as group:
        # Through a link of the allowed name: what a path is called by is not what the process is in.
        link = tmp_path / "vllm.service"
        link.symlink_to(group)
        (link / "cgroup.procs").write_text(str(child.pid))
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.sendall(request(identity(child.pid)))
            server.serve(theirs, policy)
            theirs.close()
            header, _ = rest(ours)
        (SYSTEMD / "cgroup.procs").write_text(str(child.pid))

    assert header["ok"] is answered, header


@as_root
@pytest.mark.skipif(not (SYSTEMD / "cgroup.procs").exists(), reason="needs systemd's hierarchy of control groups")
def test_no_control_group_can_forge_a_second_line() -> None:
    """False: a group whose name holds a newline claims to be another one, and the helper believes it."""
    with pytest.raises(OSError) as refused:
        (SYSTEMD / f"{OURS}x\n0::" / "vllm.service").parent.mkdir()

    assert refused.value.errno == errno.EINVAL
