"""One time scale for documents whose clocks do not say their zone.

The scale is the host's local wall clock read as if it were UTC, because that is what engines print. Three kinds of
documents do not fit and are brought onto it: frames of containers and of the journal (UTC), formats without a year,
and kernel times since boot. What remains uncertain is stated in seconds.
"""

import re
from calendar import timegm
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median
from time import gmtime

from sentinel.collector import Line
from sentinel.evidence.stamps import Stamp, stamp_of, year_for

QUARTER_S = 900.0
RESOLUTION_S = 1.0
"""Most engine logs print whole seconds."""
HOSTS_APART_S = 1.0
"""What clocks of hosts that are kept in step may still differ by."""
LATE_WRITE_S = 300.0
"""A line may reach its frame this long after it was printed (buffers of a pipe); more is a zone."""
_ZONES_S = range(-12 * 3600, 14 * 3600 + 1, 900)
_EARLIEST_S, _LATEST_S = float(timegm((2015, 1, 1, 0, 0, 0))), float(timegm((2100, 1, 1, 0, 0, 0)))
_DAY = re.compile(r"(?<!\d)(20[1-9]\d)[-_]?(\d\d)[-_]?(\d\d)(?!\d{3})")


@dataclass(slots=True)
class Times:
    """Times seen in a first look at one document.

    `frames` in UTC; `texts` local, without a zone; `zoned` local, with the zone in seconds; `short` without a year, as
    month, day and seconds of the day; `pairs` local minus frame time of lines that have both.
    """

    frames: list[float] = field(default_factory=list)
    texts: list[float] = field(default_factory=list)
    zoned: list[tuple[float, float]] = field(default_factory=list)
    pairs: list[float] = field(default_factory=list)
    short: list[tuple[int, int, float]] = field(default_factory=list)
    mtime_s: float | None = None

    @property
    def utc(self) -> bool:
        """Whether the text itself is printed in UTC and says so."""
        return bool(self.zoned) and not self.texts and all(zone == 0.0 for _, zone in self.zoned)


def times_in(lines: Iterable[Line], mtime_s: float | None) -> Times:
    """Collect the times of a document's first and last lines."""
    # Archives and copies that lose a file's time set it to the beginning of their own era.
    mtime_s = mtime_s if mtime_s is not None and _EARLIEST_S < mtime_s < _LATEST_S else None
    found = Times(mtime_s=mtime_s)
    for line in lines:
        if line.at_s is not None and _EARLIEST_S < line.at_s < _LATEST_S:
            found.frames.append(line.at_s)
        near_s = line.at_s if line.at_s is not None else mtime_s
        stamp = stamp_of(line.text, gmtime(near_s or 0.0).tm_year)
        if stamp is not None:
            _note(found, line, stamp)
    return found


def _dated_by_name(name: str) -> float | None:
    """Noon of the day that stands in a file's name; None when none does."""
    found = _DAY.search(name)
    if found is None:
        return None
    year, month, day = (int(part) for part in found.groups())
    return float(timegm((year, month, day, 12, 0, 0))) if 1 <= month <= 12 and 1 <= day <= 31 else None


def _note(found: Times, line: Line, stamp: Stamp) -> None:
    if stamp.yearless:
        if line.at_s is None:
            found.short.append((stamp.month, stamp.day, stamp.wall_s % 86_400))
            return
        stamp = stamp_of(line.text, year_for(stamp.month, stamp.day, line.at_s)) or stamp
    if not _EARLIEST_S < stamp.wall_s < _LATEST_S:
        return
    if stamp.zone_s is not None:
        found.zoned.append((stamp.wall_s, stamp.zone_s))
        return
    found.texts.append(stamp.wall_s)
    if line.at_s is not None:
        found.pairs.append(stamp.wall_s - line.at_s)


@dataclass(slots=True)
class Clock:
    """Years and zone shifts of all documents of a load, and how far they may be wrong."""

    documents: Mapping[str, Times]
    hosts: Mapping[str, str | None]
    error_s: float = RESOLUTION_S
    notes: list[str] = field(default_factory=list)
    _zones: dict[str | None, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._complete()
        self._find_zones()
        if len({host for host in self.hosts.values() if host is not None}) > 1:
            self.error_s += HOSTS_APART_S

    def year(self, name: str) -> int:
        """The year that completes times of a document that prints none."""
        times = self.documents[name]
        near_s = self._near(times)
        return year_for(*times.short[-1][:2], near_s) if times.short else gmtime(near_s).tm_year

    def zone_s(self, host: str | None) -> float:
        """Seconds that a host's wall clock is ahead of UTC; 0 where nothing tells."""
        return self._zones.get(host, self._zones.get(None, 0.0))

    def shift_s(self, name: str) -> float:
        """What to add to the frame times of a document to bring them onto its host's wall scale."""
        times = self.documents[name]
        if times.pairs:
            return _rounded(times.pairs)
        return self.zone_s(self.hosts.get(name)) if times.frames else 0.0

    def text_shift_s(self, name: str) -> float:
        """What to add to the times that the text of a document prints (only when it prints UTC and says so)."""
        times = self.documents[name]
        return self.zone_s(self.hosts.get(name)) if times.utc and not times.frames else 0.0

    def _near(self, times: Times) -> float:
        for known in (times.frames, times.texts, [wall for wall, _ in times.zoned]):
            if known:
                return median(known)
        everyone = self.documents.values()
        zoned = ([wall for wall, _ in other.zoned] for other in everyone)
        dated = [median(known) for known in (*(other.texts or other.frames for other in everyone), *zoned) if known]
        dated = dated or [known_s for name in self.documents if (known_s := _dated_by_name(name)) is not None]
        return median(dated) if dated else times.mtime_s or 0.0

    def _complete(self) -> None:
        """Turn times without a year into text times, now that other documents tell the year."""
        years = {name: self.year(name) for name, times in self.documents.items() if times.short and not times.frames}
        for name, year in years.items():
            times = self.documents[name]
            times.texts.extend(timegm((year, month, day, 0, 0, 0)) + rest for month, day, rest in times.short)

    def right_year(self, name: str, at_s: float) -> float:
        """A time that a parser completed with the document's year, moved across New Year if it is nearer there."""
        times = self.documents[name]
        if not times.short or not times.texts:
            return at_s
        near_s = times.texts[-1]
        if abs(at_s - near_s) < 180 * 86_400:
            return at_s
        at = gmtime(at_s)
        year = year_for(at.tm_mon, at.tm_mday, near_s)
        return timegm((year, at.tm_mon, at.tm_mday, 0, 0, 0)) + at_s % 86_400

    def _find_zones(self) -> None:
        votes: dict[str | None, Counter[float]] = defaultdict(Counter)
        residuals: list[float] = []
        for name, times in self.documents.items():
            host = self.hosts.get(name)
            if times.pairs:
                zone = _rounded(times.pairs)
                votes[host][zone] += len(times.pairs)
                residuals.append(abs(median(times.pairs) - zone))
            for _, zone in times.zoned:
                if zone:
                    votes[host][zone] += 1
        everywhere: Counter[float] = Counter()
        for host, counted in votes.items():
            everywhere.update(counted)
            self._zones[host] = counted.most_common(1)[0][0]
        if everywhere:
            self._zones[None] = everywhere.most_common(1)[0][0]
        self.error_s += min(max(residuals, default=0.0), LATE_WRITE_S)
        for name, times in self.documents.items():
            if times.frames and not times.pairs and not times.zoned:
                self._guess_zone(self.hosts.get(name), times)

    def _guess_zone(self, host: str | None, times: Times) -> None:
        """A framed document without text times: the smallest zone that lays it over what the host's texts span."""
        if host in self._zones or None in self._zones:
            return
        spans = [
            (min(other.texts), max(other.texts))
            for name, other in self.documents.items()
            if other.texts and (host is None or self.hosts.get(name) in (host, None))
        ]
        if not spans:
            return
        start, end = min(low for low, _ in spans), max(high for _, high in spans)
        first, last = min(times.frames), max(times.frames)
        fitting = [
            zone
            for zone in sorted(_ZONES_S, key=lambda zone: (zone % 3600 != 0, abs(zone)))
            if first + zone <= end + LATE_WRITE_S and last + zone >= start - LATE_WRITE_S
        ]
        if fitting:
            self._zones[host] = float(fitting[0])
            where = host or "the host"
            self.notes.append(f"zone of {where} guessed from overlapping logs: UTC{fitting[0] / 3600:+.2f} h")
            if fitting[0]:  # servers mostly run on UTC; any other guess may be wrong by as much as also fits
                self.error_s += (max(fitting) - min(fitting)) / 2 + QUARTER_S
            return
        self.notes.append(f"times of {host or 'a document'} in UTC lie apart from all others; read as they are")


def _rounded(pairs: list[float]) -> float:
    """The zone that differences between printed and frame times tell: they lag by buffering, never lead by much."""
    return round(median(pairs) / QUARTER_S) * QUARTER_S
