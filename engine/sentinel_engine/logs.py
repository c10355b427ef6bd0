"""What the engine says: log lines in SGLang's dialect, and a page of numbers for `/metrics`.

The page is mapped by the front end, so that `/metrics` answers, with frozen numbers, when a rank
hangs.
"""

import mmap
import os
import struct
import sys
from datetime import datetime
from pathlib import Path

STATS = (
    "num_running_reqs", "num_queue_reqs", "num_used_tokens", "token_usage", "gen_throughput",
    "spec_accept_length", "spec_accept_rate", "is_cuda_graph", "prefill_tokens", "decode_tokens",
    "forwards", "failed_batches", "accepted_drafts", "drafted",
)  # fmt: skip


def say(tag: str, text: str) -> None:
    """One log line on stderr, written at once; `tag` is the rank's, or empty."""
    stamp = datetime.now().strftime("%Y-%m-%d %H:%M:%S")
    os.write(sys.stderr.fileno(), f"[{stamp}{' ' if tag else ''}{tag}] {text}\n".encode())


def decode_line(
    running: int, tokens: int, usage: float, accepted: tuple[float, float] | None, graph: bool,
    rate: float, queued: int,
) -> str:  # fmt: skip
    """A decode line; `accepted` is length and rate when drafting is on."""
    draft = "" if accepted is None else (
        f"accept len: {accepted[0]:.2f}, accept rate: {accepted[1]:.2f}, "
    )  # fmt: skip
    return (
        f"Decode batch, #running-req: {running}, #token: {tokens}, token usage: {usage:.2f}, "
        f"{draft}cuda graph: {graph}, gen throughput (token/s): {rate:.2f}, #queue-req: {queued}"
    )


def prefill_line(new: int, usage: float, running: int, queued: int, rate: float) -> str:
    """A line for one prefill step of `new` tokens."""
    return (
        f"Prefill batch, #new-seq: 1, #new-token: {new}, #cached-token: 0, token usage: "
        f"{usage:.2f}, #running-req: {running}, #queue-req: {queued}, cuda graph: False, "
        f"input throughput (token/s): {rate:.2f}"
    )


class StatsPage:
    """Numbers by name in a mapped file, written by rank 0 and read by the front end."""

    def __init__(self, path: Path) -> None:
        size = 8 * len(STATS)
        if not path.exists() or path.stat().st_size != size:
            path.write_bytes(bytes(size))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), size)

    def put(self, name: str, value: float) -> None:
        """Set a number."""
        struct.pack_into("<d", self._map, 8 * STATS.index(name), value)

    def get(self, name: str) -> float:
        """The last value set."""
        value: float = struct.unpack_from("<d", self._map, 8 * STATS.index(name))[0]
        return value
