"""Times printed in text, as far as they are needed to compare clocks: what a line says, with or without year and zone.

Parsers read their own times; this reads any program's, to complete years and to find the zone of a host.
"""

import re
from calendar import timegm
from dataclasses import dataclass
from time import gmtime

_MONTH_NAMES = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTHS = {name: n for n, name in enumerate(_MONTH_NAMES, 1)}
_LEAD_CHARS = 160
_CLOCK = r"(?P<h>[01]\d|2[0-3]):(?P<mi>[0-5]\d):(?P<s>[0-5]\d)(?P<f>[.,]\d{1,9})?"
_DATED = re.compile(
    r"(?<!\d)(?P<y>20\d\d)[-/](?P<mo>0[1-9]|1[0-2])[-/](?P<d>0[1-9]|[12]\d|3[01])[ T_]" + _CLOCK
    + r"(?P<zone> ?(?:Z|UTC)\b|[+-]\d\d:?\d\d(?!\d))?"
)  # fmt: skip
_CTIME = re.compile(r"(?P<mon>[A-Z][a-z]{2}) +(?P<d>\d{1,2}) " + _CLOCK + r" (?P<y>20\d\d)(?!\d)")
_SHORT = re.compile(
    r"(?:(?:INFO|DEBUG|WARNING|ERROR|CRITICAL) (?P<mo>0[1-9]|1[0-2])-(?P<d>0[1-9]|[12]\d|3[01]) "
    r"|\[?(?:^|(?<=[\[: ]))[IWEFC](?P<mo2>0[1-9]|1[0-2])(?P<d2>0[1-9]|[12]\d|3[01]) +"
    r"|^(?P<mon>[A-Z][a-z]{2}) +(?P<d3>\d{1,2}) )" + _CLOCK
)


@dataclass(frozen=True, slots=True)
class Stamp:
    """A printed time: `wall_s` is read as if it were UTC; with `yearless` it stands in the year asked for.

    `zone_s` is the zone that was printed (0 for UTC, seconds east otherwise), None when none was.
    """

    wall_s: float
    zone_s: float | None = None
    yearless: bool = False
    month: int = 0
    day: int = 0


def stamp_of(text: str, year: int) -> Stamp | None:
    """The first time near the start of a line; None when it shows none."""
    lead = text[:_LEAD_CHARS]
    if lead.count(":") < 2:
        return None
    if found := _DATED.search(lead):
        wall = _wall(int(found["y"]), int(found["mo"]), int(found["d"]), found)
        return None if wall is None else Stamp(wall, _zone_s(found["zone"]))
    if found := _CTIME.search(lead):
        wall = _wall(int(found["y"]), _MONTHS.get(found["mon"], 0), int(found["d"]), found)
        return None if wall is None else Stamp(wall)
    if found := _SHORT.search(lead):
        month = _MONTHS.get(found["mon"], 0) if found["mon"] else int(found["mo"] or found["mo2"])
        day = int(found["d"] or found["d2"] or found["d3"])
        wall = _wall(year, month, day, found)
        return None if wall is None else Stamp(wall, None, True, month, day)
    return None


def _wall(year: int, month: int, day: int, clock: re.Match[str]) -> float | None:
    if not 1 <= month <= 12 or not 1 <= day <= 31:
        return None
    whole = timegm((year, month, day, int(clock["h"]), int(clock["mi"]), int(clock["s"])))
    return whole + (float("0." + clock["f"][1:]) if clock["f"] else 0.0)


def _zone_s(zone: str | None) -> float | None:
    if zone is None:
        return None
    text = zone.strip()
    if text in ("Z", "UTC"):
        return 0.0
    shift = int(text[1:3]) * 3600 + int(text[-2:]) * 60
    return float(shift if text[0] == "+" else -shift)


def year_for(month: int, day: int, near_s: float) -> int:
    """The year that brings a month and day closest to a known time.

    >>> year_for(12, 31, timegm((2027, 1, 1, 0, 5, 0)))
    2026
    """
    middle = gmtime(min(max(near_s, 0.0), 4e9)).tm_year
    return min((middle - 1, middle, middle + 1), key=lambda year: abs(timegm((year, month, day, 12, 0, 0)) - near_s))
