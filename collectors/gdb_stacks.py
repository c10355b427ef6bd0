"""gdb's `thread apply all bt` (8 to 16): native frames of every thread, innermost first.

`Thread 9 (Thread 0x7f… (LWP 2241) "name"):`, then `#0  0x… in function (args) from library` or `… at file:line`, long
ones wrapped onto indented lines. The process is named by `Attaching to process N` or, since an attached process's first
thread is its main thread, by the LWP of thread 1; without either it stays unknown.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from sentinel.collector import Blob, Context, DocumentParser, Line, Sample
from sentinel.collectors._stack_frames import MAX_FRAMES, MAX_LINE, MAX_THREADS, frame, rank_hint
from sentinel.model.observation import Frame, Observation, Origin, Stack, Thread

_THREAD = re.compile(
    r'^Thread (\d{1,7}) \((?:Thread 0x[0-9a-fA-F]{1,16} )?\(?(?:LWP|process) (\d{1,10})\)?(?: "(.{0,64})")?\)'
)
_THREAD_NAME_LAST = re.compile(r'"(.{0,64})"\)?:?$')
_FRAME = re.compile(r"^#(\d{1,6})\s+(?:(0x[0-9a-fA-F]{1,16}) in )?(.+)$")
_ATTACH = re.compile(r"(?:Attaching to process|\[Inferior \d+ \(process|attaching to pid) (\d{1,10})", re.I)


@dataclass(slots=True)
class _Process:
    origin: Origin
    pid: int | None = None
    last_number: int = 0
    direction: int = 0
    threads: list[tuple[int, str | None, list[Frame]]] = field(default_factory=list)


def stacks(lines: Iterable[Line], context: Context) -> Iterator[Stack]:
    """One stack a process; another process begins at a new attach line or when thread numbers start over."""
    process = _Process(Origin(context.name, 1))
    for text, number in _joined(lines):
        if (attach := _ATTACH.search(text[:200])) is not None:
            yield from _stack(process, context)
            process = _Process(Origin(context.name, number), pid=int(attach[1]))
        elif text.startswith("Thread ") and (head := _THREAD.match(text)) is not None:
            index = int(head[1])
            if process.threads and _starts_over(process, index):
                yield from _stack(process, context)
                process = _Process(Origin(context.name, number))
            elif process.threads:
                process.direction = 1 if index > process.last_number else -1
            process.last_number = index
            if index == 1 and process.pid is None:
                process.pid = int(head[2])
            if len(process.threads) < MAX_THREADS:
                name = head[3] if head[3] is not None else _name(text)
                process.threads.append((int(head[2]), name, []))
        elif text.startswith("#") and process.threads and (found := _frame(text)) is not None:
            process.threads[-1][2].append(found)
    yield from _stack(process, context)


def _starts_over(process: _Process, index: int) -> bool:
    """gdb counts threads down (or up with `-ascending`); a step against the direction is another process."""
    step = index - process.last_number
    return step == 0 or step * process.direction < 0


def _joined(lines: Iterable[Line]) -> Iterator[tuple[str, int]]:
    """Lines with gdb's wrapped continuations put back onto their frame."""
    held: str | None = None
    at = 0
    for line in lines:
        text = line.text[:MAX_LINE].rstrip()
        if held is not None and held.startswith("#") and text[:4].isspace() and text.strip() and len(held) < MAX_LINE:
            held = f"{held} {text.strip()}"
            continue
        if held is not None:
            yield held, at
        held, at = text.lstrip(), line.number
    if held is not None:
        yield held, at


def _name(text: str) -> str | None:
    found = _THREAD_NAME_LAST.search(text)
    return found[1] if found else None


def _frame(text: str) -> Frame | None:
    found = _FRAME.match(text)
    if found is None or int(found[1]) >= MAX_FRAMES:
        return None
    body, file, line = found[3], None, None
    if (at := body.rfind(" from ")) > 0:
        body, file = body[:at], body[at + 6 :].strip()
    elif (at := body.rfind(" at ")) > 0:
        file, _, number = body[at + 4 :].strip().rpartition(":")
        line = int(number) if number.isdecimal() and len(number) < 9 else None
        body = body[:at]
    name = body.partition(" (")[0].strip()
    if name == "??" and found[2]:
        name = found[2]
    return frame(name, file, line, native=file is None or not file.endswith(".py"))


def _stack(process: _Process, context: Context) -> Iterator[Stack]:
    if not process.threads:
        return
    yield Stack(
        origin=process.origin, host=context.host, pid=process.pid, rank=rank_hint(context.name), tool="gdb",
        native=True,
        threads=tuple(Thread(name=name, tid=tid, frames=tuple(frames)) for tid, name, frames in process.threads),
    )  # fmt: skip


def parse(blob: Blob, context: Context) -> Iterator[Observation]:
    """Stacks of a file with gdb output."""
    yield from stacks(blob.lines(), context)


def _recognise(sample: Sample) -> bool:
    if "(cuda-gdb)" in sample.head or "Kernel Parent Dev" in sample.head:
        return False
    return any(line.startswith("Thread ") and _THREAD.match(line) for line in sample.head.splitlines())


PARSER = DocumentParser(name="gdb", recognise=_recognise, parse=parse)
