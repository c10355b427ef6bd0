"""Ranks enqueued different collectives, or took different turns in the control plane."""

# ruff: noqa: E501 - printed lines stay whole, so that they can be searched for

from random import Random

from sentinel.testing.generator import vllm_writer
from sentinel.testing.generator.fleet import EngineName, make_fleet
from sentinel.testing.generator.story import Call, Label, Story, hang, serve, victim_rank

NOT = ("drain_node", "rowstore_mode")


def _diverged(
    rng: Random, *, min_world: int = 2, engines: tuple[EngineName, ...] = ("sglang", "vllm", "trtllm", "packaged")
) -> Story:
    """A serving engine that stops; all GPUs spin and all hosts wait for them."""
    story = Story(make_fleet(rng, engines=engines, min_world=min_world, max_world=64, plain=True), rng)
    serve(story)
    hang(story)
    story.keep.update(("nccl", "gpu"))
    vllm_writer.shm_lines(story)
    story.label = Label(("hang.rank_divergence",), True, None, None, ("restart_engine",), NOT)
    return story


def extra(rng: Random) -> Story:
    """One rank enqueues an operation that nobody else does, then goes on with the program."""
    story = _diverged(rng)
    who = victim_rank(story)
    calls = story.calls[who]
    where = len(calls) - rng.randrange(1, 6)
    calls.insert(
        where, Call(calls[where].op, calls[where].comm, calls[where].count, calls[where].dtype, calls[where].step)
    )
    story.focus = (who,)
    story.keep.add("ras")
    story.label.ranks = (who,)
    story.label.situation = "one rank enqueued one operation more than its peers"
    return story


def skipped(rng: Random) -> Story:
    """One rank leaves out some operations (as a data-parallel rank without requests does) but goes on with later ones."""
    story = _diverged(rng, min_world=4)
    who = victim_rank(story)
    calls = story.calls[who]
    width = rng.randrange(2, 8)
    first = len(calls) - width - rng.randrange(4, 9)
    del calls[first : first + width]
    story.focus = (who,)
    story.keep.add("ras")
    story.label.ranks = (who,)
    story.label.situation = "one rank skipped operations and went on, its counts stay lower"
    return story


def other_size(rng: Random) -> Story:
    """The same operation with another element count on one rank."""
    story = _diverged(rng)
    who = victim_rank(story)
    calls = story.calls[who]
    candidates = [index for index, call in enumerate(calls) if call.count > 1]
    last = max(candidates)
    old = calls[last]
    calls[last] = Call(old.op, old.comm, old.count + rng.choice((1, 2, 16)) * 2048, old.dtype, old.step, old.replays)
    del calls[last + 1 :]
    for rank in story.fleet.ranks:
        del story.calls[rank.rank][last + 1 :]
    story.focus = (who, (who + 1) % story.fleet.world, (who + 2) % story.fleet.world)
    if story.fleet.world > 2:
        story.label.ranks = (who,)
    story.label.situation = "one rank enqueued the same operation with another size"
    return story


def other_order(rng: Random) -> Story:
    """One rank issues the operations of two communicators in another order: same counts, other order."""
    story = _diverged(rng)
    while story.comms < 2:
        story = _diverged(rng)
    who = victim_rank(story)
    calls = story.calls[who]
    last = max(index for index, call in enumerate(calls) if call.comm == 1)
    moved = calls.pop(last)
    calls.insert(max(0, last - rng.randrange(2, 5)), moved)
    story.focus = (who, (who + 1) % story.fleet.world, (who + 2) % story.fleet.world)
    if story.fleet.world > 2:
        story.label.ranks = (who,)
    story.label.situation = "one rank issued operations of two communicators in another order"
    return story


def two_batches(rng: Random) -> Story:
    """A minority of ranks built another batch for the same step."""
    story = _diverged(rng, min_world=4, engines=("sglang", "vllm"))
    world = story.fleet.world
    minority = tuple(sorted(rng.sample(range(world), rng.randrange(1, max(2, min(4, (world - 1) // 2 + 1))))))
    small, large = rng.choice((3, 7)), rng.choice((2811, 4096))
    for rank in story.fleet.ranks:
        size = small if rank.rank in minority else large
        step = story.calls[rank.rank][-1].step + 1
        tail = [Call("AllReduce", 0, 4096 * size, 9, step) for _ in range(3 if rank.rank in minority else 2)]
        story.calls[rank.rank] += tail
    story.focus = (*minority, *(rank for rank in range(world) if rank not in minority))[: len(minority) + 3]
    story.label.ranks = minority
    story.label.situation = "a minority of ranks runs another batch at the same step"
    return story


def control_plane(rng: Random) -> Story:
    """Some schedulers went on to the request broadcast while the others wait in a host-side collective; GPUs idle."""
    story = Story(make_fleet(rng, engines=("sglang",), min_world=4, max_world=32), rng)
    serve(story)
    hang(story)
    world = story.fleet.world
    size = rng.randrange(1, max(2, (world - 1) // 2 + 1))
    others = tuple(sorted(rng.sample(range(world), size)))
    crowd, odd = rng.choice(
        (("cache_check", "control_broadcast"), ("control_broadcast", "dp_gather"), ("dp_gather", "control_broadcast"))
    )
    for number, state in story.states.items():
        state.place = odd if number in others else crowd  # type: ignore[assignment]
        state.process, state.cpu, state.gpu, state.wchan = "S", 3.0, "held", "do_epoll_wait"
    story.focus = tuple(range(world))
    story.keep.update(("stacks", "gpu"))
    story.health = "failing"
    ranks = others if 2 * len(others) < world and world <= 8 else None
    story.label = Label(
        ("hang.rank_divergence", "hang.scheduler"), True, ranks, None, ("restart_engine",), NOT,
        situation="two groups of schedulers wait in different host-side collectives",
    )  # fmt: skip
    return story


def missed_replay(rng: Random) -> Story:
    """One rank did not launch one graph replay: only opCount shows it, on transports that count."""
    story = Story(make_fleet(rng, engines=("sglang", "vllm"), min_world=4, max_world=32, plain=True), rng)
    while len(story.fleet.hosts) < 2:
        story = Story(make_fleet(rng, engines=("sglang", "vllm"), min_world=4, max_world=32, plain=True), rng)
    serve(story)
    hang(story)
    while story.eager:
        story.beats.clear()
        serve(story)
        hang(story)
    who = victim_rank(story)
    calls = story.calls[who]
    index = max(number for number, call in enumerate(calls) if call.replays)
    old = calls[index]
    calls[index] = Call(old.op, old.comm, old.count, old.dtype, old.step, old.replays - 1)
    story.focus = (who, (who + 1) % story.fleet.world, (who + 2) % story.fleet.world)
    story.keep.update(("nccl", "gpu"))
    story.label = Label(
        ("hang.rank_divergence",),
        True,
        (who,),
        None,
        ("restart_engine",),
        NOT,
        situation="one rank skipped a graph replay",
    )
    return story


SCENARIOS = (extra, skipped, other_size, other_order, two_batches, control_plane, control_plane, missed_replay)
