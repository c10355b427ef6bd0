"""Reads an incident's folder as the agent left it: evidence, its own records, what it did when, what it failed to get.

Any other folder, archive or file is an incident too, one without records.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from sentinel.model.effect import AnyEffect, Judged, Recovered, StartCapture, Suspected
from sentinel.model.stamp import Stamp
from sentinel.model.verdict import Verdict
from sentinel.record.manifest import Moment, iso
from sentinel.record.slice import NAME as JOURNAL

RECORDS = ("incident.jsonl", "verdict.json", "capture.json", JOURNAL)
RECORD_BYTES_MAX = 16 << 20
_MOMENTS_MAX = 500


class _Entry(msgspec.Struct, frozen=True):
    at: Stamp
    effect: AnyEffect


class _Step(msgspec.Struct, frozen=True, kw_only=True):
    what: str
    pid: int = 0
    pass_no: int = 1
    file: str | None = None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """What the folder says about itself. `records` are the agent's own files, as they are."""

    name: str
    evidence: Path
    at_s: float
    engine: str = ""
    verdict: Verdict | None = None
    records: dict[str, bytes]
    timeline: tuple[Moment, ...] = ()
    failed_steps: tuple[tuple[str, str], ...] = ()


def read_incident(folder: Path, verdict: Verdict | None) -> Incident:
    """Read it; raises OSError when the folder itself cannot be read. Damaged records are left out."""
    below = folder / "evidence"
    if not below.is_dir():
        folder.stat()
        return Incident(name=_plain_name(folder), evidence=folder, at_s=_t0_s(verdict), records={}, verdict=verdict)
    records = {name: data for name in RECORDS if (data := _bounded(folder / name))}
    entries = _entries(records.get("incident.jsonl", b""))
    left = _verdict(records.get("verdict.json", b""))
    return Incident(
        name=entries[0].effect.incident if entries else _plain_name(folder),
        evidence=below,
        at_s=entries[0].at.wall_s if entries else _t0_s(verdict or left),
        engine=entries[0].effect.engine if entries else "",
        verdict=left,
        records=records,
        timeline=tuple(_moment(entry) for entry in entries[:_MOMENTS_MAX]),
        failed_steps=_failed(records.get("capture.json", b"")),
    )


def _bounded(path: Path) -> bytes:
    try:
        if path.is_symlink() or not path.is_file():
            return b""
        with path.open("rb") as file:
            return file.read(RECORD_BYTES_MAX)
    except OSError:
        return b""


def _entries(data: bytes) -> list[_Entry]:
    found, decoder = [], msgspec.json.Decoder(_Entry)
    for line in data.splitlines():
        try:
            found.append(decoder.decode(line))
        except msgspec.MsgspecError:
            continue
    return found


def _verdict(data: bytes) -> Verdict | None:
    try:
        return msgspec.json.decode(data, type=Verdict) if data else None
    except msgspec.MsgspecError:
        return None


def _failed(data: bytes) -> tuple[tuple[str, str], ...]:
    try:
        steps = msgspec.json.decode(data, type=list[_Step]) if data else []
    except msgspec.MsgspecError:
        return (("capture.json", "damaged: what the capture failed to get is not known"),)
    failed = [
        (f"{step.what} of {step.pid or 'the engine'} (pass {step.pass_no})", step.why or "no reason was recorded")
        for step in steps
        if step.file is None
    ]
    # What was taken and lacks something lacks it of every process alike.
    partly = dict.fromkeys((step.what, step.why) for step in steps if step.file is not None and step.why)
    return (*failed, *partly)


def _moment(entry: _Entry) -> Moment:
    effect = entry.effect
    match effect:
        case Suspected():
            says = f"silent for {effect.silence_s:.1f} s, limit {effect.limit_s:.1f} s: {effect.why}"
        case StartCapture():
            says = f"within {effect.budget_s:.0f} s: {effect.why}"
        case Judged():
            says = f"{effect.verdict.kind}, {effect.verdict.confidence} confidence"
        case Recovered():
            says = f"after {effect.lasted_s:.1f} s: {effect.why}"
        case _:
            says = ""
    tag = str(type(effect).__struct_config__.tag)
    return Moment(mono_s=round(entry.at.mono_s, 3), wall=_precise(entry.at.wall_s), what=tag, says=says)


def _precise(at_s: float) -> str:
    return f"{iso(at_s)[:-1]}.{int(at_s * 1000) % 1000:03d}Z"


def _t0_s(verdict: Verdict | None) -> float:
    if verdict is None or verdict.t0 is None:
        return 0.0
    try:
        return datetime.strptime(verdict.t0, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return 0.0


def _plain_name(folder: Path) -> str:
    return folder.resolve().name[:80] or "evidence"
