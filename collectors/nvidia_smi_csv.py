"""`nvidia-smi --query-gpu=... --format=csv[,noheader][,nounits] [-l N]`, any columns in any order, and its siblings.

Source of the format: nvidia-smi of drivers 470 to 595. Also read: `--query-remapped-rows`, `--query-compute-apps`.
Units: percent, W, MHz, MiB, degrees C. A lost GPU prints `[GPU is lost]` or `[Unknown Error]` in its fields.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from sentinel.collector import Context, Line, LogParser, Sample
from sentinel.collectors._machine import Sections, date_in, number, sample_lines
from sentinel.model.observation import GpuHealth, GpuSample, Observation

_LOST = ("gpu is lost", "requires reset", "fallen off the bus")
_ERROR = ("unknown error", "err!")
_UNIT = re.compile(r"\s*\[[^\]]*\]$")
_NAME = re.compile(r"[a-z0-9_.]+")
_NO_HEADER_ROW = re.compile(r"^20\d\d/\d\d/\d\d \d\d:\d\d:\d\d\.\d{3}, ?\d{1,3}, ")
_UUID = re.compile(r"^GPU-[0-9a-fA-F-]{8,40}$")

_COLUMNS = {
    "timestamp": "timestamp", "index": "index", "uuid": "uuid", "gpu_uuid": "uuid", "name": "name", "gpu_name": "name",
    "pci.bus_id": "pci", "gpu_bus_id": "pci", "pci.bus": "", "pstate": "",
    "utilization.gpu": "util_percent", "utilization.memory": "mem_util_percent",
    "power.draw": "power_w", "power.draw.average": "power_w", "power.draw.instant": "power_w",
    "power.limit": "power_limit_w", "enforced.power.limit": "power_limit_w",
    "clocks.current.sm": "sm_mhz", "clocks.sm": "sm_mhz", "clocks.current.graphics": "sm_mhz", "clocks.gr": "sm_mhz",
    "memory.used": "mem_used_mib", "temperature.gpu": "temp_c", "temperature.memory": "mem_temp_c",
    "clocks_event_reasons.active": "throttle", "clocks_throttle_reasons.active": "throttle",
    "remapped_rows.pending": "remap_pending", "remapped_rows.failure": "remap_failed",
    "remapped_rows.uncorrectable": "remap_uncorrectable",
    "ecc.errors.uncorrected.volatile.total": "uncorrectable", "gpu_recovery_action": "recovery_action",
    "pid": "pid", "process_name": "", "used_gpu_memory": "", "used_memory": "",
}  # fmt: skip
"""Column name -> field; an empty field marks a known column that carries nothing for us."""

_REASON_BITS = {
    "gpu_idle": 0x1, "applications_clocks_setting": 0x2, "sw_power_cap": 0x4, "hw_slowdown": 0x8, "sync_boost": 0x10,
    "sw_thermal_slowdown": 0x20, "hw_thermal_slowdown": 0x40, "hw_power_brake_slowdown": 0x80,
}  # fmt: skip
_METRICS = ("util_percent", "mem_util_percent", "power_w", "power_limit_w", "sm_mhz", "mem_used_mib", "temp_c")


def columns_of(line: str) -> tuple[str, ...] | None:
    """Field names of a CSV header in column order; None when the line is none."""
    if "," not in line or len(line) > 4096:
        return None
    names = [_UNIT.sub("", part.strip()).lower() for part in line.split(",")]
    if not all(_NAME.fullmatch(name) for name in names):
        return None
    known = sum(_field_of(name) is not None for name in names)
    return tuple(_field_of(name) or "" for name in names) if known >= 2 and known * 2 >= len(names) else None


def _field_of(name: str) -> str | None:
    if (found := _COLUMNS.get(name)) is not None:
        return found
    family, _, reason = name.partition(".")
    if family in ("clocks_event_reasons", "clocks_throttle_reasons") and reason in _REASON_BITS:
        return f"reason:{reason}"
    return "" if family in ("clocks", "temperature", "memory", "remapped_rows", "ecc", "pcie", "power") else None


def _headerless(line: str) -> tuple[str, ...]:
    """Columns of a row printed with `noheader`: units tell them apart, the first percentage is the GPU's."""
    fields: list[str] = []
    for position, cell in enumerate(part.strip() for part in line.split(",")):
        unit = cell.rpartition(" ")[2]
        if position < 2:
            name = ("timestamp", "index")[position]
        elif unit == "%":
            name = "mem_util_percent" if "util_percent" in fields else "util_percent"
        else:
            name = {"W": "power_w", "MHz": "sm_mhz", "MiB": "mem_used_mib"}.get(unit, "")
        fields.append("" if name in fields else name)
    return tuple(fields)


@dataclass(slots=True)
class _Reader:
    context: Context
    sections: Sections = field(init=False)
    columns: tuple[str, ...] | None = None
    indices: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.sections = Sections(self.context)

    def feed(self, lines: Iterable[Line]) -> Iterator[Observation]:
        for line in lines:
            if "," not in line.text:
                if self.sections.note(line.text) or line.text.strip():
                    self.columns = None
                continue
            if (columns := columns_of(line.text)) is not None:
                self.columns = columns
            elif self.columns is not None or _NO_HEADER_ROW.match(line.text[:64]):
                yield from self._row(line)

    def _row(self, line: Line) -> Iterator[Observation]:
        if len(line.text) > 4096:
            return
        columns = self.columns or _headerless(line.text)
        cells = [cell.strip() for cell in line.text.split(",")]
        if len(cells) != len(columns):
            return
        row = {name: cell for name, cell in zip(columns, cells, strict=True) if name}
        if "timestamp" in row and date_in(row["timestamp"]) is None:
            return
        if row.get("uuid") and not _UUID.match(row["uuid"]):
            return
        if any(name.startswith("rem") for name in row) or "recovery_action" in row or "uncorrectable" in row:
            yield self._health(row, line)
        if "pid" in row:
            yield from self._process(row, line)
        elif any(name in row for name in _METRICS) and self._index(row) is not None:
            yield self._sample(row, line)

    def _index(self, row: dict[str, str]) -> int | None:
        """Index of the row's GPU: its own, else the one seen with the same id, else its order in the file."""
        key = row.get("uuid") or row.get("pci") or ""
        if "index" in row:
            index = number(row["index"])
            if index is None or not 0 <= index < 1024:
                return None
            if key:
                self.indices[key] = int(index)
            return int(index)
        return self.indices.setdefault(key, len(self.indices)) if len(self.indices) < 1024 else None

    def _sample(self, row: dict[str, str], line: Line) -> GpuSample:
        where = self.sections.where(line)
        if "timestamp" in row:
            where["at_s"], where["clock_s"] = date_in(row["timestamp"]), None

        def value(name: str) -> float | None:
            return number(row.get(name, ""))

        return GpuSample(
            **where, index=self._index(row) or 0, uuid=row.get("uuid"), pci=_pci(row.get("pci")), name=row.get("name"),
            util_percent=value("util_percent"), mem_util_percent=value("mem_util_percent"), power_w=value("power_w"),
            power_limit_w=value("power_limit_w"), sm_mhz=value("sm_mhz"), mem_used_mib=value("mem_used_mib"),
            temp_c=value("temp_c"), mem_temp_c=value("mem_temp_c"), throttle=_throttle(row), lost=_lost(row),
        )  # fmt: skip

    def _health(self, row: dict[str, str], line: Line) -> GpuHealth:
        where = self.sections.where(line)
        if "timestamp" in row:
            where["at_s"], where["clock_s"] = date_in(row["timestamp"]), None
        errors = number(row.get("uncorrectable", row.get("remap_uncorrectable", "")))
        index = number(row.get("index", ""))
        return GpuHealth(
            **where, pci=_pci(row.get("pci")), index=None if index is None else int(index),
            recovery_action=row.get("recovery_action"),
            remap_pending=_flag(row.get("remap_pending")), remap_failed=_flag(row.get("remap_failed")),
            uncorrectable=None if errors is None else int(errors), lost=_lost(row), text=line.text[:200],
        )  # fmt: skip

    def _process(self, row: dict[str, str], line: Line) -> Iterator[GpuSample]:
        pid = number(row["pid"])
        key = row.get("uuid") or row.get("pci") or ""
        if pid is None or pid <= 0:
            return
        index = self._index(row) if "index" in row else self.indices.get(key, -1)
        where = self.sections.where(line)
        if index is not None:
            yield GpuSample(**where, index=index, uuid=row.get("uuid"), pci=_pci(row.get("pci")), pids=(int(pid),))


def _pci(text: str | None) -> str | None:
    return text.lower() if text and ":" in text else None


def _flag(text: str | None) -> bool | None:
    """`1`, `Yes` and `0`, `No`; None for anything else."""
    return {"1": True, "yes": True, "0": False, "no": False}.get((text or "").lower())


def _throttle(row: dict[str, str]) -> int | None:
    if re.fullmatch(r"0x[0-9a-fA-F]{1,16}", row.get("throttle", "")):
        return int(row["throttle"], 16)
    reasons = {name.partition(":")[2]: value for name, value in row.items() if name.startswith("reason:")}
    if not any(value in ("Active", "Not Active") for value in reasons.values()):
        return None
    return sum(_REASON_BITS[reason] for reason, value in reasons.items() if value == "Active")


def _lost(row: dict[str, str]) -> bool:
    cells = [cell.lower() for name, cell in row.items() if name not in ("timestamp", "index", "uuid", "pci", "name")]
    if any(sign in cell for cell in cells for sign in _LOST):
        return True
    return len(cells) >= 2 and all(any(sign in cell for sign in _ERROR) for cell in cells)


def _recognise(sample: Sample) -> bool:
    return any(columns_of(line) is not None or bool(_NO_HEADER_ROW.match(line)) for line in sample_lines(sample.head))


def _start(context: Context) -> Callable[[Iterable[Line]], Iterator[Observation]]:
    return _Reader(context).feed


PARSER = LogParser(name="nvidia_smi_csv", recognise=_recognise, start=_start)
