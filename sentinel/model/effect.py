"""Everything the core may ask of the world. An effect is journalled before it is carried out."""

import msgspec

from sentinel.model.verdict import Verdict


class Effect(msgspec.Struct, frozen=True, kw_only=True, tag_field="effect"):
    """Base: which engine and, once there is one, which incident."""

    engine: str
    incident: str


class Suspected(Effect, frozen=True, kw_only=True, tag="suspected"):
    """Progress is overdue with work outstanding. Cheap: a line, a metric, the ring is kept."""

    silence_s: float
    limit_s: float
    why: str


class Cleared(Effect, frozen=True, kw_only=True, tag="cleared"):
    """Progress came back before any verdict: a near miss, counted and visible."""

    silence_s: float


class StartCapture(Effect, frozen=True, kw_only=True, tag="start_capture"):
    """Take evidence of every process of the engine now. It must end within `budget_s` seconds."""

    budget_s: float
    why: str


class Judged(Effect, frozen=True, kw_only=True, tag="judged"):
    """The core's verdict; issued again only when it changes."""

    verdict: Verdict


class WriteBundle(Effect, frozen=True, kw_only=True, tag="write_bundle"):
    """Pack what was captured, the ring and the journal slice into an incident bundle."""


class Recovered(Effect, frozen=True, kw_only=True, tag="recovered"):
    """The incident is over: progress came back, or the engine is gone or new."""

    why: str
    lasted_s: float


AnyEffect = Suspected | Cleared | StartCapture | Judged | WriteBundle | Recovered
