"""An engine that runs as a service and writes to the journal, with a journald of its own in a mount namespace."""

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sentinel.agent.journal_follow import COMMAND, JournalFollow
from sentinel.agent.ring import Ring
from sentinel.agent.sources.engine_log import EngineLog
from sentinel.model.engine import Engine, ProcessId
from sentinel.model.observation import Decode
from sentinel.testing.rehearsal import prints
from tests.agent.targets import eventually, now

DAEMON = Path("/lib/systemd/systemd-journald")
OUTPUT = "_TRANSPORT=stdout"
BEGIN = f"""
mount --make-rprivate / && mount -t tmpfs none /run && mount -t tmpfs none /var/log && mkdir -p /run/systemd/journal
{DAEMON} 2>/dev/null &
until [ -S /run/systemd/journal/stdout ]; do :; done
echo ready; wait
"""


def has_journald() -> bool:
    """Whether a journald can be run here without touching the host's own."""
    if os.geteuid() != 0 or not DAEMON.exists() or shutil.which("journalctl") is None:
        return False
    return subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode == 0


pytestmark = pytest.mark.skipif(not has_journald(), reason="needs root, mount namespaces and systemd's journald")


@contextlib.contextmanager
def journald() -> Iterator[tuple[str, ...]]:
    """A running journald; gives the words that run a command beside it."""
    argv = ["unshare", "--mount", "sh", "-c", BEGIN]
    inside = subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert inside.stdout is not None and inside.stdout.readline() == b"ready\n"
        yield ("nsenter", "--mount", "--target", str(inside.pid))
    finally:
        os.killpg(inside.pid, signal.SIGKILL)
        inside.wait()
        assert inside.stdout is not None
        inside.stdout.close()


def write(beside: tuple[str, ...], *lines: str) -> None:
    """What a service prints; on return journald has it."""
    text = "".join(f"{line}\n" for line in lines)
    subprocess.run([*beside, "systemd-cat", "cat"], input=text, text=True, check=True)
    subprocess.run([*beside, "journalctl", "--sync"], check=False, capture_output=True)


def decode(tokens: int) -> str:
    return f"[2026-03-01 10:00:00 TP0] {prints.decode(4, tokens, 50.0)}"


def test_what_a_service_prints_is_read_while_it_prints(tmp_path: Path) -> None:
    """If false, an engine under systemd would be silent for the agent, or be read only after its end."""
    root = Engine(key=f"sglang:{os.getpid()}:1", adapter="sglang", root=ProcessId(os.getpid(), 1), processes=())
    with journald() as beside:
        write(beside, decode(100))
        source = EngineLog(root, f"journal:{OUTPUT}", Ring(tmp_path / "ring"), (*beside, *COMMAND))
        seen: list[Decode] = []

        def has(count: int) -> bool:
            seen.extend(said.seen for said in source.poll(now()) if isinstance(said.seen, Decode))
            return len(seen) >= count

        eventually(lambda: has(1))
        write(beside, decode(200), decode(300))
        eventually(lambda: has(3))
        source.close()

    assert [one.tokens for one in seen] == [100, 200, 300]
    assert b"Decode batch" in (tmp_path / "ring" / f"engine-{os.getpid()}.log").read_bytes()


def test_a_follower_that_is_killed_goes_on_where_it_was() -> None:
    """If false, a killed journalctl would blind the agent, or repeat old lines as fresh progress."""
    with journald() as beside:
        follow = JournalFollow(OUTPUT, (*beside, *COMMAND), restart_s=0.0)
        found = b""

        def reads(words: bytes) -> bool:
            nonlocal found
            found += b"".join(follow.read())
            return words in found

        write(beside, "before")
        eventually(lambda: reads(b"before"))
        assert follow._child is not None
        follow._child.kill()
        write(beside, "meanwhile")
        eventually(lambda: reads(b"meanwhile"))
        write(beside, "after")
        eventually(lambda: reads(b"after"))
        follow.close()

    assert [found.count(word) for word in (b'"before"', b'"meanwhile"', b'"after"')] == [1, 1, 1]


def test_a_host_without_journalctl_says_so() -> None:
    """If false, an engine without a readable log would look like one that says nothing."""
    follow = JournalFollow(OUTPUT, ("/nonexistent/journalctl",))

    assert list(follow.read()) == [] and "cannot start" in follow.why
