"""Stack dumps of one process: py-spy text and JSON, eu-stack, gdb; and what py-spy says of a stopped process."""

# ruff: noqa: E501 - printed lines stay whole, so that they can be searched for

import json

from sentinel.testing.generator.fleet import Host, Rank
from sentinel.testing.generator.frames import CALLBACKS, CORE, CORE_BASE, POOL, PyFrame, native_frames, python_frames
from sentinel.testing.generator.story import State, Story

WAITING = {"lock", "socket_wait", "idle", "barrier", "rendezvous", "control_broadcast", "file_read", "reclaim"}
HOLDS_GIL = {"native_call", "gc", "compile", "kernel_launch"}

PTRACE_FAILED = (
    "Error: Failed to get stack traces\n\nCaused by:\n    0: Failed to suspend process\n"
    "    1: unexpected waitpid result PtraceEvent(Pid({pid}), SIGSTOP, 128) to {pid}\n"
)


def pyspy_text(story: Story, rank: Rank) -> str:
    """`py-spy dump --pid`; a stopped process cannot be read, a gone one does not exist."""
    state = story.states[rank.rank]
    head = f"Process {rank.pid}: {story.fleet.title(rank)}\nPython v3.12.3 (/usr/bin/python3.12)\n\n"
    if state.process in "Tt":
        return head + PTRACE_FAILED.format(pid=rank.pid)
    thread = "MainThread" if story.fleet.engine != "trtllm" else "Thread-5 (_event_loop_wrapper)"
    text = head + _thread(rank.pid, _activity(state), thread, python_frames(story.fleet.engine, state.place))
    if story.fleet.engine == "sglang":
        text += _thread(
            rank.pid + 120,
            "idle",
            "Thread-1 (_watchdog_thread)",
            (("_watchdog_thread", "sglang/srt/utils/watchdog.py", 97), *_BASE),
        )
    return text


_BASE: tuple[PyFrame, ...] = (
    ("Thread.run", "threading.py", 1012), ("Thread._bootstrap_inner", "threading.py", 1075), ("Thread._bootstrap", "threading.py", 1032),
)  # fmt: skip


def _activity(state: State) -> str:
    if state.place in WAITING:
        return "idle"
    return "active+gil" if state.place in HOLDS_GIL else "active"


def _thread(tid: int, activity: str, name: str, frames: tuple[PyFrame, ...]) -> str:
    lines = [f'Thread {tid} ({activity}): "{name}"']
    lines += [
        f"    {function} ({file}:{line})" if line else f"    {function} ({file})" for function, file, line in frames
    ]
    return "\n".join(lines) + "\n"


def pyspy_json(story: Story, rank: Rank) -> str:
    """`py-spy dump --nonblocking --json`."""
    state = story.states[rank.rank]
    frames = [
        {"name": function, "filename": file, "module": None, "short_filename": file, "line": line, "locals": None}
        for function, file, line in python_frames(story.fleet.engine, state.place)
    ]
    thread = {
        "pid": rank.pid, "thread_id": 139860061955776, "thread_name": "MainThread", "os_thread_id": rank.pid,
        "active": _activity(state) != "idle", "owns_gil": _activity(state) == "active+gil", "frames": frames,
    }  # fmt: skip
    return json.dumps([thread], indent=1)


def core_text(story: Story, host: Host) -> str:
    """py-spy of vLLM's engine core."""
    waiting = story.core_place in ("idle", "wait_worker", "lock")
    head = f"Process {host.core_pid}: VLLM::EngineCore\nPython v3.12.3 (/usr/bin/python3.12)\n\n"
    return head + _thread(
        host.core_pid, "idle" if waiting else "active+gil", "MainThread", CORE[story.core_place] + CORE_BASE
    )


def process_text(pid: int, title: str, activity: str, frames: tuple[PyFrame, ...]) -> str:
    """py-spy of any other process."""
    return f"Process {pid}: {title}\nPython v3.12.3 (/usr/bin/python3.12)\n\n" + _thread(
        pid, activity, "MainThread", frames
    )


def threads_native(story: Story, rank: Rank) -> list[tuple[int, str, tuple[tuple[str, str], ...]]]:
    """Native threads of a rank: (tid, name, frames); the callback thread is one of them."""
    state = story.states[rank.rank]
    threads = [(rank.pid, "python3", native_frames(story.fleet.engine, state.place))]
    threads += [(rank.pid + 20 + index, "python3", POOL) for index in range(3)]
    if state.callback is not None:
        threads.append((rank.pid + 64, "python3", CALLBACKS[state.callback]))
    threads.append((rank.pid + 70, "cuda-EvtHandlr", (("poll", "libc.so.6"), ("", "libcuda.so.1"))))
    threads.append(
        (
            rank.pid + 74,
            "pt_nccl_watchdg",
            (("__futex_abstimed_wait_common", "libc.so.6"), ("pthread_cond_timedwait", "libc.so.6")),
        )
    )
    return threads


def eu_stack(story: Story, rank: Rank) -> str:
    """`eu-stack -p PID`."""
    lines = [f"PID {rank.pid} - process"]
    for tid, _, frames in threads_native(story, rank):
        lines.append(f"TID {tid}:")
        lines += [
            f"#{number:<2} 0x{0x7F51B0000000 + number * 0x1D3C1:016x} {name}".rstrip()
            for number, (name, _lib) in enumerate(frames)
        ]
    return "\n".join(lines) + "\n"


def gdb(story: Story, rank: Rank) -> str:
    """`gdb -batch -ex 'thread apply all bt'`: highest thread first."""
    lines = []
    threads = threads_native(story, rank)
    for number, (tid, name, frames) in reversed(list(enumerate(threads, 1))):
        lines.append(f'Thread {number} (Thread 0x{0x7F2C1D0F9000 + number * 0x1000:x} (LWP {tid}) "{name}"):')
        for depth, (symbol, library) in enumerate(frames):
            lines.append(
                f"#{depth:<2} 0x{0x7F2C1A000000 + depth * 0x21D3C:016x} in {symbol or '??'} () from /usr/lib/x86_64-linux-gnu/{library}"
            )
        lines.append("")
    return "\n".join(lines)


def cuda_kernels(story: Story, rank: Rank) -> str:
    """`info cuda kernels` of cuda-gdb for one rank."""
    kernel = story.states[rank.rank].kernel
    return (
        "(cuda-gdb) info cuda kernels\n  Kernel Parent Dev   Grid Status SMs Mask GridDim  BlockDim Invocation\n"
        f"*      0      -   {rank.local} 311204 Active 0x000000000004 (512,1,1) (384,1,1) {kernel}\n"
    )
