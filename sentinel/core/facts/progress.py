"""Facts of progress: did work advance to the end of the evidence, did it stop, pause, or grow slower.

Progress is a line or counter that only a finished step can produce. An answering front end, a busy CPU or a spinning
GPU is no progress.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from math import log2
from statistics import median

from sentinel.core import timeline
from sentinel.core.fact import Cite, Fact, FactSpec, unknown
from sentinel.core.facts import _serving as serving
from sentinel.core.facts._gpu_state import gpus
from sentinel.core.facts._serving import Step
from sentinel.core.picture import Picture
from sentinel.model.observation import (
    Decode,
    EngineStats,
    FlightTrace,
    GpuSample,
    HealthProbe,
    Notice,
    Origin,
    Prefill,
    ProcessTable,
    Ras,
    Scrape,
    Silence,
    Stack,
    ThreadTable,
)

PROGRESS = "an engine log with progress lines, or two scrapes of its metrics"
DEATHS = ("engine_dead", "worker_died", "subprocess_exit", "sigquit", "exit")
WINDOW_LINES = 10
PACE_LINES_MIN = 12
APART_S = 5.0


def clock(at_s: float) -> str:
    """Time of day as the logs print it."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%H:%M:%S")


# --- now -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class State:
    """Where progress stands at the end of the evidence; None for what no source can tell."""

    stopped: bool | None
    advancing: bool | None
    silence_s: float | None
    cites: tuple[Cite, ...]


def state(picture: Picture) -> State:
    """What an agent says that has seen no progress since is not asked again; without one, silence is measured."""
    told = picture.memo(timeline.progress).told
    return _measured(picture) if told is None else _told(picture, told)


def _told(picture: Picture, told: Silence) -> State:
    marks, end_s = picture.memo(serving.marks), picture.memo(serving.end_s)
    own_s = told.silence_s + max((end_s or 0.0) - (told.at_s or 0.0), 0.0)
    silence_s = max(own_s, (end_s or 0.0) - marks[-1].at_s) if marks else own_s
    says = f"the agent saw {told.silence_s:.0f} s of silence (limit {told.limit_s:.0f} s), and no progress since"
    cites = [Cite(says, told.origin), *(_silence_cites(marks[-1], silence_s, told.limit_s) if marks else ())]
    death = _death(picture, marks) if marks else None
    if death is not None:
        cites.append(Cite(death.text[:160], death.origin))
    return State(_outstanding(picture), False, silence_s, tuple(cites))


def _measured(picture: Picture) -> State:
    """A death ends progress; else counters that moved in the newest scrapes win; else the silence is measured."""
    pair_moves = [(pair, serving.moved(pair)) for pair in picture.memo(serving.pairs)]
    marks, end_s = picture.memo(serving.marks), picture.memo(serving.end_s)
    silence_s = max(end_s - marks[-1].at_s, 0.0) if marks and end_s is not None else None
    death = _death(picture, marks) if marks and silence_s is not None else None
    moving = [pair for pair, grew in pair_moves if grew and _newest(pair, marks) and _reaches(picture, pair, end_s)]
    if moving and death is None:
        grown = Cite("token counters grew between the last two scrapes", moving[0].after.origin)
        return State(False, True, silence_s, (grown,))
    if not marks or silence_s is None:
        flat = [pair for pair, grew in pair_moves if grew is False]
        return _from_counters(picture, flat[0].after.origin) if flat else State(None, None, None, ())
    cites = _silence_cites(marks[-1], silence_s, picture.memo(serving.limit_s))
    if death is not None:
        return State(_outstanding(picture), False, silence_s, (*cites, Cite(death.text[:160], death.origin)))
    if silence_s <= picture.memo(serving.limit_s):
        if (later := picture.memo(_perhaps_later)) is not None:
            says = "taken at an unknown time, perhaps long after the last dated line"
            return State(None, None, silence_s, (*cites, Cite(says, later)))
        return State(False, True, silence_s, cites)
    return State(_outstanding(picture), False, silence_s, cites)


def _perhaps_later(picture: Picture) -> Origin | None:
    """A snapshot without a time: people take stacks of engines that stand still, after the log ended.

    Another source with times that ends with the log, or a GPU seen at work, says that nobody waited long.
    """
    clocked = (seen for kind in (GpuSample, Scrape, HealthProbe, ProcessTable) for seen in picture.all(kind))
    if picture.now_s is not None or any(seen.at_s is not None for seen in clocked):
        return None
    if any(gpu.state == "compute" for gpu in picture.memo(gpus).values()):
        return None
    snapshots = (seen for kind in (Stack, ThreadTable, Ras, FlightTrace) for seen in picture.all(kind))
    return next((seen.origin for seen in snapshots if seen.at_s is None), None)


def _newest(pair: serving.Pair, marks: tuple[timeline.Mark, ...]) -> bool:
    """Whether the scrapes are as new as the log: an early pair says nothing about a later silence."""
    return pair.after.at_s is None or not marks or pair.after.at_s >= marks[-1].at_s - timeline.SILENCE_FLOOR_S


def _reaches(picture: Picture, pair: serving.Pair, end_s: float | None) -> bool:
    """Whether the scrapes reach the end of the evidence: a front end that fell silent shows nothing of now."""
    late = pair.after.at_s is None or end_s is None
    return late or end_s - pair.after.at_s <= picture.memo(serving.limit_s)  # type: ignore[operator]


def _from_counters(picture: Picture, origin: Origin) -> State:
    cites = (Cite("token counters did not grow between the last two scrapes", origin),)
    return State(_outstanding(picture), False, None, cites)


def _silence_cites(last: timeline.Mark, silence_s: float, limit_s: float) -> tuple[Cite, ...]:
    says = (
        f"last progress ({last.kind}) at {clock(last.at_s)}, {silence_s:.0f} s before the end (limit {limit_s:.0f} s)"
    )
    return (Cite(says, last.origin),)


def _outstanding(picture: Picture) -> bool | None:
    load = picture.memo(serving.work)
    if load is not None and (load.running or 0) + (load.waiting or 0) > 0:
        return True
    fired = serving.notices(picture, "watchdog_timeout", "rpc_timeout")
    return True if fired else None if load is None else False


def _death(picture: Picture, marks: tuple[timeline.Mark, ...]) -> Notice | None:
    """A death of the engine that no later progress contradicts.

    A statistics line tells of the ten seconds before it, so one of them after the death is not progress after it.
    """
    for seen in serving.notices(picture, *DEATHS):
        if seen.at_s is None:
            continue
        slack_s = max(picture.memo(serving.limit_s) / timeline.SILENCE_FACTOR, 1.0) + picture.clock_error_s
        if marks[-1].at_s <= seen.at_s + slack_s:
            return seen
    return None


def _stopped(picture: Picture) -> Fact:
    now = picture.memo(state)
    return Fact(value=now.stopped, cites=now.cites) if now.stopped is not None else unknown(PROGRESS)


def _advancing(picture: Picture) -> Fact:
    now = picture.memo(state)
    return Fact(value=now.advancing, cites=now.cites) if now.advancing is not None else unknown(PROGRESS)


def _silence(picture: Picture) -> Fact:
    now = picture.memo(state)
    return Fact(value=round(now.silence_s, 3), cites=now.cites) if now.silence_s is not None else unknown(PROGRESS)


def _interval(picture: Picture) -> Fact:
    marks = picture.memo(serving.marks)
    if len(marks) < 3:
        return unknown("three progress lines of one start")
    limit_s = picture.memo(serving.limit_s)
    learned = picture.memo(timeline.progress).interval_s or limit_s / timeline.SILENCE_FACTOR
    return Fact(value=round(learned, 3), cites=(Cite(f"progress lines every {learned:.2f} s", marks[-1].origin),))


# --- pauses that ended ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pause:
    """A silence with work outstanding that later progress ended."""

    began_s: float
    length_s: float
    before: Origin
    after: Origin


def pauses(picture: Picture) -> tuple[Pause, ...]:
    """Silences of the log beyond the limit, idle gaps left out.

    After an idle gap a new request comes first (a prefill with nothing running); after a freeze the old batch goes on.
    """
    lines = [step for step in picture.memo(serving.steps) if not (isinstance(step, EngineStats) and _quiet(step))]
    limit_s = picture.memo(serving.limit_s)
    found = []
    for before, after in pairwise(lines):
        gap_s = (after.at_s or 0.0) - (before.at_s or 0.0)
        if (
            gap_s > limit_s
            and _goes_on(before, after)
            and serving.completed(picture, before) < serving.batch_size(before)
        ):
            found.append(Pause(before.at_s or 0.0, gap_s, before.origin, after.origin))
    return tuple(found)


def _quiet(stats: EngineStats) -> bool:
    return stats.generation_tps + stats.prompt_tps == 0 and stats.running + stats.waiting > 0


def _goes_on(before: Step, after: Step) -> bool:
    if isinstance(before, EngineStats):
        return before.running + before.waiting > 0
    if isinstance(after, Prefill):
        return bool(after.running)
    if isinstance(before, Prefill):
        return before.new_seqs > 0 and isinstance(after, Decode)
    return bool(before.running)


def _resumed(picture: Picture) -> Fact:
    if len(picture.memo(serving.steps)) < 3:
        return unknown("progress lines before and after a silence")
    found = picture.memo(pauses)
    return Fact(value=bool(found), cites=_pause_cites(found) or _seen_cites(picture))


def _pause_count(picture: Picture) -> Fact:
    if len(picture.memo(serving.steps)) < 3:
        return unknown("progress lines before and after a silence")
    found = picture.memo(pauses)
    return Fact(value=float(len(found)), cites=_pause_cites(found) or _seen_cites(picture))


def _longest(picture: Picture) -> Fact:
    found = picture.memo(pauses)
    if not found:
        return unknown("a silence that ended")
    longest = max(found, key=lambda pause: pause.length_s)
    return Fact(value=longest.length_s, cites=_pause_cites((longest,)))


def _pause_cites(found: tuple[Pause, ...]) -> tuple[Cite, ...]:
    return tuple(
        Cite(f"silent from {clock(pause.began_s)} for {pause.length_s:.0f} s, then it went on", pause.after)
        for pause in found[-6:]
    )


def _seen_cites(picture: Picture) -> tuple[Cite, ...]:
    lines = picture.memo(serving.steps)
    return (Cite(f"{len(lines)} progress lines without such a silence", lines[-1].origin),) if lines else ()


# --- pace ------------------------------------------------------------------------------------------------------


def _slowdown(picture: Picture) -> Fact:
    """Recent rate by request against the best sustained earlier rate at the same batch size."""
    best: tuple[float, Step, float, float] | None = None
    for lines in picture.memo(serving.streams).values():
        found = _pace(lines)
        if found is not None and (best is None or found[0] < best[0]):
            best = (found[0], lines[-1], found[1], found[2])
    if best is None:
        return unknown("a dozen progress lines at one batch size")
    ratio, last, now, earlier = best
    says = f"{now:.1f} tokens/s a request at the end, {earlier:.1f} before at the same batch size"
    return Fact(value=round(ratio, 3), cites=(Cite(says, last.origin),))


def _pace(lines: list[Step]) -> tuple[float, float, float] | None:
    """Ratio, recent rate and best earlier rate of one stream; medians of several lines, one odd line is nothing."""
    rates: dict[int, list[float]] = defaultdict(list)
    order: list[int] = []
    for step in lines[1:]:
        if (found := _rate(step)) is not None:
            rates[found[0]].append(found[1])
            order.append(found[0])
    if not order:
        return None
    size, _ = Counter(order[-2 * WINDOW_LINES :]).most_common(1)[0]
    every = rates[size]
    if len(every) < PACE_LINES_MIN:
        return None
    width = min(len(every) // 3, WINDOW_LINES)
    now = median(every[-width:])
    earlier = max(median(every[start : start + width]) for start in range(0, len(every) - 2 * width + 1, width // 2))
    return (now / earlier, now, earlier) if earlier > 0 else None


def _rate(step: Step) -> tuple[int, float] | None:
    """Batch-size class and tokens/s a request; None for a line that says nothing about pace."""
    if isinstance(step, EngineStats):
        running, tokens = step.running, step.generation_tps if step.prompt_tps == 0 else 0.0
    elif isinstance(step, Decode) and step.throughput is not None:
        running, tokens = step.running or 0, step.throughput
    else:
        return None
    return (round(2 * log2(running)), tokens / running) if running > 0 and tokens > 0 else None


# --- counters --------------------------------------------------------------------------------------------------


def _flat(picture: Picture) -> Fact:
    return _counters(picture, want=False)


def _moving(picture: Picture) -> Fact:
    return _counters(picture, want=True)


def _counters(picture: Picture, *, want: bool) -> Fact:
    """`want` True: counters grew between the last two scrapes. False: they stood still while requests were running."""
    known = [(pair, grew) for pair in picture.memo(serving.pairs) if (grew := serving.moved(pair)) is not None]
    known = [(pair, grew) for pair, grew in known if grew or pair.apart_s is None or pair.apart_s >= APART_S]
    if not known:
        return unknown("two scrapes of the engine's metrics, five seconds apart")
    for pair, grew in known:
        busy = (serving.gauge(pair.after.samples, serving.RUNNING) or 0.0) > 0
        if grew is want and (grew or busy):
            says = "grew" if grew else "stood still with requests running"
            return Fact(value=True, cites=(Cite(f"token counters {says} between two scrapes", pair.after.origin),))
    return Fact(value=False, cites=(Cite("the last two scrapes were compared", known[0][0].after.origin),))


def _seen(picture: Picture) -> Fact:
    """Without it nothing can be said to have happened before or after the stall."""
    t0 = picture.memo(timeline.progress).t0
    if t0 is None:
        return unknown(PROGRESS)
    return Fact(value=True, cites=(Cite(f"last progress ({t0.kind}) at {clock(t0.at_s)}", t0.origin),))


FACTS: tuple[FactSpec, ...] = (
    FactSpec(name="progress.seen", unit="bool", compute=_seen, about="The evidence shows progress, and so its end."),
    FactSpec(name="progress.stopped", unit="bool", compute=_stopped,
             about="Work is outstanding and nothing has progressed for longer than the limit."),
    FactSpec(name="progress.advancing", unit="bool", compute=_advancing,
             about="Progress goes on to within the limit of the end of the evidence."),
    FactSpec(name="progress.silence_s", unit="s", compute=_silence,
             about="Time from the last progress to the end of the evidence."),
    FactSpec(name="progress.interval_s", unit="s", compute=_interval, about="Learned interval between progress lines."),
    FactSpec(name="progress.resumed", unit="bool", compute=_resumed,
             about="A silence beyond the limit with work outstanding ended by itself."),
    FactSpec(name="progress.pauses", unit="count", compute=_pause_count, about="How many such silences ended."),
    FactSpec(name="progress.longest_pause_s", unit="s", compute=_longest, about="The longest silence that ended."),
    FactSpec(name="progress.slowdown", unit="ratio", compute=_slowdown,
             about="Recent pace against the engine's own earlier pace at the same batch size; 1 is unchanged."),
    FactSpec(name="progress.flat_counters", unit="bool", compute=_flat,
             about="Token counters stood still between two scrapes while requests were running."),
    FactSpec(name="progress.moving_counters", unit="bool", compute=_moving,
             about="Token counters grew between the last two scrapes."),
)  # fmt: skip
