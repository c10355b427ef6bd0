"""One rank's host side is stuck: callback, storage, interpreter, stopped process, memory."""

# ruff: noqa: E501 - printed lines stay whole, so that they can be searched for

from random import Random

from sentinel.testing.generator import host_writer, process_writer, vllm_writer
from sentinel.testing.generator.fleet import EngineName, make_fleet
from sentinel.testing.generator.kernel_writer import hung_task
from sentinel.testing.generator.story import Label, State, Story, cut_short, hang, serve, victim_rank

ANY: tuple[EngineName, ...] = ("sglang", "vllm", "trtllm", "packaged")


def _stuck(rng: Random, *, engines: tuple[EngineName, ...] = ANY, max_world: int = 64) -> tuple[Story, int, State]:
    """A serving engine that stops because of one rank; the peers spin in a collective."""
    story = Story(make_fleet(rng, engines=engines, max_world=max_world, plain=True), rng)
    serve(story)
    hang(story)
    who = victim_rank(story)
    story.focus = (who, (who + 1) % story.fleet.world)
    story.health = rng.choice(("failing", "none")) if story.fleet.engine == "sglang" else rng.choice(("ok", "none"))
    vllm_writer.shm_lines(story)
    return story, who, story.states[who]


def callback(rng: Random) -> Story:
    """The driver's callback thread is blocked: every later operation of that GPU waits; all calls were enqueued."""
    story, who, state = _stuck(rng)
    state.callback = rng.choice(("mutex", "mutex", "pread"))
    state.gpu, state.cpu = "held", 99.0
    story.keep.update(("native", "threads", "nccl", "gpu"))
    story.label = Label(
        ("hang.host_callback",), True, (who,), None, ("restart_engine|unblock_lane",), ("drain_node",),
        situation="a host callback of one rank never returns; enqueue counts are equal",
    )  # fmt: skip
    if state.callback == "pread":
        story.label.classes = ("hang.host_callback", "hang.storage")
    return story


def storage(rng: Random) -> Story:
    """One rank reads a file from a device that stopped answering."""
    story, who, state = _stuck(rng, engines=("sglang", "vllm", "packaged"))
    rank = story.rank(who)
    state.place, state.process, state.cpu, state.gpu = "file_read", "D", 0.3, "held"
    network = rng.random() < 0.4
    state.wchan = "rpc_wait_bit_kill" if network else "folio_wait_bit_c"
    state.kernel_stack = (
        ("rpc_wait_bit_killable", "nfs4_proc_read")
        if network
        else ("folio_wait_bit_common", "filemap_read", "vfs_read")
    )
    cut_short(story, who)
    if network:
        story.printk(story.t0_s + rng.uniform(-1, 20), "nfs: server 10.9.0.4 not responding, still trying", rank.host)
    else:
        drive = rng.randrange(0, 5)
        story.printk(
            story.t0_s + 31,
            f"nvme nvme{drive}: I/O tag 22 (2016) opcode 0x2 (Read) QID 5 timeout, aborting req_op:READ(0) size:131072",
            rank.host,
        )
        story.printk(
            story.t0_s + 40,
            f"nvme nvme{drive}: I/O tag 23 (2017) opcode 0x2 (Read) QID 5 timeout, reset controller",
            rank.host,
        )
    if story.silence_s > 125:
        hung_task(story, rank.host, story.t0_s + 124, story.fleet.title(rank), rank.pid, state.kernel_stack[0])
    story.keep.update(("kernel", "ps", "stacks"))
    if rng.random() < 0.5:
        story.files.append((rank.host, "pressure_io.txt", host_writer.io_pressure(96.0)))
        story.files.append((rank.host, f"proc_{rank.pid}_stack.txt", process_writer.kernel_stack(story, rank)))
    story.label = Label(
        ("hang.storage",), True, (who,), None, ("drain_node|capture_more|page_human|restart_engine",), ("rowstore_mode",),
        situation="one rank is in uninterruptible sleep reading a file, the device does not answer",
    )  # fmt: skip
    return story


def interpreter(rng: Random) -> Story:
    """One rank's main thread is blocked before it enqueues: a lock, a native call under the interpreter lock, a socket."""
    story, who, state = _stuck(rng)
    state.place = rng.choice(("lock", "lock", "native_call", "socket_wait"))
    state.process, state.cpu = ("R", 97.0) if state.place == "native_call" else ("S", 0.4)
    state.wchan = "-" if state.process == "R" else "futex_do_wait" if state.place == "lock" else "sk_wait_data"
    state.gpu = "held"
    cut_short(story, who)
    story.keep.update(("nccl", "stacks", "gpu"))
    story.label = Label(
        ("hang.python",), True, (who,), None, ("restart_engine",), ("drain_node",),
        situation="one rank is blocked on the host side before it enqueues, its peers are ahead",
    )  # fmt: skip
    return story


def stopped(rng: Random) -> Story:
    """One rank's process is stopped by a signal or held by a tracer."""
    story, who, state = _stuck(rng, engines=("sglang", "vllm", "packaged"))
    rank = story.rank(who)
    traced = rng.random() < 0.35
    state.process, state.cpu, state.gpu = ("t" if traced else "T"), 0.0, "held"
    state.wchan = "ptrace_stop" if traced else "do_signal_stop"
    if traced:
        state.tracer = rank.pid + 5000
        command = f"py-spy record --pid {rank.pid} --rate 500 --duration 600 --format raw -o /tmp/prof.txt"
        story.extra_processes.append((rank.host, state.tracer, "R", command, 99.1))
        story.files.append((rank.host, f"proc_{rank.pid}_status.txt", process_writer.status(story, rank)))
    cut_short(story, who)
    story.keep.update(("ps", "stacks") if traced or rng.random() < 0.6 else ("threads", "stacks"))
    story.label = Label(
        ("hang.stopped",), True, (who,), None, ("continue_process|page_human|restart_engine",), ("drain_node", "rowstore_mode"),
        situation="one rank's process is stopped, its peers wait",
    )  # fmt: skip
    return story


def memory(rng: Random) -> Story:
    """One host has no free memory: its rank is in direct reclaim without end."""
    story, who, state = _stuck(rng, engines=("sglang", "vllm"), max_world=16)
    rank = story.rank(who)
    state.place, state.process, state.cpu, state.gpu, state.wchan = "reclaim", "D", 8.0, "held", "shrink_lruvec"
    state.kernel_stack = (
        "shrink_lruvec",
        "shrink_node",
        "do_try_to_free_pages",
        "try_to_free_pages",
        "__alloc_pages_slowpath.constprop.0",
    )
    cut_short(story, who)
    for host in story.fleet.hosts:
        short = host is rank.host
        for number, at_s in enumerate((story.end_s - 15, story.end_s)):
            text = host_writer.memory_sample(
                at_s, full=88.4 if short else 0.0, available_kb=623_440 if short else 81_220_114, swap_free_kb=0 if short else 16_777_212,
                stalls=88_120 + (33_000 * number if short else 0), faults=41_220 + (9_100 * number if short else 3),
            )  # fmt: skip
            story.files.append((host, f"host.{number * 15:02d}s.txt", text))
    story.files.append((rank.host, "tasks.txt", process_writer.kernel_stack(story, rank)))
    story.keep.update(("gpu", "ps"))
    story.label = Label(
        ("hang.memory",), True, (who,), (rank.host.name,) if len(story.fleet.hosts) > 1 else None,
        ("restart_engine|change_setting|capture_more|page_human",), ("rowstore_mode",),
        situation="memory reclaim without end stalls one rank",
    )  # fmt: skip
    return story


SCENARIOS = (callback, callback, storage, storage, interpreter, interpreter, interpreter, stopped, stopped, memory)
