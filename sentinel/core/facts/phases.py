"""Facts of the start-up phases: where a start stands, whether it still moves, which phase never ended.

Phases of earlier starts in the same log are left out. Boot is quiet by nature, so silence alone is no sign here; a
bar, bytes read or a compiler at work are signs of life.
"""

import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from sentinel.core.fact import Cite, Fact, FactSpec, unknown
from sentinel.core.facts import _serving as serving
from sentinel.core.facts.progress import clock
from sentinel.core.picture import Picture
from sentinel.core.timeline import Mark
from sentinel.model.observation import Decode, EngineStats, Observation, Phase, PhaseName, ProcessCounters, ProcessTable

ENGINE_LOG = "the engine's log from its start"
ORDER: tuple[PhaseName, ...] = (
    "start",
    "dist_init",
    "load",
    "memory",
    "compile",
    "capture",
    "warmup",
    "ready",
    "shutdown",
)
COUNTED_MIN = 2
MOVES_WITHIN_S = 30.0
ITEMS_WITHIN = 4.0
SICK_WITHIN_S = 60.0
READ_BYTES = ("read_bytes", "rchar", "majflt", "cmajflt")
READ_MOVES = {"read_bytes": 1_000_000.0, "rchar": 1_000_000.0, "majflt": 100.0, "cmajflt": 100.0}
COMPILER = re.compile(
    r"\b(?:nvcc|cicc|ptxas|fatbinary|cc1plus|ninja|hipcc)\b|compile_worker|inductor|triton", re.IGNORECASE
)
_DONE = re.compile(r"\| (\d+)/(\d+) \[(?:(\d+):)?(\d+):(\d\d)<")


@dataclass(frozen=True, slots=True)
class Boot:
    """The phase lines of the last incarnation, in the order they were printed, and the one that counts now."""

    lines: tuple[Phase, ...]
    current: Phase | None
    ready: bool


def boot(picture: Picture) -> Boot:
    """Order of time, and inside one file the order of lines, since bars and HTTP lines may print no time."""
    lines = sorted(serving.alive(picture, Phase), key=_when(picture))
    # Reloading weights or compiling a new shape while serving does not undo being ready.
    ready = any(seen.phase == "ready" for seen in lines) or _serves(picture)
    shutdown = next((seen for seen in reversed(lines) if seen.phase == "shutdown"), None)
    if shutdown is not None:
        return Boot(tuple(lines), shutdown, ready)
    if ready:
        return Boot(tuple(lines), next((seen for seen in reversed(lines) if seen.phase == "ready"), None), True)
    return Boot(tuple(lines), max(lines, key=lambda seen: ORDER.index(seen.phase), default=None), False)


def _when(picture: Picture) -> Callable[[Phase], tuple[float, str, int]]:
    """Sort key; a line without a time takes the newest time printed above it in its file."""
    above: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for seen in picture.all(Phase):
        if seen.at_s is not None:
            above[seen.origin.file].append((seen.origin.line or 0, seen.at_s))

    def key(seen: Phase) -> tuple[float, str, int]:
        line = seen.origin.line or 0
        at_s = seen.at_s
        if at_s is None:
            at_s = max((known for number, known in above[seen.origin.file] if number <= line), default=0.0)
        return (at_s, seen.origin.file, line)

    return key


def _serves(picture: Picture) -> bool:
    """Decode or statistics lines, or token counters that went on growing: an engine that generates is past its start,
    whatever the start-up lines of the logs at hand say. A warm-up alone makes counters grow once."""
    said = any(True for kind in (Decode, EngineStats) for _ in serving.alive(picture, kind))
    return said or len(picture.memo(_counted)) >= COUNTED_MIN


def _counted(picture: Picture) -> tuple[Mark, ...]:
    return tuple(mark for mark in picture.memo(serving.marks) if mark.kind == "counter")


def _booting(picture: Picture) -> Fact:
    now = picture.memo(boot)
    if not now.lines and not _serves(picture):
        return unknown(ENGINE_LOG)
    if now.ready or (now.current is not None and now.current.phase == "shutdown"):
        ready = [seen for seen in now.lines if seen.phase == "ready"]
        # Lines without a time are no steps, and still show that the engine serves.
        shown: Observation | None = next(iter((*ready, *picture.memo(serving.steps), *now.lines)), None)
        cites = () if shown is None else (Cite("the start was completed", shown.origin),)
        return Fact(value=False, cites=cites)
    if _goes_on_elsewhere(picture, now):
        return unknown("the log of the front end or of rank 0, which says when the engine is ready")
    return Fact(value=True, cites=_current_cites(now))


def _goes_on_elsewhere(picture: Picture, now: Boot) -> bool:
    """Only ranks other than the first were heard, and each ended its last phase: they never say that they serve."""
    speakers = {seen.tags: seen for seen in now.lines}
    return all(
        tags is not None and picture.identity.global_rank(tags) != 0 and last.edge == "end"
        for tags, last in speakers.items()
    )


def _current_cites(now: Boot) -> tuple[Cite, ...]:
    if now.current is None:
        return ()
    said = now.current.text[:100]
    return (Cite(f"start-up stands at {now.current.phase}: {said}", now.current.origin),)


def _current(picture: Picture) -> Fact:
    now = picture.memo(boot)
    if now.current is not None:
        return Fact(value=now.current.phase, cites=_current_cites(now))
    if _serves(picture):
        shown = (*picture.memo(serving.steps), *picture.memo(_counted))
        cites = tuple(Cite("the engine generates", step.origin) for step in shown[:1])
        return Fact(value="ready", cites=cites)
    return unknown(ENGINE_LOG)


def _age(picture: Picture) -> Fact:
    now, end_s = picture.memo(boot), picture.memo(serving.end_s)
    if now.current is None or end_s is None:
        return unknown(ENGINE_LOG)
    begun = [seen.at_s for seen in now.lines if seen.phase == now.current.phase and seen.at_s is not None]
    if not begun:
        return unknown("a time on the phase's first line")
    return Fact(value=max(end_s - min(begun), 0.0), cites=_current_cites(now))


# --- does the start move ---------------------------------------------------------------------------------------


def _moving(picture: Picture) -> Fact:
    """True on the first sign of life near the end; False only when a bar of this start has stopped; else unknown."""
    now, end_s = picture.memo(boot), picture.memo(serving.end_s)
    if (cite := _reads(picture)) is not None or (cite := _compiles(picture)) is not None:
        return Fact(value=True, cites=(cite,))
    timed = [seen for seen in now.lines if seen.at_s is not None]
    if end_s is None or not timed:
        return unknown(ENGINE_LOG, "two samples of the processes' read counters")
    last = max(timed, key=lambda seen: seen.at_s or 0.0)
    quiet_s = end_s - (last.at_s or 0.0)
    within_s = max(MOVES_WITHIN_S, ITEMS_WITHIN * _item_s(last))
    if quiet_s <= 0.0 and last.percent is None:
        # The evidence ends with this line; what came after it nobody looked at.
        return unknown("two samples of the processes' read counters", "a look at the log some seconds later")
    if quiet_s <= within_s and last.edge != "begin":
        says = f"{last.phase} still advanced at {clock(last.at_s or 0.0)}, {quiet_s:.0f} s before the end"
        return Fact(value=True, cites=(Cite(says, last.origin),))
    if last.percent is not None and quiet_s > within_s:
        says = (
            f"the {last.phase} bar stands at {last.percent:.0f} % since {clock(last.at_s or 0.0)}, for {quiet_s:.0f} s"
        )
        return Fact(value=False, cites=(Cite(says, last.origin),))
    return unknown("two samples of the processes' read counters", "a process table with the compilers")


def _item_s(seen: Phase) -> float:
    """Mean time of one item of a bar, in seconds; 0 when the line is no bar."""
    found = _DONE.search(seen.text)
    if found is None:
        return 0.0
    elapsed_s = (int(found[3] or 0) * 60 + int(found[4])) * 60.0 + int(found[5])
    return elapsed_s / max(int(found[1]), 1)


def _reads(picture: Picture) -> Cite | None:
    """Bytes read or pages faulted in by a process between its last two samples."""
    samples: dict[tuple[str | None, int | None], list[ProcessCounters]] = defaultdict(list)
    for seen in serving.alive(picture, ProcessCounters):
        samples[(seen.host, seen.pid)].append(seen)
    for (host, pid), found in samples.items():
        for key in READ_BYTES:
            values = [seen.values[key] for seen in found if key in seen.values]
            if len(values) >= 2 and values[-1] - values[-2] >= READ_MOVES[key]:
                where = f" on {host}" if host else ""
                return Cite(f"{key} of process {pid}{where} grew by {values[-1] - values[-2]:,.0f}", found[-1].origin)
    return None


def _compiles(picture: Picture) -> Cite | None:
    """A compiler that runs in the newest process table of its host."""
    newest: dict[str | None, ProcessTable] = {}
    for table in serving.alive(picture, ProcessTable):
        newest[table.host] = table
    for table in newest.values():
        for row in table.rows:
            busy = row.state[:1] == "R" or (row.cpu_percent or 0.0) >= 20.0
            if busy and COMPILER.search(row.command[:200]) is not None:
                return Cite(f"process {row.pid} compiles: {row.command[:60]}", table.origin)
    return None


# --- phases that never ended -----------------------------------------------------------------------------------


def _open(picture: Picture, phase: PhaseName) -> Fact:
    """Begun (or a moving bar), without an end, and nothing later in the start or in the work came after it."""
    now = picture.memo(boot)
    if not now.lines:
        return unknown(ENGINE_LOG)
    key = _when(picture)
    mine = [seen for seen in now.lines if seen.phase == phase]
    begun = [seen for seen in mine if seen.edge != "end" and (seen.percent or 0.0) < 100.0]
    if not begun:
        return Fact(value=False, cites=(Cite(f"no {phase} phase is open", now.lines[-1].origin),))
    last = begun[-1]
    closed = [seen for seen in now.lines if key(seen) > key(last) and _closes(seen, last)]
    after = [step for step in picture.memo(serving.steps) if (step.at_s or 0.0) > key(last)[0] + 1.0]
    ended: Observation | None = closed[0] if closed else after[0] if after else None
    if ended is not None:
        return Fact(value=False, cites=(Cite(f"{phase} ended or work went on", ended.origin),))
    return Fact(value=True, cites=(Cite(f"{phase} began and did not end: {last.text[:80]}", last.origin),))


def _closes(seen: Phase, opened: Phase) -> bool:
    """An end of the same phase by the same speaker (or by anybody, when one of them is nameless), or a later phase."""
    if seen.phase == opened.phase:
        same = opened.tags is None or seen.tags is None or seen.tags == opened.tags
        return seen.edge == "end" and same
    later = ORDER.index(seen.phase) > ORDER.index(opened.phase)
    # Compiling happens inside capture and warm-up, so that only their ends close it.
    return later and (opened.phase != "compile" or seen.edge == "end") and seen.phase != "compile"


def _capture_open(picture: Picture) -> Fact:
    return _open(picture, "capture")


def _compile_open(picture: Picture) -> Fact:
    return _open(picture, "compile")


def _load_open(picture: Picture) -> Fact:
    return _open(picture, "load")


def _ended_cleanly(picture: Picture) -> Fact:
    """A requested end with nothing left to do; a kill after a failure or with work left is no clean end."""
    asked = serving.notices(picture, "sigterm")
    shutdown = [seen for seen in picture.memo(boot).lines if seen.phase == "shutdown"]
    shown: list[Observation] = [*asked, *shutdown]
    if not shown:
        origin = serving.first_origin(picture, Phase, Decode, EngineStats)
        return unknown(ENGINE_LOG) if origin is None else Fact(value=False, cites=(Cite("no shutdown seen", origin),))
    began_s = min((seen.at_s for seen in shown if seen.at_s is not None), default=None)
    failed = serving.notices(
        picture, "engine_dead", "worker_died", "subprocess_exit", "sigquit", "exception", "cuda_error", "nccl_error",
        "watchdog_timeout", "rpc_timeout",
    )  # fmt: skip
    # A front end answers 503 while it starts; only a failure just before the end speaks against a clean one.
    sick = [
        seen
        for seen in serving.notices(picture, "health_failed")
        if seen.at_s is not None and began_s is not None and began_s - seen.at_s <= SICK_WITHIN_S
    ]
    before = [seen for seen in (*failed, *sick) if seen.at_s is None or began_s is None or seen.at_s <= began_s]
    load = picture.memo(serving.work)
    left = load is not None and (load.running or 0) + (load.waiting or 0) > 0
    if before or left:
        said = before[-1].text[:100] if before else "requests were left at the end"
        origin = before[-1].origin if before else shown[0].origin
        return Fact(value=False, cites=(Cite(said, origin),))
    return Fact(value=True, cites=(Cite("the engine was asked to end and had nothing left to do", shown[0].origin),))


FACTS: tuple[FactSpec, ...] = (
    FactSpec(name="phase.booting", unit="bool", compute=_booting,
             about="Start-up lines were seen and the engine never became ready."),
    FactSpec(name="phase.current", unit="word", compute=_current, about="The phase that the last start reached."),
    FactSpec(name="phase.moving", unit="bool", compute=_moving,
             about="A bar, bytes read or a compiler still advances at the end of the evidence."),
    FactSpec(name="phase.age_s", unit="s", compute=_age, about="Time since the current phase began."),
    FactSpec(name="phase.ended_cleanly", unit="bool", compute=_ended_cleanly,
             about="The engine ended on request with nothing outstanding."),
    FactSpec(name="phase.capture_open", unit="bool", compute=_capture_open,
             about="Graph capture began and did not end."),
    FactSpec(name="phase.compile_open", unit="bool", compute=_compile_open,
             about="Compilation, autotuning or kernel warm-up began and did not end."),
    FactSpec(name="phase.load_open", unit="bool", compute=_load_open, about="Weight loading began and did not end."),
)  # fmt: skip
