"""Who failed first: failures of processes in order of time, without victims and without the engine's own kills."""

from dataclasses import dataclass

from sentinel.core import timeline
from sentinel.core.facts import _serving as serving
from sentinel.core.picture import Picture
from sentinel.model.observation import KernelEvent, Notice, Observation, ProcessExit

FIRST_TOGETHER_S = 1.0
"""Failures within this time of the first one cannot be told apart: log times have a resolution of one second."""

FAILURES = ("exception", "cuda_error", "nccl_error", "worker_died", "subprocess_exit", "exit")
CORE_GONE = ("exited unexpectedly", "died unexpectedly")
"""What a front end of vLLM says of its core's process; other words of a dead engine are complaints."""
HANG_KILLS = ("watchdog_timeout", "rpc_timeout", "collective_timeout", "heartbeat_stuck")
PEER_LOST = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "socketProgress: Connection closed",
)
FRONT_ENDS = ("APIServer", "ApiServer", "TokenizerManager", "DetokenizerManager", "MainProcess", "DPCoordinator")


@dataclass(frozen=True, slots=True)
class Failure:
    """One process that failed, with the word for how."""

    at_s: float
    rank: int | None
    host: str | None
    how: str
    says: str
    seen: Observation


def failures(picture: Picture) -> tuple[Failure, ...]:
    """Failures of ranks in order of time, consequences of a kill and complaints of victims left out."""
    victims = picture.memo(_bereaved)
    every = [*_reported(picture), *_gone(picture), *_oom_killed(picture)]
    found = [failure for failure in every if failure.rank not in victims]
    # What the engine outlived was no failure of it.
    last_s = max((mark.at_s for mark in picture.memo(serving.marks)), default=None)
    limit_s = picture.memo(serving.limit_s)
    fatal = [failure for failure in found if last_s is None or failure.at_s + limit_s >= last_s]
    return tuple(sorted(fatal, key=lambda failure: failure.at_s))


def _bereaved(picture: Picture) -> frozenset[int]:
    """Ranks that complained of a closed connection before they ended: somebody else went first.

    When every rank that failed complains, the one that the others lost is not among them, and nobody is excused.
    """
    complained = {
        rank
        for seen in serving.alive(picture, Notice)
        if (seen.notice == "peer_closed" or any(word in seen.text for word in PEER_LOST))
        and (rank := picture.rank_of(seen)) is not None
    }
    failed = {failure.rank for failure in (*_reported(picture), *_gone(picture)) if failure.rank is not None}
    return frozenset(complained if failed - complained else ())


def _reported(picture: Picture) -> list[Failure]:
    return [
        Failure(seen.at_s, picture.rank_of(seen), seen.host, _how(seen), seen.text[:120], seen)
        for seen in serving.alive(picture, Notice)
        if seen.at_s is not None
        and (_core_gone(seen) or (seen.notice in FAILURES and not _is_consequence(picture, seen)))
    ]


def _core_gone(seen: Notice) -> bool:
    return seen.notice == "engine_dead" and any(words in seen.text for words in CORE_GONE)


def _gone(picture: Picture) -> list[Failure]:
    return [
        Failure(
            gone.at_s, picture.rank_of(gone), gone.host, "killed" if gone.exit_code in (-9, 137) else "exit",
            gone.how[:120], gone,
        )
        for gone in serving.alive(picture, ProcessExit)
        if gone.at_s is not None and timeline.after_kill(picture, gone) is not True
    ]  # fmt: skip


def _oom_killed(picture: Picture) -> list[Failure]:
    return [
        Failure(event.at_s, rank, event.host, "oom", event.text[:120], event)
        for event in serving.alive(picture, KernelEvent)
        if event.event == "oom_kill" and event.at_s is not None and (rank := picture.rank_of(event)) is not None
    ]


def _is_consequence(picture: Picture, seen: Notice) -> bool:
    if seen.fields.get("process", "").startswith(FRONT_ENDS):
        return True
    # The core raises for what happened in a worker; its own exceptions count when no worker failed.
    core = seen.notice in ("exception", "exit") and seen.fields.get("process", "").startswith("EngineCore")
    if core and serving.notices(picture, "worker_died", "rpc_timeout"):
        return True
    return timeline.after_kill(picture, seen) is True


def _how(seen: Notice) -> str:
    if seen.notice in ("cuda_error", "nccl_error", "exception"):
        return seen.notice
    code = seen.fields.get("exit_code", "")
    if seen.notice == "exit":
        return "signal"
    if seen.notice == "engine_dead":
        return "exit"
    if code in ("-9", "137", "SIGKILL"):
        return "killed"
    return "signal" if code.startswith("-") else "exit"


def first(picture: Picture) -> tuple[Failure, ...]:
    """The failures that cannot be told apart from the earliest one, the clearest word first."""
    every = picture.memo(failures)
    if not every:
        return ()
    together = [failure for failure in every if failure.at_s <= every[0].at_s + FIRST_TOGETHER_S]
    known = {failure.rank for failure in together if failure.rank is not None}
    # A death reported by its launcher counts beside the rank's own last words only if it names another rank.
    return tuple(failure for failure in together if failure.rank is not None or not known)


def hang_killed(picture: Picture) -> Notice | None:
    """The engine's own time-out after a silence, when it came before every failure; what died after it is its work."""
    fired = [seen for seen in serving.notices(picture, *HANG_KILLS) if seen.at_s is not None]
    if not fired:
        return None
    every, earliest = picture.memo(failures), min(fired, key=lambda seen: seen.at_s or 0.0)
    marks = [mark.at_s for mark in picture.memo(serving.marks) if mark.at_s <= (earliest.at_s or 0.0)]
    silent = not marks or (earliest.at_s or 0.0) - marks[-1] > timeline.SILENCE_FLOOR_S
    failed_before = every and every[0].at_s < (earliest.at_s or 0.0) - FIRST_TOGETHER_S
    return earliest if silent and not failed_before else None
