"""Effects as log events: one canonical line each, the same fields that metrics and bundles use."""

from typing import Any

import structlog

from sentinel.model.effect import AnyEffect, Cleared, Judged, Recovered, StartCapture, Suspected
from sentinel.model.stamp import Stamp


def words(effect: AnyEffect) -> str:
    """One effect in words, for people."""
    match effect:
        case Suspected():
            said = f"suspected: {effect.silence_s:.1f} s of silence, limit {effect.limit_s:.1f} s; {effect.why}"
        case Cleared():
            said = f"suspicion cleared after {effect.silence_s:.1f} s"
        case StartCapture():
            said = f"capture of at most {effect.budget_s:.0f} s begins: {effect.why}"
        case Judged(verdict=verdict):
            whom = f", culprits {list(verdict.culprits.ranks)}" if verdict.culprits.ranks else ""
            said = f"verdict {verdict.kind} ({verdict.confidence}){whom}: {verdict.summary}"
        case Recovered():
            said = f"closed after {effect.lasted_s:.1f} s: {effect.why}"
        case _:
            said = "evidence kept"
    return f"{effect.incident}: {said}"


def log_effect(at: Stamp, effect: AnyEffect) -> None:
    """Write one effect to the log."""
    del at
    log: Any = structlog.get_logger().bind(engine=effect.engine, incident=effect.incident)
    match effect:
        case Suspected():
            log.warning("stall_suspected", silence_s=effect.silence_s, limit_s=effect.limit_s, why=effect.why)
        case Cleared():
            log.info("suspicion_cleared", silence_s=effect.silence_s)
        case StartCapture():
            log.warning("capture_started", budget_s=effect.budget_s, why=effect.why)
        case Judged(verdict=verdict):
            log.warning(
                "verdict",
                kind=verdict.kind,
                confidence=verdict.confidence,
                stalled=verdict.stalled,
                culprits=list(verdict.culprits.ranks),
                culprit_pids=list(verdict.culprits.pids),
                victims=list(verdict.victims.ranks),
                summary=verdict.summary,
                actions=[action.action for action in verdict.actions],
                do_not=[action.action for action in verdict.do_not],
            )
        case Recovered():
            log.info("incident_closed", why=effect.why, lasted_s=effect.lasted_s)
        case _:
            log.info("incident_kept")
