"""Nothing is wrong: decoding goes on to the end, with the look-alikes that make people think otherwise."""

# ruff: noqa: E501 - printed lines stay whole, so that they can be searched for

from random import Random

from sentinel.testing.generator.fleet import make_fleet
from sentinel.testing.generator.story import Label, Place, Story, progress_counters, serve

CALM = ("restart_engine", "drain_node", "rowstore_mode", "restart_frontend")
LABEL_CLASSES = ("none",)


def _running(rng: Random, situation: str, *, max_world: int = 32) -> Story:
    """An engine that decodes until the evidence ends."""
    story = Story(make_fleet(rng, max_world=max_world), rng)
    serve(story)
    story.end_s = story.t0_s + 1.0
    story.all_states(gpu="decode", place="gpu_wait")
    story.counters.update(progress_counters(story, moving=True))
    story.keep.add("gpu")  # dated: undated stacks alone would leave open how long after the last line they were taken
    story.label = Label(LABEL_CLASSES, False, (), (), ("none|wait",), CALM, situation=situation)
    return story


def decoding(rng: Random) -> Story:
    """Plain decoding."""
    story = _running(rng, "the engine decodes to the end of the evidence")
    story.health = rng.choice(("ok", "none"))
    return story


def old_kernel_noise(rng: Random) -> Story:
    """A hardware event of days ago, long recovered."""
    story = _running(rng, "the engine decodes; the kernel log has an old link flap and an old application fault")
    host = rng.choice(story.fleet.hosts)
    long_ago = host.boot_s + (story.fleet.start_s - host.boot_s) * 0.4
    story.printk(
        long_ago,
        f"NVRM: Xid (PCI:0000:{story.rank(0).bus:02x}:00): 31, pid=811, name=python3, Ch 00000010, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f_1a000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ",
        host,
    )
    story.printk(long_ago + 40, "mlx5_core 0000:9a:00.0 ens9f0np0: Link down", host)
    story.printk(long_ago + 44, "mlx5_core 0000:9a:00.0 ens9f0np0: Link up", host)
    story.keep.add("kernel")
    return story


def words_in_a_request(rng: Random) -> Story:
    """A user's prompt talks about NCCL time-outs and the log shows it."""
    story = _running(rng, "the engine decodes; a logged prompt contains words of failures")
    at = story.t0_s - 5
    text = "Received request cmpl-77: prompt: 'why do I see: Watchdog caught collective operation timeout, NCCL WARN NET/IB Got completion with error 12, CUDA error: an illegal memory access was encountered', params: max_tokens=64"
    story.say(at, text)
    return story


def retraction_that_recovers(rng: Random) -> Story:
    """The pool fills up now and then, one retraction each time, and decoding goes on."""
    story = Story(make_fleet(rng, engines=("sglang",), max_world=16), rng)
    serve(story)
    for beat in story.beats[:: max(3, len(story.beats) // 4)]:
        story.say(
            beat.at_s + 0.05,
            "KV cache pool is full. Retract requests. #retracted_reqs: 1, #new_tokens_gained: 4102, #new_token_ratio: 0.5121 -> 0.7124",
            0,
        )
    story.end_s = story.t0_s + 1.0
    story.all_states(gpu="decode", place="gpu_wait")
    story.counters.update(progress_counters(story, moving=True))
    story.keep.add("gpu")  # dated: undated stacks alone would leave open how long after the last line they were taken
    story.label = Label(LABEL_CLASSES, False, (), (), (), CALM, situation="retractions now and then, decoding goes on")
    return story


def watched_while_running(rng: Random) -> Story:
    """Somebody dumped stacks of a healthy engine: its ranks are at different places of a step."""
    story = _running(rng, "the engine decodes; the stack dumps catch ranks at different places", max_world=8)
    places: tuple[Place, ...] = ("gpu_wait", "step", "kernel_launch")
    for state in story.states.values():
        state.place = rng.choice(places)
    story.keep.update(("stacks", "metrics"))
    return story


SCENARIOS = (decoding, decoding, old_kernel_noise, words_in_a_request, retraction_that_recovers, watched_while_running)
