"""The lines that engines and NCCL print, as the rehearsal engine prints them.

Formats: SGLang 0.5.23 scheduler lines, NCCL 2.28.9 debug lines (INIT, COLL).
"""

import os
import socket
import sys
from datetime import datetime
from pathlib import Path
from typing import TextIO

COMM_ID = "0x5e47ee1c0ffee000"


def say(tag: str, text: str) -> None:
    """One log line on stderr, written at once."""
    stamp = datetime.now().strftime("%Y-%m-%d %H:%M:%S")  # local time, as SGLang prints it
    prefix = f"{stamp} {tag}" if tag else stamp
    os.write(sys.stderr.fileno(), f"[{prefix}] {text}\n".encode())


def decode(running: int, tokens: int, throughput: float, queued: int = 0) -> str:
    """SGLang's decode line."""
    return (
        f"Decode batch, #running-req: {running}, #token: {tokens}, token usage: 0.10, cuda graph: True, "
        f"gen throughput (token/s): {throughput:.2f}, #queue-req: {queued}"
    )


def access(verb: str, path: str) -> str:
    """The HTTP server's line for an answered request."""
    return f'INFO:     127.0.0.1:50000 - "{verb} {path} HTTP/1.1" 200 OK'


def prefill(seqs: int, tokens: int, running: int, throughput: float) -> str:
    """SGLang's prefill line; the throughput is that of the prefill before, 0 for the first."""
    return (
        f"Prefill batch, #new-seq: {seqs}, #new-token: {tokens}, #cached-token: 0, token usage: 0.10, "
        f"#running-req: {running}, #queue-req: 0, cuda graph: False, input throughput (token/s): {throughput:.2f}"
    )


class NcclTrace:
    """A NCCL debug file of one rank: init lines, then one line an enqueued collective."""

    def __init__(self, folder: Path, rank: int, ranks: int) -> None:
        self._host = socket.gethostname().partition(".")[0]
        self._rank, self._ranks = rank, ranks
        self._comm = f"0x55d0c8e3{rank:04x}"
        path = folder / f"nccl.{self._host}.{os.getpid()}"
        self._file: TextIO = path.open("w", buffering=1)

    def init(self) -> None:
        """The communicator's life-cycle lines."""
        for edge in ("Init START", "Init COMPLETE"):
            self._line(
                f"ncclCommInitRankConfig comm {self._comm} rank {self._rank} nranks {self._ranks} "
                f"cudaDev {self._rank} nvmlDev {self._rank} busId {0x19000 + 0x1000 * self._rank:x} "
                f"commId {COMM_ID} - {edge}"
            )

    def all_reduce(self, count: int) -> None:
        """One enqueue; opCount stays 0 on a single host."""
        self._line(
            f"AllReduce: opCount 0 sendbuff 0x7f21aa000000 recvbuff 0x7f21aa000000 count {count} datatype 9 op 0 "
            f"root 0 comm {self._comm} [nranks={self._ranks}] stream 0x55d0c7a1f3c0"
        )

    def _line(self, text: str) -> None:
        self._file.write(f"{self._host}:{os.getpid()}:{os.getpid()} [{self._rank}] NCCL INFO {text}\n")
