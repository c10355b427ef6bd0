"""The privileged helper: it looks at the one process that was meant, for those who may ask, and at nothing else."""

import contextlib
import json
import os
import pwd
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sentinel.agent.helper import Described, Helper, Told
from sentinel.helper import server
from sentinel.helper.policy import Policy, PolicyError, load, parse
from sentinel.model.engine import ProcessId
from tests.agent.targets import IDLE, identity, python, stop
from tests.tidy.sources import ROOT

ME = pwd.getpwuid(os.geteuid()).pw_name


def allowing(*pids: int) -> Policy:
    """A policy that allows the control groups of these processes, or of all that share the root group with us."""
    groups = {group for pid in pids for group in server.cgroups(pid)}
    return Policy(frozenset({os.geteuid()}), tuple(re.compile(re.escape(group)) for group in groups))


def answered(request: bytes, policy: Policy, patience_s: float = 5.0) -> tuple[dict[str, object], bytes]:
    """What the helper sends back for these bytes."""
    ours, theirs = socket.socketpair()
    with ours, theirs:

        def answer() -> None:
            server.serve(theirs, policy)
            theirs.shutdown(socket.SHUT_WR)

        thread = threading.Thread(target=answer)
        thread.start()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            ours.sendall(request)
            ours.shutdown(socket.SHUT_WR)
        data = b""
        with contextlib.suppress(ConnectionResetError):
            while part := ours.recv(1 << 16):
                data += part
        thread.join(patience_s)
    line, _, body = data.partition(b"\n")
    return json.loads(line), body


def request(verb: str, target: ProcessId) -> bytes:
    return json.dumps({"v": 1, "verb": verb, "pid": target.pid, "started_ticks": target.started_ticks}).encode() + b"\n"


@pytest.mark.parametrize(
    ("verb", "shows"),
    [("threads", b"wchan="), ("python_stacks", b'"thread_id"'), ("native_stacks", b"TID"), ("describe", b"fd/1")],
)
def test_every_verb_shows_the_process_that_was_meant(verb: str, shows: bytes) -> None:
    """If false, the agent without rights has no stacks, and the verdict is a guess."""
    with python(IDLE) as child:
        header, body = answered(request(verb, identity(child.pid)), allowing(child.pid))

    assert header["ok"] is True and header["bytes"] == len(body), header
    assert shows in body


def test_it_never_tells_what_is_in_memory_or_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """If false, whoever reaches the socket reads prompts and keys of the engine."""
    monkeypatch.setenv("VLLM_API_KEY", "canary-of-the-environment")
    monkeypatch.setenv("NCCL_DEBUG_FILE", "/var/log/nccl.%h.%p")
    code = "prompt = 'canary-of-the-' + 'locals'\n" + IDLE
    with python(code) as child:
        target = identity(child.pid)
        bodies = [answered(request(verb, target), allowing(child.pid))[1] for verb in server.OF_PROCESSES]

    assert b"NCCL_DEBUG" in b"".join(bodies)
    assert not any(b"canary" in body for body in bodies)


def test_a_process_outside_the_allowed_groups_is_refused() -> None:
    """If false, a compromised agent can look into every process of the host."""
    policy = parse(f"user {ME}\nallow-cgroup /system.slice/vllm.service")
    with python(IDLE) as child:
        for verb in server.OF_PROCESSES:
            header, body = answered(request(verb, identity(child.pid)), policy)
            assert header["ok"] is False and "control group" in str(header["why"]) and body == b""


def test_a_pid_that_changed_hands_is_refused() -> None:
    """If false, the stacks of a stranger end up in the evidence of an engine."""
    with python(IDLE) as child:
        found = identity(child.pid)
        header, _ = answered(request("threads", ProcessId(found.pid, found.started_ticks + 1)), allowing(child.pid))

    assert header == {"v": 1, "ok": False, "bytes": 0, "why": "the process is gone"}


def test_a_stopped_process_is_not_attached_to_and_stays_stopped() -> None:
    """If false, taking evidence would change what it is evidence of."""
    with python(IDLE) as child:
        stop(child.pid)
        native, _ = answered(request("native_stacks", identity(child.pid)), allowing(child.pid))
        stacks, body = answered(request("python_stacks", identity(child.pid)), allowing(child.pid))
        state = server._state(child.pid)

    assert native["why"] == "not attached to a process in state T"
    assert stacks["ok"] is True and b"thread" in body and state == "T"


@pytest.mark.skipif(
    os.geteuid() != 0 or not Path("/usr/bin/python3").exists(),
    reason="needs root to be somebody else, and a Python for it",
)
def test_another_user_is_refused_by_the_kernels_word() -> None:
    """If false, the group of a socket file is all that stands between any user and ptrace."""
    code = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect('\\0' + sys.argv[1]); print(s.recv(999))"
    name = f"sentinel-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{name}")
        listener.listen()
        listener.settimeout(60)
        nobody = subprocess.Popen(
            ["setpriv", "--reuid=65534", "--clear-groups", "/usr/bin/python3", "-c", code, name],
            stdout=subprocess.PIPE,
        )
        client, _ = listener.accept()
        with client:
            said = server.serve(client, Policy(frozenset({1}), ()))
        out, _ = nobody.communicate(timeout=60)

    assert said.startswith("uid=65534") and b"user not allowed" in out


@given(st.binary(max_size=1500))
@settings(max_examples=150, deadline=None)
def test_no_bytes_make_it_do_anything_else(line: bytes) -> None:
    """If false, the only code that runs with rights can be talked into something."""
    try:
        verb, target = server.parse(line)
    except ValueError:
        return
    assert verb == "kernel_log" or (
        verb in server.OF_PROCESSES and target is not None and 1 < target.pid <= server.PID_MAX
    )


VALID = {"v": 1, "verb": "threads", "pid": 4711, "started_ticks": 99}


@pytest.mark.parametrize(
    "change",
    [
        {"v": 2}, {"verb": "exec"}, {"verb": "__class__"}, {"verb": ["threads"]}, {"pid": 1}, {"pid": -5},
        {"pid": True}, {"pid": "4711"}, {"pid": 4711.0}, {"pid": 1 << 40}, {"started_ticks": 0},
        {"path": "/etc/shadow"},
    ],
    ids=str,
)  # fmt: skip
def test_a_request_that_is_not_exactly_right_is_refused(change: dict[str, object]) -> None:
    """If false, a field that nobody thought of reaches a tool that runs with rights."""
    assert server.parse(json.dumps(VALID).encode())[0] == "threads"
    with pytest.raises(ValueError, match=r"version|verb|pid"):
        server.parse(json.dumps({**VALID, **change}).encode())


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"x" * 5000, b"[" * 1000 + b"\n", b'{"v":1}\n', b"\xff\xfe\n", b'{"v":1,"verb":"threads"}\n']
)
def test_broken_requests_get_an_answer_and_end(data: bytes) -> None:
    """If false, four broken clients would use up all the connections that the socket allows."""
    header, body = answered(data, allowing(os.getpid()))

    assert header["ok"] is False and header["why"] and body == b""


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("user nobody-of-that-name", "there is no user"),
        ("allow-cgroup /", "expected"),
        ("allow-cgroup relative", "expected"),
        ("allow-cgroup /a/../b", "expected"),
        ("allow /a", "expected"),
    ],
)
def test_a_policy_with_a_mistake_is_refused_as_a_whole(text: str, complaint: str) -> None:
    """If false, a typing error would allow more than was meant."""
    with pytest.raises(PolicyError, match=complaint):
        parse(text)


def test_a_group_is_allowed_with_all_below_it_and_nothing_beside_it() -> None:
    """If false, `vllm.service` would also allow `vllm.service-evil`."""
    policy = parse("allow-cgroup /system.slice/vllm.service\nallow-cgroup /system.slice/docker-*.scope  # containers")

    assert policy.covers("/system.slice/vllm.service") and policy.covers("/system.slice/vllm.service/worker")
    assert policy.covers("/system.slice/docker-0af3.scope")
    for group in ("/", "/system.slice", "/system.slice/vllm.service-evil", "/system.slice/vllm.service/../sshd.service",
                  "/x/system.slice/vllm.service", "/system.slice/docker-a/b.scope"):  # fmt: skip
        assert not policy.covers(group), group


def test_a_policy_that_others_may_write_is_refused(tmp_path: Path) -> None:
    """If false, the agent's user could allow itself everything."""
    path = tmp_path / "helper.conf"
    path.write_text(f"user {ME}\n")
    path.chmod(0o664)
    with pytest.raises(PolicyError, match="only root can write"):
        load(path, owner=os.geteuid())
    path.chmod(0o640)
    assert load(path, owner=os.geteuid()).admits(os.geteuid())
    with pytest.raises(PolicyError, match="only root can write"):
        load(path, owner=os.geteuid() + 1)


def test_the_helper_is_small_and_needs_nothing_but_the_standard_library() -> None:
    """If false, the code that runs with rights cannot be read in an hour, or a dependency can take it over."""
    lines = sum(len(path.read_text().splitlines()) for path in (ROOT / "sentinel" / "helper").glob("*.py"))
    code = "import sys; old = set(sys.modules); import sentinel.helper.__main__; print(*set(sys.modules) - old)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    foreign = {name.partition(".")[0] for name in loaded} - set(sys.stdlib_module_names) - {"sentinel"}

    assert lines < 600 and foreign == set()
    assert {name for name in loaded if name.startswith("sentinel.")} == {
        "sentinel.helper", "sentinel.helper.__main__", "sentinel.helper.policy", "sentinel.helper.server",
        "sentinel.plumbing", "sentinel.plumbing.subprocesses",
    }  # fmt: skip


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[Helper]:
    """A helper behind a real socket, with a thread in place of systemd's one process a connection."""
    path = tmp_path / "helper.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    with client:
                        server.serve(client, allowing(os.getpid()))

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield Helper(path)
        listener.shutdown(socket.SHUT_RDWR)


def test_the_agent_gets_stacks_places_and_the_kernel_log_through_the_socket(listening: Helper) -> None:
    """If false, both halves are right and do not understand each other."""
    with python(IDLE) as child:
        target = identity(child.pid)
        stacks, described = listening.ask("python_stacks", target), listening.describe(target)
        gone = listening.ask("threads", ProcessId(target.pid, 1))
    log = listening.ask("kernel_log")
    try:
        assert b"thread_id" in stacks.data and described.links["fd/1"].startswith("pipe:")
        assert gone == Told(why="helper: the process is gone")
        assert log.fd >= 0 or "kmsg" in log.why
        assert log.fd < 0 or Path(f"/proc/self/fd/{log.fd}").readlink() == Path("/dev/kmsg")
    finally:
        if log.fd >= 0:
            os.close(log.fd)


def test_without_a_helper_the_agent_is_told_so(tmp_path: Path) -> None:
    """If false, a host without the units would crash its agent."""
    with python(IDLE) as child:
        nobody = Helper(tmp_path / "none")
        assert nobody.ask("threads", identity(child.pid)).why.startswith("helper:")
        assert nobody.describe(identity(child.pid)) == Described()


@pytest.mark.timeout(60)
def test_a_helper_that_trickles_is_not_waited_for_beyond_the_deadline(tmp_path: Path) -> None:
    """If false, a helper in trouble stops the agent's loop, and with it every other engine's watch."""
    path = tmp_path / "slow.sock"
    over = threading.Event()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def trickle() -> None:
            client, _ = listener.accept()
            with client, contextlib.suppress(OSError):
                while not over.wait(0.05):
                    client.sendall(b" ")

        thread = threading.Thread(target=trickle, daemon=True)
        thread.start()
        told = Helper(path).ask("describe", ProcessId(os.getpid(), 1), deadline_s=0.5)
        over.set()
        thread.join(10)

    assert told.data == b"" and told.why.startswith("helper:")


@pytest.mark.parametrize(
    "answer",
    [b"", b"\n", b"{}\n", b'{"v":1,"ok":true,"bytes":99999999999}\n', b'{"v":1,"ok":true,"bytes":9}\nabc', b"x" * 9000],
)
def test_a_helper_that_answers_nonsense_is_no_evidence(tmp_path: Path, answer: bytes) -> None:
    """If false, whoever takes the helper's place makes the agent hang or believe anything."""
    path = tmp_path / "liar.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def lie() -> None:
            client, _ = listener.accept()
            with client:
                client.recv(2000)
                client.sendall(answer)

        thread = threading.Thread(target=lie, daemon=True)
        thread.start()
        told = Helper(path).ask("threads", ProcessId(os.getpid(), 1))
        thread.join(10)

    assert told.data == b"" and told.why
