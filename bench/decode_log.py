"""How fast a log of decode lines is read: MB/s of the parser alone, on one core.

    python bench/decode_log.py [--lines N]

The lines are made in memory: a batch of eight requests with speculative decoding, one prefill and one HTTP line for
every 40 decode lines. The process time is measured, best of five runs.
"""

import argparse
import sys
import time

from sentinel.collector import Context, Line
from sentinel.collectors import sglang_log

RUNS = 5
GOAL_MB_S = 40.0


def log_lines(count: int) -> list[Line]:
    """`count` lines, five decode lines a second."""
    lines = []
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
        lines.append(Line(n + 1, text))
    return lines


def main() -> None:
    """Print the rate of the best run and the goal."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    options.add_argument("--lines", type=int, default=100_000)
    lines = log_lines(options.parse_args().lines)
    megabytes = sum(len(line.text) + 1 for line in lines) / 1e6
    best = 0.0
    for _ in range(RUNS):
        feed = sglang_log.PARSER.start(Context(name="decode.log", year=2026))
        began = time.process_time()
        seen = sum(1 for _ in feed(lines))
        best = max(best, megabytes / (time.process_time() - began))
    sys.stdout.write(
        f"{best:.1f} MB/s, {best * len(lines) / megabytes:,.0f} lines/s, {seen} observations "
        f"(goal {GOAL_MB_S:.0f} MB/s)\n"
    )


if __name__ == "__main__":
    main()
