"""Measures how fast a NCCL debug log is read, on one core, against `grep -c` and `mtail` on the same file.

    python bench/nccl_log.py                      # 200 MB, network transport (opCount rises: no two lines alike)
    python bench/nccl_log.py --size-mb 1024       # the 1 GB case of the memory promise
    python bench/nccl_log.py --kind host          # opCount 0 and repeating buffers, as on a single host
    python bench/nccl_log.py --kind stamped       # as network, with NCCL_DEBUG_TIMESTAMP_LEVELS=ALL

Every run is a fresh process; the tools take turns within a run, so that a busy machine slows all of them alike. Given
are medians with the range over the runs. `mtail` counts the same lines per process and communicator on a part of the
file (it is slow), and its counts must equal ours.
"""

import argparse
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from figures import Spread, machine, say, spread

MTAIL_PROGRAM = r"""counter calls by pid, comm
/:(?P<pid>\d+):\d+ \[\d+\] NCCL INFO \w+: opCount [0-9a-f]+ .* comm (?P<comm>0x[0-9a-f]+) / {
  calls[$pid][$comm]++
}
"""
LAYERS = 61
COMMS = {"tp": "0x55d0c8e3b2a0", "ep": "0x55d0c9a41c30", "dp": "0x55d0ca10e7f0"}
STREAM = "0x55d0c7a1f3c0"


def generate(path: Path, size_mb: int, kind: str, seed: int = 7) -> None:
    """A debug file of one rank: start-up lines, then eager steps with two all-reduces a layer and expert traffic."""
    rng = random.Random(seed)
    buffers = [0x7F21AA000000 + 0x200000 * at for at in range(64)]
    op_counts = dict.fromkeys(COMMS, 0)
    written, calls = 0, 0
    with path.open("w") as out:
        for name, comm in COMMS.items():
            commid = f"0x{rng.getrandbits(64):016x}"
            for event in ("Init START", "Init COMPLETE"):
                out.write(
                    f"node07:4411:4411 [0] NCCL INFO ncclCommInitRankConfig comm {comm} rank 3 nranks 16 cudaDev 3 "
                    f"nvmlDev 3 busId 4c000 commId {commid} - {event}\n"
                )
            out.write(f"node07:4411:4533 [0] NCCL INFO Channel 00/0 : 3[3] -> 4[0] [send] via NET/IB/0 # {name}\n")
        while written < size_mb << 20:
            tokens = rng.choice((1, 2, 4, 8, 16, 64, 512, 2048, 8192)) * 7168
            lines = []
            for layer in range(LAYERS):
                plan = [("tp", "AllReduce", tokens), ("tp", "AllReduce", tokens)]
                if layer % 4 == 3:
                    plan += [("ep", "AllGather", tokens // 8), ("ep", "ReduceScatter", tokens // 8)]
                for comm, op, count in plan:
                    stamp = ""
                    if kind == "stamped":
                        at_ms = calls // 40
                        clock = f"{at_ms // 60000 % 60:02d}:{at_ms // 1000 % 60:02d}.{at_ms % 1000:03d}"
                        stamp = f"[2026-11-29 {10 + at_ms // 3600000:02d}:{clock}] "
                    send = rng.choice(buffers)
                    lines.append(
                        f"{stamp}node07:4411:4411 [0] NCCL INFO {op}: opCount {op_counts[comm]:x} sendbuff 0x{send:x} "
                        f"recvbuff 0x{send + (0 if op == 'AllReduce' else 0x100000):x} count {count} datatype 9 op 0 "
                        f"root 0 comm {COMMS[comm]} [nranks=16] stream {STREAM}\n"
                    )
                    calls += 1
                    op_counts[comm] += kind != "host"
            lines.append(
                f"node07:4411:4411 [0] NCCL INFO Broadcast: opCount {op_counts['dp']:x} sendbuff 0x7f21aa000000 "
                f"recvbuff 0x7f21aa000000 count 1 datatype 4 op 0 root 0 comm {COMMS['dp']} [nranks=16] "
                f"stream {STREAM}\n"
            )
            op_counts["dp"] += kind != "host"
            text = "".join(lines)
            out.write(text)
            written += len(text)


def read_once(path: Path) -> dict[str, object]:
    """Read the file as the analyser does (256 KiB at a time) in this process; what it cost."""
    from sentinel.collector import Context
    from sentinel.collectors.nccl_log import NcclReader
    from sentinel.model.observation import Enqueues

    began, cpu = time.perf_counter(), time.process_time()
    reader = NcclReader(Context(name=path.name, year=2026))
    counts: dict[str, int] = {}
    with path.open("rb") as source:
        while chunk := source.read(256 << 10):
            for _ in reader.feed(chunk):
                pass
    for seen in reader.flush(ended=True):
        if isinstance(seen, Enqueues):
            counts[seen.comm] = seen.total
    return {
        "wall_s": time.perf_counter() - began,
        "cpu_s": time.process_time() - cpu,
        "rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "counts": counts,
    }


def run_reader(path: Path) -> dict[str, object]:
    """`read_once` in a fresh process."""
    done = subprocess.run(
        [sys.executable, __file__, "--read", str(path)], check=True, capture_output=True, text=True, env=os.environ
    )
    result: dict[str, object] = json.loads(done.stdout)
    return result


def timed(command: list[str]) -> tuple[float, float, str]:
    """(wall seconds, CPU seconds of the child, stdout) of a command."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def run_mtail(part: Path, folder: Path) -> tuple[float, dict[str, int]]:
    """CPU seconds of mtail over the part, and its counts per communicator."""
    program = folder / "nccl.mtail"
    program.write_text(MTAIL_PROGRAM)
    _, cpu, out = timed(
        [
            "mtail", "--one_shot", "--one_shot_format", "json", "--address", "127.0.0.1", "--port", "0",
            "--progs", str(program), "--logs", str(part),
        ]
    )  # fmt: skip
    metrics = json.loads(out[out.index("{") :])["calls"]
    return cpu, {value["Labels"][1]: value["Value"]["Value"] for metric in metrics for value in metric["LabelValues"]}


def measure(path: Path, runs: int, mtail_mb: int, folder: Path) -> dict[str, object]:
    """All tools, taking turns."""
    size_mb = path.stat().st_size / 1e6
    lines = int(timed(["grep", "-c", "", str(path)])[2])
    with_mtail = shutil.which("mtail") is not None
    part = folder / "part.log"
    if with_mtail:
        _cut(path, part, mtail_mb << 20)
    ours: list[dict[str, object]] = []
    grep_cpu: list[float] = []
    mtail_cpu: list[float] = []
    for _ in range(runs):
        ours.append(run_reader(path))
        grep_cpu.append(timed(["grep", "-c", "opCount", str(path)])[1])
        if with_mtail:
            cpu, counts = run_mtail(part, folder)
            mtail_cpu.append(cpu)
            same = run_reader(part)["counts"]
            if counts != same:
                raise SystemExit(f"mtail and this reader disagree: {counts} against {same}")
    cpu_s = [float(str(run["cpu_s"])) for run in ours]
    result: dict[str, object] = {
        "size_mb": size_mb,
        "lines": lines,
        "runs": runs,
        "mb_per_s": spread([size_mb / s for s in cpu_s]),
        "lines_per_s": spread([lines / s for s in cpu_s]),
        "wall_mb_per_s": spread([size_mb / float(str(run["wall_s"])) for run in ours]),
        "peak_rss_mib": spread([float(str(run["rss_mib"])) for run in ours]),
        "grep_mb_per_s": spread([size_mb / s for s in grep_cpu]),
        "ratio_to_grep": spread([a / b for a, b in zip(cpu_s, grep_cpu, strict=True)]),
    }
    if with_mtail:
        part_mb = part.stat().st_size / 1e6
        result["mtail_mb_per_s"] = spread([part_mb / s for s in mtail_cpu])
        result["times_mtail"] = spread([(size_mb / a) / (part_mb / b) for a, b in zip(cpu_s, mtail_cpu, strict=True)])
    return result


def _cut(path: Path, part: Path, size: int) -> None:
    """The first whole lines of a file."""
    with path.open("rb") as source:
        data = source.read(size)
    part.write_bytes(data[: data.rfind(b"\n") + 1])


def show(result: dict[str, object], about: dict[str, str]) -> None:
    """The table for people."""
    say(f"machine: {about['cpu']}, {about['cores']} cores, load {about['load']}, Python {about['python']}")
    say(f"file: {result['size_mb']:.0f} MB, {result['lines']} lines, kind {result['kind']}, {result['runs']} runs")
    say(f"{'':34} {'median':>12} {'low':>12} {'high':>12}")
    for name, words, digits in (
        ("mb_per_s", "MB/s of one core", 1), ("lines_per_s", "lines/s of one core", 0),
        ("wall_mb_per_s", "MB/s by the clock", 1), ("peak_rss_mib", "peak RSS, MiB", 1),
        ("grep_mb_per_s", "grep -c opCount, MB/s", 1), ("ratio_to_grep", "CPU time, times grep", 1),
        ("mtail_mb_per_s", "mtail, same count, MB/s", 1), ("times_mtail", "speed, times mtail", 1),
    ):  # fmt: skip
        values = result.get(name)
        if isinstance(values, Spread):
            row = " ".join(f"{value:>12,.{digits}f}" for value in values)
            say(f"{words:34} {row}")
    if "mtail_mb_per_s" not in result:
        say("mtail: not installed, comparison skipped (Debian: apt-get install mtail)")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size-mb", type=int, default=200)
    parser.add_argument("--kind", choices=("network", "host", "stamped"), default="network")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--mtail-mb", type=int, default=16)
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.read:
        say(json.dumps(read_once(arguments.read)))
        return
    with tempfile.TemporaryDirectory(prefix="nccl-bench-") as name:
        folder = Path(name)
        path = folder / "nccl.log"
        generate(path, arguments.size_mb, arguments.kind)
        result = {"kind": arguments.kind, **measure(path, arguments.runs, arguments.mtail_mb, folder)}
        about = machine()
    show(result, about)
    if arguments.json:
        plain = {name: value._asdict() if isinstance(value, Spread) else value for name, value in result.items()}
        arguments.json.write_text(json.dumps({"machine": about, **plain}, indent=1) + "\n")


if __name__ == "__main__":
    main()
