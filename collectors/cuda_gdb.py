"""cuda-gdb (12.x, 13.x): `info cuda kernels`, and native backtraces that the same session printed.

Row: `*  0  -  1 90412 Active 0x0000000f (4,1,1) (512,1,1) kernel<…>(arguments)`; columns Kernel, Parent, Dev, Grid,
Status, SMs Mask, GridDim, BlockDim, Invocation.
"""

import re
from collections.abc import Iterator

from sentinel.collector import Blob, Context, DocumentParser, Sample
from sentinel.collectors._stack_frames import MAX_FUNCTION, MAX_LINE, rank_hint
from sentinel.collectors.gdb_stacks import stacks
from sentinel.model.observation import GpuKernels, Observation, Origin

MAX_KERNELS = 1024

_TITLE = re.compile(r"Kernel +Parent +Dev +Grid +Status")
_ROW = re.compile(
    r"^[* ]\s{0,40}\d{1,6}\s+(?:-|\d{1,6})\s+\d{1,4}\s+\d{1,12}\s+(\w{1,20})\s+(?:0x[0-9a-fA-F]{1,64}|\w{1,64})\s+"
    r"\(\d[\d, ]{0,40}\)\s+\(\d[\d, ]{0,40}\)\s+(\S.*)$"
)
_ATTACH = re.compile(r"(?:Attaching to process|\[Inferior \d+ \(process) (\d{1,10})")


def parse(blob: Blob, context: Context) -> Iterator[Observation]:
    """Resident kernels (an empty list when the debugger said that there are none), then native stacks."""
    kernels: list[str] = []
    first: int | None = None
    pid: int | None = None
    for line in blob.lines():
        text = line.text[:MAX_LINE].rstrip()
        if (attach := _ATTACH.search(text)) is not None:
            pid = int(attach[1])
        if _TITLE.search(text) or "No CUDA kernels" in text:
            first = first if first is not None else line.number
        elif (row := _ROW.match(text)) is not None and first is not None and len(kernels) < MAX_KERNELS:
            kernels.append(_name(row[2]))
    if first is not None:
        yield GpuKernels(
            origin=Origin(context.name, first), host=context.host, pid=pid, rank=rank_hint(context.name),
            kernels=tuple(kernels),
        )  # fmt: skip
    yield from (stack for stack in stacks(blob.lines(), context) if stack.threads)


def _name(invocation: str) -> str:
    """Kernel with its template arguments, without the call arguments (the last balanced parentheses)."""
    depth = 0
    for at in range(len(invocation) - 1, 0, -1):
        depth += {")": 1, "(": -1}.get(invocation[at], 0)
        if depth <= 0:
            return invocation[:at][:MAX_FUNCTION] if invocation[at] == "(" else invocation[:MAX_FUNCTION]
    return invocation[:MAX_FUNCTION]


def _recognise(sample: Sample) -> bool:
    return bool(_TITLE.search(sample.head)) or "(cuda-gdb)" in sample.head


PARSER = DocumentParser(name="cuda-gdb", recognise=_recognise, parse=parse)
