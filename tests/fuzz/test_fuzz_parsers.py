"""Every parser, with damaged real documents: whatever comes is read in bounded time and memory, and can be kept."""

import math
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.collector import Parser
from sentinel.collectors import ALL
from sentinel.model.observation import AnyObservation, Observation
from tests.fuzz.fuzzing import bounded, damaged, examples
from tests.fuzz.seeds import by_parser, read

PUMPED_BYTES = 128 << 10
_DECODER: msgspec.json.Decoder[AnyObservation] = msgspec.json.Decoder(AnyObservation)


def numbers(value: Any) -> Iterator[float]:
    """Every number inside plain values."""
    if isinstance(value, int | float):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from numbers(inner)
    elif isinstance(value, list | tuple | set):
        for inner in value:
            yield from numbers(inner)


def check(seen: Observation) -> None:
    """An observation holds numbers only that arithmetic can bear, and comes back from the journal as it went in."""
    assert isinstance(seen, Observation)
    for number in numbers(msgspec.to_builtins(seen)):
        assert math.isfinite(float(number)), seen
    assert _DECODER.decode(msgspec.json.encode(seen)) == seen


@pytest.mark.parametrize("parser", ALL, ids=lambda parser: parser.name)
def test_every_parser_has_real_documents_to_damage(parser: Parser) -> None:
    """False: the tests below feed a parser with nothing that it reads, and are green."""
    assert any(read(parser, seed) for seed in by_parser()[parser.name])


@pytest.mark.parametrize("parser", ALL, ids=lambda parser: parser.name)
def test_damaged_documents_are_read_to_the_end_and_what_is_seen_can_be_kept(parser: Parser) -> None:
    """False: one damaged line ends an analysis, or puts a number into the journal that no replay can read."""

    @given(damaged(by_parser()[parser.name]))
    @examples(40)
    def run(data: bytes) -> None:
        with bounded():
            for seen in read(parser, data):
                check(seen)

    run()


@pytest.mark.parametrize("parser", ALL, ids=lambda parser: parser.name)
def test_a_line_that_repeats_a_part_of_itself_is_read_in_linear_time(parser: Parser) -> None:
    """False: a user who makes an engine print one long line stops the watch of all engines for minutes."""
    lines = [line for seed in by_parser()[parser.name] for line in seed.split(b"\n") if line]

    @given(st.sampled_from(lines), st.integers(0, 400), st.integers(1, 40), st.booleans())
    @examples(15, shrink=False)
    def run(line: bytes, at: int, length: int, ends: bool) -> None:
        at %= len(line)
        part = line[at : at + length]
        pumped = line[:at] + part * (PUMPED_BYTES // len(part)) + (line[at:] if ends else b"")
        with bounded():
            read(parser, line + b"\n" + pumped + b"\n" + line)

    run()
