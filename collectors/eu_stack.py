"""`eu-stack -p PID` of elfutils (0.17x to 0.19x): native frames of every thread, innermost first.

`PID N - process`, then `TID N:` and `#K  0xADDRESS symbol` (with `-m` followed by ` - library`). Without `-m` none
is named, and the CUDA driver exports few symbols; its frames are told by address: they lie near an exported driver
symbol of the same process, or at the thread start that the driver's own pollers share.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from sentinel.collector import Blob, Context, DocumentParser, Line, Sample
from sentinel.collectors._stack_frames import MAX_FRAMES, MAX_THREADS, frame, rank_hint
from sentinel.model.observation import Frame, Observation, Origin, Stack, Thread

DRIVER = "libcuda.so"
DRIVER_REACH = 32 << 20
"""Distance in bytes from an exported driver symbol within which a nameless frame is taken for the driver's (its text is
30 to 60 MiB; neighbours in the address space are separated by their own mappings and mostly have symbols)."""

_PID = re.compile(r"^PID (\d{1,10}) - (?:process|core)")
_TID = re.compile(r'^TID (\d{1,10})(?: "?([^":]{0,64})"?)?:')
_FRAME = re.compile(r"^#\d{1,6}\s+(0x[0-9a-fA-F]{1,16})(?: - 1)?(?:\s+(\S.*))?$")
_REFUSED = re.compile(r"^eu-stack: (?:dwfl_linux_proc_attach pid|.{0,60}?pid) (\d{1,10}): (.{1,200})")
_DRIVER_SYMBOL = re.compile(r"^cu[A-Z][A-Za-z0-9_]{2,60}$")
_POLL = frozenset({"poll", "__poll", "ppoll", "__GI___poll"})


@dataclass(slots=True)
class _Row:
    address: int
    symbol: str | None
    module: str | None


@dataclass(slots=True)
class _Process:
    origin: Origin
    pid: int | None
    threads: list[tuple[int, str | None, list[_Row]]] = field(default_factory=list)


def parse(blob: Blob, context: Context) -> Iterator[Observation]:
    """One stack a process; a refused attach gives a stack with the error."""
    process: _Process | None = None
    for line in blob.lines():
        text = line.text[:1024]
        if (found := _PID.match(text)) is not None:
            if process is not None:
                yield _stack(process, context)
            process = _Process(Origin(context.name, line.number), int(found[1]))
        elif (refused := _REFUSED.match(text)) is not None and (process is None or not process.threads):
            yield _refusal(refused, context, line)
        elif process is not None:
            _take(process, text)
    if process is not None:
        yield _stack(process, context)


def _refusal(found: re.Match[str], context: Context, line: Line) -> Stack:
    return Stack(
        origin=Origin(context.name, line.number), host=context.host, pid=int(found[1]), rank=rank_hint(context.name),
        tool="eu-stack", native=True, error=found[2],
    )  # fmt: skip


def _take(process: _Process, text: str) -> None:
    if text.startswith("#") and process.threads and (row := _FRAME.match(text)) is not None:
        rows = process.threads[-1][2]
        if len(rows) < MAX_FRAMES:
            symbol, _, module = (row[2] or "").partition(" - ")
            rows.append(_Row(int(row[1], 16), symbol.strip() or None, module.strip() or None))
    elif (thread := _TID.match(text)) is not None and len(process.threads) < MAX_THREADS:
        process.threads.append((int(thread[1]), thread[2] or None, []))


def _stack(process: _Process, context: Context) -> Stack:
    rows = (row for _, _, rows in process.threads for row in rows)
    anchors = sorted({row.address for row in rows if row.symbol and _DRIVER_SYMBOL.match(row.symbol)})
    starts = _driver_starts(process)
    entries = _thread_entries(process)
    threads = tuple(
        Thread(name=name, tid=tid, frames=tuple(_frames(rows, anchors, starts, entries)))
        for tid, name, rows in process.threads
    )
    return Stack(
        origin=process.origin, host=context.host, pid=process.pid, rank=rank_hint(context.name), tool="eu-stack",
        native=True, threads=threads, error=None if threads else "no thread was printed",
    )  # fmt: skip


def _frames(rows: list[_Row], anchors: list[int], starts: frozenset[int], entries: frozenset[int]) -> Iterator[Frame]:
    from_start = False
    marked = []
    for row in reversed(rows):
        from_start = row.address in starts or (from_start and row.symbol is None)
        near = bool(anchors) and anchors[0] - DRIVER_REACH <= row.address <= anchors[-1] + DRIVER_REACH
        near = near and row.address not in entries
        driver = row.module is None and (
            bool(row.symbol and _DRIVER_SYMBOL.match(row.symbol)) or (row.symbol is None and (near or from_start))
        )
        module = row.module or (DRIVER if driver else None)
        marked.append(frame(row.symbol or hex(row.address), module, None, native=True))
    return reversed(marked)


def _driver_starts(process: _Process) -> frozenset[int]:
    """Thread starts of the driver: shared by threads that only poll and have nameless frames down to the C library."""
    pollers: Counter[int] = Counter()
    for _, _, rows in process.threads:
        if len(rows) >= 6 and rows[0].symbol in _POLL and all(row.symbol is None for row in rows[1:]):
            pollers[rows[-3].address] += 1
    return frozenset(address for address, count in pollers.items() if count >= 2)


def _thread_entries(process: _Process) -> frozenset[int]:
    """Where the C library starts threads: the two outermost frames that most threads share."""
    ends: Counter[int] = Counter(row.address for _, _, rows in process.threads for row in rows[-2:])
    return frozenset(address for address, count in ends.items() if count > 1 and count * 2 >= len(process.threads))


def _recognise(sample: Sample) -> bool:
    head = sample.head[:65536]
    return bool(re.search(r"^PID \d{1,10} - (?:process|core)", head, re.M)) or head.startswith("eu-stack: ")


PARSER = DocumentParser(name="eu-stack", recognise=_recognise, parse=parse)
