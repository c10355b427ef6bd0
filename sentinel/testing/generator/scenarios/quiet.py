"""Silence that is normal: no work, or paused on purpose."""

from random import Random

from sentinel.testing.generator import vllm_writer
from sentinel.testing.generator.fleet import make_fleet
from sentinel.testing.generator.scenarios.healthy import CALM
from sentinel.testing.generator.story import Label, Story, progress_counters, serve


def _drained(rng: Random, story: Story, situation: str) -> Story:
    """All requests finished at T0; every process is parked for a long while."""
    serve(story)
    story.running, story.waiting = 0, 0
    story.end_s = story.t0_s + rng.choice((120.0, 400.0, 1800.0))
    story.all_states(place="idle", process="S", cpu=1.0, gpu=rng.choice(("held", "parked")), wchan="do_epoll_wait")
    story.core_place = "idle"
    story.health = rng.choice(("ok", "ok", "none"))
    story.counters.update(progress_counters(story, moving=False))
    story.keep.update(("stacks", "gpu", "native" if story.fleet.engine in ("trtllm", "packaged") else "metrics"))
    if story.fleet.engine == "vllm":
        last = story.beats[-1].at_s
        for group in range(story.fleet.dp if story.fleet.dp > 1 else 1):
            story.say(last + 10, vllm_writer.stats(group, 0.0, 0.0, 0, 0, 0.0))
    story.label = Label(("quiet.idle",), False, (), (), ("none|wait|change_setting",), CALM, situation=situation)
    return story


def idle(rng: Random) -> Story:
    """No requests for minutes."""
    story = Story(make_fleet(rng, max_world=32), rng)
    return _drained(rng, story, "no request is outstanding; every rank is parked")


def idle_with_soft_watchdog(rng: Random) -> Story:
    """The soft watchdog of an idle tokenizer process reports each minute."""
    story = Story(make_fleet(rng, engines=("sglang",), max_world=16), rng)
    _drained(rng, story, "idle; a soft watchdog of the tokenizer reports again and again")
    at = story.t0_s + 60
    while at < story.end_s:
        story.say(at, "TokenizerManager watchdog timeout (self.watchdog_timeout=60, self.soft=True)")
        at += 60
    return story


def paused_vllm(rng: Random) -> Story:
    """A trainer paused generation and updated the weights, without resuming; requests wait."""
    story = Story(make_fleet(rng, engines=("vllm",), max_world=16, plain=True), rng)
    _drained(rng, story, "paused by an admin call, requests wait, nobody resumed")
    at = story.t0_s + 12
    calls = rng.choice((("/pause", "/update_weights", "/reset_prefix_cache"), ("/pause",), ("/sleep?level=1",)))
    for number, path in enumerate(calls):
        story.say(at + number * 4, f'INFO:     10.0.0.8:41022 - "POST {path} HTTP/1.1" 200 OK', raw=True)
    if calls[0].startswith("/sleep"):
        story.say(at + 3, "It took 2.411022 seconds to fall asleep.", core=True)
    _with_queue(rng, story)
    return story


def paused_sglang(rng: Random) -> Story:
    """The same on SGLang."""
    story = Story(make_fleet(rng, engines=("sglang",), max_world=16), rng)
    _drained(rng, story, "generation paused by an admin call, requests wait, nobody continued")
    at = story.t0_s + 12
    for number, path in enumerate(("/pause_generation", "/update_weights_from_distributed", "/flush_cache")):
        story.say(at + number * 4, f'INFO:     10.0.0.8:41022 - "POST {path} HTTP/1.1" 200 OK')
    story.say(at + 8.5, "Cache flushed successfully!", 0)
    _with_queue(rng, story)
    return story


def _with_queue(rng: Random, story: Story) -> None:
    story.waiting = rng.randrange(4, 80)
    story.counters.update(progress_counters(story, moving=False))
    story.label = Label(("quiet.paused",), False, (), (), ("resume",), CALM, situation=story.label.situation)


SCENARIOS = (idle, idle, idle_with_soft_watchdog, paused_vllm, paused_sglang)
