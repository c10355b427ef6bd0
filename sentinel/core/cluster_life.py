"""The life of a group's incident as one table. Illegal transitions raise and change nothing."""

from enum import Enum

from sentinel.core.incident import IllegalTransition


class GroupPhase(Enum):
    """Where a group stands."""

    CALM = "calm"
    SUSPECTED = "suspected"
    CAPTURING = "capturing"
    READING = "reading"
    JUDGED = "judged"
    ACTING = "acting"
    PROVING = "proving"
    HALTED = "halted"


class GroupCue(Enum):
    """What can happen to it."""

    SUSPECT = "a host suspects"
    CAPTURE = "a host captures"
    CAPTURED = "every host acknowledged its capture"
    JUDGE = "the evidence of all hosts was judged"
    PROGRESS = "progress came back"
    GONE = "no host runs the engine"
    AGAIN = "the evidence did not decide"
    ACT = "policy allows a plan"
    ORDER = "a person orders a plan"
    CARRIED_OUT = "every step was acknowledged"
    NOTHING_TO_DO = "the plan found nothing left to do"
    PROVED = "progress shows that it worked"
    ROLL_BACK = "a switch failed half-way"
    NOT_ENOUGH = "a remedy was withdrawn or not enough"
    FAILED = "a step failed or could not be verified"
    RELEASED = "a person releases it"


P, C = GroupPhase, GroupCue
GROUP_LIFE: dict[tuple[GroupPhase, GroupCue], GroupPhase] = {
    (P.CALM, C.SUSPECT): P.SUSPECTED,
    (P.CALM, C.ORDER): P.ACTING,
    (P.SUSPECTED, C.PROGRESS): P.CALM,
    (P.SUSPECTED, C.GONE): P.CALM,
    (P.SUSPECTED, C.CAPTURE): P.CAPTURING,
    (P.SUSPECTED, C.ORDER): P.ACTING,
    (P.CAPTURING, C.CAPTURED): P.READING,
    (P.CAPTURING, C.PROGRESS): P.CALM,
    (P.CAPTURING, C.GONE): P.CALM,
    (P.READING, C.JUDGE): P.JUDGED,
    (P.READING, C.PROGRESS): P.CALM,
    (P.READING, C.GONE): P.CALM,
    (P.JUDGED, C.PROGRESS): P.CALM,
    (P.JUDGED, C.GONE): P.CALM,
    (P.JUDGED, C.AGAIN): P.CAPTURING,
    (P.JUDGED, C.ACT): P.ACTING,
    (P.JUDGED, C.ORDER): P.ACTING,
    (P.ACTING, C.CARRIED_OUT): P.PROVING,
    (P.ACTING, C.NOTHING_TO_DO): P.CALM,
    (P.ACTING, C.ROLL_BACK): P.ACTING,
    (P.ACTING, C.NOT_ENOUGH): P.JUDGED,
    (P.ACTING, C.FAILED): P.HALTED,
    (P.PROVING, C.PROVED): P.CALM,
    (P.PROVING, C.NOT_ENOUGH): P.JUDGED,
    (P.PROVING, C.FAILED): P.HALTED,
    (P.HALTED, C.PROGRESS): P.CALM,
    (P.HALTED, C.RELEASED): P.CALM,
}

OPEN = frozenset(GroupPhase) - {GroupPhase.CALM}


def advance_group(phase: GroupPhase, cue: GroupCue) -> GroupPhase:
    """The phase after a cue. Raises IllegalTransition."""
    try:
        return GROUP_LIFE[phase, cue]
    except KeyError:
        raise IllegalTransition(f"a group that is {phase.value} cannot take: {cue.value}") from None


def table() -> str:
    """The table as Markdown, for the manual."""
    rows = [f"| {phase.value} | {cue.value} | {after.value} |" for (phase, cue), after in GROUP_LIFE.items()]
    return "\n".join(["| a group that is | when | becomes |", "|---|---|---|", *rows])
