"""What agents and the coordinator tell each other: reports up, commands down, acknowledgements back.

All of it is hostile input to the receiver: strict, bounded, and never a reason to act alone.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from sentinel.model.stamp import Stamp
from sentinel.model.verdict import Verdict

Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
"""Epochs and renewals: they only grow, by one, and are kept in 64 bits."""

HostPhase = Literal["absent", "watching", "suspected", "capturing", "judged"]
"""How an engine stands on one host; `absent`: none of the group's processes run there."""

Verb = Literal["capture", "probe", "stop", "start", "ready", "store_check", "store_set", "unblock"]
"""Everything that a command can ask of a host. There is no shell, no path and no template among them."""

AckOutcome = Literal["done", "noop", "refused", "failed", "unverified", "abandoned"]
"""`noop`: the named incarnation was gone already. `unverified`: done, and nothing shows that it took effect.
`abandoned`: begun by an agent that ended, and nobody can tell how far it came."""


class GroupSpec(msgspec.Struct, frozen=True, kw_only=True):
    """An engine group as configured. `hosts` in the order of the start; the first serves rank 0.

    `acts` False: no supervisor is known, so the group is watched and never touched. `stores`: a row store can be asked.
    """

    name: str
    hosts: tuple[str, ...]
    acts: bool = False
    stores: bool = False


class StoreReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a host's row store says: mode in force, whether it can switch live, and the lanes that are stuck now."""

    mode: str
    live: bool = False
    stuck_lanes: tuple[int, ...] = ()


class EngineReport(msgspec.Struct, frozen=True, kw_only=True):
    """One group's engine on one host.

    `incarnation` is empty when nothing runs. `moved_s` is the instant of the last progress on the host's monotonic
    clock, None when no source shows progress here; it compares only with other values of the same host.
    """

    group: str
    incarnation: str
    phase: HostPhase
    moved_s: float | None = None
    silence_s: float | None = None
    outstanding: bool | None = None
    long_phase: str = ""
    incident: str = ""
    verdict: Verdict | None = None
    unseen: tuple[str, ...] = ()
    store: StoreReport | None = None


class HostReport(msgspec.Struct, frozen=True, kw_only=True):
    """A host's heartbeat. `age_s`: since its agent started; `jumped_s`: since its clock last jumped or it was
    suspended, None when that never happened. `starved` says why the host is too busy to be believed."""

    host: str
    at: Stamp
    agent: str
    age_s: float
    epoch_max: Count = 0
    starved: str = ""
    jumped_s: float | None = None
    engines: tuple[EngineReport, ...] = ()


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that one host is to do. `id` is the same however often it is sent.

    `epoch` fences: a host refuses lower ones for ever. `beat` is the lease's renewal count when it was written: its age
    is counted in renewals, no clock is compared. `incarnation` is the only engine that may be touched.
    """

    id: str
    epoch: Count
    beat: Count
    verb: Verb
    group: str
    host: str
    incarnation: str
    incident: str = ""
    plan: str = ""
    args: Mapping[str, str] = {}


class Ack(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a command. `checks`: what was verified; None: it could not be told."""

    id: str
    host: str
    outcome: AckOutcome
    why: str = ""
    incarnation: str = ""
    evidence: str = ""
    checks: Mapping[str, bool | None] = {}
    took_s: float = 0.0


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """Who coordinates. `beat` grows with every renewal; `holder` names a process of a host."""

    holder: str
    epoch: Count
    beat: Count = 0
