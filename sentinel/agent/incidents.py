"""Incidents on disk: one folder each, itself an evidence directory that `sentinel analyze` can judge again.

`evidence/` holds what the capture took and a copy of the ring; `incident.jsonl` the effects with their times;
`capture.json` every attempt with its outcome. Old incidents are removed beyond a count.
"""

import contextlib
import os
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec

from sentinel.agent.capture import Captured
from sentinel.agent.ring import Ring
from sentinel.evidence.load import load
from sentinel.model.effect import AnyEffect, Cleared, Judged, Recovered, StartCapture, WriteBundle
from sentinel.model.event import OpenIncident
from sentinel.model.observation import Observation
from sentinel.model.stamp import Stamp
from sentinel.plumbing.atomic import write_atomically

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_OWNER = re.compile(r"-(\d+)\.[a-z]+$")
"""Signals of one engine are named after its root process; those of the host are not."""


class Note(msgspec.Struct, frozen=True):
    """One line of an incident's own record."""

    at: Stamp
    effect: AnyEffect


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
            with (home / "incident.jsonl").open("ab+") as file:
                file.write(_line_end(file) + msgspec.json.encode(Note(at, effect)) + b"\n")
            if isinstance(effect, Judged):
                write_atomically(home / "verdict.json", msgspec.json.encode(effect.verdict))
        except OSError as error:
            self.why = f"{home}: {error.strerror}"

    def observations(self, incident: str, captured: Captured | None = None) -> Iterable[Observation]:
        """What a capture took, read by the same parsers as any evidence folder; `captured` None: by an agent before."""
        folder = self.folder_of(incident)
        if captured is not None:
            with contextlib.suppress(OSError):
                write_atomically(folder.parent / "capture.json", msgspec.json.encode(captured.steps))
        if folder.is_dir():
            yield from load(folder).observations

    def left_open(self, boot_id: str) -> tuple[OpenIncident, ...]:
        """Incidents of this boot that no agent has closed, from their own records, one an engine: the newest."""
        found: dict[str, tuple[int, OpenIncident]] = {}
        for record in sorted(self.folder.glob("*/incident.jsonl")) if self.folder.is_dir() else ():
            notes = [note for note in _notes(record) if note.at.boot_id == boot_id]
            left = _left_open(notes, self._has_evidence(notes[0].effect.incident)) if notes else None
            if left is not None and notes[0].at.mono_ns >= found.get(left.engine, (0, left))[0]:
                found[left.engine] = (notes[0].at.mono_ns, left)
        return tuple(left for _, left in found.values())

    def _has_evidence(self, incident: str) -> bool:
        return any(self.folder_of(incident).glob("pass*"))

    def finish(self, incident: str, ring: Ring, root_pid: str) -> str:
        """Copy the ring beside the capture, without the signals of other engines, and drop the oldest incidents."""
        target = self.folder_of(incident)
        try:
            target.mkdir(parents=True, exist_ok=True)
            room = self.bytes_max
            for path in ring.files():
                owner = _OWNER.search(path.name)
                if owner is not None and owner[1] != root_pid:
                    continue
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


def _line_end(file: BinaryIO) -> bytes:
    """What ends the last line of a file where a crash or a full disk cut it, so that the next one is whole."""
    if file.seek(0, os.SEEK_END) == 0:
        return b""
    file.seek(-1, os.SEEK_END)
    return b"" if file.read(1) == b"\n" else b"\n"


def _notes(record: Path) -> list[Note]:
    """Whole lines of a record; one that a crash cut is left out."""
    notes = []
    with contextlib.suppress(OSError):
        for line in record.read_bytes().splitlines():
            with contextlib.suppress(msgspec.MsgspecError):
                notes.append(msgspec.json.decode(line, type=Note))
    return notes


def _left_open(notes: list[Note], has_evidence: bool) -> OpenIncident | None:
    """How far an incident had come when its agent ended; None when it was closed."""
    kinds = {type(note.effect) for note in notes}
    if kinds & {Cleared, Recovered}:
        return None
    first = notes[0]
    silence_s = getattr(first.effect, "silence_s", 0.0)
    verdicts = [note.effect.verdict for note in notes if isinstance(note.effect, Judged)]
    kept = WriteBundle in kinds
    begun = StartCapture in kinds and has_evidence
    return OpenIncident(
        engine=first.effect.engine,
        incident=first.effect.incident,
        since_s=first.at.mono_s - silence_s,
        stage="kept" if kept else "capturing" if begun else "suspected",
        verdict=verdicts[-1] if verdicts else None,
    )
