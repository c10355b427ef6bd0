"""Helper processes end at their deadline, whatever they do, and cost no more memory than allowed."""

import os
import sys
from pathlib import Path

from sentinel.plumbing.subprocesses import run_bounded
from tests.agent.targets import eventually

LONG_S = 60.0


def test_a_program_that_ends_is_heard_out() -> None:
    """If false, no tool's answer could be trusted."""
    ran = run_bounded([sys.executable, "-c", "import sys; print('out'); sys.exit(3)"], deadline_s=LONG_S)

    assert (ran.stdout, ran.status, ran.ok, ran.why) == (b"out\n", 3, False, "")


def test_input_is_given() -> None:
    """If false, a tool that reads its orders would get none."""
    ran = run_bounded(["cat"], deadline_s=LONG_S, stdin=b"orders")

    assert ran.stdout == b"orders"


def test_a_missing_tool_is_an_outcome() -> None:
    """If false, a host without py-spy would have no agent either."""
    ran = run_bounded(["no-such-tool-anywhere"], deadline_s=LONG_S)

    assert ran.status is None and "cannot start no-such-tool-anywhere" in ran.why


def test_a_hanging_child_that_ignores_sigterm_is_ended_at_its_deadline() -> None:
    """If false, one stuck tool would hold a capture until the engine kills itself."""
    code = "import signal, threading; signal.signal(signal.SIGTERM, signal.SIG_IGN); threading.Event().wait()"

    ran = run_bounded([sys.executable, "-c", code], deadline_s=0.5)

    assert ran.status is None and "not finished after 0.5 s" in ran.why and not ran.abandoned


def test_grandchildren_are_ended_too(tmp_path: Path) -> None:
    """If false, every capture would leave a stray process behind on the GPU host."""
    pid_file = tmp_path / "pid"
    code = f"sleep 3600 & echo $! > {pid_file}; wait"

    run_bounded(["sh", "-c", code], deadline_s=0.5)

    grandchild = int(pid_file.read_text())
    eventually(lambda: not is_running(grandchild))


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_flood_of_output_is_cut_and_marked() -> None:
    """If false, a tool gone wild would take the agent's memory, and a cut dump would pass for a whole one."""
    ran = run_bounded(["head", "-c", "5000000", "/dev/zero"], deadline_s=LONG_S, bytes_max=1000)

    assert len(ran.stdout) == 1000 and ran.truncated and ran.ok


def test_an_endless_flood_ends_at_the_deadline() -> None:
    """If false, a tool that never stops printing would never be stopped."""
    ran = run_bounded(["cat", "/dev/zero"], deadline_s=0.5, bytes_max=1000)

    assert len(ran.stdout) == 1000 and ran.status is None


def test_a_child_that_closes_its_output_and_lives_on_is_ended() -> None:
    """If false, a tool that has said everything could still hold the capture."""
    code = "import os, threading; os.close(1); os.close(2); threading.Event().wait()"

    ran = run_bounded([sys.executable, "-c", code], deadline_s=1.0)

    assert ran.status is None and not ran.abandoned


def test_input_that_nobody_reads_does_not_block() -> None:
    """If false, a child that never reads would hang the agent itself."""
    ran = run_bounded(["sleep", "3600"], deadline_s=0.5, stdin=b"x" * (4 << 20))

    assert ran.status is None


def test_the_environment_is_only_what_was_given() -> None:
    """If false, a tool would run with settings that were meant for the agent."""
    ran = run_bounded(["env"], deadline_s=LONG_S, env={"PATH": os.environ["PATH"], "ONLY": "this"})

    assert b"ONLY=this" in ran.stdout and b"HOME=" not in ran.stdout


def test_a_grandchild_that_keeps_the_output_open_is_ended() -> None:
    """If false, a daemon that a tool left behind would hold the pipe, and the capture, for ever."""
    ran = run_bounded(["sh", "-c", "sleep 3600 & echo said"], deadline_s=1.0)

    assert ran.stdout == b"said\n" and ran.status is None and not ran.abandoned
