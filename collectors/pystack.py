"""`pystack remote PID` (1.5), plain or `--native-all`: Python and native frames of every thread in one list.

`Traceback for thread TID (name) [Has the GIL] (most recent call last):`, then frames `    (Python) File "f", line N, in
function` or `    (C) File "source", line N, in symbol (library)`, outermost first: reversed here. The output names no
process: the thread that carries the C start-up frames is the main thread, whose id is the process id.
"""

import re
from collections.abc import Iterator

from sentinel.collector import Blob, Context, DocumentParser, Line, Sample
from sentinel.collectors._stack_frames import MAX_FRAMES, MAX_THREADS, frame, rank_hint
from sentinel.model.observation import Frame, Observation, Origin, Stack, Thread

_THREAD = re.compile(r"^Traceback for thread (\d{1,10})(?: \(([^)]{0,64})\))? \[([^\]]{0,120})\] \(most recent call")
_START = frozenset({"_start", "__libc_start_main", "__libc_start_main_impl", "Py_BytesMain", "Py_RunMain"})
_ERROR = "\N{SKULL}"


def parse(blob: Blob, context: Context) -> Iterator[Observation]:
    """The stack of the one process that a pystack output shows, or why there is none."""
    threads: list[Thread] = []
    error: str | None = None
    for head, frames in _threads(blob.lines()):
        if isinstance(head, str):
            error = error or head
        elif len(threads) < MAX_THREADS:
            threads.append(
                Thread(
                    name=head[2] or None,
                    tid=int(head[1]),
                    state="unknown",
                    owns_gil="Has the GIL" in head[3],
                    frames=tuple(reversed(frames)),
                )
            )
    if threads or error is not None:
        yield Stack(
            origin=Origin(context.name, 1), host=context.host, pid=_pid(threads), rank=rank_hint(context.name),
            tool="pystack", threads=tuple(threads), error=None if threads else error,
            native=any(each.native for thread in threads for each in thread.frames),
        )  # fmt: skip


def _threads(lines: Iterator[Line]) -> Iterator[tuple[re.Match[str] | str, list[Frame]]]:
    head: re.Match[str] | None = None
    frames: list[Frame] = []
    for line in lines:
        text = line.text
        if text.startswith("Traceback for thread") and (found := _THREAD.match(text[:400])) is not None:
            if head is not None:
                yield head, frames
            head, frames = found, []
        elif head is None and _ERROR in text[:200]:
            yield text[:400].replace(_ERROR, "").strip(), []
        elif head is not None and len(frames) < MAX_FRAMES and (found_frame := _frame(text)) is not None:
            frames.append(found_frame)
    if head is not None:
        yield head, frames


def _frame(text: str) -> Frame | None:
    body = text.lstrip()
    native = body.startswith('(C) File "')
    if not native and not body.startswith('(Python) File "'):
        return None
    start = body.index('"') + 1
    file, found, rest = body[start:].partition('", line ')
    number, _, symbol = rest.partition(", in ")
    if not found or not symbol:
        return None
    at_line = int(number) if number.isdecimal() and len(number) < 9 else None
    if not native:
        return frame(symbol.strip(), file, at_line, native=False)
    at = symbol.rfind(" (")
    library = symbol[at + 2 :].rstrip(") ") if at > 0 else file
    name = (symbol[:at] if at > 0 else symbol).removesuffix(" (inlined)")
    return frame(name, library, at_line, native=True)


def _pid(threads: list[Thread]) -> int | None:
    """Id of the main thread: C start-up frames at its bottom, else a module body there, else the lowest thread id."""
    for marks in (_START, frozenset({"<module>"})):
        for thread in threads:
            if any(each.function in marks for each in thread.frames[-8:]):
                return thread.tid
    return min((thread.tid for thread in threads if thread.tid is not None), default=None)


def _recognise(sample: Sample) -> bool:
    head = sample.head[:65536]
    return "Traceback for thread " in head or (_ERROR in head[:400] and len(head) < 4000)


PARSER = DocumentParser(name="pystack", recognise=_recognise, parse=parse)
