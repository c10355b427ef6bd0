"""What the agent reads of processes is true of these processes and of no others."""

import os
import signal
from pathlib import Path

from sentinel.agent import procfs
from sentinel.model.engine import ProcessId
from tests.agent.targets import IDLE, eventually, identity, python, running, script, stop


def test_a_process_is_known_by_pid_and_start_time() -> None:
    """If false, a reused pid would be taken for the rank that died."""
    with python(IDLE) as child:
        known = identity(child.pid)

        assert procfs.still_same(known)
        assert not procfs.still_same(ProcessId(known.pid, known.started_ticks - 1))
    assert not procfs.still_same(known)


def test_arguments_and_settings_are_read() -> None:
    """If false, adapters would not recognise an engine, or not know its watchdog."""
    with python(IDLE, environ={"NCCL_DEBUG": "INFO", "OTHER_SECRET": "x"}) as child:
        view = procfs.view(child.pid)

    assert view is not None and view.argv[-1] == IDLE and view.environ_readable
    assert view.environ["NCCL_DEBUG"] == "INFO" and "OTHER_SECRET" not in view.environ


def test_a_process_name_full_of_parentheses_is_read(tmp_path: Path) -> None:
    """If false, one oddly named program would break the scan of all processes."""
    odd = script(tmp_path / ") R 1 (x", "echo ready; read line < /dev/zero; sleep 3600")
    with running(str(odd)) as child:
        found = procfs.identity(child.pid)

    assert found is not None and found[1] == os.getpid()


def test_a_zombie_is_gone() -> None:
    """If false, a dead rank would count as alive until its parent looks."""
    with python(IDLE) as child:
        known = identity(child.pid)
        os.kill(child.pid, signal.SIGKILL)
        eventually(lambda: (procfs.stat_fields(child.pid) or [""])[0] == "Z")

        assert procfs.identity(child.pid) is None and not procfs.still_same(known)


def test_a_tree_lists_descendants_after_their_parents() -> None:
    """If false, compiler children of a rank would not be seen, and a compile would be taken for a hang."""
    begin = f"import subprocess, sys, threading; subprocess.Popen([sys.executable, '-c', {IDLE!r}])"
    code = f"{begin}; threading.Event().wait()"
    with python(code) as child:
        eventually(lambda: len(procfs.tree(child.pid)) == 2)
        tree = procfs.tree(child.pid)
        os.kill(tree[1], signal.SIGKILL)

    assert tree[0] == child.pid


def test_nobody_traces_a_process_that_is_merely_stopped() -> None:
    """If false, every stopped rank would be said to be under a debugger."""
    with python(IDLE) as child:
        stop(child.pid)

        assert procfs.tracer_of(child.pid) is None


def test_a_missing_process_gives_nothing(tmp_path: Path) -> None:
    """If false, a process that ends during a scan would end the scan."""
    assert procfs.stat_fields(1, tmp_path) is None
    assert procfs.view(1, tmp_path) is None
    assert procfs.link(1, "fd/1", tmp_path) is None
    assert procfs.tree(1, tmp_path) == [1]
