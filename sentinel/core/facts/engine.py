"""Facts of the engine's own words: watchdogs, deaths and who died first, pauses, prefill, health.

An engine's time-out and the kill that follows it are consequences of a silence. The first failure is the first
process that raised, was killed or ended before any other; who then complains of a closed peer, a dead engine or a
time-out is a victim.
"""

import re

from sentinel.core import timeline
from sentinel.core.fact import Cite, Fact, FactSpec, unknown
from sentinel.core.facts import _serving as serving
from sentinel.core.facts._failures import Failure, first, hang_killed
from sentinel.core.facts.phases import boot
from sentinel.core.picture import Picture
from sentinel.model.observation import (
    Decode,
    EngineStats,
    HealthProbe,
    Notice,
    Observation,
    Phase,
    Prefill,
    Scrape,
)  # fmt: skip

ENGINE_LOG = "the engine's log"
SCHEDULER_FREE = (
    "/v1/models",
    "/get_model_info",
    "/model_info",
    "/ping",
    "/metrics",
    "/version",
    "/load",
    "/is_paused",
    "/is_sleeping",
)
"""Endpoints that a front end answers without asking its scheduler."""

_REFUSED = re.compile(r"refused|failed to connect|couldn't connect|connection reset|empty reply", re.IGNORECASE)


# --- watchdogs -------------------------------------------------------------------------------------------------


def _watchdog_ranks(picture: Picture) -> Fact:
    if not serving.has_engine_log(picture):
        return unknown(ENGINE_LOG)
    fired = serving.notices(picture, "watchdog_timeout")
    ranks = {_scheduler_rank(picture, seen) for seen in fired}
    cites = tuple(Cite(f"{_who(picture, seen)}: {seen.text[:100]}", seen.origin) for seen in fired[:4])
    return Fact(value=tuple(sorted(rank for rank in ranks if rank is not None)), cites=cites or _looked(picture))


def _scheduler_rank(picture: Picture, seen: Notice) -> int | None:
    """A scheduler without rank tags is the only one there is."""
    rank = picture.rank_of(seen)
    if rank is None and seen.tags is None and seen.fields.get("name") == "Scheduler":
        return 0 if len(timeline.world(picture)) <= 1 else None
    return rank


def _who(picture: Picture, seen: Observation) -> str:
    rank = picture.rank_of(seen)
    return "a process" if rank is None else f"rank {rank}"


def _looked(picture: Picture) -> tuple[Cite, ...]:
    origin = serving.first_origin(picture, Decode, EngineStats, Prefill, Phase, Notice)
    return () if origin is None else (Cite("the engine's log was read", origin),)


def _soft_only(picture: Picture) -> Fact:
    if not serving.has_engine_log(picture):
        return unknown(ENGINE_LOG)
    soft, hard = serving.notices(picture, "soft_watchdog"), serving.notices(picture, "watchdog_timeout")
    cites = tuple(Cite(seen.text[:100], seen.origin) for seen in (*soft[-1:], *hard[-1:]))
    return Fact(value=bool(soft) and not hard, cites=cites or _looked(picture))


# --- who failed first ------------------------------------------------------------------------------------------


def _failed_ranks(picture: Picture) -> Fact:
    if not serving.has_engine_log(picture):
        return unknown(ENGINE_LOG)
    found = () if picture.memo(hang_killed) else picture.memo(first)
    return Fact(
        value=tuple(sorted({failure.rank for failure in found if failure.rank is not None})),
        cites=_failure_cites(picture, found),
    )


def _failed_hosts(picture: Picture) -> Fact:
    if not serving.has_engine_log(picture):
        return unknown(ENGINE_LOG)
    found = () if picture.memo(hang_killed) else picture.memo(first)
    return Fact(
        value=tuple(sorted({failure.host for failure in found if failure.host is not None})),
        cites=_failure_cites(picture, found),
    )


def _failure_cites(picture: Picture, found: tuple[Failure, ...]) -> tuple[Cite, ...]:
    return tuple(
        Cite(f"{_who(picture, failure.seen)}: {failure.says}", failure.seen.origin) for failure in found[:6]
    ) or _looked(picture)


def _failure(picture: Picture) -> Fact:
    found = () if picture.memo(hang_killed) else picture.memo(first)
    if not found:
        return unknown("a message of the process that failed")
    return Fact(value=found[0].how, cites=_failure_cites(picture, found))


def _kill_of_hang(picture: Picture) -> Fact:
    fired = picture.memo(hang_killed)
    if fired is not None:
        return Fact(value=True, cites=(Cite(f"{_who(picture, fired)}: {fired.text[:110]}", fired.origin),))
    found = picture.memo(first)
    if found:
        return Fact(value=False, cites=_failure_cites(picture, found))
    return unknown("a failure or a time-out in the engine's log")


# --- time-outs and health --------------------------------------------------------------------------------------


def _rpc_timeout(picture: Picture) -> Fact:
    if not serving.has_engine_log(picture):
        return unknown(ENGINE_LOG)
    seen = serving.notices(picture, "rpc_timeout")
    return Fact(value=bool(seen), cites=tuple(Cite(one.text[:100], one.origin) for one in seen[:2]) or _looked(picture))


def _shm_waits(picture: Picture, *, booting: bool) -> Fact:
    if not serving.has_engine_log(picture):
        return unknown(ENGINE_LOG)
    now = picture.memo(boot)
    ready_s = min((seen.at_s for seen in now.lines if seen.phase == "ready" and seen.at_s is not None), default=None)
    waits = [seen for seen in serving.notices(picture, "shm_wait") if _in_boot(seen, ready_s, now.ready) is booting]
    cites = tuple(Cite(seen.text[:90], seen.origin) for seen in (*waits[:1], *waits[-1:]))
    return Fact(value=float(len(waits)), cites=cites or _looked(picture))


def _in_boot(seen: Notice, ready_s: float | None, ready: bool) -> bool:
    if ready_s is None or seen.at_s is None:
        return not ready
    return seen.at_s < ready_s


def _shm_waits_serving(picture: Picture) -> Fact:
    return _shm_waits(picture, booting=False)


def _shm_waits_boot(picture: Picture) -> Fact:
    return _shm_waits(picture, booting=True)


def _health_failed(picture: Picture) -> Fact:
    """The newest answer to a health question, from the engine's log or from a prober."""
    asked: list[tuple[float, bool, Observation, str]] = [
        (seen.at_s or 0.0, seen.notice == "health_failed", seen, seen.text[:90])
        for seen in serving.notices(picture, "health_ok", "health_failed")
        if _asks_scheduler(picture, seen)
    ]
    for probe in serving.probes(picture):
        if "/health" in probe.url or "/ping" in probe.url:
            failed = probe.status is None or probe.status >= 500
            asked.append(
                (probe.at_s or 0.0, failed, probe, f"{probe.url}: {probe.status or probe.error[:60] or 'no answer'}")
            )
    if not asked:
        return unknown("a health probe")
    *_, (_, failed, seen, says) = sorted(asked, key=lambda each: each[0])
    return Fact(value=failed, cites=(Cite(says, seen.origin),))


def _asks_scheduler(picture: Picture, seen: Notice) -> bool:
    """A worker node answers health questions with a constant; only a log that shows progress or readiness counts."""
    serving_files = picture.memo(_serving_files)
    return not serving_files or seen.origin.file in serving_files


def _serving_files(picture: Picture) -> frozenset[str]:
    ready = {seen.origin.file for seen in serving.alive(picture, Phase) if seen.phase == "ready"}
    return frozenset(ready | {step.origin.file for step in picture.memo(serving.steps)})


def _frontend_silent(picture: Picture) -> Fact:
    """The front end does not answer questions that it could answer alone; a refused connection is no silence."""
    silent_s, silent = None, None
    for probe in serving.probes(picture):
        if probe.status is None and not _REFUSED.search(probe.error) and _needs_no_scheduler(picture, probe):
            silent_s, silent = probe.at_s, probe
        elif probe.status is not None:
            silent = None
    stalled_s = max((mark.at_s for mark in picture.memo(serving.marks)), default=None)
    if silent is not None:
        later = [seen for seen in _answers(picture) if silent_s is not None and (seen.at_s or 0.0) > silent_s]
        says = f"{silent.url}: no answer in {(silent.latency_ms or 0.0) / 1000:.0f} s"
        return Fact(
            value=not later,
            cites=(Cite(says, silent.origin), *(Cite(seen.text[:80], seen.origin) for seen in later[:1])),
        )
    answered: list[Observation] = [
        seen
        for seen in _answers(picture)
        if stalled_s is None or (seen.at_s or 0.0) > stalled_s + timeline.SILENCE_FLOOR_S
    ]
    answered += [probe for probe in serving.probes(picture) if probe.status is not None]
    if answered:
        return Fact(value=False, cites=(Cite("the front end answers", answered[-1].origin),))
    return unknown("a probe of an endpoint that needs no scheduler (/v1/models, /metrics)")


def _needs_no_scheduler(picture: Picture, probe: HealthProbe) -> bool:
    path = (
        "/" + probe.url.partition("://")[2].partition("/")[2]
        if "://" in probe.url
        else "/" + probe.url.partition("/")[2]
    )
    path = path.partition("?")[0].rstrip("/")
    return path in SCHEDULER_FREE or (path == "/health" and _health_is_constant(picture))


def _health_is_constant(picture: Picture) -> bool:
    """vLLM answers /health without asking its core; SGLang's dialect generates a token for it."""
    return picture.has(EngineStats) or any(seen.engine == "vllm" for seen in serving.alive(picture, Phase))


def _answers(picture: Picture) -> list[Notice]:
    """HTTP answers of any kind in the log, with a time; 503 is an answer too."""
    kinds = ("health_ok", "health_failed", "request", "http_error", "other")
    return [seen for seen in serving.notices(picture, *kinds) if seen.at_s is not None and "path" in seen.fields]


# --- pause and prefill -----------------------------------------------------------------------------------------


def _paused(picture: Picture) -> Fact:
    """The newest pause or sleep has no resume or wake after it and no progress either; or the engine says so itself."""
    if not serving.has_engine_log(picture) and not picture.has(Scrape):
        return unknown("the engine's log or metrics")
    asleep = [scrape for found in picture.memo(serving.scrapes).values() if (scrape := found[-1]) and _asleep(scrape)]
    if asleep:
        return Fact(value=True, cites=(Cite("the engine's metrics say asleep or paused", asleep[0].origin),))
    calls = serving.notices(picture, "pause", "sleep", "resume", "wake")
    if not calls:
        return Fact(value=False, cites=_looked(picture))
    last = calls[-1]
    if last.notice in ("resume", "wake"):
        return Fact(value=False, cites=(Cite(last.text[:100], last.origin),))
    marks = picture.memo(serving.marks) if last.at_s is not None else ()
    later = [mark for mark in marks if _goes_on(picture, mark, last.at_s or 0.0)]
    cites = (Cite(last.text[:100], last.origin), *(Cite("progress after it", mark.origin) for mark in later[-1:]))
    return Fact(value=not later, cites=cites)


def _goes_on(picture: Picture, mark: timeline.Mark, paused_s: float) -> bool:
    """Whether progress is later than what was under way at a pause; a scrape tells of all since the one before it."""
    limit_s = picture.memo(serving.limit_s)
    return mark.at_s > paused_s + (limit_s if mark.kind == "counter" else limit_s / timeline.SILENCE_FACTOR)


def _asleep(scrape: Scrape) -> bool:
    for series, value in scrape.samples.items():
        family, _, labels = series.partition("{")
        if family == "vllm:engine_sleep_state" and value > 0 and 'sleep_state="awake"' not in labels:
            return True
        if family == "sglang:num_paused_reqs" and value > 0:
            return True
    return False


def _batches(picture: Picture) -> list[serving.Step]:
    """Lines of work that users asked for: statistics without tokens and health probes are left out."""
    return [
        step
        for step in picture.memo(serving.steps)
        if not serving.is_probe(step)
        and (not isinstance(step, EngineStats) or step.prompt_tps + step.generation_tps > 0)
    ]


def _is_prefill(step: serving.Step) -> bool:
    if isinstance(step, EngineStats):
        return step.prompt_tps > 0 and step.generation_tps == 0
    return isinstance(step, Prefill) or step.extra.get("num_ctx_tokens", 0.0) > 0


def _prefill_last(picture: Picture) -> Fact:
    lines = _batches(picture)
    if not lines:
        return unknown("progress lines of the engine")
    last = lines[-1]
    return Fact(value=_is_prefill(last), cites=(Cite("the last progress line", last.origin),))


def _prefill_advancing(picture: Picture) -> Fact:
    """Prefill forwards follow one another to the end of the evidence: a long prompt in chunks, or many of them."""
    lines, end_s = _batches(picture), picture.memo(serving.end_s)
    if not lines or end_s is None:
        return unknown("progress lines of the engine")
    tail = lines[-3:]
    fresh = end_s - (tail[-1].at_s or 0.0) <= picture.memo(serving.limit_s)
    value = fresh and len(tail) == 3 and all(_is_prefill(step) for step in tail)
    return Fact(
        value=value, cites=tuple(Cite("prefill" if _is_prefill(step) else "decode", step.origin) for step in tail)
    )


def _prefill_tokens(picture: Picture) -> Fact:
    chunks = [step for step in picture.memo(serving.steps) if isinstance(step, Prefill)]
    if not chunks:
        return unknown("prefill lines of the scheduler")
    last = chunks[-1]
    tokens = last.new_tokens + last.extra.get("#pending-token", 0.0)
    return Fact(value=float(tokens), cites=(Cite(f"{tokens:.0f} tokens in or behind the last prefill", last.origin),))


FACTS: tuple[FactSpec, ...] = (
    FactSpec(name="engine.paused", unit="bool", compute=_paused,
             about="Paused or put to sleep by a call, without a later resume or progress."),
    FactSpec(name="engine.prefill_last", unit="bool", compute=_prefill_last, about="The last progress was a prefill."),
    FactSpec(name="engine.prefill_advancing", unit="bool", compute=_prefill_advancing,
             about="Prefill forwards follow one another to the end of the evidence."),
    FactSpec(name="engine.prefill_tokens", unit="count", compute=_prefill_tokens,
             about="Tokens of the last prefill, with those pending behind it."),
    FactSpec(name="engine.watchdog_ranks", unit="ranks", compute=_watchdog_ranks,
             about="Ranks whose own hard watchdog fired."),
    FactSpec(name="engine.soft_watchdog_only", unit="bool", compute=_soft_only,
             about="Only soft watchdogs fired; they report and kill nothing."),
    FactSpec(name="engine.failed_first_ranks", unit="ranks", compute=_failed_ranks,
             about="Ranks whose process failed first; victims and processes killed for a hang are left out."),
    FactSpec(name="engine.failed_first_hosts", unit="hosts", compute=_failed_hosts,
             about="Hosts of the processes that failed first."),
    FactSpec(name="engine.failure", unit="word", compute=_failure,
             about="How the first one failed: exception, signal, killed, oom, cuda_error, nccl_error or exit."),
    FactSpec(name="engine.failure_is_kill_of_hang", unit="bool", compute=_kill_of_hang,
             about="What ended processes was the engine's own time-out after a silence."),
    FactSpec(name="engine.rpc_timeout", unit="bool", compute=_rpc_timeout,
             about="The engine core gave up waiting for its workers."),
    FactSpec(name="engine.shm_waits", unit="count", compute=_shm_waits_serving,
             about="Notices of waiting for a worker while serving."),
    FactSpec(name="engine.boot_shm_waits", unit="count", compute=_shm_waits_boot,
             about="The same notices during the start, where they are normal."),
    FactSpec(name="engine.health_failed", unit="bool", compute=_health_failed,
             about="The newest health question failed or got no answer."),
    FactSpec(name="engine.frontend_silent", unit="bool", compute=_frontend_silent,
             about="The front end does not answer what it could answer without its scheduler."),
)  # fmt: skip
