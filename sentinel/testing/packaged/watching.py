"""Sentinel's services as child processes of a drill: started, killed, started again; their words are read from disk."""

import contextlib
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import yaml

from sentinel.agent import bundling, status
from sentinel.agent.incidents import Note
from sentinel.agent.status import EngineStatus
from sentinel.model.effect import AnyEffect
from sentinel.plumbing.clock import Clock
from sentinel.testing.packaged.namespaces import inside

END_S = 40.0
CAPTURE_BUDGET_S = 20.0


def timing(time_scale: float) -> dict[str, Any]:
    """The `timing` section of a drill. Tools need the time that they need, whatever the clocks are divided by."""
    return {} if time_scale == 1.0 else {"time_scale": time_scale, "capture_budget_s": CAPTURE_BUDGET_S * time_scale}


def wait_for(clock: Clock, within_s: float, happened: Callable[[], bool], every_s: float) -> bool:
    """Look until something happened, at least once and for this long at most; whether it did."""
    until_s, waiting = clock.now().mono_s + within_s, threading.Event()
    while not happened():
        if clock.now().mono_s > until_s:
            return False
        waiting.wait(every_s)
    return True


@dataclass(slots=True)
class Service:
    """One service with a configuration and a log below `folder`: `verb` with its words, in the network `space`."""

    folder: Path
    settings: Mapping[str, Any]
    environ: Mapping[str, str]
    verb: tuple[str, ...]
    space: str = ""
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def state(self) -> Path:
        """The state folder; all services of a box have the same."""
        return self.folder / "state"

    @property
    def log(self) -> Path:
        """What it says."""
        return self.folder / f"{self.verb[0]}.log"

    def command(self, *words: str) -> list[str]:
        """The command line of a verb that works on this state."""
        file = self.folder / f"{self.verb[0]}.yaml"
        return [sys.executable, "-m", "sentinel", *words, "--config", str(file), "--state", str(self.state)]

    def start(self) -> None:
        """Begin, or begin again on the same state."""
        self.state.mkdir(parents=True, exist_ok=True)
        file = self.folder / f"{self.verb[0]}.yaml"
        file.write_text(yaml.safe_dump({"metrics": {"listen": ""}, **self.settings}))
        argv = [*inside(self.space), *self.command(*self.verb)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(argv, stderr=log, env=dict(self.environ), start_new_session=True)

    def kill(self) -> None:
        """SIGKILL, as the kernel would for want of memory."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM, as an operator would."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        if self.process is None:
            return
        self.process.send_signal(number)
        try:
            self.process.wait(timeout=END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """It runs while the block runs."""
        self.start()
        try:
            yield
        finally:
            self.stop()

    @property
    def said(self) -> str:
        """The end of its log, for complaints."""
        return self.log.read_text(errors="replace")[-2000:] if self.log.exists() else ""


class Watch(Service):
    """`sentinel watch` that looks at one engine only: with clocks divided, any other of the host would look slow."""

    def __init__(
        self, folder: Path, settings: Mapping[str, Any], environ: Mapping[str, str], engine: str, space: str = ""
    ) -> None:
        super().__init__(folder, settings, environ, ("watch", "--only-named", engine), space)

    def effects(self) -> list[tuple[float, AnyEffect]]:
        """(monotonic seconds, effect) of all incidents that it keeps, in order."""
        found = []
        for record in (self.state / "incidents").glob("*/incident.jsonl"):
            for line in record.read_bytes().splitlines():
                with contextlib.suppress(msgspec.MsgspecError):
                    note = msgspec.json.decode(line, type=Note)
                    found.append((note.at.mono_s, note.effect))
        return sorted(found, key=lambda one: one[0])

    def engine(self, root_pid: int, clock: Clock) -> EngineStatus | None:
        """What its status says about the engine with this root process."""
        seen = status.read(self.state, clock.now())
        engines = () if seen is None else seen.engines
        return next((engine for engine in engines if engine.key.split(":")[1] == str(root_pid)), None)

    def is_at_work(self, root_pid: int, clock: Clock) -> bool:
        """Whether it sees this engine work, at a pace that it knows."""
        known = self.engine(root_pid, clock)
        return known is not None and known.serving == "working" and known.interval_s is not None

    def bundle(self, root_pid: int) -> Path | None:
        """The bundle of an incident of that engine, once it is packed."""
        return next(iter(sorted(self._incidents(root_pid, bundling.NAME))), None)

    def evidence(self, root_pid: int) -> list[Path]:
        """Files of evidence that were kept of incidents of that engine."""
        return sorted(self._incidents(root_pid, "evidence/*"))

    def _incidents(self, root_pid: int, below: str) -> Iterator[Path]:
        yield from (self.state / "incidents").glob(f"*_{root_pid}_*/{below}")
