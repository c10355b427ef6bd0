"""What the fuzz tests share: how much they do, what one input may cost, and how real bytes are damaged.

A run in CI takes the same examples every time and is over within a minute. `SENTINEL_FUZZ_TIMES=100 pytest tests/fuzz`
takes a hundred times as many, other ones each time, and keeps what failed for the next run.
"""

import contextlib
import os
import re
import resource
import signal
from collections.abc import Callable, Iterator, Sequence

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

TIMES = int(os.environ.get("SENTINEL_FUZZ_TIMES", "1"))
CPU_S = 4.0
"""Processor time for one input of at most some hundred KiB: linear readers need a hundredth of it."""
MEMORY_BYTES = 512 << 20

PIECES: tuple[bytes, ...] = (
    b"", b" ", b"9" * 40, b"9" * 400, b"-1", b"0", b"1e999", b"-1e308", b"nan", b"inf", b"18446744073709551616",
    b"4294967295", b"0x", b"1_000", b"0-99999999999", b"\0", b"\0" * 600, b"\xff\xfe", b"\xed\xa0\x80", b"\\ud800",
    b"\r\n", b"\r", b"\n", b"\x1b[31m", b"\x1b]0;", b'"', b"\\", b"{", b"}", b"[" * 70, b"(", b")", b"<", b"%", b":",
    b",", b"=", b"\t", "²".encode(), "٣".encode(), "𝟗".encode(), "\u2028".encode(), "\x85".encode(),
)  # fmt: skip
"""What has broken readers of text before: numbers that overflow, digits that are none, half characters."""

_NUMBER = re.compile(rb"\d+(?:\.\d+)?")
Damage = Callable[[bytes, int, int, bytes, bytes], bytes]


def examples(count: int, *, shrink: bool = True) -> settings:
    """Settings for this many examples; without `shrink` where a failing example costs seconds."""
    nightly = TIMES > 1
    return settings(
        max_examples=count * TIMES,
        derandomize=not nightly,
        deadline=None,
        database=settings().database if nightly else None,
        phases=[phase for phase in Phase if shrink or phase is not Phase.shrink],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    )


class TooDear(BaseException):
    """An input took more processor time than any of its size may. No handler of the product may swallow it."""


@contextlib.contextmanager
def bounded(cpu_s: float = CPU_S) -> Iterator[None]:
    """While the block runs, more than this processor time raises TooDear and more memory raises MemoryError."""

    def over(_number: int, _frame: object) -> None:
        raise TooDear(f"more than {cpu_s} s of processor time")

    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()  # noqa: SIM115
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    before = signal.signal(signal.SIGPROF, over)
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES, hard))
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.signal(signal.SIGPROF, before)


def _cut_end(data: bytes, at: int, _length: int, _piece: bytes, _other: bytes) -> bytes:
    return data[:at]


def _cut_out(data: bytes, at: int, length: int, _piece: bytes, _other: bytes) -> bytes:
    return data[:at] + data[at + length :]


def _repeat(data: bytes, at: int, length: int, _piece: bytes, _other: bytes) -> bytes:
    return data[:at] + data[at : at + length] * 3 + data[at + length :]


def _splice(data: bytes, at: int, length: int, _piece: bytes, other: bytes) -> bytes:
    return data[:at] + other[at % (len(other) + 1) :][: 4 * length] + data[at:]


def _insert(data: bytes, at: int, _length: int, piece: bytes, _other: bytes) -> bytes:
    return data[:at] + piece + data[at:]


def _put_for_number(data: bytes, at: int, _length: int, piece: bytes, _other: bytes) -> bytes:
    return data[:at] + _NUMBER.sub(lambda _found: piece, data[at:], count=1)


def _put_for_numbers(data: bytes, at: int, length: int, piece: bytes, _other: bytes) -> bytes:
    return data[:at] + _NUMBER.sub(lambda _found: piece, data[at:], count=1 + length // 8)


def _flip(data: bytes, at: int, length: int, _piece: bytes, _other: bytes) -> bytes:
    return data[:at] + bytes(byte ^ (1 << length % 8) for byte in data[at : at + 1]) + data[at + 1 :]


def _other_ends(data: bytes, _at: int, _length: int, _piece: bytes, _other: bytes) -> bytes:
    return data.replace(b"\n", b"\r\n")


DAMAGES: tuple[Damage, ...] = (
    _cut_end, _cut_out, _repeat, _splice, _insert, _put_for_number, _put_for_number, _put_for_numbers, _flip,
    _other_ends,
)  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn, seeds: Sequence[bytes], most: int = 4) -> bytes:
    """One of the seeds with up to `most` pieces of damage."""
    data = draw(st.sampled_from(seeds))
    steps = st.tuples(
        st.sampled_from(DAMAGES), st.integers(0, 1 << 15), st.integers(0, 200), st.sampled_from(PIECES),
        st.sampled_from(seeds),
    )  # fmt: skip
    for damage, at, length, piece, other in draw(st.lists(steps, max_size=most)):
        data = damage(data, at % (len(data) + 1), length, piece, other)
    return data
