"""A healthy engine's mixed load: bursts, idle gaps, long prefills, pauses, a slow rank, rotation of the log.

Everything is really asked of a rehearsal engine. Which comes when is decided by a seed; every length is divided by the
time scale, as the engine's and the agent's clocks are.
"""

import contextlib
import http.client
import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from sentinel.plumbing.clock import Clock
from sentinel.testing.rehearsal.shared import Shared

ANSWER_S = 40.0
ROTATE_EVERY_S = 300.0
BATCHES = (1, 4, 8, 32)
PROMPTS = (500, 4_000, 20_000, 60_000)
"""Tokens; at the rehearsal engine's 2,000 a second the longest takes half a minute without a word."""


@dataclass(slots=True)
class Life:
    """One life, `minutes` long on an undivided clock. `lived` counts what was done."""

    minutes: float
    scale: float
    clock: Clock
    seed: int = 1
    lived: Counter[str] = field(default_factory=Counter)

    def act(self, folder: Path, launcher: int) -> None:
        """Live it to the end, beside the engine in `folder`."""
        del launcher
        dice, shared = Random(self.seed), Shared(folder / "shared")
        phases: tuple[Callable[[Random, Shared, Path], None], ...]
        phases = (self._work, self._work, self._prefill, self._idle, self._pause, self._slow)
        began_s = rotated_s = self.clock.now().mono_s
        while (now_s := self.clock.now().mono_s) < began_s + 60.0 * self.minutes / self.scale:
            if now_s >= rotated_s + ROTATE_EVERY_S / self.scale:
                rotated_s = now_s
                self._rotate(folder)
            dice.choice(phases)(dice, shared, folder)
        shared.put("running", 0)

    def told(self) -> str:
        """What was lived through, in words."""
        counted = ", ".join(f"{count} {what}" for what, count in sorted(self.lived.items()))
        return f"{self.minutes:g} minutes of an undivided clock: {counted}"

    def _wait(self, seconds: float) -> None:
        threading.Event().wait(seconds / self.scale)

    def _work(self, dice: Random, shared: Shared, folder: Path) -> None:
        del folder
        self.lived["bursts"] += 1
        shared.put("running", dice.choice(BATCHES))
        self._wait(dice.uniform(5.0, 60.0))

    def _prefill(self, dice: Random, shared: Shared, folder: Path) -> None:
        del folder
        self.lived["prefills"] += 1
        tokens = dice.choice(PROMPTS)
        shared.put("running", dice.choice(BATCHES))
        shared.put("prefill_tokens", tokens)
        self._wait(tokens / 2000.0 + dice.uniform(5.0, 20.0))

    def _idle(self, dice: Random, shared: Shared, folder: Path) -> None:
        del folder
        self.lived["idle gaps"] += 1
        shared.put("running", 0)
        self._wait(dice.uniform(1.0, 120.0))

    def _pause(self, dice: Random, shared: Shared, folder: Path) -> None:
        self.lived["pauses"] += 1
        shared.put("running", dice.choice(BATCHES))
        call(folder, "/pause_generation")
        self._wait(dice.uniform(5.0, 60.0))
        call(folder, "/continue_generation")
        self._wait(5.0)

    def _slow(self, dice: Random, shared: Shared, folder: Path) -> None:
        self.lived["slow phases"] += 1
        shared.put("running", dice.choice(BATCHES))
        ask(folder / "slow.1", f"{0.02 / self.scale:g}")
        self._wait(dice.uniform(5.0, 30.0))
        (folder / "slow.1").unlink()

    def _rotate(self, folder: Path) -> None:
        self.lived["rotations"] += 1
        rotate(folder)


def ask(path: Path, content: str) -> None:
    """Put a control file of a rank in place whole: a rank that finds it half written would crash of it."""
    staged = path.with_name(f"staged.{path.name}")
    staged.write_text(content)
    staged.replace(path)


def rotate(folder: Path) -> None:
    """Copy the log away and truncate it, as logrotate's copytruncate does."""
    shutil.copyfile(folder / "engine.log", folder / "engine.log.1")
    os.truncate(folder / "engine.log", 0)


def call(folder: Path, path: str) -> None:
    """An admin call to the engine; its own log says whether it was answered."""
    client = http.client.HTTPConnection("127.0.0.1", int((folder / "port").read_text()), timeout=ANSWER_S)
    with contextlib.closing(client):
        client.request("POST", path)
        status = client.getresponse().status
    if status != http.client.OK:
        raise RuntimeError(f"the rehearsal engine answered {status} to {path}")
