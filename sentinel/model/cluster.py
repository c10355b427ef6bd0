"""Events and effects of the coordinator's core, its settings and the state that outlives it."""

from typing import Literal

import msgspec

from sentinel.model.group import Ack, Command, GroupSpec, HostReport, Verb
from sentinel.model.observation import AnyObservation
from sentinel.model.stamp import Stamp
from sentinel.model.verdict import Verdict

Mode = Literal["observe", "approve", "auto"]
Severity = Literal["info", "warning", "critical"]
OrderVerb = Literal[
    "pause", "resume", "policy", "approve", "restart", "store", "unblock", "breaker_reset", "feedback", "maintenance"
]
PlanKind = Literal["restart", "unblock", "store"]


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Policy as configured; seconds. The mode may be changed at run time, the rest may not.

    `backoff_s`: quiet time before the first, second, third … restart inside the window. `hold_s`: how long a group must
    stand still before anything is done to it. `calm_s`: healthy time after which earlier restarts are forgotten by the
    back-off (the budget still counts them).
    """

    mode: Mode = "observe"
    hold_s: float = 120.0
    restarts_max: int = 3
    window_s: float = 3600.0
    backoff_s: tuple[float, ...] = (0.0, 60.0, 300.0)
    calm_s: float = 1800.0
    groups_at_once: int = 2
    groups_share: float = 0.2
    storm_share: float = 0.2
    storm_groups: int = 5
    storm_s: float = 600.0
    jump_s: float = 300.0
    young_s: float = 30.0
    approval_s: float = 900.0
    store_to_ram: bool = True
    store_revert_s: float = 0.0
    store_window_s: float = 1800.0
    unblock_first: bool = True


class Delays(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long the coordinator waits for others; seconds."""

    late_s: float = 15.0
    silent_s: float = 45.0
    resend_s: float = 5.0
    capture_s: float = 30.0
    recapture_s: float = 60.0
    probe_s: float = 30.0
    stop_s: float = 110.0
    start_s: float = 1800.0
    ready_s: float = 1800.0
    store_s: float = 600.0
    unblock_s: float = 30.0
    prove_s: float = 120.0


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One barrier of a plan: a verb that all named hosts must acknowledge before the next step begins."""

    name: str
    verb: Verb
    hosts: tuple[str, ...]
    limit_s: float
    args: dict[str, str] = {}


class Plan(msgspec.Struct, kw_only=True):
    """A plan in progress. Its steps are fixed when it is made; `at` and `acks` say how far it has come."""

    id: str
    kind: PlanKind
    cause: str
    incarnations: dict[str, str]
    steps: tuple[Step, ...]
    at: int = 0
    step_began_s: float = 0.0
    sent_s: float | None = None
    acks: dict[str, Ack] = {}
    store_mode: str = ""
    store_before: dict[str, str] = {}
    by: str = ""
    rollback: bool = False


class Exposure(msgspec.Struct, kw_only=True):
    """How long a group served in one row-store mode, and how often it stalled there."""

    served_s: float = 0.0
    stalls: int = 0


class GroupState(msgspec.Struct, kw_only=True):
    """What must outlive the coordinator about one group. Times are monotonic seconds of `ClusterState.saved`."""

    phase: str = "calm"
    incident: str = ""
    number: int = 0
    captures: dict[str, Ack] = {}
    captures_sent_s: float | None = None
    rounds: int = 1
    judged_s: float = 0.0
    captures_began_s: float = 0.0
    incarnations: dict[str, str] = {}
    opened_there_s: dict[str, float] = {}
    verdict: Verdict | None = None
    refusals: tuple[str, ...] = ()
    plan: Plan | None = None
    proving_s: float = 0.0
    tried: tuple[str, ...] = ()
    restarts: list[float] = []
    relaunches: dict[str, int] = {}
    breaker: str = ""
    asked_kind: str = ""
    """The class that a person was told of: an approval is for that one."""
    approved_by: str = ""
    approved_s: float = 0.0
    store_mode: str = ""
    toggled_s: float | None = None
    auto_toggled: bool = False
    exposure: dict[str, Exposure] = {}
    feedback: dict[str, str] = {}
    store_wanted: str = ""
    mode_refused: bool = False
    told_guards: tuple[str, ...] = ()


class ClusterState(msgspec.Struct, kw_only=True):
    """Everything that a new coordinator needs to go on. Saved before any effect is carried out."""

    saved: Stamp
    mode: Mode | None = None
    paused_until_s: float | None = None
    paused_why: str = ""
    breaker: str = ""
    maintenance: dict[str, str] = {}
    suspected: list[tuple[float, str]] = []
    groups: dict[str, GroupState] = {}
    orders_after: int = 0


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What a person asked for. `group` also names a host for `maintenance`, and an incident for `feedback`."""

    id: str
    verb: OrderVerb
    reason: str
    by: str
    group: str = ""
    value: str = ""
    seconds: float = 0.0
    dry_run: bool = False


class ClusterEvent(msgspec.Struct, frozen=True, kw_only=True, tag_field="event"):
    """Base: when the coordinator received it."""

    at: Stamp


class Leading(ClusterEvent, frozen=True, kw_only=True, tag="leading"):
    """This coordinator holds the lease with this epoch; `state` is what its predecessor saved."""

    epoch: int
    limits: Limits
    delays: Delays
    groups: tuple[GroupSpec, ...]
    state: ClusterState | None = None


class Beat(ClusterEvent, frozen=True, kw_only=True, tag="beat"):
    """Time passed, and the lease was renewed this often."""

    beat: int


class Reported(ClusterEvent, frozen=True, kw_only=True, tag="reported"):
    """A new heartbeat of a host."""

    report: HostReport


class Acked(ClusterEvent, frozen=True, kw_only=True, tag="acked"):
    """A host says what came of a command."""

    ack: Ack


class Ordered(ClusterEvent, frozen=True, kw_only=True, tag="ordered"):
    """A person asks for something. `number` is the order's place in the log of orders, which only grows.

    `stale`: it was given before this coordinator began, so nobody knows whether it is still meant.
    """

    order: Order
    number: int
    stale: bool = False


class EvidenceRead(ClusterEvent, frozen=True, kw_only=True, tag="evidence_read"):
    """What the captures of a group show, by host; a host whose evidence could not be read is absent."""

    group: str
    incident: str
    by_host: dict[str, tuple[AnyObservation, ...]]


AnyClusterEvent = Leading | Beat | Reported | Acked | Ordered | EvidenceRead


class ClusterEffect(msgspec.Struct, frozen=True, kw_only=True, tag_field="effect"):
    """Base of what the coordinator's core asks for."""


class Send(ClusterEffect, frozen=True, kw_only=True, tag="send"):
    """Put a command into its host's slot."""

    command: Command


class ReadEvidence(ClusterEffect, frozen=True, kw_only=True, tag="read_evidence"):
    """Fetch the captures (host -> digest) and answer with `EvidenceRead`."""

    group: str
    incident: str
    digests: dict[str, str]


class Told(ClusterEffect, frozen=True, kw_only=True, tag="told"):
    """A change that people are told of, once. `key` is unique to the change; `what` is a constant name."""

    what: str
    key: str
    severity: Severity
    words: str
    group: str = ""
    incident: str = ""
    verdict: Verdict | None = None


class Answered(ClusterEffect, frozen=True, kw_only=True, tag="answered"):
    """The answer to an order: whether it is carried out, and the plan or the reasons in words."""

    order: Order
    ok: bool
    says: tuple[str, ...]


AnyClusterEffect = Send | ReadEvidence | Told | Answered
