"""Who differs: laggards, extra calls, other sizes, other order, and what cannot be told."""

import pytest

from sentinel.core.picture import Picture
from sentinel.model.observation import Decode, Origin
from tests.unit.nccl_world import BEGIN_S, World, fact, going_on, picture_of, stopped


def steady(world: World, steps: int = 20) -> None:
    """Healthy steps: five all-gathers on the world, one broadcast on the second communicator."""
    for _ in range(steps):
        for _ in range(5):
            world.all(op="AllGather", count=16160)
        if "control" in world.members:
            world.all("control", op="Broadcast", count=1)


def judged(world: World, ranks: list[int] | None = None) -> Picture:
    """The picture after progress has stopped."""
    return picture_of(stopped(), world.observations(ranks))


@pytest.mark.parametrize("size", [2, 4, 8, 16, 64])
def test_a_rank_that_stopped_before_the_next_call_is_behind_on_every_communicator(size: int) -> None:
    """False in production: the rank whose host is blocked would not be found, or its waiting peers would be blamed."""
    world = World(size)
    world.open("control", range(size), split=True)
    steady(world)
    culprit = size - 1
    for _ in range(5):
        world.all(op="AllGather", count=16160, but=[culprit])
    world.all("control", op="Broadcast", count=1, but=[culprit])
    picture = judged(world)
    assert fact(picture, "collective.behind_ranks") == (culprit,)
    assert fact(picture, "collective.divergent_ranks") == (culprit,)
    assert fact(picture, "collective.behind_on_all") is True
    assert fact(picture, "collective.skipped") is False
    assert fact(picture, "collective.counts_equal") is False


@pytest.mark.parametrize("size", [2, 8])
def test_a_rank_that_makes_one_call_too_many_is_named_and_its_peers_are_not_behind(size: int) -> None:
    """False in production: a divergence would be read as all other ranks being blocked."""
    world = World(size)
    world.open("control", range(size), split=True)
    steady(world)
    for _ in range(5):
        world.all(op="AllGather", count=16160)
    world.call(1, op="AllGather", count=16160)
    world.all("control", op="Broadcast", count=1)
    picture = judged(world)
    assert fact(picture, "collective.extra_ranks") == (1,)
    assert fact(picture, "collective.behind_ranks") == ()
    assert fact(picture, "collective.divergent_ranks") == (1,)
    assert fact(picture, "collective.skipped") is True


def test_a_host_that_runs_ahead_in_rhythm_has_no_extra_call() -> None:
    """False in production: rank 0, which never waits for its GPU, would be blamed for every hang."""
    world = World(4)
    world.open("control", range(4), split=True)
    steady(world)
    for _ in range(3):
        for _ in range(5):
            world.call(0, op="AllGather", count=16160)
        world.call(0, "control", op="Broadcast", count=1)
    picture = judged(world)
    assert fact(picture, "collective.ahead_ranks") == (0,)
    assert fact(picture, "collective.extra_ranks") == ()


def test_of_two_ranks_the_one_that_breaks_its_own_rhythm_made_a_call_too_many() -> None:
    """False in production: the rank that did nothing wrong would be blamed when every step has sizes of its own."""
    world = World(2)
    world.open("control", range(2), split=True)
    for step in range(12):
        for _ in range(4):
            world.all(count=4096 * (step + 1))
        if step == 11:
            world.call(1, count=4096 * (step + 1))
        world.all(op="AllGather", count=32320 * (step + 1))
        world.all("control", op="Broadcast", count=1)
    picture = judged(world)
    assert fact(picture, "collective.extra_ranks") == (1,)
    assert fact(picture, "collective.divergent_ranks") == (1,)


def test_communicators_joined_by_guess_that_part_long_before_the_end_are_not_one() -> None:
    """False in production: without init lines, two sub-groups that never shared a call would be called diverged."""
    world = World(4, init=False)
    for _ in range(400):
        for rank in range(4):
            world.call(rank, count=4096 if rank < 2 else 8192)
    picture = judged(world)
    assert fact(picture, "collective.mismatch") in (None, False)
    assert fact(picture, "collective.comparable") is False


def test_with_two_ranks_another_size_is_a_mismatch_of_which_neither_is_named() -> None:
    """False in production: one of two equally odd ranks would be called the culprit."""
    world = World(2)
    steady(world)
    for rank, tokens in ((0, 1533), (1, 1789)):
        for _ in range(30):
            world.call(rank, count=tokens * 4096)
    picture = judged(world)
    assert fact(picture, "collective.counts_equal") is True
    assert fact(picture, "collective.mismatch") is True
    assert fact(picture, "collective.mismatch_ranks") == ()
    assert fact(picture, "collective.equal_at_stall") is False


def test_the_minority_with_other_sizes_is_named_even_when_only_some_logs_exist() -> None:
    """False in production: ranks that built another batch would be missed because not every rank was collected."""
    world = World(8)
    steady(world)
    for rank in range(8):
        for _ in range(61):
            world.call(rank, count=21_582_848 if rank in (3, 6) else 28_034_048)
    picture = judged(world, [0, 3, 5])
    assert fact(picture, "collective.mismatch_ranks") == (3,)
    assert fact(judged(world), "collective.mismatch_ranks") == (3, 6)
    assert fact(picture, "collective.traced_ranks") == (0, 3, 5)


def test_another_order_across_two_communicators_is_seen_although_all_counts_agree() -> None:
    """False in production: the classic two-communicator deadlock would look like a healthy engine."""
    world = World(2)
    world.open("control", range(2), split=True)
    steady(world)
    for _ in range(5):
        world.call(0, op="AllGather", count=16160)
    world.call(0, "control", op="Broadcast", count=1)
    world.call(1, "control", op="Broadcast", count=1)
    for _ in range(5):
        world.call(1, op="AllGather", count=16160)
    picture = judged(world)
    assert fact(picture, "collective.counts_equal") is True
    assert fact(picture, "collective.order_differs") is True
    assert fact(picture, "collective.equal_at_stall") is False


def test_two_host_threads_that_interleave_freely_are_no_evidence_of_another_order() -> None:
    """False in production: every engine with a second communication thread would be called diverged."""
    world = World(2)
    world.open("control", range(2), split=True)
    for step in range(40):
        for rank in range(2):
            first, second = ("world", "control") if (step + rank) % 2 else ("control", "world")
            world.call(rank, first)
            world.call(rank, second)
    assert fact(judged(world), "collective.order_differs") is not True


def test_a_rank_behind_on_one_communicator_and_ahead_on_another_went_past_the_call() -> None:
    """False in production: a rank that jumped over a call would be taken for one that is merely blocked."""
    world = World(4)
    world.open("control", range(4), split=True)
    steady(world)
    world.all(op="AllGather", count=16160, but=[2])
    world.call(2, "control", op="Broadcast", count=1)
    picture = judged(world)
    assert fact(picture, "collective.divergent_ranks") == (2,)
    assert fact(picture, "collective.skipped") is True
    assert fact(picture, "collective.behind_on_all") is False
    assert fact(picture, "collective.extra_ranks") == ()


def test_a_rank_that_left_calls_out_in_the_middle_is_found_by_its_sizes() -> None:
    """False in production: a data-parallel rank that skips some of its collectives would look only slow."""
    world = World(8, networked=True)
    for step in range(60):
        for op in ("AllGather", "ReduceScatter"):
            skips = [5] if op == "ReduceScatter" and step in (11, 30) else []
            world.all(op=op, count=65536 * (1 + step % 4), but=skips)
    picture = judged(world)
    assert fact(picture, "collective.divergent_ranks") == (5,)
    assert fact(picture, "collective.behind_ranks") == (5,)
    assert fact(picture, "collective.skipped") is True


def test_a_difference_while_decode_goes_on_is_in_flight_and_blames_nobody() -> None:
    """False in production: the slower host of a healthy engine would be restarted."""
    world = World(4)
    steady(world)
    world.all(op="AllGather", count=16160, but=[3])
    picture = picture_of(going_on(), world.observations())
    assert fact(picture, "collective.behind_ranks") != (3,)
    assert fact(picture, "collective.counts_equal") is None


def test_a_part_of_the_engine_can_hang_while_another_goes_on() -> None:
    """False in production: with data parallelism the healthy groups' progress would hide the group that hangs."""
    world = World(8)
    world.open("dp0", range(4))
    world.open("dp1", range(4, 8))
    for _ in range(30):
        world.all("dp0", count=4096)
        world.all("dp1", count=4096)
    world.all("dp1", count=4096, but=[6])
    lines = [
        Decode(origin=Origin(f"engine{rank}.log", at), at_s=BEGIN_S + at, engine="sglang", rank=rank, running=3)
        for rank, last in ((0, 200), (4, 30))
        for at in range(last)
    ]
    picture = picture_of(lines, world.observations())
    assert fact(picture, "collective.behind_ranks") == (6,)


def test_a_log_cut_in_its_last_line_is_not_read_as_one_call_less() -> None:
    """False in production: the rank whose file was copied in the middle of a write would be the culprit."""
    world = World(4)
    steady(world)
    whole, cut = world.observations([0, 1, 2]), world.observations([3], lambda text: text[:-90])
    picture = picture_of(stopped(), whole, cut)
    assert fact(picture, "collective.behind_ranks") == ()
    assert fact(picture, "collective.divergent_ranks") == ()


def test_logs_of_which_the_middle_was_cut_out_are_not_counted_against_whole_ones() -> None:
    """False in production: an abridged attachment would be a divergence of thousands of calls."""
    world = World(3)
    steady(world)

    def abridge(text: str) -> str:
        lines = text.splitlines(keepends=True)
        return "".join([*lines[:10], "... 60 lines omitted ...\n", *lines[70:]])

    picture = picture_of(stopped(), world.observations([0, 1]), world.observations([2], abridge))
    assert fact(picture, "collective.behind_ranks") == ()
    assert fact(picture, "collective.equal_at_stall") is None


def test_windows_that_begin_at_the_same_operation_are_compared_from_there() -> None:
    """False in production: logs rotated at the same moment would be useless although they align."""
    world = World(4, networked=True)
    steady(world, 40)
    world.all(op="AllGather", count=16160, but=[1])

    def late(text: str) -> str:
        return "".join(line for line in text.splitlines(keepends=True)[50:])

    picture = picture_of(stopped(), world.observations(edit=late))
    assert fact(picture, "collective.comparable") is True
    assert fact(picture, "collective.counts_equal") is False


def test_one_rank_alone_decides_nothing() -> None:
    """False in production: a single log would produce a verdict about ranks nobody looked at."""
    world = World(8)
    steady(world)
    picture = judged(world, [4])
    for name in ("counts_equal", "behind_ranks", "extra_ranks", "mismatch", "equal_at_stall", "divergent_ranks"):
        assert fact(picture, f"collective.{name}") is None, name
    assert fact(picture, "collective.comparable") is False


def test_the_same_process_ids_on_two_hosts_stay_apart() -> None:
    """False in production: containers, which all number from 1, would be merged into one rank."""
    world = World(16, same_pids=True)
    steady(world)
    world.all(op="AllGather", count=16160, but=[9])
    picture = judged(world)
    assert fact(picture, "collective.behind_ranks") == (9,)
    assert fact(picture, "collective.traced_ranks") == tuple(range(16))


def test_sub_communicators_of_several_pipeline_stages_are_not_mixed() -> None:
    """False in production: the tensor groups of two stages would be compared with each other."""
    world = World(8)
    world.open("stage0", range(4))
    world.open("stage1", range(4, 8))
    for step in range(30):
        world.all("stage0", count=4096)
        world.all("stage1", count=8192)
        if step % 3 == 0:
            world.all("stage1", count=512)
    world.all("stage1", count=8192, but=[6])
    picture = judged(world)
    assert fact(picture, "collective.behind_ranks") == (6,)
    assert fact(picture, "collective.mismatch") is False


def test_sends_and_receives_differ_between_ranks_and_are_left_out() -> None:
    """False in production: every pipeline-parallel engine would be called diverged."""
    world = World(2)
    for _ in range(20):
        world.all(count=4096)
        world.call(0, op="Send", root=1)
        world.call(1, op="Recv", root=0)
    world.call(0, op="Send", root=1)
    picture = judged(world)
    assert fact(picture, "collective.mismatch") is False
    assert fact(picture, "collective.counts_equal") is True


def test_the_order_of_the_files_changes_no_fact() -> None:
    """False in production: the verdict would depend on how a folder was packed."""
    world = World(4, networked=True)
    world.open("control", range(4), split=True)
    steady(world)
    world.all(op="AllGather", count=16160, but=[2])
    names = [
        f"collective.{name}"
        for name in ("behind_ranks", "counts_equal", "mismatch", "divergent_ranks", "behind_on_all")
    ]
    forward, backward = judged(world, [0, 1, 2, 3]), judged(world, [3, 2, 1, 0])
    assert [fact(forward, name) for name in names] == [fact(backward, name) for name in names]


def test_replays_on_the_network_transport_show_how_much_is_in_no_log() -> None:
    """False in production: equal counts would be trusted although most work ran unlogged."""
    world = World(2, networked=True)
    world.all(op="AllGather", count=16160)
    for _ in range(40):
        for _ in range(20):
            world.replay()
        world.all(op="AllGather", count=16160)
    picture = judged(world)
    assert fact(picture, "collective.graph_coverage") == "full"
    assert fact(picture, "collective.graph_gap_ranks") == ()


def test_a_replay_that_one_rank_skipped_shows_as_a_lower_op_count_at_the_same_call() -> None:
    """False in production: a divergence inside a graph, which no count shows, would stay invisible."""
    world = World(4, networked=True)
    world.all(op="AllGather", count=16160)
    for step in range(30):
        world.replay(but=[2] if step == 28 else [])
        for rank in range(4):
            # The five calls of a step are made before the first of them is launched: they print one opCount.
            at = world.ranks[rank].op_counts["world"]
            for _ in range(5):
                world.call(rank, op="AllGather", count=16160)
                world.ranks[rank].op_counts["world"] = at
            world.ranks[rank].op_counts["world"] = at + 5
    picture = judged(world)
    assert fact(picture, "collective.counts_equal") is True
    assert fact(picture, "collective.graph_gap_ranks") == (2,)
    assert fact(picture, "collective.graph_coverage") == "partial"


def test_without_replays_the_logs_are_complete() -> None:
    """False in production: an eager engine's counts would be called incomplete."""
    world = World(2, networked=True)
    steady(world)
    assert fact(judged(world), "collective.graph_coverage") == "none"


def test_communicators_without_init_lines_are_joined_by_size_and_order() -> None:
    """False in production: a log whose start is gone would be worth nothing although op counts line up."""
    world = World(4, networked=True, init=False)
    world.open("control", range(4))
    for _ in range(40):
        world.all(op="AllGather", count=16160)
        world.all("control", op="Broadcast", count=1)
    rotated = world.observations(edit=lambda text: "".join(text.splitlines(keepends=True)[20:]))
    assert fact(picture_of(stopped(), rotated), "collective.comparable") is True
    assert fact(picture_of(stopped(), world.observations()), "collective.comparable") is False


def test_a_peer_that_never_made_its_first_call_is_behind() -> None:
    """False in production: the rank that never entered the very first collective would count as not traced."""
    world = World(4)
    world.open("control", range(4), split=True)
    steady(world, 3)
    world.open("late", range(4))
    world.all("late", but=[1])
    assert fact(judged(world), "collective.behind_ranks") == (1,)
