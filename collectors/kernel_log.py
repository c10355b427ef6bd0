"""Kernel logs in every common print: `dmesg` (raw, -T, -x, -H, ISO), `journalctl -k`, syslog files, /dev/kmsg records.

Lines of `journalctl -o json` arrive unframed with `Line.at_s` and `Line.host` set. Time since boot is kept as `mono_s`;
a line that prints both scales also says when the host booted. Units: seconds.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from sentinel.collector import Context, Line, LogParser, Sample
from sentinel.collectors._machine import MONTHS, TEXT_CAP, epoch, sample_lines
from sentinel.collectors.kernel_events import AER, HUNG, MLX5, NVME, OOM, SXID, XID, Event, event_of
from sentinel.model.observation import BootTime, KernelEvent, KernelLog, Observation, Origin

KMSG = re.compile(
    r"^(?P<prio>\d{1,4}),(?P<seq>\d{1,18}),(?P<us>\d{1,18}),(?P<flags>[^,;]*)(?P<ext>(?:,[^;]*)?);(?P<text>.*)$"
)

FORMATS = {
    "kern.xid": XID, "kern.sxid": SXID, "kern.mlx5": MLX5, "kern.hung": HUNG, "kern.oom": OOM, "kern.nvme": NVME,
    "kern.aer": AER, "kmsg": KMSG,
}  # fmt: skip

_LEVEL = re.compile(r"^(?:<\d{1,3}>|[a-z]{2,8} *:[a-z]{2,8} *: )")
_RAW = re.compile(r"^\[ *(\d{1,9}\.\d{3,9})\](?:\[ *[TC]\d+\])? ?")
_WALL = re.compile(
    r"^\[(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) ([A-Z][a-z]{2}) +(\d{1,2}) (\d\d):(\d\d):(\d\d) (\d{4})\](?:\[ *[TC]\d+\])? ?"
)
_SYSLOG = re.compile(
    r"^(?:([A-Z][a-z]{2}) +(\d{1,2})|(\d{4})-(\d\d)-(\d\d))[ T](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?"
    r"(?:Z|[+-]\d\d:?\d\d)? (?:(\S{1,128}) kernel(?:\[\d+\])?: )?"
)
_HUMAN = re.compile(r"^\[(?:([A-Z][a-z]{2}) ?(\d{1,2}) (\d\d):(\d\d)| *\+(\d{1,9}\.\d{1,9}))\] ?")
_BARE = re.compile(
    r"^\s*(?:NVRM: |nvidia-[\w-]+: SXid|mlx5_core |INFO: task |nvme nvme\d|Out of memory: Kill"
    r"|Memory cgroup out of memory:|oom-kill:constraint|pcieport |watchdog: BUG|blk_update_request: I/O"
    r"|I/O error, dev |nfs: server )"
)
_LOST_FIRST = re.compile(r"NVRM: The NVIDIA GPU ([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.\d)")
_OOM_TASK = re.compile(r"^oom-kill:constraint=.{0,1024}?(?:,oom_memcg=(?P<cgroup>[^,]{1,256}))?,task_memcg=[^,]*,task=")
_TRACE = re.compile(r"^\s*(?:\[<[0-9a-fA-F]+>\] )?\??\s*([A-Za-z_][\w.]{1,80})\+0x[0-9a-fA-F]+/0x[0-9a-fA-F]+")
_WAITS = frozenset(("__schedule", "schedule", "io_schedule", "schedule_timeout", "schedule_preempt_disabled"))
_TEXT = 400


class Framed(NamedTuple):
    """A line with its frame taken off. `framed` False: no kernel prefix was printed."""

    text: str
    at_s: float | None = None
    mono_s: float | None = None
    host: str | None = None
    framed: bool = True


def unframe(line: str, year: int, minute_s: float | None = None) -> Framed:
    """Take the kernel's own prefix off. `minute_s` is the clock that `dmesg -H` deltas count from.

    >>> unframe("[   11.200000] NVRM: loading", 2026).mono_s
    11.2
    """
    line = line[:TEXT_CAP]
    if found := KMSG.match(line):
        return Framed(found["text"], mono_s=int(found["us"]) / 1e6)
    line = _LEVEL.sub("", line, count=1)
    if not line.startswith("["):
        return _syslog(line, year)
    if found := _RAW.match(line):
        return Framed(line[found.end() :], mono_s=float(found[1]))
    if found := _WALL.match(line):
        month, day, hour, minute, second, printed = found.groups()
        at_s = epoch(int(printed), MONTHS.get(month, 0), int(day), int(hour), int(minute), int(second))
        return Framed(line[found.end() :], at_s=at_s)
    if found := _HUMAN.match(line):
        if found[5] is not None:
            at_s = None if minute_s is None else minute_s + float(found[5])
        else:
            at_s = epoch(year, MONTHS.get(found[1], 0), int(found[2]), int(found[3]), int(found[4]), 0)
        return Framed(line[found.end() :], at_s=at_s)
    return Framed(line, framed=False)


def _syslog(line: str, year: int) -> Framed:
    found = _SYSLOG.match(line)
    if found is None:
        return Framed(line, framed=False)
    month_name, month_day, full_year, month, day, hour, minute, second, fraction, host = found.groups()
    seconds = int(second) + (float(f"0.{fraction}") if fraction else 0.0)
    if month_name:
        at_s = epoch(year, MONTHS.get(month_name, 0), int(month_day), int(hour), int(minute), seconds)
    else:
        at_s = epoch(int(full_year), int(month), int(day), int(hour), int(minute), seconds)
    rest = line[found.end() :]
    if host is None:
        # `dmesg --time-format iso` prints no host; any other log with an ISO time would look the same.
        return Framed(rest, at_s=at_s, framed=bool(_BARE.match(rest)))
    if raw := _RAW.match(rest):
        return Framed(rest[raw.end() :], at_s=at_s, mono_s=float(raw[1]), host=host)
    return Framed(rest, at_s=at_s, host=host)


@dataclass(slots=True)
class _Count:
    """How much of a host's kernel log was read."""

    line: Line
    lines: int = 0
    first_at_s: float | None = None
    last_at_s: float | None = None
    boot: bool = False


@dataclass(slots=True)
class _Reader:
    context: Context
    counts: dict[str | None, _Count] = field(default_factory=dict)
    lost_pci: str | None = None
    minute_s: float | None = None
    last: Framed | None = None
    oom_cgroup: str | None = None
    hung: KernelEvent | None = None
    hung_lines: int = 0

    def feed(self, lines: Iterable[Line]) -> Iterator[Observation]:
        batch = list(lines)
        for line in batch:
            yield from self._line(line)
        if not batch or (self.hung is not None and self.hung.device):
            yield from self._release()
        if not batch:
            yield from self._summary()

    def _line(self, line: Line) -> Iterator[Observation]:
        framed = unframe(line.text, self.context.year, self.minute_s)
        if framed.framed:
            self.last = framed
            self.minute_s = framed.at_s
        elif not _BARE.match(framed.text) and (line.at_s is None or event_of(framed.text) is None):
            return
        elif self.last is not None and line.at_s is None:
            # A message of several lines carries its time on the first one only.
            framed = framed._replace(at_s=self.last.at_s, mono_s=self.last.mono_s, host=self.last.host)
        at_s = framed.at_s if framed.at_s is not None else line.at_s
        host = self.context.host or framed.host or line.host
        yield from self._count(line, framed, at_s, host)
        if self.hung is not None and self._is_trace(framed.text):
            return
        yield from self._release()
        event = self._event(framed.text)
        if event is None:
            return
        seen = KernelEvent(
            origin=Origin(self.context.name, line.number), at_s=at_s, host=host, pid=event.pid, mono_s=framed.mono_s,
            event=event.kind, text=framed.text.strip()[:_TEXT], severity=event.severity, code=event.code,
            pci=event.pci, device=event.device, comm=event.comm, cause_code=event.cause,
        )  # fmt: skip
        if event.kind == "hung_task":
            self.hung, self.hung_lines = seen, 0
        else:
            yield seen

    def _event(self, text: str) -> Event | None:
        """Event of one message, with what earlier lines of the same report said."""
        if found := _LOST_FIRST.search(text):
            self.lost_pci = found[1].lower()
        elif "NVRM: fallen off the bus" in text:
            pci, self.lost_pci = self.lost_pci, None
            return Event("gpu_lost", "fatal", pci=pci)
        elif text.startswith("oom-kill:"):
            found = _OOM_TASK.match(text)
            self.oom_cgroup = found["cgroup"] if found else None
            return None
        event = event_of(text)
        if event is not None and event.kind == "oom_kill" and event.device is not None:
            event = event._replace(device=self.oom_cgroup or event.device)
            self.oom_cgroup = None
        return event

    def _is_trace(self, text: str) -> bool:
        """Whether the line belongs to the task dump below a hung-task line; learns the function it waits in."""
        self.hung_lines += 1
        if self.hung_lines > 40 or event_of(text) is not None:
            return False
        found = _TRACE.match(text)
        if found is not None and self.hung is not None and not self.hung.device and found[1] not in _WAITS:
            self.hung = _waiting_in(self.hung, found[1])
        return True

    def _release(self) -> Iterator[KernelEvent]:
        hung, self.hung = self.hung, None
        if hung is not None:
            yield hung

    def _count(self, line: Line, framed: Framed, at_s: float | None, host: str | None) -> Iterator[BootTime]:
        if host not in self.counts and len(self.counts) >= 1024:
            return
        count = self.counts.setdefault(host, _Count(line))
        count.lines += 1
        if at_s is not None:
            count.first_at_s = at_s if count.first_at_s is None else min(count.first_at_s, at_s)
            count.last_at_s = at_s if count.last_at_s is None else max(count.last_at_s, at_s)
        if not count.boot and framed.at_s is not None and framed.mono_s is not None:
            count.boot = True
            origin = Origin(self.context.name, line.number)
            yield BootTime(origin=origin, at_s=at_s, host=host, boot_s=framed.at_s - framed.mono_s, error_s=1.0)

    def _summary(self) -> Iterator[KernelLog]:
        for host, count in self.counts.items():
            origin = Origin(self.context.name, count.line.number)
            yield KernelLog(
                origin=origin, at_s=count.last_at_s, host=host, lines=count.lines,
                first_at_s=count.first_at_s, last_at_s=count.last_at_s,
            )  # fmt: skip
        self.counts = {}


def _waiting_in(event: KernelEvent, function: str) -> KernelEvent:
    """The same hung-task event with the kernel function that the task waits in as its device."""
    return KernelEvent(
        origin=event.origin, at_s=event.at_s, host=event.host, pid=event.pid, mono_s=event.mono_s, event=event.event,
        text=event.text, severity=event.severity, code=event.code, comm=event.comm, device=function,
    )  # fmt: skip


def _recognise(sample: Sample) -> bool:
    for text in (sample.head, sample.tail):
        for line in sample_lines(text):
            framed = unframe(line, 2000)
            if framed.framed or _BARE.match(line) or (_known(line) and event_of(line) is not None):
                return True
    return False


def _known(line: str) -> bool:
    """Cheap test for unframed kernel text, so that an engine log that quotes one is not taken for a kernel log."""
    return line.startswith(("NETDEV WATCHDOG", "EDAC ", "mce: ", "rcu: ", "Kernel panic", "Memory failure:"))


def _start(context: Context) -> Callable[[Iterable[Line]], Iterator[Observation]]:
    return _Reader(context).feed


PARSER = LogParser(name="kernel_log", recognise=_recognise, start=_start)
