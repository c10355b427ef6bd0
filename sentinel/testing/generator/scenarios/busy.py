"""Long phases that look like a hang and end by themselves."""

# ruff: noqa: E501 - printed lines stay whole, so that they can be searched for

from random import Random

from sentinel.testing.generator import process_writer, vllm_writer
from sentinel.testing.generator.fleet import make_fleet
from sentinel.testing.generator.scenarios.healthy import CALM
from sentinel.testing.generator.story import Beat, Label, Story, hang, progress_counters, serve, victim_rank

NVCC = (
    "sh -c nvcc -std=c++20 -O3 -gencode arch=compute_90a,code=sm_90a -cubin -o /root/.cache/jit/tmp/0/kernel.cubin kernel.cu",
    "nvcc -std=c++20 -O3 -cubin kernel.cu", "cicc --c++20 --orig_src_file_name kernel.cu -arch compute_90a",
)  # fmt: skip
PTXAS = ("ptxas -lineinfo -v --gpu-name=sm_90a /tmp/triton_x1/kernel.ptx -o /tmp/triton_x1/kernel.cubin",)


def _booting(rng: Random, stop: str) -> Story:
    """An engine in one start-up phase."""
    story = Story(make_fleet(rng, engines=("sglang", "vllm"), max_world=32, plain=True), rng)
    story.boot_stop = stop
    story.t0_s = story.fleet.start_s + rng.choice((90.0, 300.0, 700.0))
    story.end_s = story.t0_s + rng.choice((20.0, 45.0))
    return story


def loading(rng: Random) -> Story:
    """Weights come slowly from a network disk: the shard bar and the read counters move."""
    story = _booting(rng, "load")
    story.all_states(place="load", process="D", cpu=38.0, gpu="held", wchan="folio_wait_bit_c")
    for state in story.states.values():
        state.process, state.wchan = rng.choice((("D", "folio_wait_bit_c"), ("R", "-")))
    shards = rng.choice((62, 99, 163))
    done = rng.randrange(shards // 4, shards - 8)
    story.bar = "\r".join(
        f"Loading safetensors checkpoint shards: {100 * n // shards:3d}% Completed | {n}/{shards} [{n // 4:02d}:{n % 60:02d}<22:10, 14.31s/it]"
        for n in range(0, done, 3)
    )
    vllm_writer.shm_lines(story)
    for host in story.fleet.hosts:
        for number, (at_s, moved) in enumerate(((story.end_s - 30, 0), (story.end_s, 2_130_000_000))):
            story.files.append(
                (host, f"proc-io.{number + 1}.txt", process_writer.io_counters(story, host, at_s, moved))
            )
    story.label = Label(
        ("busy.boot",), False, (), (), ("wait|none|change_setting",), CALM, situation="weights load, bar and bytes move"
    )
    return story


def capturing(rng: Random) -> Story:
    """Graph capture with cold caches: the bar moves slowly, kernels are compiled on the way."""
    story = _booting(rng, "capture" if rng.random() < 0.9 else "memory_end")
    story.boot_stop = "capture"
    if story.fleet.engine == "vllm":
        story.boot_stop = "memory"
    story.all_states(place="capture", process="R", cpu=99.0, gpu="held")
    total = rng.choice((7, 23, 35, 52))
    done = rng.randrange(2, total - 1)
    if story.fleet.engine == "sglang":
        story.bar = "\r".join(
            f"Capturing batches (bs={8 * (total - n)} avail_mem=14.{90 - n} GB): {100 * n // total:3d}%|{'█' * (n * 10 // total):<10}| {n}/{total} [{n * 20 // 60:02d}:{n * 20 % 60:02d}<12:10, 20.09s/it]"
            for n in range(done)
        )
    else:
        story.bar = "\r".join(
            f"Capturing CUDA graphs (mixed prefill-decode, PIECEWISE): {100 * n // total:3d}%|{'█' * (n * 10 // total):<10}| {n}/{total} [{n * 20 // 60:02d}:{n * 20 % 60:02d}<12:10, 20.09s/it]"
            for n in range(done)
        )
    for state in story.states.values():
        if rng.random() < 0.4:
            state.children = PTXAS
    story.label = Label(
        ("busy.graph_capture", "busy.jit", "busy.boot"),
        False,
        (),
        (),
        ("wait",),
        CALM,
        situation="graph capture advances slowly",
    )
    return story


def compiling(rng: Random) -> Story:
    """One rank compiles kernels for a new shape in the middle of serving; its peers spin in the collective."""
    story = Story(make_fleet(rng, engines=("sglang", "vllm", "packaged"), max_world=32, plain=True), rng)
    serve(story)
    hang(story, rng.choice((25.0, 60.0, 150.0)))
    who = victim_rank(story)
    state = story.states[who]
    state.place, state.process, state.cpu, state.gpu, state.wchan = "compile", "S", 12.0, "held", "do_wait"
    state.children = rng.choice((NVCC, PTXAS))
    del story.calls[who][-2:]
    story.focus = (who,)
    story.keep.update(("ps", "stacks", "gpu"))
    if rng.random() < 0.5 and story.fleet.engine == "sglang":
        story.say(
            story.t0_s + 1,
            "Entering DeepGEMM JIT Pre-Compile session. It may take a long time (typically 10-20 mins) if you have not run `sglang.compile_deep_gemm`.",
            who,
        )
    story.label = Label(
        ("busy.jit",), False, (who,), None, ("wait",), CALM, situation="one rank compiles, its peers wait"
    )
    return story


def boot_compile(rng: Random) -> Story:
    """vLLM compiles its graph at start-up: no line for many minutes, compile workers use the CPU."""
    story = Story(make_fleet(rng, engines=("vllm",), max_world=8, hosts=1, plain=True), rng)
    story.boot_stop = "compile"
    story.t0_s = story.fleet.start_s + 140
    story.end_s = story.t0_s + rng.choice((300.0, 900.0))
    story.all_states(place="compile", process="R", cpu=101.0, gpu="held")
    worker = (
        "/usr/bin/python3 -c from torch._inductor.compile_worker.__main__ import main; main() --workers=32 --parent=640"
    )
    for state in story.states.values():
        state.children = (worker, worker)
    vllm_writer.shm_lines(story)
    story.keep.update(("ps", "stacks"))
    story.label = Label(
        ("busy.jit", "busy.boot"), False, (), (), ("wait",), CALM, situation="torch.compile at start-up"
    )
    return story


def long_prefill(rng: Random) -> Story:
    """Chunks of long prompts: a line every few seconds, GPUs at high power, the health probe fails."""
    story = Story(make_fleet(rng, engines=("sglang",), max_world=32, plain=True), rng)
    serve(story)
    at, pending = story.t0_s + 4, rng.randrange(18, 40)
    for number in range(pending):
        story.beats.append(Beat(at, "prefill", 0, 6, 2, 90_000 + 8192 * number, 880.0, 8192))
        at += rng.uniform(7.5, 10.0)
    story.t0_s = story.beats[-1].at_s
    story.end_s = story.t0_s + 3
    story.all_states(gpu="full", place="gpu_wait")
    story.gpu_before = "full"
    story.running, story.waiting = 7, 2
    story.counters.update(progress_counters(story, moving=True))
    story.health = "none"
    for number in range(3):
        story.say(
            story.t0_s - 100 + number * 31,
            "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds. tic start time: 09:42:13. last_heartbeat time: 09:38:07",
        )
    story.keep.add("gpu")
    story.label = Label(
        ("busy.prefill",),
        False,
        (),
        (),
        ("wait|none|change_setting",),
        CALM,
        situation="chunks of long prompts advance",
    )
    return story


def one_long_step(rng: Random) -> Story:
    """One very large prefill step: no line for a while, every GPU computes at high power and memory use."""
    story = Story(make_fleet(rng, engines=("sglang", "packaged"), max_world=16, plain=True), rng)
    serve(story)
    story.t0_s += 2
    story.beats.append(
        Beat(story.t0_s, "prefill", 0, story.running, 0, 180_000, 9000.0, rng.choice((32768, 65536, 120000)))
    )
    hang(story, rng.choice((20.0, 45.0)))
    for state in story.states.values():
        state.gpu = "full"
    story.keep.add("gpu")
    story.label = Label(
        ("busy.prefill",), False, (), (), ("wait",), CALM, situation="one very long prefill step, GPUs compute"
    )
    return story


SCENARIOS = (loading, capturing, compiling, compiling, boot_compile, long_prefill, one_long_step)
