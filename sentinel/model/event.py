"""Everything that can reach the core, as a closed set. Time is an event; so is the outcome of an effect."""

from typing import Literal

import msgspec

from sentinel.model.engine import Engine
from sentinel.model.observation import AnyObservation
from sentinel.model.stamp import Stamp
from sentinel.model.verdict import Verdict


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="event"):
    """Base: when the agent received it."""

    at: Stamp


class OpenIncident(msgspec.Struct, frozen=True, kw_only=True):
    """An incident that an agent before this one left open; `since_s` is monotonic.

    `stage`: `suspected` no evidence was taken yet; `capturing` evidence was begun and is not taken again, what there is
    follows as observations with a `CaptureEnded`; `kept` evidence and verdict are on disk.
    """

    engine: str
    incident: str
    since_s: float
    stage: Literal["suspected", "capturing", "kept"]
    verdict: Verdict | None = None


class Started(Event, frozen=True, kw_only=True, tag="started"):
    """The agent (re)started with these timings; history before this instant is not known to it."""

    version: str
    settings: "CoreSettings"
    left_open: tuple[OpenIncident, ...] = ()


class Tick(Event, frozen=True, kw_only=True, tag="tick"):
    """Time passed; nothing else happened."""


class EngineSeen(Event, frozen=True, kw_only=True, tag="engine_seen"):
    """An engine appeared or its processes changed."""

    engine: Engine


class EngineGone(Event, frozen=True, kw_only=True, tag="engine_gone"):
    """No process of the engine is left."""

    key: str


class Observed(Event, frozen=True, kw_only=True, tag="observed"):
    """A collector said something about an engine; `engine` None for the host (kernel log, pressure, GPUs)."""

    engine: str | None
    seen: AnyObservation


class CaptureEnded(Event, frozen=True, kw_only=True, tag="capture_ended"):
    """A capture finished (or ran out of time). Everything it found arrived as `Observed` before this event."""

    incident: str
    complete: bool
    ranks_with_stacks: tuple[int, ...] = ()
    ranks_without: tuple[int, ...] = ()
    why_incomplete: str = ""


class CoreSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the core needs of the configuration; seconds on the agent's monotonic clock, already scaled."""

    silence_floor_s: float = 8.0
    silence_factor: float = 6.0
    capture_after_s: float = 60.0
    capture_budget_s: float = 20.0
    boot_silence_s: float = 300.0
    first_token_s: float = 60.0
    rejudge_every_s: float = 30.0
    recovered_after_s: float = 10.0


AnyEvent = Started | Tick | EngineSeen | EngineGone | Observed | CaptureEnded
