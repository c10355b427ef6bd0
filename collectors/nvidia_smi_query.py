"""`nvidia-smi -q` (whole or excerpts), and what the nvidia tools print when a GPU or the driver does not answer.

Source of the format: nvidia-smi of drivers 470 to 595: nested `Key : value` lines below `GPU 00000000:B1:00.0`.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from sentinel.collector import Context, Line, LogParser, Sample
from sentinel.collectors._machine import Sections, Where, date_in, number, sample_lines
from sentinel.model.observation import GpuHealth, GpuSample, Observation, Unavailable

_GPU = re.compile(r"^GPU (?P<pci>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)\s*$")
_KEY = re.compile(r"^(?P<indent> +)(?P<key>[A-Za-z][\w ()/.\-]{0,60}?)\s*(?:: (?P<value>.{0,120}))?$")
_LOST_HANDLE = re.compile(
    r"Unable to determine the device handle for (?i:gpu)\s?(?:(?P<index>\d{1,3}):\s+)?"
    r"(?P<pci>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)?:?\s*.{0,120}"
)
_NO_DRIVER = re.compile(r"^(?:NVIDIA-SMI has failed because|Failed to initialize NVML:|No devices were found).{0,160}")


@dataclass(slots=True)
class _Gpu:
    """One GPU block of `-q` while it is being read; `values` are keyed by section path and key, lower case."""

    pci: str
    line: Line
    values: dict[str, str] = field(default_factory=dict)
    pids: list[int] = field(default_factory=list)

    def first(self, *keys: str) -> str | None:
        """Value of the first key that the block has; a key matches the end of the section path."""
        for key in keys:
            for path, value in self.values.items():
                if path == key or path.endswith("/" + key):
                    return value
        return None

    def total(self, section: str) -> int | None:
        """Sum of the uncorrectable counters below a section; None when it has none."""
        counts = [
            found for path, value in self.values.items()
            if section in path and "uncorrectable" in path and (found := number(value)) is not None
        ]  # fmt: skip
        return int(sum(counts)) if counts else None


@dataclass(slots=True)
class _Reader:
    context: Context
    sections: Sections = field(init=False)
    gpu: _Gpu | None = None
    attached: int | None = None
    stamp_s: float | None = None
    path: list[tuple[int, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.sections = Sections(self.context)

    def feed(self, lines: Iterable[Line]) -> Iterator[Observation]:
        batch = list(lines)
        if not batch:
            yield from self._flush()
        for line in batch:
            if len(line.text) > 1024:
                continue
            if found := _GPU.match(line.text):
                yield from self._flush()
                self.gpu, self.path = _Gpu(found["pci"].lower(), line), []
            elif line.text.startswith(" ") and self.gpu is not None:
                self._nested(self.gpu, line.text)
            else:
                yield from self._top_level(line)

    def _top_level(self, line: Line) -> Iterator[Observation]:
        if line.text.startswith("Timestamp") and (stamp := date_in(line.text)) is not None:
            self.stamp_s = stamp
        elif line.text.startswith("Attached GPUs"):
            attached = number(line.text.rpartition(":")[2])
            self.attached = None if attached is None else int(attached)
        elif found := _LOST_HANDLE.search(line.text):
            index = found["index"]
            yield GpuHealth(
                **self._where(line), pci=found["pci"].lower() if found["pci"] else None,
                index=int(index) if index else None, lost=True, text=found[0].strip(),
            )  # fmt: skip
        elif found := _NO_DRIVER.match(line.text):
            yield Unavailable(**self._where(line), source="nvidia-smi", reason=found[0].strip())
        elif self.gpu is None:
            self.sections.note(line.text)

    def _nested(self, gpu: _Gpu, text: str) -> None:
        found = _KEY.match(text)
        if found is None or len(gpu.values) >= 4096:
            return
        depth, key, value = len(found["indent"]), found["key"].strip().lower(), found["value"]
        while self.path and self.path[-1][0] >= depth:
            self.path.pop()
        if value is None:
            if len(self.path) < 16:
                self.path.append((depth, key))
            return
        if key == "process id" and value.strip().isdecimal():
            gpu.pids.append(int(value.strip()[:10]))
        gpu.values["/".join([*(name for _, name in self.path), key])] = value.strip()

    def _flush(self) -> Iterator[Observation]:
        gpu, self.gpu = self.gpu, None
        if gpu is None:
            return
        where, minor = self._where(gpu.line), gpu.first("minor number") or ""
        # An excerpt may show any of the GPUs: without the minor number only the bus address says which.
        index = int(minor[:4]) if minor.isdecimal() else 0 if self.attached == 1 else -1
        pending = gpu.first("remapped rows/pending", "row remapping pending", "pending page blacklist")
        failed = gpu.first("remapping failure occurred")
        action = gpu.first("gpu recovery action", "recovery action")
        lost = any("gpu is lost" in value.lower() for value in gpu.values.values())
        errors = gpu.total("volatile")
        if lost or errors is not None or not (pending is failed is action is None):
            yield GpuHealth(
                **where, pci=gpu.pci, index=index if index >= 0 else None, recovery_action=action,
                remap_pending=_yes(pending), remap_failed=_yes(failed), uncorrectable=errors, lost=lost,
                text=_says(action, pending, errors, lost),
            )  # fmt: skip
        util = number(gpu.first("utilization/gpu") or "")
        power = number(gpu.first("instantaneous power draw", "power draw", "average power draw") or "")
        if util is not None or power is not None or gpu.pids:
            yield GpuSample(
                **where, index=index, pci=gpu.pci, uuid=gpu.first("gpu uuid"), name=gpu.first("product name"),
                util_percent=util, mem_util_percent=number(gpu.first("utilization/memory") or ""), power_w=power,
                power_limit_w=number(gpu.first("current power limit", "power limit", "enforced power limit") or ""),
                sm_mhz=number(gpu.first("clocks/sm") or ""), temp_c=number(gpu.first("gpu current temp") or ""),
                mem_temp_c=number(gpu.first("memory current temp") or ""),
                mem_used_mib=number(gpu.first("fb memory usage/used") or ""), lost=lost, pids=tuple(gpu.pids[:1024]),
            )  # fmt: skip

    def _where(self, line: Line) -> Where:
        where = self.sections.where(line)
        if self.stamp_s is not None:
            where["at_s"], where["clock_s"] = self.stamp_s, None
        return where


def _yes(text: str | None) -> bool | None:
    return {"yes": True, "no": False}.get((text or "").lower())


def _says(action: str | None, pending: str | None, errors: int | None, lost: bool) -> str:
    parts = ["GPU is lost"] if lost else []
    parts += [f"recovery action {action}"] if action else []
    parts += [f"row remap pending {pending}"] if pending else []
    parts += [f"volatile uncorrectable errors {errors}"] if errors is not None else []
    return ", ".join(parts)


def _recognise(sample: Sample) -> bool:
    return any(
        _GPU.match(line) or "Unable to determine the device handle" in line or _NO_DRIVER.match(line)
        for line in sample_lines(sample.head)
    )


def _start(context: Context) -> Callable[[Iterable[Line]], Iterator[Observation]]:
    return _Reader(context).feed


PARSER = LogParser(name="nvidia_smi_query", recognise=_recognise, start=_start)
