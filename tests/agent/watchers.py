"""The real agent as a process of its own, for tests that kill it, starve it or take its rights away."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from sentinel.agent import status
from sentinel.agent.status import EngineStatus, Status
from sentinel.model.effect import AnyEffect
from sentinel.record.journal import entries
from tests.agent.engines import NAME
from tests.agent.targets import eventually, now

SCALE = "10"
SLACK = {
    "SENTINEL_TIMING_CAPTURE_BUDGET_S": "100",
    "SENTINEL_TIMING_SILENCE_FLOOR_S": "20",
    "SENTINEL_METRICS_LISTEN": "''",
}
"""A busy machine may not answer within the scaled limits; none of these tests is about speed."""


@dataclass
class Watcher:
    """A running agent. Its clocks are divided by `SCALE`."""

    process: "subprocess.Popen[bytes]"
    state: Path

    @property
    def status(self) -> Status | None:
        """What it wrote last, if it is alive."""
        return status.read(self.state, now())

    def sees(self, root_pid: int) -> EngineStatus | None:
        """How it sees one engine; other engines of the host are none of the test's business."""
        found = self.status
        known = () if found is None else found.engines
        return next((engine for engine in known if engine.key.split(":")[1] == str(root_pid)), None)

    def effects(self, root_pid: int) -> list[AnyEffect]:
        """Everything it has journalled about one engine."""
        return [
            entry.f
            for entry in entries(self.state / "journal")
            if entry.f is not None and entry.f.engine.split(":")[1] == str(root_pid)
        ]


@contextlib.contextmanager
def watcher(
    state: Path, prefix: Sequence[str] = (), only: Sequence[str] = ("--only-named", NAME), /, **environ: str
) -> Iterator[Watcher]:
    """`sentinel watch` on `state`; killed when the block is left. It looks at engines of this process of tests alone.

    `only` is empty for one without the right to read names, which looks at every engine of the host.
    """
    state.mkdir(parents=True, exist_ok=True)
    settings = {"SENTINEL_TIMING_TIME_SCALE": SCALE, **SLACK, **environ}
    with (state / "agent.log").open("ab") as log:
        process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "sentinel", "watch", *only, "--state", str(state)],
            stdout=log, stderr=log, env={**os.environ, **settings}, start_new_session=True,
        )  # fmt: skip
    try:
        yield Watcher(process, state)
    finally:
        process.kill()
        process.wait()


def watching(agent: Watcher, root_pid: int) -> EngineStatus:
    """Wait until the agent sees the engine at work."""

    def sees() -> bool:
        assert agent.process.poll() is None, (agent.state / "agent.log").read_text()
        found = agent.sees(root_pid)
        return found is not None and found.serving == "working"

    eventually(sees)
    found = agent.sees(root_pid)
    assert found is not None
    return found


def journalled(agent: Watcher, root_pid: int, kind: type[AnyEffect]) -> AnyEffect:
    """Wait for an effect of this kind."""
    eventually(lambda: any(isinstance(effect, kind) for effect in agent.effects(root_pid)))
    return next(effect for effect in agent.effects(root_pid) if isinstance(effect, kind))


def cli(*words: str) -> "subprocess.CompletedProcess[str]":
    """A verb of the command line, run to its end."""
    return subprocess.run([sys.executable, "-m", "sentinel", *words], capture_output=True, text=True, check=False)


def text(value: object) -> str:
    """Any record as text, for searching."""
    return msgspec.json.encode(value).decode()
