"""Facts of outstanding work: requests, the KV pool, KV transfers, grammar compilation."""

from collections.abc import Iterator, Mapping
from itertools import pairwise

from sentinel.core import timeline
from sentinel.core.fact import Cite, Fact, FactSpec, unknown
from sentinel.core.facts import _serving as serving
from sentinel.core.facts._row_store import STUCK_S as GATHER_STUCK_S
from sentinel.core.facts._row_store import newest_pages, says
from sentinel.core.picture import Picture
from sentinel.model.observation import Decode, EngineStats, Notice, Phase, Prefill, Scrape

LOAD = "the number of running and waiting requests (engine log or metrics)"
SAMPLES_MIN = 3
FULL = 0.9
STUCK_S = 30.0
STUCK_LINES = 5
SCHEMA_WAITS_S = 60.0

TRANSFER_GAUGES = (
    "sglang:num_decode_transfer_queue_reqs", "sglang:num_prefill_inflight_queue_reqs",
)  # fmt: skip
IN_TRANSFER = ("#transfer-req", "#inflight-req", "#transferring-req", "kv_fetch_progress")
USAGE = ("sglang:token_usage", "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
GRAMMAR = ("sglang:num_grammar_queue_reqs",)
SCHEMAS = ("json_schema", "json_object", "regex", "ebnf", "structural_tag", "grammar")


# --- load ------------------------------------------------------------------------------------------------------


def _outstanding(picture: Picture) -> Fact:
    load = picture.memo(serving.work)
    named = picture.memo(unanswered)
    if load is not None and (load.running or 0) + (load.waiting or 0) > 0:
        return Fact(value=True, cites=load.cites)
    if named:
        return Fact(
            value=True, cites=tuple(Cite(f"request {rid} has no answer", seen.origin) for rid, seen in named[:4])
        )
    # Gauges and lines are those of the last step: the first step of a burst that hangs is in neither.
    gathers = {rank: page for rank, page in picture.memo(newest_pages).items() if page.gather_s >= GATHER_STUCK_S}
    if gathers:
        return Fact(value=True, cites=tuple(Cite(says(rank, page), page.origin) for rank, page in gathers.items())[:4])
    return unknown(LOAD) if load is None else Fact(value=False, cites=load.cites)


def _running(picture: Picture) -> Fact:
    load = picture.memo(serving.work)
    return unknown(LOAD) if load is None or load.running is None else Fact(value=float(load.running), cites=load.cites)


def _waiting(picture: Picture) -> Fact:
    load = picture.memo(serving.work)
    return unknown(LOAD) if load is None or load.waiting is None else Fact(value=float(load.waiting), cites=load.cites)


def unanswered(picture: Picture) -> list[tuple[str, Notice]]:
    """Requests that the evidence names and that have no end in it, by id, with the line that names them."""
    asked: dict[str, Notice] = {}
    for seen in serving.alive(picture, Notice):
        rid = seen.fields.get("rid")
        if rid is None:
            continue
        if seen.notice == "request":
            asked[rid] = seen
        elif seen.notice in ("request_done", "request_abort", "http_error", "queue_timeout", "grammar_abort"):
            asked.pop(rid, None)
    progress_s = max((mark.at_s for mark in picture.memo(serving.marks)), default=None)
    return [(rid, seen) for rid, seen in asked.items() if not _superseded(seen, progress_s)]


def _superseded(seen: Notice, progress_s: float | None) -> bool:
    """A batch that a watchdog dumped is no news once the engine went on."""
    return seen.fields.get("where") == "batch" and None not in (seen.at_s, progress_s) and seen.at_s < progress_s  # type: ignore[operator]


def _requests(picture: Picture) -> Fact:
    named = picture.memo(unanswered)
    if not any("rid" in seen.fields for seen in serving.alive(picture, Notice)):
        return unknown("a request log of the engine or its gateway")
    cites = tuple(Cite(f"request {rid} has no answer", seen.origin) for rid, seen in named[:8])
    return Fact(value=tuple(sorted({rid for rid, _ in named})), cites=cites)


def _timed_out(picture: Picture) -> Fact:
    late = [
        seen
        for seen in serving.notices(picture, "request_abort", "queue_timeout")
        if "timed out" in seen.text or seen.notice == "queue_timeout"
    ]
    if not late and not picture.has(Notice):
        return unknown("a request log of the engine or its gateway")
    return Fact(value=float(len(late)), cites=tuple(Cite(seen.text[:120], seen.origin) for seen in late[-3:]))


def waiting_over_time(picture: Picture) -> list[tuple[float, Cite]]:
    """Waiting requests in the newest lines of the fullest queue, then in the scrapes, oldest first."""
    best: list[tuple[float, Cite]] = []
    for lines in picture.memo(serving.streams).values():
        queue = [(_queued(step), Cite(f"waiting {_queued(step):.0f}", step.origin)) for step in lines[-8:]]
        if not best or queue[-1][0] > best[-1][0]:
            best = queue
    for found in picture.memo(serving.scrapes).values():
        for scrape in found[-4:]:
            if (value := serving.gauge(scrape.samples, serving.WAITING)) is not None and scrape.at_s is None:
                best.append((value, Cite(f"waiting {value:.0f}", scrape.origin)))
    return best


def _queued(step: serving.Step) -> float:
    if isinstance(step, EngineStats):
        return float(step.waiting)
    return float(step.queued or 0)


def _growing(picture: Picture) -> Fact:
    queue = picture.memo(waiting_over_time)
    scraped = [
        (before, after, pair)
        for pair in picture.memo(serving.pairs)
        if (before := serving.gauge(pair.before.samples, serving.WAITING)) is not None
        and (after := serving.gauge(pair.after.samples, serving.WAITING)) is not None
    ]
    for before, after, pair in scraped:
        if after > before:
            return Fact(value=True, cites=(Cite(f"waiting {before:.0f}, then {after:.0f}", pair.after.origin),))
    values = [value for value, _ in queue]
    if len(values) < SAMPLES_MIN and not scraped:
        return unknown(LOAD)
    rising = len(values) >= SAMPLES_MIN and values[-1] > values[0] and values == sorted(values)
    return Fact(value=rising, cites=tuple(cite for _, cite in (queue[0], queue[-1])) if queue else ())


# --- KV pool ---------------------------------------------------------------------------------------------------


def pool_tokens(picture: Picture) -> tuple[int, Notice] | None:
    """Size of the KV pool in tokens as the engine prints it at its start."""
    for seen in reversed(serving.notices(picture, "server_args")):
        if seen.fields.get("pool_tokens", "").isdecimal():
            return int(seen.fields["pool_tokens"]), seen
    return None


def _too_big(picture: Picture) -> Fact:
    pool = picture.memo(pool_tokens)
    sized = [(rid, seen) for rid, seen in picture.memo(unanswered) if seen.fields.get("prompt_tokens", "").isdecimal()]
    refused = serving.notices(picture, "request_too_long")
    if (pool is None or not sized) and not refused:
        return unknown("the pool size and the prompt length of the waiting requests")
    found = [] if pool is None else [(rid, seen) for rid, seen in sized if int(seen.fields["prompt_tokens"]) > pool[0]]
    cites = [Cite(f"{rid}: prompt of {seen.fields['prompt_tokens']} tokens", seen.origin) for rid, seen in found]
    if pool is not None:
        cites.append(Cite(f"the pool holds {pool[0]} tokens", pool[1].origin))
    names = {rid for rid, _ in found} | {seen.fields["rid"] for seen in refused if "rid" in seen.fields}
    return Fact(value=tuple(sorted(names)), cites=tuple(cites))


def _blocked(picture: Picture) -> Fact:
    """Waiting requests, nothing running for several samples, and no room: a full pool or a head that never fits."""
    samples = list(_admissions(picture))
    if not samples:
        return unknown(LOAD)
    tail = samples[-SAMPLES_MIN:]
    held = [sample for sample in tail if sample[0] == 0 and sample[1] > 0]
    cites = tuple(cite for *_, cite in tail)
    if len(held) < min(len(tail), 2):
        return Fact(value=False, cites=cites)
    full = any(usage is not None and usage >= FULL for _, _, usage, _ in tail)
    too_big = _too_big(picture)
    return Fact(value=full or bool(too_big.value), cites=(*cites, *too_big.cites))


def _unadmitted(picture: Picture) -> Fact:
    """Whatever the reason: the pool, a limit, or a head of the queue that never fits."""
    tail = list(_admissions(picture))[-SAMPLES_MIN:]
    if len(tail) < SAMPLES_MIN:
        return unknown(LOAD)
    none = all(running == 0 and waiting > 0 for running, waiting, _, _ in tail)
    return Fact(value=none, cites=tuple(cite for *_, cite in tail))


def _admissions(picture: Picture) -> Iterator[tuple[float, float, float | None, Cite]]:
    """(running, waiting, usage of the pool 0..1) of the busiest queue's newest lines, then of the scrapes."""
    lines = max(
        picture.memo(serving.streams).values(),
        key=lambda found: (_queued(found[-1]), found[-1].at_s or 0.0),
        default=[],
    )
    for step in lines[-SAMPLES_MIN:]:
        usage = _usage(step)
        says = f"running {serving.batch_size(step)}, waiting {_queued(step):.0f}" + (
            "" if usage is None else f", pool {100 * usage:.0f} % used"
        )
        yield float(serving.batch_size(step)), _queued(step), usage, Cite(says, step.origin)
    for found in picture.memo(serving.scrapes).values():
        for scrape in found[-SAMPLES_MIN:]:
            running = serving.gauge(scrape.samples, serving.RUNNING)
            waiting = serving.gauge(scrape.samples, serving.WAITING)
            if running is not None and waiting is not None:
                says = f"running {running:.0f}, waiting {waiting:.0f}"
                yield running, waiting, _gauge_max(scrape, USAGE), Cite(says, scrape.origin)


def _usage(step: serving.Step) -> float | None:
    if isinstance(step, EngineStats):
        return None if step.kv_usage_percent is None else step.kv_usage_percent / 100.0
    return step.usage


def _gauge_max(scrape: Scrape, families: tuple[str, ...]) -> float | None:
    return max(
        (value for series, value in scrape.samples.items() if series.partition("{")[0] in families), default=None
    )


def _retracting(picture: Picture) -> Fact:
    """Three retractions or more since generated tokens last grew: the same requests go in and out of the pool."""
    if not picture.has(Decode) and not picture.has(Prefill):
        return unknown("a scheduler log")
    retracted = [seen for seen in serving.notices(picture, "retract") if seen.at_s is not None]
    if not retracted:
        return Fact(value=False, cites=_any_line(picture))
    grew_s = max(
        (
            later.at_s or 0.0
            for lines in picture.memo(serving.streams).values()
            for earlier, later in pairwise(step for step in lines if isinstance(step, Decode))
            if (later.tokens or 0) > (earlier.tokens or 0)
        ),
        default=0.0,
    )
    late = [seen for seen in retracted if (seen.at_s or 0.0) > grew_s]
    cites = tuple(Cite(seen.text[:120], seen.origin) for seen in retracted[-3:])
    return Fact(value=len(late) >= SAMPLES_MIN, cites=cites)


def _any_line(picture: Picture) -> tuple[Cite, ...]:
    lines = picture.memo(serving.steps)
    return (Cite(f"{len(lines)} progress lines were looked at", lines[-1].origin),) if lines else ()


# --- KV transfer -----------------------------------------------------------------------------------------------


def _transfer_waiting(picture: Picture) -> Fact:
    counted = [
        (sum(_transfers(lines[-1]).values()), lines[-1])
        for lines in picture.memo(serving.streams).values()
        if _transfers(lines[-1])
    ]
    gauges = [
        (value, found[-1])
        for found in picture.memo(serving.scrapes).values()
        if (value := serving.gauge(found[-1].samples, TRANSFER_GAUGES)) is not None
    ]
    if not counted and not gauges:
        return unknown("transfer queues of a disaggregated engine")
    shown: list[tuple[float, Decode | Prefill | EngineStats | Scrape]] = [*counted, *gauges]
    value, where = max(shown, key=lambda each: each[0])
    return Fact(value=value, cites=(Cite(f"{value:.0f} requests in transfer", where.origin),))


def _transfers(step: serving.Step) -> Mapping[str, float]:
    return {key: step.extra[key] for key in IN_TRANSFER if key in step.extra}


def _transfer_stuck(picture: Picture) -> Fact:
    """Transfers that never decrease over many lines while the scheduler's loop runs, or equal gauges in two scrapes."""
    known = False
    for lines in picture.memo(serving.streams).values():
        tail = [(step, sum(_transfers(step).values())) for step in lines if _transfers(step)]
        known = known or bool(tail)
        stuck = _never_falls(tail)
        if stuck is not None:
            says = f"{stuck[1]:.0f} requests in transfer, never fewer for {stuck[2]:.0f} s"
            return Fact(value=True, cites=(Cite(says, stuck[0].origin), Cite("newest line", tail[-1][0].origin)))
    if known:
        return Fact(value=False, cites=_any_line(picture))
    for pair in picture.memo(serving.pairs):
        before = serving.gauge(pair.before.samples, TRANSFER_GAUGES)
        after = serving.gauge(pair.after.samples, TRANSFER_GAUGES)
        if before is not None and after is not None:
            says = f"{before:.0f}, then {after:.0f} requests in transfer queues"
            return Fact(value=after >= before > 0, cites=(Cite(says, pair.after.origin),))
    return unknown("transfer queues of a disaggregated engine")


def _never_falls(tail: list[tuple[serving.Step, float]]) -> tuple[serving.Step, float, float] | None:
    """Longest end of the lines over which the number in transfer never falls; None when it is short or zero."""
    if not tail or tail[-1][1] <= 0:
        return None
    start = len(tail) - 1
    while start > 0 and 0 < tail[start - 1][1] <= tail[start][1]:
        start -= 1
    span_s = (tail[-1][0].at_s or 0.0) - (tail[start][0].at_s or 0.0)
    same = [step for step, value in tail[start:] if value == tail[-1][1]]
    same_s = (tail[-1][0].at_s or 0.0) - (same[0].at_s or 0.0)
    if len(tail) - start < STUCK_LINES or same_s < STUCK_S:
        return None
    return tail[start][0], tail[-1][1], span_s


# --- grammar ---------------------------------------------------------------------------------------------------


def _grammar_waiting(picture: Picture) -> Fact:
    """A grammar queue that is not empty, or a request with a schema that has waited long without an answer."""
    queued = [
        (value, found[-1])
        for found in picture.memo(serving.scrapes).values()
        if (value := serving.gauge(found[-1].samples, GRAMMAR)) is not None
    ]
    for value, scrape in queued:
        if value > 0:
            return Fact(value=True, cites=(Cite(f"{value:.0f} requests in the grammar queue", scrape.origin),))
    end_s = picture.memo(serving.end_s)
    asked = [(rid, seen) for rid, seen in picture.memo(unanswered) if seen.fields.get("response_format") in SCHEMAS]
    for rid, seen in asked:
        if seen.at_s is None or end_s is None or end_s - seen.at_s >= SCHEMA_WAITS_S:
            depth = seen.fields.get("schema_depth")
            says = (
                f"request {rid} with a schema" + ("" if depth is None else f" {depth} levels deep") + " has no answer"
            )
            return Fact(value=True, cites=(Cite(says, seen.origin),))
    if not queued and not any("response_format" in seen.fields for seen in serving.alive(picture, Notice)):
        return unknown("the grammar queue in the metrics, or a request log with response formats")
    return Fact(value=False, cites=tuple(Cite("the grammar queue is empty", scrape.origin) for _, scrape in queued[:1]))


def _grammar_aborts(picture: Picture) -> Fact:
    """Ranks whose scheduler aborted a request for its grammar at or before the last progress."""
    if not any(picture.has(kind) for kind in (Decode, Prefill, Phase, EngineStats)):
        return unknown("a scheduler log")
    early = [
        (rank, seen)
        for seen in serving.notices(picture, "grammar_abort")
        if timeline.before_stall(picture, seen) is not False and (rank := picture.rank_of(seen)) is not None
    ]
    cites = tuple(Cite(f"rank {rank}: {seen.text[:100]}", seen.origin) for rank, seen in early[:4])
    return Fact(value=tuple(sorted({rank for rank, _ in early})), cites=cites or _any_line(picture))


FACTS: tuple[FactSpec, ...] = (
    FactSpec(name="work.outstanding", unit="bool", compute=_outstanding,
             about="Requests are running, queued or unanswered at the end of the evidence."),
    FactSpec(name="work.running", unit="count", compute=_running, about="Requests running at last sight."),
    FactSpec(name="work.waiting", unit="count", compute=_waiting, about="Requests waiting at last sight."),
    FactSpec(name="work.queue_growing", unit="bool", compute=_growing, about="The queue grows towards the end."),
    FactSpec(name="work.requests", unit="requests", compute=_requests,
             about="Ids of requests that the evidence names and that have no answer in it."),
    FactSpec(name="work.timed_out", unit="count", compute=_timed_out,
             about="Requests that a gateway or a queue limit gave up on."),
    FactSpec(name="kv.blocked", unit="bool", compute=_blocked,
             about="Requests wait, nothing runs, and the pool is full or too small for the head of the queue."),
    FactSpec(name="kv.unadmitted", unit="bool", compute=_unadmitted,
             about="Requests wait and none runs, in several lines or scrapes in a row."),
    FactSpec(name="kv.request_too_big", unit="requests", compute=_too_big,
             about="Unanswered requests whose prompt is larger than the KV pool."),
    FactSpec(name="kv.retracting", unit="bool", compute=_retracting,
             about="Retractions repeat while the generated tokens stand still."),
    FactSpec(name="kv.transfer_stuck", unit="bool", compute=_transfer_stuck,
             about="KV transfers are outstanding and none completes."),
    FactSpec(name="kv.transfer_waiting", unit="count", compute=_transfer_waiting, about="Requests in KV transfer."),
    FactSpec(name="grammar.waiting", unit="bool", compute=_grammar_waiting,
             about="A request waits for its grammar or schema to be compiled."),
    FactSpec(name="grammar.abort_ranks", unit="ranks", compute=_grammar_aborts,
             about="Ranks that aborted a request for its grammar before progress ended."),
)  # fmt: skip
