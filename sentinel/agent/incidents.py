"""Incidents on disk: one folder each, itself an evidence directory that `sentinel analyze` can judge again.

`evidence/` holds what the capture took and a copy of the ring; `incident.jsonl` the effects with their times;
`capture.json` every attempt with its outcome. Old incidents are removed beyond a count.
"""

import contextlib
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from sentinel.agent.capture import Captured
from sentinel.agent.ring import Ring
from sentinel.evidence.load import load
from sentinel.model.effect import AnyEffect, Judged
from sentinel.model.observation import Observation
from sentinel.model.stamp import Stamp
from sentinel.plumbing.atomic import write_atomically

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(slots=True)
class Incidents:
    """Keeps incidents below `folder`. Disk errors are returned as outcomes, never raised."""

    folder: Path
    kept: int
    bytes_max: int
    why: str = ""

    def folder_of(self, incident: str) -> Path:
        """Where an incident's evidence goes."""
        return self.folder / _UNSAFE.sub("_", incident) / "evidence"

    def note(self, at: Stamp, effect: AnyEffect) -> None:
        """Append an effect to the incident's own record; keep the newest verdict beside it."""
        home = self.folder_of(effect.incident).parent
        try:
            home.mkdir(parents=True, exist_ok=True)
            with (home / "incident.jsonl").open("ab") as file:
                file.write(msgspec.json.encode({"at": at, "effect": effect}) + b"\n")
            if isinstance(effect, Judged):
                write_atomically(home / "verdict.json", msgspec.json.encode(effect.verdict))
        except OSError as error:
            self.why = f"{home}: {error.strerror}"

    def observations(self, incident: str, captured: Captured) -> Iterable[Observation]:
        """What a capture took, read by the same parsers as any evidence folder."""
        home = self.folder_of(incident).parent
        with contextlib.suppress(OSError):
            write_atomically(home / "capture.json", msgspec.json.encode(captured.steps))
        if captured.folder.is_dir():
            yield from load(captured.folder).observations

    def finish(self, incident: str, ring: Ring) -> str:
        """Copy the ring beside the capture and drop the oldest incidents."""
        target = self.folder_of(incident)
        try:
            target.mkdir(parents=True, exist_ok=True)
            room = self.bytes_max
            for path in ring.files():
                room -= path.stat().st_size
                if room > 0:
                    shutil.copyfile(path, target / path.name)
            self._drop_oldest()
        except OSError as error:
            self.why = f"{target}: {error.strerror}"
            return self.why
        return "done"

    def _drop_oldest(self) -> None:
        homes = sorted((path for path in self.folder.iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime)
        for old in homes[: -self.kept]:
            shutil.rmtree(old, ignore_errors=True)
