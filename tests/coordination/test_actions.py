"""Stopping and starting real processes: what is proved, and what is not touched."""

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from sentinel.actions.stopping import Stop, cgroup_empty, ports_free
from sentinel.actions.supervisors import CommandPair, kill_exactly
from sentinel.actions.tokens import generates
from sentinel.agent import procfs
from sentinel.model.engine import ProcessId
from sentinel.testing.ports import free_port

STUBBORN = (
    "import signal,sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); signal.pause()"
)
WITHIN_S = 20.0


@pytest.fixture
def stubborn() -> Iterator["subprocess.Popen[bytes]"]:
    """A process that ignores SIGTERM."""
    with subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        reaper = threading.Thread(target=process.wait, daemon=True)
        reaper.start()
        yield process
        process.kill()


def identity(pid: int) -> ProcessId:
    found = procfs.identity(pid)
    assert found is not None
    return found[0]


def stop_of(process: ProcessId, port: int, verify_s: float = WITHIN_S) -> Stop:
    owner = CommandPair(start=("/bin/false",), stop=("/bin/kill", "-TERM", str(process.pid)))
    return Stop(
        owner=owner, incarnation="x", processes=(process,), ports=(port,), term_s=0.5, verify_s=verify_s,
        now=time.monotonic, wait=lambda seconds: (threading.Event().wait(seconds), None)[1],
    )  # fmt: skip


def test_an_engine_that_ignores_the_request_is_killed_and_proved_gone(stubborn: "subprocess.Popen[bytes]") -> None:
    """False: a stuck engine keeps its GPUs, and a second one is started beside it."""
    stopped = stop_of(identity(stubborn.pid), free_port()).run()

    assert stopped.verified, stopped
    assert stopped.checks["processes_gone"] is True and stopped.checks["ports_free"] is True


def test_a_port_that_stays_taken_is_no_verified_stop(stubborn: "subprocess.Popen[bytes]") -> None:
    """False: the next engine dies of "address in use", or its requests go to the old one."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        stopped = stop_of(identity(stubborn.pid), listener.getsockname()[1], verify_s=0.5).run()

    assert not stopped.verified
    assert stopped.checks == {**stopped.checks, "processes_gone": True, "ports_free": False}
    assert "ports_free" in stopped.why


def test_a_signal_goes_to_the_process_that_was_meant_and_to_no_later_one(stubborn: "subprocess.Popen[bytes]") -> None:
    """False: a pid that was reused costs a stranger its life."""
    meant = identity(stubborn.pid)
    kill_exactly([ProcessId(meant.pid, meant.started_ticks + 1), ProcessId(2**22 - 1, 1)])

    assert procfs.still_same(meant)


def test_a_group_that_does_not_exist_is_empty() -> None:
    """False: a unit without processes can never be proved to have stopped."""
    assert cgroup_empty("/no-such-group-of-ours") is True
    assert ports_free(()) is True


def test_silence_is_no_token() -> None:
    """False: an engine that accepts connections and never answers is taken for a healthy one."""
    with closing(socket.create_server(("127.0.0.1", 0))) as mute:
        assert not generates(f"http://127.0.0.1:{mute.getsockname()[1]}", 0.3)
    assert not generates("https://127.0.0.1:1", 0.3)
