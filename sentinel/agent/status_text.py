"""A status record in words, for terminals without a live view."""

from collections.abc import Iterator
from itertools import groupby

from sentinel.agent.readiness import Check
from sentinel.agent.status import EngineStatus, SourceStatus, Status


def told(status: Status) -> Iterator[str]:
    """Lines from the engines down to what is missing."""
    yield f"agent {status.version}, pid {status.agent.pid}, {status.near_misses} near misses"
    yield from (f"  trouble: {trouble}" for trouble in status.troubles)
    if not status.engines:
        yield "no engine is running on this host"
    for engine in status.engines:
        yield from _engine(engine)
    yield "sources"
    yield from (f"  {line}" for line in map(_source, status.sources))
    missing = [check for check in status.readiness if not check.ok]
    yield f"evidence: {len(status.readiness) - len(missing)} of {len(status.readiness)} checks passed"
    for (what, says, fix), checks in groupby(sorted(missing, key=_key), key=_key):
        ranks = sorted({check.rank for check in checks if check.rank is not None})
        whom = f" (ranks {', '.join(map(str, ranks))})" if ranks else ""
        yield f"  missing: {what}{whom}: {says}"
        if fix:
            yield f"           {fix}"


def _key(check: Check) -> tuple[str, str, str]:
    # The kernel's words name each rank's own file; the reason is what is alike.
    return check.what, check.says.rpartition(": ")[2], check.fix


def _engine(engine: EngineStatus) -> Iterator[str]:
    ranks = [process for process in engine.processes if process.role == "rank"]
    yield f"{engine.adapter} {engine.key}: {engine.serving}, {engine.phase}, {len(ranks)} ranks on this host"
    if engine.silence_s is not None:
        pace = "" if engine.interval_s is None else f", a line every {engine.interval_s:.1f} s"
        yield f"  last progress {engine.silence_s:.1f} s ago, suspected after {engine.limit_s or 0.0:.1f} s{pace}"
    yield f"  requests: {_number(engine.running)} running, {_number(engine.waiting)} waiting"
    if engine.deadline is not None:
        span = f"{engine.deadline.earliest_s:.0f} to {engine.deadline.latest_s:.0f} s"
        yield f"  the engine ends itself {span} after its last progress ({engine.deadline.why})"
    for process in ranks:
        yield f"  rank {_number(process.rank)}: pid {process.id.pid}, log {process.log or 'not found'}"
    if engine.incident:
        yield f"  incident {engine.incident}"
    if engine.verdict is not None:
        yield f"  verdict {engine.verdict.kind} ({engine.verdict.confidence}): {engine.verdict.summary}"


def _source(source: SourceStatus) -> str:
    lost = f", {source.lost_bytes} bytes lost" if source.lost_bytes else ""
    down = f", in quarantine for {source.quarantined_for_s:.0f} s" if source.quarantined_for_s else ""
    why = f": {source.why}" if source.why else ""
    return f"{source.name}: {source.said} observations, {source.failures} failures{lost}{down}{why}"


def _number(value: int | None) -> str:
    return "?" if value is None else str(value)
