"""Two clocks on every live event: monotonic for durations, wall for people and for joining logs."""

from typing import Annotated

import msgspec

Nanoseconds = Annotated[int, msgspec.Meta(ge=-(1 << 62), lt=1 << 62)]
"""More cannot come from a clock, and would not become a float."""


class Stamp(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """An instant. `mono_ns` compares only within one `boot_id`; `wall_ns` is UTC and may step."""

    mono_ns: Nanoseconds
    wall_ns: Nanoseconds
    boot_id: str = ""

    @property
    def mono_s(self) -> float:
        """Monotonic seconds (CLOCK_BOOTTIME where the system has it)."""
        return self.mono_ns / 1e9

    @property
    def wall_s(self) -> float:
        """UTC seconds since the epoch."""
        return self.wall_ns / 1e9
