"""Evidence is taken from processes in any state, with any tools missing, and leaves them as they were."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sentinel.agent import ladder, procfs
from sentinel.agent.ladder import ATTACHING, CHEAP, Rung, Taken, climb
from sentinel.evidence.load import load
from sentinel.helper import server
from sentinel.model.engine import ProcessId
from sentinel.model.observation import ThreadTable
from tests.agent.targets import IDLE, SPIN, eventually, identity, python, running, script, stop

needs_elfutils = pytest.mark.skipif(shutil.which("eu-stack") is None, reason="eu-stack is not installed here")


def take(target: ProcessId, rungs: tuple[Rung, ...] = CHEAP + ATTACHING) -> dict[str, Taken]:
    return {taken.rung: taken for taken in climb(target, rungs, lambda: True)}


def state(pid: int) -> str:
    return (procfs.stat_fields(pid) or ["gone"])[0]


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that is searched for tools before every other; what is put there replaces the real one."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    yield tmp_path


@needs_elfutils
def test_every_rung_brings_evidence_of_a_running_process() -> None:
    """If false, a rank would stay without stacks although nothing stood in the way."""
    with python(SPIN) as child:
        taken = take(identity(child.pid))
        left = state(child.pid)

    assert {rung: one.why for rung, one in taken.items()} == {
        "threads": "",
        "py-spy": "",
        "eu-stack": "",
        "pystack": "",
    }
    assert b"<module>" in taken["py-spy"].data and left == "R"


def test_a_stopped_process_is_not_attached_to_and_stays_stopped() -> None:
    """If false, the watcher would wake the very process whose stop it reports, or hang on it."""
    with python(IDLE) as child:
        stop(child.pid)
        taken = take(identity(child.pid))
        left = state(child.pid)

    assert taken["threads"].ok and taken["py-spy"].ok and left == "T"
    assert "state T" in taken["eu-stack"].why and "state T" in taken["pystack"].why


def test_a_process_that_is_gone_gives_reasons() -> None:
    """If false, a dead rank would be missing from the manifest without a word."""
    with python(IDLE) as child:
        target = identity(child.pid)

    assert {taken.why for taken in take(target).values()} == {"the process is gone"}


def test_a_reused_pid_is_left_alone() -> None:
    """If false, stacks of a stranger would be shown as those of the rank."""
    with python(IDLE) as child:
        stranger = ProcessId(child.pid, identity(child.pid).started_ticks - 1)

        assert {taken.why for taken in take(stranger).values()} == {"the process is gone"}


def test_a_recovered_engine_is_left_alone() -> None:
    """If false, a near miss would pause a healthy engine."""
    with python(IDLE) as child:
        taken = list(climb(identity(child.pid), CHEAP, lambda: False))

    assert all("no longer wanted" in one.why for one in taken)


def test_a_missing_tool_is_named_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """If false, a host without elfutils would give no stacks at all."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with python(IDLE) as child:
        taken = take(identity(child.pid))

    assert taken["threads"].ok
    assert "cannot start eu-stack" in taken["eu-stack"].why


def test_a_tool_that_fails_is_quoted(tools: Path) -> None:
    """If false, "permission denied" would be an empty file."""
    script(tools / "eu-stack", "echo 'ptrace: Operation not permitted' >&2; exit 2")
    with python(IDLE) as child:
        taken = take(identity(child.pid), ATTACHING[:1])

    assert taken["eu-stack"].why == "ptrace: Operation not permitted"


def test_a_tool_that_hangs_is_ended_and_what_it_left_stopped_goes_on(tools: Path) -> None:
    """If false, a stuck tool would both block the capture and freeze the rank for good."""
    script(tools / "eu-stack", 'kill -STOP "$2"; exec sleep 3600')
    with python(IDLE) as child:
        taken = take(identity(child.pid), ATTACHING[:1])
        eventually(lambda: state(child.pid) == "S")

    assert "not finished after" in taken["eu-stack"].why


@pytest.mark.skipif(shutil.which("gdb") is None, reason="gdb is not installed here")
def test_gdb_stands_in_where_pystack_has_no_answer(tools: Path) -> None:
    """If false, a rank whose interpreter pystack does not know would have no native frames."""
    script(tools / "sleeper", "echo ready; exec sleep 3600")
    with running(str(tools / "sleeper")) as child:
        eventually(lambda: (view := procfs.view(child.pid)) is not None and view.argv[:1] == ("sleep",))
        taken = take(identity(child.pid), ATTACHING[1:])

    assert b"Thread 1" in taken["gdb"].data


HOLD = """#!{python}
import ctypes, os, sys, threading
ctypes.CDLL(None).ptrace(16, int(sys.argv[1]), None, None)
os.waitpid(int(sys.argv[1]), 0x40000000)
print("ready", flush=True)
threading.Event().wait()
"""


@pytest.mark.parametrize(("name", "states"), [("eu-stack", {"S"}), ("somebody", {"t"})])
def test_a_process_that_a_stack_tool_holds_is_not_taken_for_a_stopped_one(
    tmp_path: Path, name: str, states: set[str]
) -> None:
    """If false, two agents that look at the same hang would each blame the ranks that the other looks at."""
    tool = tmp_path / name
    tool.write_text(HOLD.format(python=sys.executable))
    tool.chmod(0o755)
    with python(IDLE) as child, running(str(tool), str(child.pid)):
        table = take(identity(child.pid), CHEAP[:1])["threads"]
    (tmp_path / "evidence").mkdir()
    (tmp_path / "evidence" / table.name).write_bytes(table.data)
    (seen,) = [one for one in load(tmp_path / "evidence").observations if isinstance(one, ThreadTable)]

    assert {row.state for row in seen.threads} == states
    assert all(row.wchan != "ptrace_stop" for row in seen.threads) or states == {"t"}


def test_what_the_helper_told_of_a_held_process_is_corrected_alike(tmp_path: Path) -> None:
    """If false, agents with and without rights judge the same process differently while a stack tool looks at it."""
    tool = tmp_path / "eu-stack"
    tool.write_text(HOLD.format(python=sys.executable))
    tool.chmod(0o755)
    with python(IDLE) as child, running(str(tool), str(child.pid)):
        told = server.threads(server.Target(child.pid, identity(child.pid).started_ticks)).data
    (tmp_path / "evidence").mkdir()
    (tmp_path / "evidence" / "told.txt").write_bytes(told)
    (tmp_path / "evidence" / "shown.txt").write_bytes(ladder.shown_asleep(told))
    seen = [one for one in load(tmp_path / "evidence").observations if isinstance(one, ThreadTable)]

    states = {one.origin.file: {row.state for row in one.threads} for one in seen}
    assert {one.pid for one in seen} == {child.pid}, "the table names its process"
    assert states == {"told.txt": {"t"}, "shown.txt": {"S"}}
    assert b"ptrace_stop" in told and b"ptrace_stop" not in ladder.shown_asleep(told)


def test_a_stopped_process_is_only_continued_when_it_is_the_one_that_was_meant() -> None:
    """If false, a stranger that stopped for its own reasons would be continued."""
    with python(IDLE) as child:
        stop(child.pid)
        stranger = ProcessId(child.pid, identity(child.pid).started_ticks - 1)

        assert not ladder.resume_if_left_stopped(stranger) and state(child.pid) == "T"
        assert ladder.resume_if_left_stopped(identity(child.pid))
        os.kill(child.pid, signal.SIGCONT)


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root and setpriv")
def test_a_process_that_may_not_be_continued_is_said_and_ends_nothing() -> None:
    """If false, an agent without rights loses the remaining evidence, and says that a stopped rank was continued."""
    code = "import sys; from sentinel.agent import ladder, procfs; target, _ = procfs.identity(int(sys.argv[1])); "
    code += "print(ladder.resume_if_left_stopped(target))"
    somebody = ("setpriv", "--reuid=65534", "--clear-groups")
    without_rights = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
    with running(*somebody, "sh", "-c", "echo ready; exec sleep 3600") as child:
        stop(child.pid)
        argv = [*without_rights, sys.executable, "-c", code, str(child.pid)]
        # Within one session, anybody may continue anybody.
        ran = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60, start_new_session=True)
        left = state(child.pid)

    assert f"kill -CONT {child.pid}" in ran.stdout and left == "T"


def test_the_thread_table_shows_every_thread() -> None:
    """If false, the thread that decides could be the one that is missing."""
    code = "import threading; [threading.Thread(target=threading.Event().wait, daemon=True).start() for _ in range(5)]"
    with python(f"{code}; {IDLE}") as child:
        table = ladder.thread_table(identity(child.pid))

    rows = [line for line in table.data.decode().splitlines() if not line.startswith("#")]
    assert len(rows) == 6 and all("; stat=" in row and "; syscall=" in row for row in rows)
