"""How fast a log of decode lines is read: MB/s of the parser alone, on one core.

    python bench/decode_log.py [--lines N]

The log is made in memory: a batch of eight requests with speculative decoding, one prefill and one HTTP line for every
40 decode lines. It is read as the analyser reads it, 128 KiB at a time: the chunk into lines, the lines into
observations. Processor time is measured for each of the two, and the clock for both; median and range of the runs.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from figures import machine_line, say, spread

from sentinel.collector import Context
from sentinel.collectors import sglang_log
from sentinel.evidence.framing import unframe
from sentinel.evidence.limits import CHUNK_BYTES

GOAL_MB_S = 40.0


class Run(NamedTuple):
    """What one reading of the log cost: processor seconds of parser and of framing, seconds by the clock."""

    parser_s: float
    framing_s: float
    wall_s: float
    seen: int


def read(chunks: Sequence[bytes]) -> Run:
    """Read the log as the analyser does: chunk by chunk into lines, a batch of lines into observations."""
    feed = sglang_log.PARSER.start(Context(name="decode.log", year=2026))
    batches = unframe(chunks)
    parser_s = framing_s = 0.0
    seen, began = 0, time.perf_counter()
    while True:
        start = time.process_time()
        batch = next(batches, [])
        framed = time.process_time()
        seen += sum(1 for _ in feed(batch))
        framing_s += framed - start
        parser_s += time.process_time() - framed
        if not batch:
            return Run(parser_s, framing_s, time.perf_counter() - began, seen)


def log_texts(count: int) -> Iterator[str]:
    """`count` lines, five decode lines a second."""
    for n in range(count):
        second = n // 5
        stamp = (
            f"2026-11-{1 + second // 86400 % 28:02} {second // 3600 % 24:02}:{second // 60 % 60:02}:{second % 60:02}"
        )
        if n % 42 == 40:
            text = (
                f"[{stamp} TP0] Prefill batch, #new-seq: 1, #new-token: {512 + n % 512}, #cached-token: 64, "
                f"token usage: 0.25, "
                "#running-req: 7, #queue-req: 0, cuda graph: False, input throughput (token/s): 9000.10"
            )
        elif n % 42 == 41:
            text = f'[{stamp}] INFO:     10.0.0.7:{40000 + n % 20000} - "POST /v1/chat/completions HTTP/1.1" 200 OK'
        else:
            text = (
                f"[{stamp} TP0] Decode batch, #running-req: 8, #token: {65536 + n % 9999}, token usage: "
                f"0.{20 + n % 60}, "
                f"accept len: {2 + n % 3}.{10 + n % 80}, accept rate: 0.{30 + n % 60}, cuda graph: True, "
                f"gen throughput (token/s): {3000 + n % 2000}.{10 + n % 90}, #queue-req: {n % 4}"
            )
        yield text


def main() -> None:
    """Print the rates of all runs and the goal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=7)
    options = parser.parse_args()
    data = "".join(f"{text}\n" for text in log_texts(options.lines)).encode()
    chunks = [data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES)]
    megabytes = len(data) / 1e6
    runs = [read(chunks) for _ in range(options.runs)]
    say(machine_line())
    say(f"log: {megabytes:.0f} MB, {options.lines:,} lines, {options.runs} runs; median [range]")
    parser_s, framing_s, wall_s = (list(column) for column in zip(*(run[:3] for run in runs), strict=True))
    for words, seconds in (
        ("parser, MB/s of one core", parser_s),
        ("lines and parser, MB/s of one core", [a + b for a, b in zip(parser_s, framing_s, strict=True)]),
        ("lines and parser, MB/s by the clock", wall_s),
    ):
        say(f"{words:36} {spread([megabytes / one for one in seconds]).text(1)}")
    say(f"{'parser, lines/s of one core':36} {spread([options.lines / one for one in parser_s]).text(0)}")
    say(f"{runs[0].seen:,} observations (goal of the parser: {GOAL_MB_S:.0f} MB/s)")


if __name__ == "__main__":
    main()
