"""Process tables, thread tables and /proc files of the engine's hosts."""

# ruff: noqa: E501 - printed lines stay whole, so that they can be searched for

from sentinel.testing.generator import clock
from sentinel.testing.generator.fleet import Host, Rank
from sentinel.testing.generator.frames import uses_core
from sentinel.testing.generator.story import State, Story

MAIN = {
    "sglang": "python3 -m sglang.launch_server --model-path /models/m", "vllm": "vllm serve /models/m",
    "trtllm": "trtllm-serve /models/m", "packaged": "/opt/venv/bin/python3 /srv/engine/launch.py",
}  # fmt: skip


def ps(story: Story, host: Host) -> str:
    """`ps -eo pid,ppid,stat,etime,%cpu,rss,wchan,args` reduced to the engine and some bystanders."""
    fleet = story.fleet
    elapsed = _elapsed(story.end_s - fleet.start_s)
    rows = ["    PID    PPID STAT     ELAPSED %CPU   RSS WCHAN            COMMAND"]
    rows.append(
        _row(max(2, host.main_pid - 300), 1, "Ss", "4-02:10:55", 0.0, 9120, "do_sys_poll", "sshd: /usr/sbin/sshd -D")
    )
    busy = story.frontend == "busy" and host.index == 0
    rows.append(
        _row(
            host.main_pid,
            1,
            "Rsl" if busy else "Ssl",
            elapsed,
            99.8 if busy else 1.2,
            1810220,
            "-" if busy else "do_epoll_wait",
            MAIN[fleet.engine],
        )
    )
    parent = host.main_pid
    if uses_core(fleet):
        waits = story.core_place in ("idle", "wait_worker", "lock")
        rows.append(
            _row(
                host.core_pid,
                host.main_pid,
                "Sl" if waits else "Rl",
                elapsed,
                0.4 if waits else 98.0,
                2110220,
                "poll_schedule_ti" if waits else "-",
                "VLLM::EngineCore",
            )
        )
        parent = host.core_pid
    for rank in fleet.on(host):
        rows += _rank_rows(story, rank, parent, elapsed)
    rows += [
        _row(pid, host.main_pid, stat, elapsed, cpu, 91220, "-" if stat.startswith("R") else "do_wait", command)
        for where, pid, stat, command, cpu in story.extra_processes
        if where is host
    ]
    return "\n".join(rows) + "\n"


def _rank_rows(story: Story, rank: Rank, parent: int, elapsed: str) -> list[str]:
    state = story.states[rank.rank]
    if not state.alive:
        if state.process != "Z":
            return []
        comm = story.fleet.title(rank)[:15]
        return [_row(rank.pid, parent, "Z", elapsed, 0.0, 0, "do_exit", f"[{comm}] <defunct>")]
    rows = [
        _row(rank.pid, parent, state.process + "l", elapsed, state.cpu, 28120220, state.wchan, story.fleet.title(rank))
    ]
    above = rank.pid
    for number, command in enumerate(state.children):
        pid = rank.pid + 9000 + number
        rows.append(
            _row(
                pid,
                above,
                "R" if number == len(state.children) - 1 else "S",
                "00:04",
                98.0 if number == len(state.children) - 1 else 0.1,
                611220,
                "-" if number == len(state.children) - 1 else "do_wait",
                command,
            )
        )
        above = pid
    return rows


def _row(pid: int, ppid: int, stat: str, elapsed: str, cpu: float, rss: int, wchan: str, command: str) -> str:
    return f"{pid:7d} {ppid:7d} {stat:<4} {elapsed:>11} {cpu:4.1f} {rss:8d} {wchan:<16} {command}"


def _elapsed(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{rest:02d}"


def _syscall(story: Story, state: State) -> tuple[str, str]:
    """wchan and syscall of the main thread."""
    if state.process in "Tt":
        return "do_signal_stop" if state.process == "T" else "ptrace_stop", "-1 0x7ffd0 0x7f0bcf31b79d"
    if state.place in ("lock",):
        return "futex_do_wait", "202 0x3b2476f0 0x189 0x0 0x0 0x0 0xffffffff 0x7ffcf49526e0 0x7f378ee98e51"
    if state.place == "file_read":
        return (
            state.wchan if state.wchan != "-" else "folio_wait_bit_common",
            "17 0x2b 0x7f0a00000000 0x1000 0x9c4000 0x0 0x0 0x7ffd0 0x7f0bcf31b79d",
        )
    if state.place == "idle" and story.fleet.engine == "packaged":
        return "hrtimer_nanosleep", "230 0x1 0x1 0x7fff16224f50 0x0 0x0 0x0 0x7fff16224ec0 0x7f2c798ecbdf"
    if state.place == "idle":
        return "do_epoll_wait", "232 0x9 0x7f0b177f7060 0x40 0xffffffff 0x0 0x8 0x7ffd0 0x7f0bcf31b79d"
    if state.process == "S":
        return (
            state.wchan if state.wchan != "-" else "do_sys_poll",
            "7 0x7f08b0000c80 0x1 0xffffffff 0x0 0x0 0x0 0x7f0ac0f52d40 0x7f0bcf31b79d",
        )
    return "0", "running"


COND = "202 0x{address:x} 0x189 0x0 0x0 0x0 0xffffffff 0x7f0ad57fed60 0x7f0bcf298e51"
CALLBACK = {
    "mutex": ("futex_do_wait", "202 0x7f0b177f7a60 0x80 0x2 0x0 0x0 0x0 0x7f0ac3e28d40 0x7f0bcf298e51"),
    "pread": ("folio_wait_bit_common", "17 0x31 0x7f0a00000000 0x1000 0x9c4000 0x0 0x0 0x7ffd0 0x7f0bcf31b79d"),
    "gil": ("futex_do_wait", "202 0x9e4c68 0x189 0x0 0x7f08b5e56950 0x0 0xffffffff 0x7f08b5e56590 0x7f0bcf298e51"),
}  # fmt: skip


def threads(story: Story, rank: Rank) -> str:
    """The /proc thread table of one rank, one line a thread, with its syscall and the CPU ticks of its stat line."""
    state = story.states[rank.rank]
    lines = ["# one line a thread: tid ; comm=/proc/PID/task/TID/comm ; wchan= ; syscall= ; stat= ; stack="]
    wchan, syscall = _syscall(story, state)
    comm = "python3" if story.fleet.engine in ("packaged", "trtllm") else story.fleet.title(rank)[:15]
    lines.append(_thread(rank.pid, comm, "Z" if not state.alive else state.process, wchan, syscall))
    if state.alive:
        stopped = state.process if state.process in "Tt" else "S"
        waits = (COND.format(address=0x7F0B177F7060 + index * 0x80) for index in range(4))
        lines += [
            _thread(rank.pid + 20 + index, comm, stopped, "futex_do_wait", wait) for index, wait in enumerate(waits)
        ]
        if state.callback is not None:
            where, call = CALLBACK[state.callback]
            lines.append(_thread(rank.pid + 64, comm, "D" if state.callback == "pread" else stopped, where, call))
        lines.append(
            _thread(
                rank.pid + 70,
                "cuda-EvtHandlr",
                stopped,
                "poll_schedule_timeout",
                "7 0x7f08b0000c80 0xc 0x64 0x0 0x0 0x0 0x7f0ac0f52d40 0x7f0bcf31b79d",
            )
        )
        lines.append(
            _thread(rank.pid + 74, "pt_nccl_watchdg", stopped, "futex_do_wait", COND.format(address=0x12874E30))
        )
    return "\n".join(lines) + "\n"


def _thread(tid: int, comm: str, state: str, wchan: str, syscall: str) -> str:
    ticks = 104400 if state == "R" else 6
    return (
        f"{tid} ; comm={comm} ; wchan={wchan} ; syscall={syscall} ; stat={tid} ({comm}) {state} 1005 1004 555 0 -1 4194560 "
        f"216826 0 0 0 {ticks} 99 0 0 20 0 46 0 8585 628458614784 291910 18446744073709551615 ; stack="
    )


def short_threads(story: Story, host: Host) -> str:
    """A table of the main threads of a host: pid, tid, state, wchan, comm."""
    lines = ["# pid tid state wchan comm"]
    for rank in story.fleet.on(host):
        state = story.states[rank.rank]
        if state.alive:
            lines.append(
                f"{rank.pid} {rank.pid} {state.process} {_syscall(story, state)[0]} {story.fleet.title(rank)[:15]}"
            )
    return "\n".join(lines) + "\n"


def status(story: Story, rank: Rank) -> str:
    """/proc/PID/status."""
    state = story.states[rank.rank]
    words = {
        "R": "R (running)",
        "S": "S (sleeping)",
        "D": "D (disk sleep)",
        "T": "T (stopped)",
        "t": "t (tracing stop)",
    }
    return (
        f"Name:\t{story.fleet.title(rank)[:15]}\nUmask:\t0022\nState:\t{words.get(state.process, 'R (running)')}\nTgid:\t{rank.pid}\n"
        f"Pid:\t{rank.pid}\nPPid:\t{rank.host.main_pid}\nTracerPid:\t{state.tracer}\nThreads:\t183\nVmRSS:\t28811204 kB\n"
        "voluntary_ctxt_switches:\t812201\nnonvoluntary_ctxt_switches:\t20112\n"
    )


def kernel_stack(story: Story, rank: Rank) -> str:
    """The thread's kernel stack as root reads it."""
    state = story.states[rank.rank]
    rows = "\n".join(f"[<0>] {frame}+0x14c/0x338" for frame in state.kernel_stack)
    return f"# tid comm state wchan\n{rank.pid} {story.fleet.title(rank)[:15]} {state.process} {state.wchan}\n\n# /proc/{rank.pid}/stack\n{rows}\n"


def io_counters(story: Story, host: Host, at_s: float, moved: int) -> str:
    """/proc/PID/io of every rank of a host at one instant."""
    lines = []
    for rank in story.fleet.on(host):
        read = 402_118_004_736 + rank.rank * 811_201_000 + moved
        lines.append(
            f"== {clock.day(at_s)} pid {rank.pid}\nrchar: {read}\nwchar: 1201220\nsyscr: {2201121 + moved // 1_000_000}\nsyscw: 11202\n"
            f"read_bytes: {read}\nwrite_bytes: 40960\ncancelled_write_bytes: 0"
        )
    return "\n".join(lines) + "\n"
