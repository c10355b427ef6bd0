"""A rank's process is gone; its peers are victims."""

# ruff: noqa: E501 - printed lines stay whole, so that they can be searched for

from random import Random

from sentinel.testing.generator.fleet import EngineName, make_fleet
from sentinel.testing.generator.story import Label, Story, cut_short, hang, serve, victim_rank

ENGINES: tuple[EngineName, ...] = ("sglang", "vllm", "packaged")


def _gone(rng: Random, *, engines: tuple[EngineName, ...] = ENGINES, max_world: int = 64) -> tuple[Story, int]:
    """A serving engine; one rank's process ends at T0, the peers spin."""
    story = Story(make_fleet(rng, engines=engines, max_world=max_world, plain=True), rng)
    serve(story)
    hang(story, rng.choice((25.0, 70.0, 200.0)))
    who = victim_rank(story)
    state = story.states[who]
    state.alive, state.process, state.gpu, state.cpu = False, rng.choice("ZX"), "parked", 0.0
    cut_short(story, who)
    story.focus = (who, (who + 1) % story.fleet.world)
    story.label = Label(("crash.rank_exit",), True, (who,), None, ("restart_engine",), ("drain_node", "rowstore_mode"))
    return story, who


def killed(rng: Random) -> Story:
    """A signal ended one rank; a table shows its peers without it, or it as a zombie."""
    story, who = _gone(rng)
    rank = story.rank(who)
    if story.fleet.engine == "vllm":
        code = rng.choice((" (exit code: -9)", " (exit code: -11)")) if story.fleet.at_least("0.33.0") else ""
        story.say(
            story.t0_s + 1,
            f"Worker proc VllmWorker-{who} died unexpectedly{code}, shutting down executor.",
            core=True,
            level="ERROR",
        )
    elif story.fleet.engine == "sglang" and story.fleet.at_least("0.5.10"):
        story.say(
            story.t0_s + 1,
            f"Subprocess scheduler_{rank.local} (pid={rank.pid}) crashed with exit code {rng.choice((-9, -11, -6))}. Triggering SIGQUIT for cleanup...",
            host=rank.host,
        )
    else:
        story.states[who].process = "Z"
    story.keep.update(("ps", "threads", "gpu"))
    story.label.situation = "one rank's process was ended by a signal"
    return story


def raised(rng: Random) -> Story:
    """One rank raises an exception; the launcher of its host ends that host; others wait for their watchdogs."""
    story, who = _gone(rng, engines=("sglang", "vllm"))
    rank = story.rank(who)
    error = rng.choice(
        (
            "TypeError: 'NoneType' object is not iterable",
            "AssertionError: req pool leak",
            "KeyError: 'rid-81'",
            "ValueError: negative dimension",
        )
    )
    at = story.t0_s + 0.6
    if story.fleet.engine == "sglang":
        story.say(at, (
            "Scheduler hit an exception: Traceback (most recent call last):\n"
            '  File "/sgl-workspace/sglang/python/sglang/srt/managers/scheduler.py", line 3312, in run_scheduler_process\n'
            "    scheduler.event_loop_overlap()\n"
            '  File "/sgl-workspace/sglang/python/sglang/srt/managers/schedule_batch.py", line 214, in prepare\n'
            f"    for m in local_batch.reqs:\n{error}\n"
        ), who)  # fmt: skip
        story.say(
            at + 0.5, "SIGQUIT received. signum=3, frame=None. It usually means one child failed.", host=rank.host
        )
        story.say(
            at + 1.2,
            f"kill_process_tree called: parent_pid={rank.host.main_pid}, include_parent=True, pid={rank.host.main_pid}",
            host=rank.host,
        )
        for peer in story.fleet.on(rank.host):
            story.states[peer.rank].alive, story.states[peer.rank].process, story.states[peer.rank].gpu = (
                False,
                "X",
                "parked",
            )
    else:
        story.say(at, "WorkerProc hit an exception.", who, level="ERROR")
        story.say(
            at + 0.01,
            f'Traceback (most recent call last):\n  File "/usr/lib/python3/vllm/v1/worker/gpu_model_runner.py", line 3702, in execute_model\n    out = self.model(x)\n{error}',
            who,
            raw=True,
        )
        story.say(at + 1, "EngineCore encountered a fatal error.", core=True, level="ERROR")
    story.keep.add("gpu")
    story.label.situation = "one rank raised first, the others wait"
    return story


def fault_in_kernel_code(rng: Random) -> Story:
    """One rank reports an illegal access and dies; the Xid lines come when its process is already being ended."""
    story, who = _gone(rng, engines=("sglang",), max_world=16)
    rank = story.rank(who)
    at = story.t0_s + 0.5
    story.say(
        at,
        'Scheduler hit an exception: Traceback (most recent call last):\n  File "/sgl-workspace/sglang/python/sglang/srt/managers/scheduler.py", line 3312, in run_scheduler_process\n    scheduler.event_loop_overlap()\ntorch.AcceleratorError: CUDA error: an illegal memory access was encountered',
        who,
    )
    story.say(at + 0.4, "SIGQUIT received. signum=3, frame=None. It usually means one child failed.", host=rank.host)
    story.say(
        at + 3,
        f"kill_process_tree called: parent_pid={rank.host.main_pid}, include_parent=True, pid={rank.host.main_pid}",
        host=rank.host,
    )
    for peer in story.fleet.on(rank.host):
        story.states[peer.rank].alive, story.states[peer.rank].process, story.states[peer.rank].gpu = (
            False,
            "X",
            "parked",
        )
        story.printk(
            at + 6 + peer.local * 0.1,
            f"NVRM: Xid (PCI:0000:{peer.bus:02x}:00): 43, pid={peer.pid}, name=sglang::schedul, Ch 00000008",
            rank.host,
        )
    story.keep.add("kernel")
    story.label.situation = "an illegal access of one rank, driver lines only after the kill"
    return story


def out_of_memory(rng: Random) -> Story:
    """The kernel's or a cgroup's OOM killer ended one rank."""
    story, who = _gone(rng, engines=("sglang", "vllm"))
    rank = story.rank(who)
    comm = story.fleet.title(rank)[:15]
    group = rng.random() < 0.5
    scope = "Memory cgroup out of memory" if group else "Out of memory"
    at = story.t0_s + rng.uniform(0.1, 0.9)
    constraint = "CONSTRAINT_MEMCG" if group else "CONSTRAINT_NONE"
    story.printk(at, f"{comm} invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0", rank.host)
    story.printk(
        at + 0.001,
        f"oom-kill:constraint={constraint},nodemask=(null),cpuset=/,mems_allowed=0-1,task_memcg=/kubepods/x,task={comm},pid={rank.pid},uid=0",
        rank.host,
    )
    story.printk(
        at + 0.002,
        f"{scope}: Killed process {rank.pid} ({comm}) total-vm:182211200kB, anon-rss:98211200kB, file-rss:1204kB, shmem-rss:10240kB, UID:0 pgtables:201220kB oom_score_adj:0",
        rank.host,
    )
    story.states[who].process = "Z"
    story.keep.update(("kernel", "ps", "nccl"))
    story.label = Label(
        ("crash.oom",),
        True,
        (who,),
        None,
        ("change_setting|restart_engine",),
        ("drain_node", "rowstore_mode"),
        situation="the OOM killer ended one rank",
    )
    return story


SCENARIOS = (killed, killed, raised, raised, fault_in_kernel_code, out_of_memory, out_of_memory)
