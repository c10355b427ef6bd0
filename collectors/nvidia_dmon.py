"""`nvidia-smi dmon` and `pmon`: whitespace tables under a two-line `#` header that is repeated every few rows.

Source of the format: nvidia-smi of drivers 470 to 595, options `-s pucvmet` and `-o DT`.
Units: W, degrees C, percent, MHz.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from sentinel.collector import Context, Line, LogParser, Sample
from sentinel.collectors._machine import Sections, Where, clock_in, epoch, number, sample_lines
from sentinel.model.observation import GpuSample, Observation

_FIELDS = frozenset(("gpu", "pwr", "gtemp", "mtemp", "sm", "mem", "pclk", "mclk", "pid", "type", "enc", "dec", "fb"))


def columns_of(line: str) -> tuple[str, ...] | None:
    """Column names of a dmon or pmon header; None for any other line.

    >>> columns_of("# gpu    pwr  gtemp  mtemp     sm    mem")
    ('gpu', 'pwr', 'gtemp', 'mtemp', 'sm', 'mem')
    """
    if not line.startswith("#") or len(line) > 512:
        return None
    names = tuple(line[1:].lower().split())
    return names if "gpu" in names and len(_FIELDS.intersection(names)) >= 3 else None


@dataclass(slots=True)
class _Reader:
    context: Context
    sections: Sections = field(init=False)
    columns: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        self.sections = Sections(self.context)

    def feed(self, lines: Iterable[Line]) -> Iterator[Observation]:
        for line in lines:
            if (columns := columns_of(line.text)) is not None:
                self.columns = columns
            elif line.text.startswith("#"):
                self.sections.note(line.text)
            elif self.columns is not None and len(line.text) <= 512:
                yield from self._row(line, line.text.split())

    def _row(self, line: Line, cells: list[str]) -> Iterator[GpuSample]:
        columns = self.columns or ()
        if not columns or len(cells) < len(columns):
            return
        row = dict(zip(columns, cells, strict=False))
        index = number(row["gpu"])
        if index is None or not row["gpu"].isdecimal() or index >= 1024:
            return
        where = self._where(row, line)
        if "pid" in row:
            if row["pid"].isdecimal():
                yield GpuSample(**where, index=int(index), pids=(int(row["pid"][:10]),))
            return
        yield GpuSample(
            **where, index=int(index), util_percent=number(row.get("sm", "")),
            mem_util_percent=number(row.get("mem", "")), power_w=number(row.get("pwr", "")),
            sm_mhz=number(row.get("pclk", "")),
            temp_c=number(row.get("gtemp", "")),
            mem_temp_c=number(row.get("mtemp", "")), mem_used_mib=number(row.get("fb", "")),
        )  # fmt: skip

    def _where(self, row: dict[str, str], line: Line) -> Where:
        where = self.sections.where(line)
        clock_s = clock_in(row.get("time", ""))
        if clock_s is not None:
            date = row.get("date", "")
            day = None
            if len(date) == 8 and date.isdecimal():
                day = epoch(int(date[:4]), int(date[4:6]), int(date[6:]), 0, 0, 0)
            where["at_s"] = None if day is None else day + clock_s
            where["clock_s"] = clock_s if day is None else None
        return where


def _recognise(sample: Sample) -> bool:
    return any(columns_of(line) is not None for line in sample_lines(sample.head) if line.startswith("#"))


def _start(context: Context) -> Callable[[Iterable[Line]], Iterator[Observation]]:
    return _Reader(context).feed


PARSER = LogParser(name="nvidia_dmon", recognise=_recognise, start=_start)
