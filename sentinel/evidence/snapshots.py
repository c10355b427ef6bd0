"""When a snapshot without a time of its own was taken: from its file name, else from a modification time that can be
trusted, else unknown.

Stack dumps, scrapes and process tables print no time. Two of them tell movement only when their order and distance
are known, hence this last resort. A time that does not fit what the rest of the evidence spans is not used.
"""

import re
from calendar import timegm
from collections.abc import Iterable
from datetime import UTC, datetime

from sentinel.evidence.clock import QUARTER_S, Clock, Times

_FULL = re.compile(r"(?<!\d)(20\d\d)-?(\d\d)-?(\d\d)[T_-]?(\d\d)[-:.]?(\d\d)[-:.]?(\d\d)(?:\.\d+)?(Z?)(?!\d)")
_EPOCH = re.compile(r"(?<!\d)(1[5-9]\d{8})(?:\d{3})?(?!\d)")
_CLOCK = re.compile(r"(?<!\d)([01]\d|2[0-3])[-:]?([0-5]\d)[-:]?([0-5]\d)(?!\d)")
_BEFORE_S, _AFTER_S = 3600.0, 86_400.0
_CLOCK_BEFORE_S, _CLOCK_AFTER_S = 60.0, 3600.0
_DAY_S = 86_400.0
_DAYS = 400
_WRITE_S = (-2.0, 5.0)
"""A log is last modified when its last line was printed, within this."""


def time_in_name(name: str, start_s: float, end_s: float, zone_s: float) -> float | None:
    """Local wall time that a file name states, if it fits evidence that spans `start_s` to `end_s`.

    >>> time_in_name("metrics-20261129T173303Z.prom", 1795973000.0, 1795973600.0, 0.0)
    1795973583.0
    """
    base = re.split(r"[/!]", name)[-1]
    for at_s in (*_full(base, zone_s), *(float(found) + zone_s for found in _EPOCH.findall(base))):
        if start_s - _BEFORE_S <= at_s <= end_s + _AFTER_S:
            return at_s
    fitting = {
        at_s
        for hour, minute, second in _CLOCK.findall(base)
        for at_s in _on_days(int(hour) * 3600 + int(minute) * 60 + int(second), start_s, end_s)
        if start_s - _CLOCK_BEFORE_S <= at_s <= end_s + _CLOCK_AFTER_S
    }
    return fitting.pop() if len(fitting) == 1 else None


def nearest_day(clock_s: float, start_s: float, end_s: float) -> float:
    """A time of day on the day that fits evidence which spans `start_s` to `end_s`, best near or after its end.

    >>> nearest_day(60.0, 1000.0, 86_390.0)
    86460.0
    """
    days = _on_days(clock_s, start_s, end_s)
    inside = [at_s for at_s in days if start_s - _CLOCK_BEFORE_S <= at_s <= end_s + _CLOCK_AFTER_S]
    return inside[-1] if inside else min(days, key=lambda at_s: abs(at_s - end_s))


def _on_days(clock_s: float, start_s: float, end_s: float) -> list[float]:
    last = int(end_s // _DAY_S)
    first = max(int(start_s // _DAY_S), last - _DAYS)
    return [day * _DAY_S + clock_s for day in range(first - 1, last + 2)]


def states_utc(name: str, at_s: float) -> bool:
    """Whether a time is the one that the file name gives in UTC."""
    return at_s in _full(re.split(r"[/!]", name)[-1], 0.0) and at_s not in _full(re.split(r"[/!]", name)[-1], 1.0)


def _full(base: str, zone_s: float) -> Iterable[float]:
    for found in _FULL.finditer(base):
        try:
            numbers = [int(part) for part in found.groups()[:6]]
            at = datetime(*numbers, tzinfo=UTC)  # type: ignore[arg-type, misc]
        except ValueError:
            continue
        yield timegm(at.timetuple()) + (zone_s if found[7] else 0.0)


class Modified:
    """Modification times of files, if the logs prove that copying left them alone."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._zone_s = _trusted_zone(clock.documents.values())

    def time_of(self, name: str) -> float | None:
        """Local wall time at which a document was last written; None when modification times mean nothing here."""
        mtime_s = self._clock.documents[name].mtime_s
        return None if self._zone_s is None or mtime_s is None else mtime_s + self._zone_s


def _trusted_zone(documents: Iterable[Times]) -> float | None:
    """Local time minus modification time, when two logs written at different times agree on it."""
    by_zone: dict[float, list[float]] = {}
    for times in documents:
        if not times.texts or times.mtime_s is None:
            continue
        lead_s = max(times.texts) - times.mtime_s
        zone_s = round(lead_s / QUARTER_S) * QUARTER_S
        if _WRITE_S[0] <= zone_s - lead_s <= _WRITE_S[1] and abs(zone_s) <= 14 * 3600:
            by_zone.setdefault(zone_s, []).append(times.mtime_s)
    proven = [zone_s for zone_s, written in by_zone.items() if max(written) - min(written) >= 2.0]
    return proven[0] if len(proven) == 1 else None
