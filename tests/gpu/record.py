"""Records incidents on a machine with GPUs: starts `nccl_engine.py`, lets one fault happen, collects, labels.

`python tests/gpu/record.py OUT WORLD [FAULT …]` writes OUT/<fault>-<world>/evidence and expected.yaml. Collected is
what an operator would: logs, NCCL traces, a GPU log, stacks, thread tables, RAS, process table, kernel log.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

LABELS: dict[str, tuple[list[str], bool, bool, list[str], list[str]]] = {
    "clean": (["none", "quiet.idle", "unknown"], False, False, [], ["restart_engine"]),
    "idle": (["quiet.idle", "unknown"], False, False, [], ["restart_engine"]),
    "prefill": (["busy.prefill"], False, False, ["wait"], ["restart_engine"]),
    "slow": (["slow.straggler", "none"], False, True, [], ["restart_engine"]),
    "stop": (["hang.stopped"], True, True, ["continue_process"], ["drain_node", "rowstore_mode"]),
    "kill": (["crash.rank_exit"], True, True, ["restart_engine"], []),
    "pylock": (["hang.python"], True, True, ["restart_engine"], ["drain_node"]),
    "gil": (["hang.python"], True, True, ["restart_engine"], ["drain_node"]),
    "mutex": (["hang.host_callback"], True, True, ["restart_engine|unblock_lane"], ["drain_node"]),
    "gpuspin": (["hang.device_spin"], True, True, ["restart_engine"], []),
    "extra": (["hang.rank_divergence"], True, True, ["restart_engine"], ["drain_node", "rowstore_mode"]),
    "skip": (["hang.rank_divergence"], True, True, ["restart_engine"], ["drain_node", "rowstore_mode"]),
    "skip_replay": (["hang.rank_divergence"], True, True, ["restart_engine"], ["drain_node", "rowstore_mode"]),
    "order": (["hang.rank_divergence"], True, False, ["restart_engine"], ["drain_node", "rowstore_mode"]),
    "bootstuck": (["hang.comm_init", "busy.boot"], True, True, [], ["rowstore_mode"]),
    "xid": (["fault.gpu", "crash.rank_exit"], True, True, ["restart_engine|drain_node"], []),
}
"""Fault -> accepted classes, stalled, whether the culprit is scored, must recommend, must not recommend."""

SILENT_S = 10.0
START_S = 60.0
HEALTHY_S = 14.0


def main() -> None:
    """Record the faults named, or all."""
    out, world = Path(sys.argv[1]), int(sys.argv[2])
    suffix = os.environ.get("RECORD_SUFFIX", "")
    for fault in sys.argv[3:] or LABELS:
        began = time.monotonic()
        record(out / f"{fault}-{world}{suffix}", fault, world, culprit=world - 2 if world > 2 else 0)
        sys.stdout.write(f"{fault}: {time.monotonic() - began:.0f} s\n")
        sys.stdout.flush()


def record(case: Path, fault: str, world: int, culprit: int) -> None:
    """One incident."""
    evidence, work = case / "evidence", Path(f"/tmp/nccl-{fault}")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    evidence.mkdir(parents=True)
    gpu_log = (evidence / "gpu.csv").open("w")
    sampler = subprocess.Popen(
        ["nvidia-smi", "--format=csv", "-lms", "500", "--query-gpu=timestamp,index,utilization.gpu,utilization.memory,"
         "power.draw,clocks.current.sm,memory.used,temperature.gpu,clocks_event_reasons.active"],
        stdout=gpu_log,
    )  # fmt: skip
    ranks = [start(rank, world, fault, culprit, work, evidence) for rank in range(world)]
    try:
        wait_for_stall(fault, culprit, ranks, work)
        collect(ranks, evidence)
    finally:
        for rank in ranks:
            with contextlib.suppress(ProcessLookupError):
                rank.send_signal(signal.SIGCONT)
                rank.kill()
            rank.wait()
        sampler.terminate()
        sampler.wait()
    classes, stalled, named, must, must_not = LABELS[fault]
    lines = [f"what_was_done: fault {fault} on {world} GPUs", "classes:", *(f"- {name}" for name in classes)]
    lines += [f"stalled: {str(stalled).lower()}", f"culprit_ranks: {[culprit] if named else []}"]
    lines += [f"must_recommend: {must}", f"must_not_recommend: {must_not}"]
    (case / "expected.yaml").write_text("\n".join(lines) + "\n")


def start(rank: int, world: int, fault: str, culprit: int, work: Path, evidence: Path) -> "subprocess.Popen[bytes]":
    """One rank, its stderr in its own log."""
    port = 20000 + (os.getpid() * 7 + sum(map(ord, fault))) % 20000
    environ = {
        **os.environ, "RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
        "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,COLL,NET", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
        "NCCL_DEBUG_FILE": str(evidence / "nccl.%h.%p.log"), "TORCH_NCCL_ENABLE_MONITORING": "0",
    }  # fmt: skip
    argv = [sys.executable, str(Path(__file__).with_name("nccl_engine.py")), str(work), fault, str(culprit)]
    seconds = HEALTHY_S if fault in ("clean", "slow") else 3600.0
    with (evidence / f"engine_rank{rank}.log").open("wb") as log:
        return subprocess.Popen([*argv, str(seconds)], stderr=log, env=environ)


def wait_for_stall(fault: str, culprit: int, ranks: "list[subprocess.Popen[bytes]]", work: Path) -> None:
    """Until the fault has had its effect for a while."""
    until = time.monotonic() + START_S
    while time.monotonic() < until and fault != "bootstuck":
        done = [int(path.read_text() or 0) for path in work.glob("step.*")]
        if len(done) == len(ranks) and min(done) >= 150:
            break
        if any(rank.poll() is not None for rank in ranks):
            raise RuntimeError(f"{fault}: a rank ended during start-up, see its engine_rank log")
        time.sleep(0.2)
    if fault == "stop":
        ranks[culprit].send_signal(signal.SIGSTOP)
    elif fault == "kill":
        ranks[culprit].kill()
    time.sleep(HEALTHY_S + 3 if fault in ("clean", "slow") else SILENT_S)


def collect(ranks: "list[subprocess.Popen[bytes]]", evidence: Path) -> None:
    """What can be taken from outside."""
    for number, rank in enumerate(ranks):
        pid = rank.pid
        (evidence / f"threads_rank{number}.txt").write_text(threads(pid))
        run(evidence / f"pyspy_rank{number}.json", "py-spy", "dump", "--nonblocking", "--json", "--pid", str(pid))
        run(evidence / f"pystack_rank{number}.txt", "pystack", "remote", "--native-all", str(pid))
    pids = ",".join(str(rank.pid) for rank in ranks)
    run(evidence / "ps.txt", "ps", "-o", "pid,ppid,stat,etime,pcpu,rss,wchan:16,args", "-p", pids)
    run(evidence / "dmesg.txt", "dmesg", "-T")
    (evidence / "ncclras.txt").write_text(ras())


def threads(pid: int) -> str:
    """One line a thread from /proc."""
    lines = ["# one line a thread: tid ; comm= ; wchan= ; syscall= ; stat= ; stack="]
    for tid in sorted(Path(f"/proc/{pid}/task").glob("*")):
        parts = []
        for name in ("comm", "wchan", "syscall", "stat", "stack"):
            with contextlib.suppress(OSError):
                parts.append(f"{name}={' | '.join((tid / name).read_text().split(chr(10))).strip(' |')}")
        lines.append(f"{tid.name} ; " + " ; ".join(parts))
    return "\n".join(lines) + "\n"


def run(target: Path, *argv: str) -> None:
    """A tool's output into a file; its complaint when it fails."""
    try:
        done = subprocess.run(argv, capture_output=True, timeout=20, check=False)
        text = done.stdout or done.stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        text = f"{argv[0]}: {error}\n".encode()
    target.write_bytes(text)


def ras() -> str:
    """NCCL's RAS answer, or why there is none."""
    try:
        with socket.create_connection(("127.0.0.1", 28028), timeout=8) as client:
            client.sendall(b"verbose status\n")
            parts = []
            while part := client.recv(65536):
                parts.append(part)
            return b"".join(parts).decode(errors="replace")
    except OSError as error:
        return repr(error)


if __name__ == "__main__":
    main()
