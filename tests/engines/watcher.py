"""The real agent, as a service would run it: `sentinel watch` in a process of its own, heard through its JSON log."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from sentinel.model.event import AnyEvent, EngineGone, Observed
from sentinel.model.observation import Decode, Scrape
from sentinel.record.journal import entries
from tests.engines.processes import wait_until

CAPTURE_AFTER_S = 12.0
SIGNS_TO_LEARN = 6
LIVE_S = 5.0
LEARN_S = 120.0


@dataclass(frozen=True, slots=True)
class Said:
    """One line of the agent about the engine. `at_s` is UTC."""

    at_s: float
    event: str
    fields: dict[str, Any]


@dataclass(slots=True)
class Watcher:
    """Watches the whole host; `said` gives only what concerns the engines with these root pids."""

    folder: Path
    pids: set[int]
    settings: dict[str, str] = field(default_factory=dict)
    _process: "subprocess.Popen[bytes] | None" = None

    @property
    def state(self) -> Path:
        """The agent's own folder: journal, ring, incidents."""
        return self.folder / "agent"

    def start(self) -> "Watcher":
        """Start it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        environ = {**os.environ, "SENTINEL_TIMING_CAPTURE_AFTER_S": f"{CAPTURE_AFTER_S:g}", **self.settings}
        self.follow(*self.pids)
        with (self.folder / "agent.log").open("ab") as log:
            argv = [sys.executable, "-m", "sentinel", "watch", "--state", str(self.state)]
            self._process = subprocess.Popen(argv, stderr=log, env=environ, start_new_session=True)
        return self

    def follow(self, *pids: int) -> None:
        """Have these engines among those whose journal is kept."""
        self.pids.update(pids)
        (self.folder / "pids").write_text(" ".join(map(str, sorted(self.pids))))

    def learn(self, signs: int = SIGNS_TO_LEARN) -> None:
        """Wait until it has seen the engine's counters or progress lines a few times."""
        wait_until(lambda: self.signs() >= signs, LEARN_S, "the agent sees the engine", self.folder / "agent.log")

    def said(self) -> list[Said]:
        """What it has said about the engine so far."""
        found = []
        for line in (self.folder / "agent.log").read_text().splitlines():
            if line.startswith("{"):
                fields = json.loads(line)
                if self._is_mine(fields.get("engine")):
                    at_s = datetime.fromisoformat(fields["timestamp"]).timestamp()
                    found.append(Said(at_s, fields["event"], fields))
        return found

    def first(self, event: str, since_s: float = 0.0) -> Said | None:
        """The first line of a kind."""
        return next((said for said in self.said() if said.event == event and said.at_s >= since_s), None)

    def verdicts(self, since_s: float = 0.0) -> list[Said]:
        """All verdicts, oldest first."""
        return [said for said in self.said() if said.event == "verdict" and said.at_s >= since_s]

    def stop(self) -> None:
        """End it as an operator does."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(20)

    def alive(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.poll() is None

    def gone(self, pid: int) -> bool:
        """Whether it knows that the engine with this root pid has ended."""
        return any(isinstance(event, EngineGone) and f":{pid}:" in event.key for event in self._events())

    def _events(self) -> Iterator[AnyEvent]:
        journal = self.state / "journal"
        return (entry.e for entry in (entries(journal) if journal.is_dir() else ()) if entry.e is not None)

    def _is_mine(self, key: str | None) -> bool:
        return key is not None and any(f":{pid}:" in key for pid in self.pids)

    def signs(self) -> int:
        """How often it has seen counters or progress lines of the engines since it runs; history does not count."""
        return sum(
            isinstance(event, Observed)
            and self._is_mine(event.engine)
            and isinstance(event.seen, Scrape | Decode)
            and event.at.wall_s - (event.seen.at_s or 0.0) < LIVE_S
            for event in self._events()
        )
