"""What the agent knows of itself and of the engines, in one small file that `sentinel status` and the view read.

The loop replaces the file every few seconds. It is not synced: after a crash of the host nobody needs it.
"""

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from sentinel.agent import procfs
from sentinel.agent.gather import Gather
from sentinel.agent.readiness import Check
from sentinel.core.agent import Standing
from sentinel.model.engine import Engine, EngineProcess, KillDeadline, ProcessId
from sentinel.model.stamp import Stamp
from sentinel.model.verdict import Verdict

NAME = "status.json"
WRITE_EVERY_S = 4.0
STALE_S = 15.0
FILE_BYTES_MAX = 8 << 20


class EngineStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One engine: how it stands, when it last moved, when it will kill itself, and its open incident, if any."""

    key: str
    adapter: str
    processes: tuple[EngineProcess, ...]
    phase: str
    serving: str
    url: str | None = None
    deadline: KillDeadline | None = None
    silence_s: float | None = None
    limit_s: float | None = None
    interval_s: float | None = None
    running: int | None = None
    waiting: int | None = None
    incident: str = ""
    verdict: Verdict | None = None


class SourceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One source: what it cost, what it lost, and why it is in quarantine if it is."""

    name: str
    polls: int
    said: int
    failures: int
    seconds: float
    lost_bytes: int = 0
    quarantined_for_s: float = 0.0
    why: str = ""


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """One agent at one instant."""

    at: Stamp
    agent: ProcessId
    version: str
    engines: tuple[EngineStatus, ...] = ()
    sources: tuple[SourceStatus, ...] = ()
    readiness: tuple[Check, ...] = ()
    near_misses: int = 0
    shed: int = 0
    troubles: tuple[str, ...] = ()


def engines(standings: Iterable[Standing], now: Stamp) -> tuple[EngineStatus, ...]:
    """How the engines stand, from the core."""
    return tuple(_engine(standing, now) for standing in standings)


def sources(gather: Gather, now: Stamp) -> tuple[SourceStatus, ...]:
    """How the sources do."""
    return tuple(
        SourceStatus(
            name=name,
            polls=health.polls,
            said=health.said,
            failures=health.failures,
            seconds=round(health.seconds, 3),
            lost_bytes=getattr(gather.sources[name], "lost_bytes", 0),
            quarantined_for_s=round(max(0.0, health.down_until_s - now.mono_s), 1),
            why=health.why or getattr(gather.sources[name], "why", ""),
        )
        for name, health in gather.health.items()
        if name in gather.sources
    )


def write(folder: Path, status: Status) -> str:
    """Replace the file; returns why that failed, or nothing."""
    path, beside = folder / NAME, folder / f".{NAME}.new"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        beside.write_bytes(msgspec.json.encode(status))
        beside.replace(path)
    except OSError as error:
        return f"{path}: {error.strerror}"
    return ""


def read(folder: Path, now: Stamp) -> Status | None:
    """What a running agent says; None when there is no file, it is damaged, or its agent is gone or stuck."""
    try:
        with (folder / NAME).open("rb") as file:
            status = msgspec.json.decode(file.read(FILE_BYTES_MAX), type=Status)
    except (OSError, msgspec.MsgspecError):
        return None
    fresh = status.at.boot_id == now.boot_id and now.mono_s - status.at.mono_s < STALE_S
    return status if fresh and procfs.still_same(status.agent) else None


def ourselves() -> ProcessId:
    """This process, so that a reader can tell whether it still runs."""
    found = procfs.identity(os.getpid())
    return ProcessId(os.getpid(), 0) if found is None else found[0]


def _engine(standing: Standing, now: Stamp) -> EngineStatus:
    engine, pulse = standing.engine, standing.pulse
    silence_s, interval_s = pulse.silence_s(now.mono_s), pulse.interval_s
    return EngineStatus(
        key=engine.key,
        adapter=engine.adapter,
        processes=_ranks_first(engine),
        phase=standing.phase.value,
        serving=_serving(standing),
        url=engine.url,
        deadline=engine.deadline,
        silence_s=None if silence_s is None else round(silence_s, 3),
        limit_s=round(pulse.limit_s(now.mono_s), 3),
        interval_s=None if interval_s is None else round(interval_s, 3),
        running=pulse.running,
        waiting=pulse.waiting,
        incident=standing.incident,
        verdict=standing.verdict,
    )


def _ranks_first(engine: Engine) -> tuple[EngineProcess, ...]:
    return tuple(sorted(engine.processes, key=lambda process: (process.role != "rank", process.rank or 0, process.id)))


def _serving(standing: Standing) -> str:
    """One word for what the engine does."""
    pulse = standing.pulse
    if pulse.closing:
        return "closing"
    if pulse.paused:
        return "paused"
    if pulse.booting:
        return "starting"
    match pulse.outstanding():
        case None:
            return "unknown"
        case True:
            return "working"
        case _:
            return "idle"
