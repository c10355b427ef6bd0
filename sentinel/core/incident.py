"""The life of an incident as one table. Illegal transitions raise and change nothing."""

from enum import Enum


class Phase(Enum):
    """Where an engine stands."""

    WATCHING = "watching"
    SUSPECTED = "suspected"
    CAPTURING = "capturing"
    JUDGED = "judged"


class Cue(Enum):
    """What can happen to it."""

    OVERDUE = "overdue"
    PROGRESS = "progress"
    CAPTURE_DUE = "capture due"
    DIED = "died"
    CAPTURED = "captured"
    GONE = "gone"


LIFE: dict[tuple[Phase, Cue], Phase] = {
    (Phase.WATCHING, Cue.OVERDUE): Phase.SUSPECTED,
    (Phase.WATCHING, Cue.DIED): Phase.CAPTURING,
    (Phase.SUSPECTED, Cue.PROGRESS): Phase.WATCHING,
    (Phase.SUSPECTED, Cue.CAPTURE_DUE): Phase.CAPTURING,
    (Phase.SUSPECTED, Cue.DIED): Phase.CAPTURING,
    (Phase.CAPTURING, Cue.CAPTURED): Phase.JUDGED,
    (Phase.JUDGED, Cue.PROGRESS): Phase.WATCHING,
    (Phase.WATCHING, Cue.GONE): Phase.WATCHING,
    (Phase.SUSPECTED, Cue.GONE): Phase.WATCHING,
    (Phase.JUDGED, Cue.GONE): Phase.WATCHING,
}


class IllegalTransition(Exception):
    """A cue that makes no sense in this phase: a bug of the caller."""


def advance(phase: Phase, cue: Cue) -> Phase:
    """The phase after a cue. Raises IllegalTransition."""
    try:
        return LIFE[phase, cue]
    except KeyError:
        raise IllegalTransition(f"{phase.value} cannot take {cue.value}") from None
