"""Host memory, paging and disk counters: /proc/meminfo, /proc/vmstat, /proc/diskstats, cgroup v2 files, `free`.

Source of the formats: Linux 4.18 to 6.17, procps `free`. Units as the kernel prints them: meminfo KiB, cgroup bytes,
vmstat counts and pages, diskstats sectors of 512 bytes and milliseconds.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from sentinel.collector import Context, Line, LogParser, Sample
from sentinel.collectors._machine import Sections, Where, sample_lines
from sentinel.model.observation import DeviceCounters, Observation

Family = Literal["block", "cgroup", "memory", "vmstat"]
MAX_KEYS = 4096

_MEMINFO = re.compile(
    r"^\s*(?P<key>Mem[A-Z]\w+|Swap\w*|Cached|Buffers|Dirty|Writeback|AnonPages|Mapped|Shmem|SUnreclaim|SReclaimable|Slab"
    r"|KReclaimable|Committed_AS|CommitLimit|Mlocked|Unevictable|HugePages_\w+|Hugepagesize):\s+(?P<value>\d{1,18})"
    r"(?: kB)?\s*$"
)
_VMSTAT = re.compile(
    r"^\s*(?:\S{0,64}vmstat:)?(?P<key>(?:pg|pswp|allocstall|compact_|oom_kill|nr_|kswapd|workingset_|thp_|numa_|drop_)\w*)"
    r" (?P<value>\d{1,20})\s*$"
)
_DISK = re.compile(
    r"^\s*\d{1,4}\s+\d{1,7}\s+(?P<disk>[a-z][\w/-]{1,32})\s+(?P<numbers>\d{1,18}(?:\s+\d{1,18}){10,16})\s*$"
)
_CGROUP_FILE = re.compile(r"(?:^|/)(?P<file>(?:memory|cpu|io|pids|cgroup)\.[a-z_.]{2,40})$")
_CGROUP_LINE = re.compile(r"^\s*(?:(?P<key>[a-z][\w:]{0,60}) )?(?P<value>\d{1,20}|max)\s*$")
_CGROUP_GREP = re.compile(
    r"^(?P<path>\S{0,200}?)(?P<file>(?:memory|cpu|io|pids|cgroup)\.[a-z_.]{2,40})[:=] ?"
    r"(?:(?P<key>[a-z]\w{0,60}) )?(?P<value>\d{1,20}|max)\s*$"
)
_FREE = re.compile(r"^(?P<kind>Mem|Swap):\s+(?P<numbers>\d[\d.]*\w{0,2}(?:\s+\d[\d.]*\w{0,2}){2,6})\s*$")
_SCALE = {"": 1.0, "b": 2.0**-10, "k": 1.0, "m": 2.0**10, "g": 2.0**20, "t": 2.0**30}
_DISK_FIELDS = (
    "reads", "reads_merged", "sectors_read", "read_ms", "writes", "writes_merged", "sectors_written", "write_ms",
    "in_flight", "io_ms", "weighted_io_ms",
)  # fmt: skip


def disk_of(line: str) -> tuple[str, dict[str, float]] | None:
    """(device, counters) of one line of /proc/diskstats."""
    found = _DISK.match(line)
    if found is None:
        return None
    numbers = [float(word) for word in found["numbers"].split()]
    return found["disk"], dict(zip(_DISK_FIELDS, numbers, strict=False))


def free_of(line: str) -> dict[str, float] | None:
    """meminfo names of one row of `free` in the unit that it prints; a suffix scales to KiB."""
    found = _FREE.match(line)
    if found is None:
        return None
    numbers = [_scaled(word) for word in found["numbers"].split()]
    if found["kind"] == "Swap":
        return {"SwapTotal": numbers[0], "SwapFree": numbers[2]}
    return {"MemTotal": numbers[0], "MemFree": numbers[2], **({"MemAvailable": numbers[5]} if len(numbers) > 5 else {})}


def _scaled(word: str) -> float:
    digits = re.match(r"\d{1,15}(?:\.\d{1,6})?", word)
    unit = word.lower().rstrip("ib")[-1:] if word[-1:].isalpha() else ""
    return float(digits[0]) * _SCALE.get(unit if unit.isalpha() else "", 1.0) if digits else 0.0


class Counter(NamedTuple):
    """One number that a line states."""

    family: Family
    device: str
    key: str
    value: float


def counters_of(text: str, path: str) -> tuple[Counter, ...]:
    """Numbers on one line; `path` is the file whose content is being shown, as far as headers told."""
    if found := _MEMINFO.match(text):
        return (Counter("memory", "meminfo", found["key"], float(found["value"])),)
    if disk := disk_of(text):
        return tuple(Counter("block", disk[0], key, value) for key, value in disk[1].items())
    if free := free_of(text):
        return tuple(Counter("memory", "meminfo", key, value) for key, value in free.items())
    if cgroup := _cgroup_of(text, path):
        return (cgroup,)
    if found := _VMSTAT.match(text):
        return (Counter("vmstat", "vmstat", found["key"], float(found["value"])),)
    return ()


def _cgroup_of(text: str, path: str) -> Counter | None:
    """A line of a cgroup v2 file; the key is the file's name, and the name in the line when it has one.

    A limit of `max` is no number, and left out.
    """
    found = _CGROUP_GREP.match(text)
    if found is not None:
        file, device = found["file"], found["path"].rstrip("/")
    else:
        section, found = _CGROUP_FILE.search(path), _CGROUP_LINE.match(text)
        if section is None or found is None:
            return None
        file, device = section["file"], path[: section.start()]
    if found["value"] == "max":
        return None
    key = f"{file}.{found['key']}" if found["key"] else file
    return Counter("cgroup", device or "cgroup", key, float(found["value"]))


@dataclass(slots=True)
class _Open:
    """One set of counters while its lines are being read."""

    where: Where
    values: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class _Reader:
    context: Context
    sections: Sections = field(init=False)
    sets: dict[tuple[Family, str], _Open] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.sections = Sections(self.context)

    def feed(self, lines: Iterable[Line]) -> Iterator[Observation]:
        batch = list(lines)
        if not batch:
            yield from self._close()
        for line in batch:
            text = line.text[:512]
            counters = counters_of(text, self.sections.path)
            for counter in counters:
                yield from self._keep(line, counter)
            if not counters:
                before = (self.sections.at_s, self.sections.clock_s)
                self.sections.note(text)
                if (self.sections.at_s, self.sections.clock_s) != before:
                    yield from self._close()

    def _keep(self, line: Line, counter: Counter) -> Iterator[DeviceCounters]:
        """Add a number to its set; the same number again begins the next sample."""
        name = (counter.family, counter.device)
        kept = self.sets.get(name)
        if kept is not None and counter.key in kept.values:
            del self.sets[name]
            yield _observation(name, kept)
            kept = None
        if kept is None:
            if len(self.sets) >= MAX_KEYS:
                return
            kept = self.sets[name] = _Open(self.sections.where(line))
        if len(kept.values) < MAX_KEYS:
            kept.values[counter.key] = counter.value

    def _close(self) -> Iterator[DeviceCounters]:
        sets, self.sets = self.sets, {}
        for name, kept in sets.items():
            yield _observation(name, kept)


def _observation(name: tuple[Family, str], kept: _Open) -> DeviceCounters:
    return DeviceCounters(**kept.where, family=name[0], device=name[1], values=kept.values)


def _recognise(sample: Sample) -> bool:
    sections = Sections(Context(name="", year=2000))
    for line in sample_lines(sample.head):
        text = line[:512]
        if counters_of(text, sections.path):
            return True
        sections.note(text)
    return False


def _start(context: Context) -> Callable[[Iterable[Line]], Iterator[Observation]]:
    return _Reader(context).feed


PARSER = LogParser(name="host_counters", recognise=_recognise, start=_start)
