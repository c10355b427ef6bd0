"""The NCCL readers on any bytes, in any chunks, and against a counting that is too simple to be wrong."""

import random
import re
from collections import Counter
from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from sentinel.collector import Context, Line
from sentinel.collectors import environment, flight_recorder, nccl_log, nccl_ras, rdma_counters, show_gids
from sentinel.collectors.nccl_log import NcclReader
from sentinel.core.fact import Value
from sentinel.model.observation import Enqueues, Observation
from tests.unit.nccl_world import COMPUTE, World, picture_of, stopped

CONTEXT = Context(name="nccl.log", year=2026)
OPS = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast")
_CALL = re.compile(
    r"([^\s:\[\]()]+):(\d+):\d+ (?:\[-?\d+\] )?NCCL INFO ([A-Z]\w+): opCount ([0-9a-f]+) sendbuff \S+ recvbuff \S+ "
    r"count (\d+) datatype (\d+) op (\d+) root (-?\d+) comm (0x[0-9a-f]+) \[nranks=(\d+)\]"
)

call_lines = st.builds(
    lambda stamp, pid, op, opcount, count, root, comm: (
        f"{stamp}box1:{pid}:{pid} [0] NCCL INFO {op}: opCount {opcount:x} sendbuff 0x7f recvbuff (nil) count {count} "
        f"datatype 9 op 0 root {root} comm 0x{comm:x} [nranks=8] stream (nil)"
    ),
    st.sampled_from(["", "[2026-11-29 10:00:00] ", "[2026-11-29 10:00:00.123] "]),
    st.integers(1, 3),
    st.sampled_from(OPS),
    st.integers(0, 300),
    st.sampled_from([1, 64, 4096]),
    st.integers(0, 2),
    st.integers(1, 3),
)
other_lines = st.sampled_from(
    [
        "",
        "box1:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",
        "box1:1:9 [0] net.cc:1 NCCL WARN NET/IB : Got async event : port error",
        "[2026-11-29 10:00:00 TP0] Decode batch, #running-req: 1",
    ]
)
logs = st.lists(st.one_of(call_lines, call_lines, call_lines, other_lines), max_size=200)


class Whole:
    """A document in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def chunks(self) -> Iterator[bytes]:
        """Small pieces, so that lines are cut everywhere."""
        for at in range(0, len(self._data), 777):
            yield self._data[at : at + 777]

    def lines(self) -> Iterator[Line]:
        """The same bytes as text."""
        for number, line in enumerate(self._data.decode("utf-8", "replace").split("\n"), 1):
            yield Line(number=number, text=line)

    def text(self, limit: int = 8 << 20) -> str:
        """All of it."""
        return self._data.decode("utf-8", "replace")[:limit]


def enqueues(data: bytes, sizes: list[int]) -> dict[tuple[int | None, str], Enqueues]:
    """Counts of a log that comes in pieces of these sizes."""
    reader, found = NcclReader(CONTEXT), list[Observation]()
    at = 0
    for size in [*sizes, len(data)]:
        found += reader.feed(data[at : at + size])
        at += size
    found += reader.flush(ended=True)
    return {(seen.pid, seen.comm): seen for seen in found if isinstance(seen, Enqueues)}


@settings(deadline=None, max_examples=150)
@given(logs, st.lists(st.integers(0, 4000), max_size=12))
def test_counts_are_those_of_a_naive_reading_whatever_the_chunks(lines: list[str], sizes: list[int]) -> None:
    """False in production: a cache that goes wrong would miscount, and a rank would be blamed for it."""
    found = enqueues("".join(f"{line}\n" for line in lines).encode(), sizes)
    expected: dict[tuple[int | None, str], list[re.Match[str]]] = {}
    numbers: dict[tuple[int | None, str], list[int]] = {}
    for number, line in enumerate(lines, 1):
        if match := _CALL.search(line):
            key: tuple[int | None, str] = (int(match[2]), match[9])
            expected.setdefault(key, []).append(match)
            numbers.setdefault(key, []).append(number)
    assert set(found) == set(expected)
    for process_comm, matches in expected.items():
        seen = found[process_comm]
        assert seen.total == len(matches)
        assert seen.by_op == Counter(match[3] for match in matches)
        assert seen.first_op_count == int(matches[0][4], 16)
        assert seen.last_op_count == int(matches[-1][4], 16)
        tail = [(m[3], int(m[4], 16), int(m[5]), int(m[6]), int(m[8])) for m in matches[-64:]]
        assert [(op.op, op.op_count, op.count, op.dtype, op.root) for op in seen.tail] == tail
        assert [op.line for op in seen.tail] == numbers[process_comm][-64:]
        assert len(seen.digests) == len(matches) // 64


@settings(deadline=None, max_examples=60)
@given(logs)
def test_lines_among_others_give_the_same_counts_as_the_file(lines: list[str]) -> None:
    """False in production: one and the same log would be judged differently on stdout and in a file."""
    whole = enqueues("".join(f"{line}\n" for line in lines).encode(), [])
    feed = nccl_log.PARSERS[1].start(CONTEXT)
    found = [
        seen for batch in ([Line(number=n, text=line) for n, line in enumerate(lines, 1)], []) for seen in feed(batch)
    ]
    assert {(seen.pid, seen.comm): seen for seen in found if isinstance(seen, Enqueues)} == whole


@settings(deadline=None, max_examples=100)
@given(
    st.one_of(
        st.binary(max_size=3000),
        st.lists(st.one_of(st.binary(max_size=60), call_lines.map(str.encode)), max_size=40).map(b"".join),
    )
)
def test_every_reader_is_total_on_any_bytes(data: bytes) -> None:
    """False in production: one damaged file would end the analysis of all others."""
    blob = Whole(data)
    for parser in (
        nccl_log.PARSERS[0], nccl_ras.PARSER, flight_recorder.PARSER, rdma_counters.PARSER, show_gids.PARSER,
        environment.PARSER,
    ):  # fmt: skip
        list(parser.parse(blob, CONTEXT))
    feed = nccl_log.PARSERS[1].start(CONTEXT)
    list(feed(blob.lines()))
    list(feed(()))


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 8), st.lists(st.tuples(st.integers(0, 7), st.integers(0, 2)), max_size=12), st.randoms())
def test_the_order_of_files_changes_no_fact(size: int, left_out: list[tuple[int, int]], rng: random.Random) -> None:
    """False in production: the same evidence, packed differently, would give another verdict."""
    world = World(size, networked=True)
    world.open("control", range(size), split=True)
    for step in range(12):
        world.all(op="AllGather", but=[rank for rank, at in left_out if at == step % 3])
        world.all("control", op="Broadcast", count=1)
    order = list(range(size))
    rng.shuffle(order)
    assert _facts(world, list(range(size))) == _facts(world, order)


def _facts(world: World, order: list[int]) -> dict[str, Value]:
    picture = picture_of(stopped(), world.observations(order))
    return {name: compute(picture).value for name, compute in COMPUTE.items()}


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 5_000_000), st.binary(min_size=1, max_size=40))
def test_a_line_of_any_length_costs_nothing_but_itself(length: int, unit: bytes) -> None:
    """False in production: one endless line (a core file named .log) would fill the memory or hide what follows."""
    junk = (unit.replace(b"\n", b" ") * (length // len(unit) + 1))[:length]
    call = (
        b"AllReduce: opCount 0 sendbuff 0x1 recvbuff 0x1 count 1 datatype 9 op 0 root 0 comm 0x1 [nranks=8] stream 0x1"
    )
    found = enqueues(junk + b"\nbox1:1:1 [0] NCCL INFO " + call + b"\n", [1000, 300_000])
    assert found[1, "0x1"].total == 1
