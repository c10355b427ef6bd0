"""GPUs through the driver's library, in a child process: a driver call that never returns blocks only the child.

A child that is stuck is evidence and is left alone: to kill a process inside the driver can take the GPU down with it.
There is never more than one. Its lines are those of `nvidia-smi --format=csv`, see `collectors/nvidia_smi_csv`.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence

import msgspec

from sentinel.agent.nvml_protocol import NO_DRIVER
from sentinel.agent.ring import Ring
from sentinel.agent.source import Said
from sentinel.collector import Context, Line
from sentinel.collectors import nvidia_smi_csv
from sentinel.model.observation import Origin, Unavailable
from sentinel.model.stamp import Stamp

CHILD = (sys.executable, "-m", "sentinel.agent.nvml_child")
STUCK_S = 10.0
RESTART_S = 30.0
RESTARTS_MAX = 5
READ_BYTES = 256 << 10
LINE_MAX = 4096


class Gpus:
    """Says what the child prints, that it is stuck, and once why there is nothing to ask."""

    name = "gpu"
    every_s = 0.5

    def __init__(self, ring: Ring, sample_every_s: float = 1.0, child: Sequence[str] = CHILD) -> None:
        self._ring, self._argv = ring, (*child, f"{sample_every_s:g}")
        self._child: subprocess.Popen[bytes] | None = None
        self._starts = 0
        self._start_due_s = 0.0
        self._heard_s = 0.0
        self._stuck = False
        self._rest = b""
        self._device = ""
        self._start_feed()

    def poll(self, now: Stamp) -> Iterator[Said]:
        """Samples that arrived since, and news of the child itself."""
        if self._child is None:
            if now.mono_s >= self._start_due_s and self._starts <= RESTARTS_MAX:
                yield from self._start(now)
            return
        data = self._read()
        if data:
            self._heard_s, self._stuck = now.mono_s, False
            yield from self._parsed(data, now)
        status = self._child.poll()
        if status is not None:
            yield from self._ended(status, now)
        elif not self._stuck and now.mono_s - self._heard_s > STUCK_S:
            self._stuck = True
            where = f" ({self._device})" if self._device else ""
            yield self._unavailable(now, f"a driver call has not returned for {STUCK_S:.0f} s{where}")

    def close(self) -> None:
        """Tell the child to end. One that is stuck in the driver cannot, and is left to itself."""
        if self._child is not None:
            for stream in (self._child.stdin, self._child.stdout):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()
            self._child = None

    def _start(self, now: Stamp) -> Iterator[Said]:
        self._starts += 1
        self._start_due_s = now.mono_s + RESTART_S
        self._heard_s, self._stuck, self._rest = now.mono_s, False, b""
        try:
            self._child = subprocess.Popen(
                self._argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                start_new_session=True, bufsize=0,
            )  # fmt: skip
        except OSError as error:
            self._starts = RESTARTS_MAX + 1
            yield self._unavailable(now, f"cannot start {self._argv[0]}: {error.strerror}")
            return
        assert self._child.stdout is not None
        os.set_blocking(self._child.stdout.fileno(), False)

    def _read(self) -> bytes:
        assert self._child is not None and self._child.stdout is not None
        try:
            return os.read(self._child.stdout.fileno(), READ_BYTES)
        except OSError:
            return b""

    def _parsed(self, data: bytes, now: Stamp) -> Iterator[Said]:
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[:LINE_MAX]
        texts = [line[:LINE_MAX].decode(errors="replace") for line in lines]
        self._device = next((text[2:] for text in reversed(texts) if text.startswith("# ")), self._device)
        rows = [text for text in texts if not text.startswith("#")]
        if rows:
            self._ring.write("gpus.csv", ("\n".join(rows) + "\n").encode(), now.mono_s)
        for seen in self._feed([Line(number, text) for number, text in enumerate(rows, 1)]):
            yield Said(None, msgspec.structs.replace(seen, at_s=now.wall_s))  # type: ignore[arg-type]

    def _ended(self, status: int, now: Stamp) -> Iterator[Said]:
        why, gone = self._device, status == NO_DRIVER
        self.close()
        if gone:
            self._starts = RESTARTS_MAX + 1
            yield self._unavailable(now, why or "no NVIDIA driver")
        else:
            self._start_feed()
            more = f"started again in {RESTART_S:.0f} s" if self._starts <= RESTARTS_MAX else "not started again"
            yield self._unavailable(now, f"the process that asks the driver ended with status {status}; {more}")

    def _start_feed(self) -> None:
        self._feed = nvidia_smi_csv.PARSER.start(Context(name="nvml", year=1970))

    def _unavailable(self, now: Stamp, reason: str) -> Said:
        return Said(None, Unavailable(origin=Origin("nvml"), at_s=now.wall_s, source="GPUs (NVML)", reason=reason))
