"""The classic `nvidia-smi` tables: one row pair a GPU, then the table of processes with their pids.

Source of the format: nvidia-smi of drivers 418 to 595. Units: percent, W, MiB, degrees C. The table carries no SM clock
and no memory utilisation. The process table names the processes, so a process table (incomplete) comes out as well.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from sentinel.collector import Context, Line, LogParser, Sample
from sentinel.collectors._machine import Sections, Where, date_in, number, sample_lines
from sentinel.model.observation import GpuSample, Observation, ProcessRow, ProcessTable

_FIRST = re.compile(
    r"^\|\s*(?P<index>\d{1,4})\s+(?P<name>\S.{0,60}?)\s+(?:On|Off|N/A|Disabled|ERR!)?\s*"
    r"\|\s*(?P<pci>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)\s"
)
_SECOND = re.compile(
    r"^\|\s*(?:N/A|\d+%|ERR!|\[N/A\])\s+(?P<temp>\d+C|N/A|ERR!)\s+(?:P\d+|N/A|ERR!)\s+"
    r"(?P<power>\d+W|N/A|ERR!|Unknown Error)\s*/\s*(?P<limit>\d+W|N/A|ERR!|Unknown Error)\s*"
    r"\|(?P<memory>[^|]{0,60})\|\s*(?P<util>\d+%|N/A|ERR!)?"
)
_PROCESS = re.compile(
    r"^\|\s*(?P<index>\d{1,4})\s+(?:(?:N/A|\d+)\s+(?:N/A|\d+)\s+)?(?P<pid>\d{1,10})\s+(?P<type>C|G|M|C\+G|M\+C)\s+"
    r"(?P<name>.{1,200}?)\s+(?:\d+MiB|N/A)\s*\|"
)
_BANNER = re.compile(r"^\|\s*NVIDIA-SMI\s+\d")
_STAMP = re.compile(r"^[A-Z][a-z]{2} +(?:[A-Z][a-z]{2} +\d{1,2}|\d{1,2} [A-Z][a-z]{2})\b.{0,40}$")


@dataclass(slots=True)
class _Gpu:
    """One GPU row pair while the table is being read."""

    index: int
    name: str
    pci: str
    line: Line
    temp_c: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    mem_used_mib: float | None = None
    util_percent: float | None = None
    lost: bool = False
    pids: list[int] = field(default_factory=list)

    def note(self, second: re.Match[str]) -> None:
        """Take the values of the second row. A row of nothing but errors is a lost GPU."""
        self.temp_c, self.power_w = number(second["temp"]), number(second["power"])
        self.power_limit_w, self.util_percent = number(second["limit"]), number(second["util"] or "")
        self.mem_used_mib = number(second["memory"])
        self.lost = "ERR!" in (second["temp"], second["power"]) and self.util_percent is None

    def sample(self, where: Where) -> GpuSample:
        return GpuSample(
            **where, index=self.index, pci=self.pci, name=self.name, util_percent=self.util_percent,
            power_w=self.power_w, power_limit_w=self.power_limit_w, mem_used_mib=self.mem_used_mib,
            temp_c=self.temp_c, lost=self.lost, pids=tuple(self.pids),
        )  # fmt: skip


@dataclass(slots=True)
class _Reader:
    context: Context
    sections: Sections = field(init=False)
    gpus: dict[int, _Gpu] = field(default_factory=dict)
    processes: list[ProcessRow] = field(default_factory=list)
    open_gpu: _Gpu | None = None
    stamp_s: float | None = None

    def __post_init__(self) -> None:
        self.sections = Sections(self.context)

    def feed(self, lines: Iterable[Line]) -> Iterator[Observation]:
        batch = list(lines)
        if not batch:
            yield from self._flush()
        for line in batch:
            if len(line.text) > 512:
                continue
            if not line.text.startswith("|"):
                yield from self._outside(line)
            elif _BANNER.match(line.text):
                yield from self._flush()
            else:
                self._inside(line)

    def _outside(self, line: Line) -> Iterator[Observation]:
        if _STAMP.match(line.text) and (stamp := date_in(line.text)) is not None:
            yield from self._flush()
            self.stamp_s = stamp
        elif self.sections.note(line.text):
            yield from self._flush()
            self.stamp_s = None

    def _inside(self, line: Line) -> None:
        if first := _FIRST.match(line.text):
            self.open_gpu = _Gpu(int(first["index"]), first["name"], first["pci"].lower(), line)
            if len(self.gpus) < 1024:
                self.gpus[self.open_gpu.index] = self.open_gpu
        elif self.open_gpu is not None and (second := _SECOND.match(line.text)):
            self.open_gpu.note(second)
            self.open_gpu = None
        elif found := _PROCESS.match(line.text):
            self._process(found)
        elif "gpu is lost" in line.text.lower() and self.open_gpu is not None:
            self.open_gpu.lost = True

    def _process(self, found: re.Match[str]) -> None:
        pid = int(found["pid"])
        if (gpu := self.gpus.get(int(found["index"]))) is not None and len(gpu.pids) < 1024:
            gpu.pids.append(pid)
        if len(self.processes) < 65_536:
            self.processes.append(ProcessRow(pid=pid, command=found["name"].strip()))

    def _flush(self) -> Iterator[Observation]:
        where = None
        for gpu in self.gpus.values():
            where = self._where(gpu.line)
            yield gpu.sample(where)
        if where is not None and self.processes:
            yield ProcessTable(**where, rows=tuple(self.processes), complete=False)
        self.gpus, self.processes, self.open_gpu = {}, [], None

    def _where(self, line: Line) -> Where:
        where = self.sections.where(line)
        if self.stamp_s is not None:
            where["at_s"], where["clock_s"] = self.stamp_s, None
        return where


def _recognise(sample: Sample) -> bool:
    return any(_BANNER.match(line) or _FIRST.match(line) for line in sample_lines(sample.head) if line.startswith("|"))


def _start(context: Context) -> Callable[[Iterable[Line]], Iterator[Observation]]:
    return _Reader(context).feed


PARSER = LogParser(name="nvidia_smi_table", recognise=_recognise, start=_start)
