"""`lspci`: NVIDIA GPUs in bus order, and bridges whose access control sends peer traffic through the root complex.

Source of the format: pciutils 3.7 to 3.13. nvidia-smi numbers GPUs in bus order, so the n-th GPU of a whole listing has
index n.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from sentinel.collector import Context, Line, LogParser, Sample
from sentinel.collectors._machine import Sections, sample_lines
from sentinel.model.observation import DeviceCounters, GpuSample, Observation

_DEVICE = re.compile(
    r"^(?P<pci>(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) (?P<class>[A-Z0-9][\w /-]{2,60}?)"
    r"(?: \[[0-9a-f]{4}\])?: (?P<name>.{1,200})$"
)
_GPU_CLASSES = ("3D controller", "VGA compatible controller", "Display controller")
_ACS = re.compile(r"^\s+ACSCtl:\s+(?P<flags>.{1,200})$")


@dataclass(slots=True)
class _Reader:
    context: Context
    sections: Sections = field(init=False)
    pci: str | None = None
    gpus: int = 0

    def __post_init__(self) -> None:
        self.sections = Sections(self.context)

    def feed(self, lines: Iterable[Line]) -> Iterator[Observation]:
        for line in lines:
            text = line.text[:512]
            if found := _DEVICE.match(text):
                self.pci = found["pci"]
                if found["class"] in _GPU_CLASSES and "NVIDIA" in found["name"]:
                    where = self.sections.where(line)
                    yield GpuSample(**where, index=self.gpus, pci=self.pci, name=found["name"])
                    self.gpus += 1
            elif self.pci is not None and (acs := _ACS.match(text)):
                redirect = float("ReqRedir+" in acs["flags"])
                where = self.sections.where(line)
                yield DeviceCounters(**where, family="other", device=self.pci, values={"acs_redirect": redirect})


def _recognise(sample: Sample) -> bool:
    return any(_DEVICE.match(line[:512]) for line in sample_lines(sample.head))


def _start(context: Context) -> Callable[[Iterable[Line]], Iterator[Observation]]:
    return _Reader(context).feed


PARSER = LogParser(name="lspci", recognise=_recognise, start=_start)
