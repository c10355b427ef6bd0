"""What can go otherwise in the row-store drill, and what has to come of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from sentinel.model.group import AckOutcome
from sentinel.testing.packaged.engine import STALL_COUNT

Victim = Literal["", "agent", "coordinator"]
Phase = Literal["", "capture", "stop", "start", "proving"]
Obstacle = Literal["", "no_room", "port_taken", "ordered_restart", "paused"]
End = Literal["closed", "page", "refused"]
PHASES: tuple[Phase, ...] = ("capture", "stop", "start", "proving")
LEGACY, RAM = "legacy", "ram"
EITHER = (LEGACY, RAM)
"""Without stacks nobody can tell that the interpreter lock is free, and RAM is not advised."""
TOO_LARGE = 1 << 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One way through the drill, with its expectations.

    `policy`, `store`: settings laid over those of the drill. `obstacle`: what the drill puts in the way. `victim` is
    killed in `phase` and started again. `ends`: how the incident has to end; `closings`: how many have to; `guard`: the
    one reason that must stand against acting; `says`: words that a notice must have. `stops`: outcomes of the commands
    to stop. `launches`: of the engine, the first included. `modes`: the row store's at the end, any of them.
    """

    name: str
    about: str
    policy: Mapping[str, Any] = field(default_factory=dict)
    store: Mapping[str, Any] = field(default_factory=dict)
    stall_count: int = STALL_COUNT
    obstacle: Obstacle = ""
    victim: Victim = ""
    phase: Phase = ""
    ends: End = "closed"
    closings: int = 1
    guard: str = ""
    stops: tuple[AckOutcome, ...] = ("done",)
    launches: int = 2
    relaunches: int = 1
    modes: tuple[str, ...] = (RAM,)
    says: str = ""
    keeps_evidence: bool = True

    @property
    def acts(self) -> bool:
        """Whether the hanging engine has to be stopped."""
        return bool(self.stops)


PLAIN = Variant(name="plain", about="captured, judged, stopped, started in RAM mode, and serving again")


def _killed(victim: Victim, phase: Phase) -> Variant:
    when = {"capture": "evidence is taken", "stop": "the engine is stopped", "start": "the engine is started"}
    words = f"the {victim} is killed while {when.get(phase, 'the restart is proved')}, and started again"
    modes = EITHER if (victim, phase) == ("agent", "capture") else (RAM,)
    return Variant(name=f"{victim}-{phase}", about=words, victim=victim, phase=phase, modes=modes)


VARIANTS: tuple[Variant, ...] = (
    PLAIN,
    Variant(
        name="unblock",
        about="one read hangs: the lane is unblocked, a batch fails, the store goes to RAM, nothing is restarted",
        policy={"unblock_first": True},
        stall_count=1,
        closings=2,
        stops=(),
        launches=1,
        relaunches=0,
    ),
    Variant(
        name="no-capture",
        about="evidence cannot be kept: it is lost and no reason to leave the engine stuck",
        obstacle="no_room",
        modes=EITHER,
        keeps_evidence=False,
    ),
    Variant(
        name="unverified-stop",
        about="the engine's port is taken at once: the stop cannot be proved, nothing is started, a person is paged",
        obstacle="port_taken",
        ends="page",
        stops=("unverified",),
        launches=1,
        relaunches=0,
        says="could not be verified",
    ),
    Variant(
        name="no-room-in-ram",
        about="RAM would not hold the store: the mode stays, and the reason is said",
        store={"bytes": TOO_LARGE},
        modes=(LEGACY,),
        says="does not fit",
    ),
    Variant(
        name="budget-spent",
        about="the one restart that policy allows was used by a person: nothing is done",
        policy={"restarts_max": 1},
        obstacle="ordered_restart",
        ends="refused",
        guard="budget",
        stops=(),
        relaunches=1,
        modes=(LEGACY,),
    ),
    Variant(
        name="paused",
        about="actions are paused: evidence is taken and judged, nothing is done",
        obstacle="paused",
        ends="refused",
        guard="paused",
        stops=(),
        launches=1,
        relaunches=0,
        modes=(LEGACY,),
    ),
    *(_killed("agent", phase) for phase in PHASES),
    *(_killed("coordinator", phase) for phase in PHASES),
)


def named(name: str) -> Variant | None:
    """The variant of that name."""
    return next((variant for variant in VARIANTS if variant.name == name), None)
