"""The time axis that the timeline and the GPU plots share: which span to draw, and where a moment lies on it."""

from collections.abc import Iterator
from dataclasses import dataclass

from sentinel.core import timeline as core_timeline
from sentinel.core.picture import Picture
from sentinel.report.words import clock, day

WHOLE_S = 180.0
"""Evidence up to this long is drawn whole."""
LEAD_S = 60.0
"""At least so much is drawn before T0."""
LEAD_FACTOR = 2.0
TICKS_MAX = 8
STEPS_S = (0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)


@dataclass(frozen=True, slots=True)
class Tick:
    """A labelled moment; `share` is its place on the axis from 0 to 1."""

    share: float
    label: str


@dataclass(frozen=True, slots=True)
class Axis:
    """A span of local-wall time; `t0_s` marks the last progress when it is known."""

    start_s: float
    end_s: float
    t0_s: float | None = None

    @property
    def length_s(self) -> float:
        """How long the span is; never zero."""
        return max(self.end_s - self.start_s, 1e-3)

    def holds(self, at_s: float) -> bool:
        """Whether a moment lies on the axis."""
        return self.start_s <= at_s <= self.end_s

    def share(self, at_s: float) -> float:
        """Place of a moment from 0 (start) to 1 (end), clamped."""
        return min(max((at_s - self.start_s) / self.length_s, 0.0), 1.0)

    def ticks(self) -> Iterator[Tick]:
        """At most `TICKS_MAX` round moments."""
        step = next((size for size in STEPS_S if self.length_s / size <= TICKS_MAX), self.length_s / TICKS_MAX)
        at_s = -(-self.start_s // step) * step
        while at_s <= self.end_s:
            yield Tick(self.share(at_s), clock(at_s, fraction=step < 1))
            at_s += step

    @property
    def caption(self) -> str:
        """Day and span in words."""
        first, last = day(self.start_s), day(self.end_s)
        days = first if first == last else f"{first} to {last}"
        return f"{days}, {clock(self.start_s)} to {clock(self.end_s)}, host-local wall time"


def focus(picture: Picture, times: list[float]) -> Axis | None:
    """The span worth drawing: all of it when short, else from well before T0 to the end; None without any time.

    Sources with a wrong clock (another year, time since boot) must not squeeze the story into one pixel, therefore
    the end is the end of the periodic sources when there is one, stretched by at most the length of the story.
    """
    if not times:
        return None
    mark = picture.memo(core_timeline.progress).t0
    t0_s = mark.at_s if mark else None
    end_s = core_timeline.end_s(picture)
    if end_s is None:
        end_s = max(times)
    anchor_s = end_s if t0_s is None else t0_s
    silence_s = max(end_s - anchor_s, 0.0)
    reach_s = max(WHOLE_S, LEAD_FACTOR * silence_s)
    near = [at_s for at_s in times if anchor_s - reach_s <= at_s <= end_s + reach_s] or [anchor_s]
    start_s = min(near)
    if max(near) - start_s > WHOLE_S:
        start_s = max(start_s, anchor_s - max(LEAD_S, LEAD_FACTOR * silence_s))
    pad_s = max((max(near) - start_s) * 0.02, 0.5)
    return Axis(start_s - pad_s, max(near) + pad_s, t0_s)
