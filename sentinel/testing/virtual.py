"""A clock that moves only when asked, straight to the next deadline; wall time may lie independently."""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

from sentinel.model.stamp import Stamp

EPOCH_NS = 1_790_000_000_000_000_000
"""Where simulated wall time starts; any fixed date would do."""


class VirtualClock:
    """Deterministic time for simulations: monotonic nanoseconds from 0, wall time with a skew of its own."""

    def __init__(self) -> None:
        self.mono_ns = 0
        self.wall_skew_ns = 0
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()

    def now(self) -> Stamp:
        """The present instant on both clocks."""
        return Stamp(mono_ns=self.mono_ns, wall_ns=EPOCH_NS + self.mono_ns + self.wall_skew_ns, boot_id="virtual")

    @property
    def mono_s(self) -> float:
        """Monotonic seconds since the start of the simulation."""
        return self.mono_ns / 1e9

    def call_in(self, seconds: float, callback: Callable[[], None]) -> None:
        """Run `callback` that many seconds from now."""
        assert seconds >= 0, "a deadline in the past is a bug in the caller"
        heappush(self._due, (self.mono_ns + round(seconds * 1e9), next(self._order), callback))

    def run_until(self, end_s: float) -> None:
        """Run everything that is due up to `end_s`, in order of time and then of scheduling."""
        end_ns = round(end_s * 1e9)
        while self._due and self._due[0][0] <= end_ns:
            self.mono_ns, _, callback = heappop(self._due)
            callback()
        self.mono_ns = end_ns
