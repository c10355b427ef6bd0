"""Texts of stack tools for the tests, and a way to read them with the product's parsers."""

from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import dedent

from sentinel.collector import Context, DocumentParser, Line, LogParser, Parser, Sample
from sentinel.collectors import cuda_gdb, eu_stack, faulthandler, gdb_stacks, py_spy, pystack
from sentinel.core.picture import Picture
from sentinel.model.observation import AnyObservation, GpuKernels, Observation, Stack

PARSERS: tuple[Parser, ...] = (
    *py_spy.PARSERS,
    pystack.PARSER,
    eu_stack.PARSER,
    cuda_gdb.PARSER,
    gdb_stacks.PARSER,
    faulthandler.PARSER,
)

SPAWNED = """\
    run (multiprocessing/process.py:108)
    _bootstrap (multiprocessing/process.py:314)
    _main (multiprocessing/spawn.py:135)
    spawn_main (multiprocessing/spawn.py:122)
    <module> (<string>:1)
"""
SGLANG_LOOP = (
    """\
    event_loop_overlap (sglang/srt/managers/scheduler.py:1213)
    run_scheduler_process (sglang/srt/managers/scheduler.py:3312)
"""
    + SPAWNED
)
VLLM_LOOP = (
    """\
    worker_busy_loop (vllm/v1/executor/multiproc_executor.py:862)
    worker_main (vllm/v1/executor/multiproc_executor.py:779)
"""
    + SPAWNED
)
CORE_LOOP = (
    """\
    run_busy_loop (vllm/v1/engine/core.py:1176)
    run_engine_core (vllm/v1/engine/core.py:1102)
"""
    + SPAWNED
)


@dataclass(frozen=True)
class Text:
    """A document in memory."""

    content: str

    def chunks(self) -> Iterator[bytes]:
        """The document as one chunk."""
        yield self.content.encode(errors="replace")

    def lines(self) -> Iterator[Line]:
        """Its lines."""
        for number, text in enumerate(self.content.splitlines(), 1):
            yield Line(number, text)

    def text(self, limit: int = 8 << 20) -> str:
        """Its start."""
        return self.content[:limit]


def read(content: str, name: str = "dump.txt", host: str | None = None) -> list[Observation]:
    """What the stack parsers find in a document, chosen by its content as the product chooses."""
    sample, context = Sample(content[:65536]), Context(name=name, year=2026, host=host)
    for parser in PARSERS:
        if isinstance(parser, DocumentParser) and parser.recognise(sample):
            return list(parser.parse(Text(content), context))
    found: list[Observation] = []
    for parser in PARSERS:
        if isinstance(parser, LogParser) and parser.recognise(sample):
            feed = parser.start(context)
            found += [*feed(Text(content).lines()), *feed([])]
    return found


def stacks(content: str, name: str = "dump.txt", host: str | None = None) -> list[Stack]:
    """The stacks among what a document says."""
    return [seen for seen in read(content, name, host) if isinstance(seen, Stack)]


def dump(title: str, frames: str, *, pid: int = 100, state: str = "active", thread: str = "MainThread") -> str:
    """A py-spy text dump of a process with one thread; more threads can be appended with `thread_of`."""
    return f"Process {pid}: {title}\nPython v3.12.3 (/usr/bin/python3.12)\n\n" + thread_of(pid, state, thread, frames)


def thread_of(tid: int, state: str, name: str, frames: str) -> str:
    """One thread of a py-spy text dump."""
    body = "\n".join(f"    {line.strip()}" for line in dedent(frames).strip().splitlines())
    return f'Thread {tid} ({state}): "{name}"\n{body}\n'


def picture_of(*contents: str) -> Picture:
    """A picture that holds the observations of several documents."""
    picture = Picture()
    for number, content in enumerate(contents):
        for seen in read(content, f"stacks/{number}.txt"):
            assert isinstance(seen, Stack | GpuKernels)
            note(picture, seen)
    return picture


def note(picture: Picture, *seen: AnyObservation) -> Picture:
    """Add observations and give the picture back."""
    for each in seen:
        picture.note(each)
    return picture
