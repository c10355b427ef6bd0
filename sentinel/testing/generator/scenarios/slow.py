"""Progress goes on, slower than before; or it paused and went on."""

from random import Random

from sentinel.testing.generator.fleet import make_fleet
from sentinel.testing.generator.scenarios.healthy import CALM
from sentinel.testing.generator.story import Beat, Label, Story, progress_counters, serve, victim_rank


def hot_gpu(rng: Random) -> Story:
    """One GPU throttles: decode goes on at 40 % of its former speed."""
    story = Story(make_fleet(rng, engines=("sglang", "vllm"), max_world=16, hosts=1, plain=True), rng)
    serve(story, lines=rng.randrange(60, 90), slow_from=0.45)
    story.end_s = story.t0_s + 1
    story.all_states(gpu="decode", place="gpu_wait")
    who = victim_rank(story)
    story.states[who].gpu = "hot"
    story.focus = (who,)
    story.keep.add("gpu")
    story.counters.update(progress_counters(story, moving=True))
    story.label = Label(
        ("slow.straggler",), False, (who,), None, ("page_human|drain_node",), ("restart_engine", "rowstore_mode"),
        situation="one GPU throttles, decoding goes on more slowly",
    )  # fmt: skip
    return story


def pauses(rng: Random) -> Story:
    """One scheduler collects garbage for long, several times; each time decoding goes on."""
    story = Story(make_fleet(rng, engines=("sglang", "packaged"), max_world=8, hosts=1, plain=True), rng)
    serve(story)
    who = victim_rank(story)
    at, interval = story.t0_s, 2.0
    tokens = story.beats[-1].tokens
    for _ in range(rng.randrange(1, 5)):
        at += rng.uniform(30, 60)
        for _ in range(rng.randrange(12, 25)):
            at += interval
            tokens += story.running * 40
            story.beats.append(Beat(at, "decode", 0, story.running, 0, tokens, story.running * 20.0))
    story.t0_s, story.end_s = at, at + 1
    story.keep.add("gpu")
    story.all_states(gpu="decode", place="gpu_wait")
    story.counters.update(progress_counters(story, moving=True))
    story.label = Label(
        ("slow.recovered", "slow.straggler"),
        False,
        None,
        None,
        ("none|wait|capture_more|page_human",),
        CALM,
        situation="decoding paused and went on by itself",
    )
    story.focus = (who,)
    return story


SCENARIOS = (hot_gpu, hot_gpu, pauses, pauses)
