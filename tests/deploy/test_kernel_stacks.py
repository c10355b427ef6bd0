"""The optional service for kernel stacks: one verb, the helper's rules, and a capture that says when it is missing."""

import contextlib
import json
import os
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from sentinel.agent.helper import Helper
from sentinel.agent.ladder import Taken, with_kernel_stacks
from sentinel.cli import sentinel
from sentinel.collectors import thread_table
from sentinel.deploy.units import KERNEL_STACKS
from sentinel.helper import server
from sentinel.helper.kernel_stacks import VERBS
from sentinel.helper.policy import Policy
from sentinel.model.engine import ProcessId
from sentinel.model.observation import ThreadTable
from sentinel.record.incident import read_incident
from tests.agent.targets import IDLE, identity, python
from tests.unit.log_reading import read

pytestmark = pytest.mark.timeout(60)
EVERY_GROUP = (re.compile(r"/.*"),)
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="kernel stacks are shown to CAP_SYS_ADMIN only")


def asked(
    verb: str, target: ProcessId, groups: tuple[re.Pattern[str], ...] = EVERY_GROUP
) -> tuple[dict[str, object], bytes]:
    """What the service sends back."""
    ours, theirs = socket.socketpair()
    request = {"v": 1, "verb": verb, "pid": target.pid, "started_ticks": target.started_ticks}
    with ours, theirs:
        ours.sendall(json.dumps(request).encode() + b"\n")
        server.serve(theirs, Policy(frozenset({os.geteuid()}), groups), VERBS)
        theirs.close()
        data = b"".join(iter(lambda: ours.recv(1 << 16), b""))
    line, _, body = data.partition(b"\n")
    return json.loads(line), body


@contextlib.contextmanager
def service(path: Path) -> Iterator[Helper]:
    """The service behind a real socket, for one question."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def answer() -> None:
            client, _ = listener.accept()
            with client:
                server.serve(client, Policy(frozenset({os.geteuid()}), EVERY_GROUP), VERBS)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield Helper(path)
        thread.join(10)


@as_root
def test_it_tells_where_in_the_kernel_every_thread_stands() -> None:
    """False: a wait for a driver cannot be told from a wait for a disk."""
    with python(IDLE) as child:
        header, body = asked("kernel_stacks", identity(child.pid))

    assert header["ok"] is True and re.match(rb"\d+ ; stack=\[<0>\] \w+", body), (header, body)


def test_it_answers_nothing_else_and_the_helper_does_not_answer_for_it() -> None:
    """False: the process with CAP_SYS_ADMIN does what another one was made for, or the other way round."""
    with python(IDLE) as child:
        target = identity(child.pid)
        refused = [asked(verb, target)[0]["why"] for verb in (*server.OF_PROCESSES, "kernel_log", "exec")]
        outside = asked("kernel_stacks", target, (re.compile("/no-such-group"),))
        reused = asked("kernel_stacks", ProcessId(target.pid, target.started_ticks + 1))

    assert set(refused) == {"no such verb"} and set(VERBS) == {"kernel_stacks"}
    assert "control group" in str(outside[0]["why"]) and outside[1] == b""
    assert reused[0]["why"] == "the process is gone"
    with pytest.raises(ValueError, match="no such verb"):
        server.parse(b'{"v": 1, "verb": "kernel_stacks", "pid": 7, "started_ticks": 9}')


@as_root
def test_the_thread_table_of_a_capture_holds_the_stacks_that_it_tells(tmp_path: Path) -> None:
    """False: the service is enabled, answers, and its answer reaches no rule."""
    with python(IDLE) as child, service(tmp_path / "kstack.sock") as asking:
        target = identity(child.pid)
        table = server.threads(server.Target(target.pid, target.started_ticks)).data
        taken = with_kernel_stacks(Taken(rung="threads", name="t", data=table), target, asking)
    rows = [row for seen in read(thread_table.PARSER, taken.data.decode()) for row in rows_of(seen)]

    assert taken.why == "" and rows and all(row for row in rows)


def rows_of(seen: object) -> list[tuple[str, ...]]:
    return [row.kernel_stack for row in seen.threads] if isinstance(seen, ThreadTable) else []


def test_a_capture_says_that_it_has_no_kernel_stacks_and_why(tmp_path: Path) -> None:
    """False: whoever reads the bundle takes absent kernel stacks for threads that were not in the kernel."""
    plain = Taken(rung="threads", name="t", data=b"# pid 7\n7 ; comm=x ; wchan=0\n")
    without = with_kernel_stacks(plain, ProcessId(7, 1), Helper(tmp_path / "none"))
    with python(IDLE) as child, service(tmp_path / "s") as asking:
        gone = with_kernel_stacks(plain, ProcessId(child.pid, 1), asking)

    assert without.data == gone.data == plain.data
    assert without.why == "without kernel stacks: sentinel-kstack.socket is not enabled"
    assert gone.why == "without kernel stacks: helper: the process is gone"


def test_a_bundle_lists_what_a_piece_of_evidence_lacks_once(tmp_path: Path) -> None:
    """False: the missing kernel stacks are noted in the capture, and nobody is told."""
    (tmp_path / "evidence").mkdir()
    step = {
        "what": "threads",
        "pass_no": 1,
        "began_s": 1.0,
        "took_s": 0.1,
        "file": "a",
        "why": "without kernel stacks: x",
    }
    steps = [{**step, "pid": pid} for pid in (7, 8)]
    (tmp_path / "capture.json").write_text(json.dumps(steps))

    assert read_incident(tmp_path, None).failed_steps == (("threads", "without kernel stacks: x"),)


def test_it_is_off_unless_it_is_asked_for(tmp_path: Path) -> None:
    """False: an installation grants CAP_SYS_ADMIN to somebody who never heard of it."""
    (tmp_path / "opt" / "bin").mkdir(parents=True)
    for name in ("sentinel", "python"):
        (tmp_path / "opt" / "bin" / name).symlink_to("/bin/true")
    words = ["install", "--plan", "--root", "/", "--prefix", str(tmp_path / "opt")]
    runner = CliRunner()
    plain, asked_for = (runner.invoke(sentinel, [*words, *more]).output for more in ([], ["--kernel-stacks"]))
    enabling = re.compile(rf"run systemctl enable .*{re.escape(KERNEL_STACKS)}")

    assert f"optional {KERNEL_STACKS}" in plain and enabling.search(plain) is None
    assert enabling.search(asked_for) and "optional" not in asked_for
