"""Any bytes give stacks or nothing, never an exception, and no long line costs more than its length."""

import re
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sentinel.collector import Context, DocumentParser, LogParser, Parser, Sample
from sentinel.collectors import (
    _py_spy_embedded,
    _py_spy_text,
    _stack_frames,
    cuda_gdb,
    eu_stack,
    faulthandler,
    gdb_stacks,
    py_spy,
    pystack,
)
from sentinel.core.facts import stack_groups, stack_threads, stacks
from sentinel.core.picture import Picture
from sentinel.core.stack_reading import read_stack
from sentinel.model.observation import Frame, Observation, Origin, Stack, Thread
from tests.unit.stack_texts import PARSERS, Text

PIECES = """\
Process 1: sglang::scheduler_TP0
Python v3.12.3 (/usr/bin/python3)

Thread 1 (active+gil): "MainThread"
Thread 0x7f (idle)
    all_reduce (torch/distributed/distributed_c10d.py:2921)
    0x7f (libcuda.so.1)
    cuLaunchKernel (libcuda.so.1)
Error: Failed to get stack traces
Caused by:
    0: Failed to suspend process
Stack backtrace:
[2026-10-11 11:13:21 TP4] Pyspy dump for PID 5204 (py-spy dump --pid 5204):
[2026-99-99 99:99:99 TP4] Pyspy failed (py-spy dump --pid 1). Error: Error: x
PID 7 - process
TID 7:
#0  0x00007f0ba2614854 cuCtxSynchronize_v2
#1  0x00007f
Traceback for thread 5 (python3) [Has the GIL] (most recent call last):
    (Python) File "a.py", line 3, in run
    (C) File "???", line 0, in _start (/usr/bin/python3)
    (C) File "
Thread 3 (Thread 0x7f (LWP 5) "x"):
#0  0x7f in poll () from libc.so.6
    at ./x.c:5
(cuda-gdb) info cuda kernels
  Kernel Parent Dev Grid Status SMs Mask GridDim BlockDim Invocation
*  0 - 0 1 Active 0x1 (1,1,1) (1,1,1) k<a>(b)
Current thread 0x7f (most recent call first):
  File "a.py", line 3 in run
>>> Call stack dump #1 at Thu Nov 99 10:05:11 2026 due to x
[{"pid": 5, "thread_name": "MainThread", "active": true, "owns_gil": true, "frames": [{"name": "f"}]}, {"pid"
""".splitlines()
TEXTS = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=40)), max_size=30).map("\n".join)


def run(parser: Parser, text: str) -> list[Observation]:
    """Everything that one parser says about a document."""
    context = Context(name="rank1/dump.txt", year=2026)
    parser.recognise(Sample(text[:65536], text[-65536:]))
    if isinstance(parser, DocumentParser):
        return list(parser.parse(Text(text), context))
    assert isinstance(parser, LogParser)
    feed = parser.start(context)
    return [*feed(Text(text).lines()), *feed([])]


@settings(max_examples=150, deadline=None)
@given(text=TEXTS)
def test_any_text_is_read_without_an_exception(text: str) -> None:
    """False: one cut or hostile file ends the whole analysis."""
    for parser in PARSERS:
        for seen in run(parser, text):
            if isinstance(seen, Stack):
                read_stack(seen)


@settings(max_examples=60, deadline=None)
@given(raw=st.binary(max_size=2000))
def test_any_bytes_are_read_without_an_exception(raw: bytes) -> None:
    """False: a core file that lies beside the dumps ends the analysis."""
    for parser in PARSERS:
        run(parser, raw.decode("utf-8", "replace"))


NAMES = st.one_of(
    st.sampled_from(["synchronize", "recv_requests", "all_reduce", "forward", "wait", "cuLaunchKernel", "<module>"]),
    st.text(max_size=12),
)  # fmt: skip
FRAMES = st.builds(
    Frame,
    NAMES,
    st.one_of(st.none(), st.sampled_from(["torch/cuda/streams.py", "libcuda.so.1", "threading.py", "x.py"])),
    st.one_of(st.none(), st.integers(0, 99)),
    st.booleans(),
)  # fmt: skip
THREADS = st.builds(
    Thread,
    name=st.one_of(st.none(), st.just("MainThread")),
    tid=st.one_of(st.none(), st.integers(1, 9)),
    state=st.sampled_from(["active", "idle", "unknown"]),
    owns_gil=st.one_of(st.none(), st.booleans()),
    frames=st.lists(FRAMES, max_size=8).map(tuple),
)
STACKS = st.builds(
    Stack,
    origin=st.just(Origin("x")),
    pid=st.one_of(st.none(), st.integers(1, 4)),
    rank=st.one_of(st.none(), st.integers(0, 3)),
    tool=st.sampled_from(["py-spy", "pystack", "eu-stack", "gdb", "faulthandler"]),
    title=st.one_of(st.none(), st.sampled_from(["sglang::scheduler_TP1", "VLLM::EngineCore", "VLLM::Worker_TP0"])),
    threads=st.lists(THREADS, max_size=3).map(tuple),
    native=st.booleans(),
)


@settings(max_examples=60, deadline=None)
@given(seen=st.lists(STACKS, max_size=4))
def test_facts_are_total_and_their_ranks_sorted(seen: list[Stack]) -> None:
    """False: an unforeseen stack stops the judgement instead of leaving one fact unknown."""
    picture = Picture()
    for stack in seen:
        picture.note(stack)
    for module in (stacks, stack_groups, stack_threads):
        for spec in module.FACTS:
            found = spec.compute(picture)

            assert found.value is None or found.cites, spec.name
            if isinstance(found.value, tuple):
                assert list(found.value) == sorted(set(found.value)), spec.name


def one_of_pid_3(title: str, *threads: Thread) -> Stack:
    """A dump of a process whose number another container uses as well."""
    return Stack(origin=Origin("x"), pid=3, tool="py-spy", title=title, threads=threads)


@settings(max_examples=40, deadline=None)
@given(seen=st.lists(STACKS, max_size=5), places=st.randoms(use_true_random=False))
@example(
    seen=[one_of_pid_3("sglang::scheduler_TP1"), one_of_pid_3("VLLM::Worker_TP0", Thread(name=None, tid=None))],
    places=Random(1),
)
def test_the_order_of_files_does_not_matter_for_who_is_known(seen: list[Stack], places: object) -> None:
    """False: the verdict depends on how an operator named the files."""
    shuffled = list(seen)
    places.shuffle(shuffled)  # type: ignore[attr-defined]
    values = []
    for order in (seen, shuffled):
        picture = Picture()
        for stack in order:
            picture.note(stack)
        values.append(stacks.FACTS[0].compute(picture).value)

    assert values[0] == values[1]


MODULES = (_py_spy_embedded, _py_spy_text, _stack_frames, cuda_gdb, eu_stack, faulthandler, gdb_stacks, py_spy, pystack)
EXPRESSIONS = [
    (f"{module.__name__.rpartition('.')[2]}.{name}", value)
    for module in MODULES
    for name, value in vars(module).items()
    if isinstance(value, re.Pattern)
]
NESTED = re.compile(r"\((?:[^()\\]|\\.)*[*+]\)[*+]")


@pytest.mark.parametrize(("name", "expression"), EXPRESSIONS)
def test_no_expression_repeats_a_repetition(name: str, expression: "re.Pattern[str]") -> None:
    """False: one crafted line keeps the analyser busy for hours."""
    assert NESTED.search(expression.pattern) is None, name


@pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.name)
@pytest.mark.parametrize(
    "piece",
    ['Thread 1 (active): "', '    (C) File "', "#0  0x7f in ", "[2026-01-01 00:00:00] Pyspy ", "(", '{"frames": ['],
)
def test_a_line_of_a_mebibyte_is_read(parser: Parser, piece: str) -> None:
    """False: a dump glued into one line by a log shipper stalls the analysis."""
    run(parser, piece * ((1 << 20) // len(piece)))
