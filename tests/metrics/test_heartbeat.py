"""systemd hears the loop's heartbeat, and only the loop's."""

import os
import socket
from pathlib import Path

import pytest

from sentinel.plumbing.notify import Heartbeat


def test_the_loop_pings_four_times_within_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If false, systemd would kill a healthy agent, or never notice a hung one."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "60000000")
        heartbeat = Heartbeat()
        for tenths in range(600):
            heartbeat.beat(tenths / 10)
        pings = 0
        while True:
            try:
                assert systemd.recv(100) == b"WATCHDOG=1"
            except BlockingIOError:
                break
            pings += 1

    assert pings == 4


@pytest.mark.parametrize("environ", [{}, {"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": str(os.getpid() + 1)}])
def test_without_a_watchdog_nothing_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]
) -> None:
    """If false, a child that inherits the environment would keep a hung agent alive."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        for name, text in environ.items():
            monkeypatch.setenv(name, text)
        Heartbeat().beat(1.0)

        with pytest.raises(BlockingIOError):
            systemd.recv(100)
