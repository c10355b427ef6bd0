"""Shared views for the facts of engines: the last incarnation, the newest scrapes, what was outstanding when.

All values are derived once per state of the picture (`picture.memo`) and are pure.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TypeVar

from sentinel.core import timeline
from sentinel.core.fact import Cite
from sentinel.core.picture import Picture
from sentinel.model.observation import (
    Decode,
    EngineStats,
    HealthProbe,
    Notice,
    Observation,
    Origin,
    Phase,
    Prefill,
    Scrape,
)  # fmt: skip

STARTS_TOGETHER_S = 120.0
"""Processes of one start print their first lines within this time, also on several nodes."""

GAPS_LEARNED = 12
GAPS_NEWEST = 3
SAME_INSTANT_S = 0.5
COMPLETES_WITHIN_S = 5.0
PROBE_TOKENS_MAX = 16
LINES_MAX = 1 << 62

T = TypeVar("T", bound=Observation)
Step = Decode | Prefill | EngineStats

RUNNING = ("sglang:num_running_reqs", "vllm:num_requests_running", "sentinel_engine_running_requests")
WAITING = ("sglang:num_queue_reqs", "vllm:num_requests_waiting", "sentinel_engine_waiting_requests")
COUNTERS = (
    *timeline.TOKEN_COUNTERS, "sglang:generation_tokens_total", "sglang:prompt_tokens_total",
    "sglang:cuda_graph_passes_total",
)  # fmt: skip
"""Counters of finished work; one that grew proves progress, one that did not proves nothing when it counts requests."""


_NUMBER = re.compile(r"(\d+)")


# --- incarnation -----------------------------------------------------------------------------------------------


def since_s(picture: Picture) -> float | None:
    """When the newest start of the engine began; None when no start was seen (the evidence begins later)."""
    starts = [seen.at_s for seen in picture.all(Phase) if seen.phase == "start" and seen.at_s is not None]
    if not starts:
        return None
    newest = max(starts)
    return min(at_s for at_s in starts if newest - at_s <= STARTS_TOGETHER_S)


def _start_lines(picture: Picture) -> dict[str, int]:
    """Line of the newest start in each file, for observations that print no time."""
    since = picture.memo(since_s)
    lines: dict[str, int] = {}
    for seen in picture.all(Phase):
        if seen.phase == "start" and since is not None and seen.at_s is not None:
            if seen.at_s < since:
                lines[seen.origin.file] = LINES_MAX  # until a newer start in this file, all of it is old
            elif lines.get(seen.origin.file, LINES_MAX) == LINES_MAX:
                lines[seen.origin.file] = seen.origin.line or 0
    return lines


def alive(picture: Picture, kind: type[T]) -> Iterator[T]:
    """Observations of the last incarnation: those of earlier starts say nothing about now."""
    since, lines = picture.memo(since_s), picture.memo(_start_lines)
    for seen in picture.all(kind):
        if seen.at_s is not None:
            stale = since is not None and seen.at_s < since - SAME_INSTANT_S
        else:
            stale = (seen.origin.line or 0) < lines.get(seen.origin.file, 0)
        if not stale:
            yield seen


def notices(picture: Picture, *kinds: str) -> list[Notice]:
    """Notices of the last incarnation of these kinds, in order of time where they have one."""
    found = [seen for seen in alive(picture, Notice) if seen.notice in kinds]
    return sorted(found, key=lambda seen: (seen.at_s is not None, seen.at_s or 0.0))


# --- progress --------------------------------------------------------------------------------------------------


def end_s(picture: Picture) -> float | None:
    """End of the evidence, phase lines and bars included."""
    times = [seen.at_s for seen in alive(picture, Phase) if seen.at_s is not None]
    known = timeline.end_s(picture)
    if picture.now_s is not None:
        return picture.now_s
    return max([*times, *([] if known is None else [known])], default=None)


def marks(picture: Picture) -> tuple[timeline.Mark, ...]:
    """Progress of the last incarnation, in order of time."""
    since = picture.memo(since_s)
    every = picture.memo(timeline.progress).marks
    return tuple(mark for mark in every if since is None or mark.at_s >= since - SAME_INSTANT_S)


def limit_s(picture: Picture) -> float:
    """Silence that counts as a stop: the learned limit, widened to six times the gaps just before the silence.

    Chunks of a long prefill and statistics every ten seconds are slower than decode lines; several printers of one
    tick count as one.
    """
    learned = picture.memo(timeline.progress)
    if learned.counted or learned.told is not None:
        return learned.limit_s
    instants: list[float] = []
    for mark in picture.memo(marks):
        if not instants or mark.at_s - instants[-1] >= SAME_INSTANT_S:
            instants.append(mark.at_s)
    recent = instants[-GAPS_LEARNED:]
    gaps = [later - earlier for earlier, later in pairwise(recent)]
    if len(gaps) < 2:
        return learned.limit_s
    # The last few gaps decide when the pace has just changed, as when a long prompt follows short ones.
    pace_s = max(median(gaps), median(gaps[-GAPS_NEWEST:]))
    return max(timeline.SILENCE_FACTOR * pace_s, learned.limit_s)


def steps(picture: Picture) -> tuple[Step, ...]:
    """Progress and statistics lines of the last incarnation that carry a time, in its order."""
    found: list[Step] = [*alive(picture, Decode), *alive(picture, Prefill), *alive(picture, EngineStats)]
    timed = [step for step in found if step.at_s is not None]
    return tuple(sorted(timed, key=lambda step: (step.at_s or 0.0, step.origin)))


Stream = tuple[str | None, int | None, str]


def stream_of(step: Step) -> Stream:
    """Which batch a line speaks of: host, data-parallel index and engine; pipeline stages share one batch."""
    if isinstance(step, EngineStats):
        return (step.host, step.engine_index, "stats")
    return (step.host, None if step.tags is None else step.tags.dp, step.engine)


def streams(picture: Picture) -> dict[Stream, list[Step]]:
    """Lines per batch stream, in order of time."""
    grouped: dict[Stream, list[Step]] = defaultdict(list)
    for step in picture.memo(steps):
        grouped[stream_of(step)].append(step)
    return dict(grouped)


# --- scrapes ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pair:
    """The last two scrapes of one source. `apart_s` is None when they carry no time."""

    before: Scrape
    after: Scrape
    apart_s: float | None


def _natural(file: str) -> tuple[tuple[int, str], ...]:
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in _NUMBER.split(file))


def scrapes(picture: Picture) -> dict[str, list[Scrape]]:
    """Scrapes per source (host, else folder), oldest first: by time where known, else by numbers in the names."""
    grouped: dict[str, list[Scrape]] = defaultdict(list)
    for scrape in alive(picture, Scrape):
        grouped[scrape.host or scrape.origin.file.rpartition("/")[0]].append(scrape)
    for found in grouped.values():
        if all(scrape.at_s is not None for scrape in found):
            found.sort(key=lambda scrape: scrape.at_s or 0.0)
        else:
            found.sort(key=lambda scrape: (_natural(scrape.origin.file), scrape.origin))
    return dict(grouped)


def pairs(picture: Picture) -> tuple[Pair, ...]:
    """The last two scrapes of each source that has two."""
    found = []
    for each in picture.memo(scrapes).values():
        if len(each) >= 2:
            before, after = each[-2:]
            timed = before.at_s is not None and after.at_s is not None
            found.append(Pair(before, after, (after.at_s or 0.0) - (before.at_s or 0.0) if timed else None))
    return tuple(found)


def gauge(samples: Mapping[str, float], families: tuple[str, ...]) -> float | None:
    """Sum of a gauge over its series; None when it is not there. TP ranks of one engine report the same batch once."""
    values: dict[str, float] = {}
    for series, value in samples.items():
        family, _, labels = series.partition("{")
        if family in families:
            key = re.sub(r'(?:tp_rank|pp_rank|moe_ep_rank)="[^"]*",?', "", labels)
            values[key] = max(values.get(key, value), value)
    return sum(values.values()) if values else None


def moved(pair: Pair) -> bool | None:
    """Whether a counter of done work grew between two scrapes; None when neither has such a counter."""
    known = [
        (pair.before.samples[series], value)
        for series, value in pair.after.samples.items()
        if series.partition("{")[0] in COUNTERS and series in pair.before.samples
    ]
    return any(after > before for before, after in known) if known else None


# --- outstanding work ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Work:
    """What was running and waiting at the end of the evidence, and where that is shown."""

    running: int | None
    waiting: int | None
    cites: tuple[Cite, ...]


def work(picture: Picture) -> Work | None:
    """Last known load: the newest scrape when it is newer than the log's progress, else the log's last lines."""
    shown = [found for found in (_scraped(picture), _dumped(picture), _logged(picture)) if found is not None]
    if (accepted := _accepted(picture)) and not (shown and (shown[0].running or shown[0].waiting)):
        says = "an answer began after a silence, and no token was counted around it or since"
        return Work(len(accepted), 0, tuple(Cite(says, seen.origin) for seen in accepted[:4]))
    return shown[0] if shown else None


def _accepted(picture: Picture) -> list[Notice]:
    """Answers that began while scrapes before and long after them show the same counters.

    An engine's gauges are those of its last step, so work given to a frozen idle engine is never in them.
    """
    scraped = sorted(seen.at_s for found in picture.memo(scrapes).values() for seen in found if seen.at_s is not None)
    grown_s = max((mark.at_s for mark in picture.memo(marks)), default=0.0)
    floor_s = timeline.SILENCE_FLOOR_S
    return [
        seen
        for seen in notices(picture, "request")
        if seen.at_s is not None
        and seen.fields.get("path") in timeline.GENERATING
        and grown_s < seen.at_s - floor_s
        and any(seen.at_s - floor_s <= at_s <= seen.at_s for at_s in scraped)
        and scraped[-1] >= seen.at_s + floor_s
    ]


def _scraped(picture: Picture) -> Work | None:
    newest = [found[-1] for found in picture.memo(scrapes).values()]
    last = picture.memo(marks)
    progress_s = max((mark.at_s for mark in last if mark.kind != "counter"), default=None)
    timed = [scrape.at_s for scrape in newest if scrape.at_s is not None]
    if not newest or (progress_s is not None and timed and max(timed) < progress_s):
        return None
    running = [found for scrape in newest if (found := gauge(scrape.samples, RUNNING)) is not None]
    waiting = [found for scrape in newest if (found := gauge(scrape.samples, WAITING)) is not None]
    if not running and not waiting:
        return None
    says = f"newest scrape: running {sum(running):.0f}, waiting {sum(waiting):.0f}"
    return Work(int(sum(running)), int(sum(waiting)), (Cite(says, newest[-1].origin),))


def _dumped(picture: Picture) -> Work | None:
    """Numbers that an ending engine states itself: requests left while draining, statistics dumped at its death."""
    stated = [seen for seen in notices(picture, "other", "request_done") if {"remaining", "running"} & set(seen.fields)]
    progress_s = max((mark.at_s for mark in picture.memo(marks)), default=None)
    if not stated:
        return None
    last = stated[-1]
    if last.at_s is not None and progress_s is not None and last.at_s < progress_s:
        return None
    running = _int(last.fields.get("remaining") or last.fields.get("running"))
    if running is None:
        return None
    says = f"the engine states {running} requests left"
    return Work(running, _int(last.fields.get("waiting")) or 0, (Cite(says, last.origin),))


def _int(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _logged(picture: Picture) -> Work | None:
    # A line that was cut, or of a version that does not print it, does not say how many requests run.
    says_load = [
        [step for step in found if not isinstance(step, Decode) or step.running is not None]
        for found in picture.memo(streams).values()
    ]
    newest = [found[-1] for found in says_load if found]
    if not newest:
        return None
    newest_s = max(last.at_s or 0.0 for last in newest)
    running, waiting, cites = 0, 0, []
    ended: set[Origin] = set()  # an answer ends one request, however many printers were last heard just before it
    for last in newest:
        if newest_s - (last.at_s or 0.0) > 2 * picture.memo(limit_s) and not isinstance(last, EngineStats):
            continue  # a printer that went quiet long before the others has run out of work
        ended.update(seen.origin for seen in _answers(picture, last))
        running += batch_size(last) - _probe_done(picture, last)
        waiting += _waiting(last)
        says = f"last line of {_named(last)}: running {batch_size(last)}, waiting {_waiting(last)}"
        cites.append(Cite(says, last.origin))
    return Work(max(running - len(ended), 0), waiting, tuple(cites[:8]))


def _named(step: Step) -> str:
    if isinstance(step, EngineStats):
        return "the engine's statistics" if step.engine_index is None else f"engine {step.engine_index}"
    return "the scheduler" if step.tags is None or step.tags.dp is None else f"DP{step.tags.dp}"


def batch_size(step: Step) -> int:
    """Requests that the batch of a line holds."""
    if isinstance(step, Prefill):
        return (step.running or 0) + step.new_seqs
    return step.running or 0


def _waiting(step: Step) -> int:
    if isinstance(step, EngineStats):
        return step.waiting
    transfers = sum(step.extra.get(key, 0.0) for key in TRANSFER_KEYS)
    return (step.queued or 0) + int(transfers)


TRANSFER_KEYS = ("#transfer-req", "#prealloc-req", "#inflight-req", "#transferring-req", "#host-receive-req")
"""Requests of a disaggregated engine that are neither running nor queued."""


def completed(picture: Picture, last: Step) -> int:
    """Requests of the last batch whose end is shown right after it; a health probe ends with its prefill."""
    return len(_answers(picture, last)) + _probe_done(picture, last)


def _answers(picture: Picture, last: Step) -> list[Notice]:
    """HTTP answers right after a line: an engine prints nothing when its last request ends.

    An answer long after the last line belongs to a newer request, one above it in the same file to an older one.
    """
    if isinstance(last, EngineStats) or last.at_s is None:
        return []
    window_s = min(max(COMPLETES_WITHIN_S, picture.memo(limit_s) / timeline.SILENCE_FACTOR), picture.memo(limit_s))
    return [
        seen
        for seen in notices(picture, "request", "request_done", "http_error")
        if seen.at_s is not None and seen.engine == last.engine and seen.fields.get("method", "POST") == "POST"
        and 0.0 <= seen.at_s - last.at_s <= window_s and "where" not in seen.fields
        and (seen.origin.file != last.origin.file or (seen.origin.line or 0) >= (last.origin.line or 0))
    ]  # fmt: skip


def _probe_done(picture: Picture, last: Step) -> int:
    return int(is_probe(last) and last.at_s is not None and _answered_probe(picture, last.at_s))


def is_probe(step: Step) -> bool:
    """A health probe is a request of its own to an idle engine: one sequence of a few tokens."""
    if not isinstance(step, Prefill) or step.new_seqs != 1 or step.running or step.queued:
        return False
    return step.new_tokens <= PROBE_TOKENS_MAX


def _answered_probe(picture: Picture, at_s: float) -> bool:
    health = [seen for seen in notices(picture, "health_ok", "health_failed") if seen.at_s is not None]
    after = [seen for seen in health if 0.0 <= (seen.at_s or 0.0) - at_s <= 30.0]
    return bool(after) and after[0].notice == "health_ok"


def probes(picture: Picture) -> list[HealthProbe]:
    """Probes from outside, in order of time where they have one."""
    return sorted(alive(picture, HealthProbe), key=lambda seen: (seen.at_s is not None, seen.at_s or 0.0))


def has_engine_log(picture: Picture) -> bool:
    """Whether any log of an engine was read."""
    return any(picture.has(kind) for kind in (Decode, Prefill, EngineStats, Phase, Notice))


def first_origin(picture: Picture, *kinds: type[Observation]) -> Origin | None:
    """Any place of these kinds, to cite what was looked at when nothing was found."""
    for kind in kinds:
        for seen in picture.all(kind):
            return seen.origin
    return None
