"""What the agent costs: CPU and memory beside eight ranks, under a NCCL flood and a log flood, and what targets feel.

    python bench/agent_cost.py [--seconds N]

The agent is `sentinel watch` as a service, in a process of its own; its CPU and memory include its children. The
engines are rehearsal engines with real ranks. Prints Markdown, for `docs/performance.md`.
"""

import argparse
import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from sentinel.agent import status
from sentinel.agent.status import Status
from sentinel.plumbing.clock import SystemClock
from sentinel.testing.rehearsal.shared import Shared

RANKS = 8
NCCL_LINES_S = 50_000
LOG_LINES_S = 200_000
SETTLE_S = 15.0
START_S = 120.0
TICKS_S = os.sysconf("SC_CLK_TCK")
CALL = (
    "{host}:{pid}:{pid} [{rank}] NCCL INFO AllReduce: opCount 0 sendbuff 0x7f21aa000000 recvbuff 0x7f21aa000000 "
    "count 4096 datatype 9 op 0 root 0 comm 0x55d0c8e3{rank:04x} [nranks=8] stream 0x55d0c7a1f3c0\n"
)
PROBE = """
import threading, time
print("ready", flush=True)
worst = 0.0
began = last = time.perf_counter()
while (now := time.perf_counter()) - began < {seconds}:
    worst, last = max(worst, now - last), now
print(worst, flush=True)
"""


def main() -> None:
    """All measurements, as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0, help="length of each measurement")
    seconds = parser.parse_args().seconds
    say(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}, {seconds:.0f} s each, children included.\n")
    say("| situation | agent CPU, % of one core | agent RSS, MB | lost |")
    say("| --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory(prefix="sentinel-bench-") as home:
        idle(Path(home) / "idle", seconds)
        nccl_flood(Path(home) / "nccl", seconds)
        log_flood(Path(home) / "log", seconds)
    say("\n| tool | longest gap between two steps of a target that does nothing else, ms |")
    say("| --- | --- |")
    for name, argv in TOOLS.items():
        say(f"| {name} | {pause_ms(argv):.1f} |")


TOOLS: dict[str, tuple[str, ...]] = {
    "none": (),
    "py-spy dump --nonblocking": ("py-spy", "dump", "--nonblocking", "--json", "--pid"),
    "eu-stack": ("eu-stack", "-p"),
    "pystack remote --native-all": ("pystack", "remote", "--native-all"),
}


def idle(home: Path, seconds: float) -> None:
    """Eight ranks that decode, with logs, metrics and traces."""
    with engine(home) as launcher, agent(home) as watcher:
        wait_for(home, launcher.pid)
        row(f"{RANKS} ranks decode", watcher.pid, seconds, home)


def nccl_flood(home: Path, seconds: float) -> None:
    """The traces of the ranks grow by 50,000 lines a second in all."""
    with engine(home) as launcher, agent(home) as watcher:
        wait_for(home, launcher.pid)
        files = sorted(home.glob("nccl.*"))
        with writing(lambda: append(files, NCCL_LINES_S // len(files) // 20), 0.05) as written:
            row(f"and {NCCL_LINES_S} NCCL lines/s in {len(files)} files", watcher.pid, seconds, home)
        rate = written[0] * (NCCL_LINES_S // len(files) // 20) * len(files) / seconds
        say(f"| | | | {rate:.0f} lines/s were written |")


def log_flood(home: Path, seconds: float) -> None:
    """The engine's log grows by 200,000 lines a second."""
    with engine(home) as launcher, agent(home) as watcher:
        wait_for(home, launcher.pid)
        noise = b"[2026-03-01 10:00:00 TP0] some words that nobody needs, printed in a loop by somebody: 12345\n"
        block = noise * (LOG_LINES_S // 20)
        with (home / "engine.log").open("ab", buffering=0) as log, writing(lambda: log.write(block), 0.05):
            row(f"and {LOG_LINES_S} log lines/s", watcher.pid, seconds, home)


def row(situation: str, pid: int, seconds: float, home: Path) -> None:
    """Measure and print."""
    before = ticks(pid)
    began = time.monotonic()
    highest = 0.0
    while time.monotonic() - began < seconds:
        threading.Event().wait(0.5)
        highest = max(highest, rss_mb(pid))
    used = (ticks(pid) - before) / TICKS_S / (time.monotonic() - began)
    found = seen(home)
    lost = "?" if found is None else f"{sum(source.lost_bytes for source in found.sources)} bytes"
    say(f"| {situation} | {100 * used:.2f} | {highest:.1f} | {lost} |")


@contextlib.contextmanager
def engine(home: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A rehearsal engine of eight ranks at work."""
    home.mkdir(parents=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    argv = [sys.executable, "-m", "sentinel.testing.rehearsal", "--ranks", str(RANKS), "--folder", str(home)]
    with (home / "engine.log").open("ab") as log:
        launcher = subprocess.Popen(
            [*argv, "--port", str(port), "--step-s", "0.05"], stderr=log, start_new_session=True,
            env={**os.environ, "NCCL_DEBUG_FILE": str(home / "nccl.%h.%p")},
        )  # fmt: skip
    try:
        wait(lambda: "fired up" in (home / "engine.log").read_text())
        Shared(home / "shared").put("running", 8)
        yield launcher
    finally:
        os.killpg(launcher.pid, signal.SIGKILL)
        launcher.wait()


@contextlib.contextmanager
def agent(home: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """The agent as a service."""
    argv = [sys.executable, "-m", "sentinel", "watch", "--state", str(home / "agent")]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as watcher:
        try:
            yield watcher
        finally:
            watcher.kill()


@contextlib.contextmanager
def writing(write: object, every_s: float) -> Iterator[list[int]]:
    """Call `write` every so often, on a thread, as long as the block lasts; the list counts the calls."""
    stop, calls = threading.Event(), [0]

    def run() -> None:
        due = time.monotonic()
        while not stop.is_set():
            write()  # type: ignore[operator]
            calls[0] += 1
            due += every_s
            stop.wait(max(0.0, due - time.monotonic()))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield calls
    finally:
        stop.set()
        thread.join()


def append(files: list[Path], lines: int) -> None:
    """That many calls in each trace."""
    host = socket.gethostname().partition(".")[0]
    for rank, path in enumerate(files):
        with path.open("ab") as file:
            file.write(CALL.format(host=host, pid=path.name.rpartition(".")[2], rank=rank).encode() * lines)


def wait_for(home: Path, launcher: int) -> None:
    """Until the agent sees the engine at work, and its start is over."""

    def works() -> bool:
        found = seen(home)
        return found is not None and any(one.serving == "working" for one in found.engines if str(launcher) in one.key)

    wait(works)
    threading.Event().wait(SETTLE_S)


def seen(home: Path) -> Status | None:
    """The agent's own status."""
    return status.read(home / "agent", SystemClock().now())


def wait(holds: object) -> None:
    """Until it holds."""
    until = time.monotonic() + START_S
    while not holds():  # type: ignore[operator]
        if time.monotonic() > until:
            raise TimeoutError("the machine is too busy for a measurement")
        threading.Event().wait(0.1)


def family(pid: int) -> list[int]:
    """A process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *map(int, children)]


def ticks(pid: int) -> int:
    """CPU ticks of a process, its children and those it has waited for."""
    total = 0
    for one in family(pid):
        fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        total += sum(map(int, fields[11:15] if one == pid else fields[11:13]))
    return total


def rss_mb(pid: int) -> float:
    """Resident memory of a process and its children."""
    pages = sum(int(Path(f"/proc/{one}/statm").read_text().split()[1]) for one in family(pid))
    return pages * os.sysconf("SC_PAGESIZE") / 1e6


def pause_ms(argv: tuple[str, ...], seconds: float = 6.0) -> float:
    """Longest gap that a busy Python process sees in itself while a tool looks at it, median of three."""
    gaps = []
    for _ in range(3):
        code = PROBE.format(seconds=seconds)
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as target:
            assert target.stdout is not None and target.stdout.readline() == "ready\n"
            if argv:
                tool = Path(sys.executable).parent / argv[0]
                first = str(tool) if tool.exists() else argv[0]
                subprocess.run([first, *argv[1:], str(target.pid)], capture_output=True, check=False)
            gaps.append(1000 * float(target.stdout.readline()))
    return sorted(gaps)[1]


def say(line: str) -> None:
    """One line of the report."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
