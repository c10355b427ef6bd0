"""What the coordinator decides, told as stories: who must have said what before anything is touched."""

from pathlib import Path

import msgspec
import pytest

from sentinel.core.cluster_life import table
from sentinel.model.cluster import Delays, Leading, Limits
from sentinel.model.group import StoreReport
from sentinel.model.stamp import Stamp
from sentinel.model.verdict import Action, Verdict
from tests.coordination.cluster_world import World

PYTHON = Verdict(
    kind="hang.python", stalled=True, confidence="high", summary="a lock", actions=(Action(action="restart_engine"),)
)
ROOT = Path(__file__).resolve().parents[2]


def walk_to_stop(world: World) -> None:
    """Answer everything up to the stop."""
    for command in world.commands("store_check"):
        world.ack(command)
    world.tick()
    for command in world.commands("probe"):
        world.ack(command, checks={"token": False})
    world.tick()


def finish_restart(world: World) -> None:
    """Stop, start, token, progress of another incarnation."""
    for command in world.commands("stop"):
        world.ack(command)
        world.change(command.host, incarnation="", phase="absent", moved_s=None, verdict=None)
    for _ in world.hosts:
        world.tick()
        for command in world.commands("start"):
            world.ack(command, incarnation=f"{command.host}-b")
    world.tick()
    for command in world.commands("ready"):
        world.ack(command, checks={"token": True})
    world.tick()


def test_a_restart_goes_through_every_barrier_and_ends_with_an_observation() -> None:
    """False: engines are stopped before evidence is taken, or an exit status is taken for success."""
    world = World()
    world.stall(PYTHON)
    assert world.phase == "acting" and world.commands("stop") == []
    walk_to_stop(world)
    assert [command.incarnation for command in world.commands("stop")] == ["one-a"]
    finish_restart(world)
    assert world.phase == "proving"
    world.moves("one", "one-b")
    world.tick()

    assert world.phase == "calm"
    assert world.core.group("chat").relaunches == {"hang.python": 1}
    assert world.told == ["suspected", "verdict", "acting", "carried_out", "closed"]


def test_an_ordered_restart_takes_evidence_although_an_earlier_incident_had_some() -> None:
    """False: evidence of last week stands for evidence of what a person has restarted now."""
    world = World()
    world.stall(PYTHON)
    walk_to_stop(world)
    finish_restart(world)
    world.moves("one", "one-b")
    world.tick(200)
    assert world.phase == "calm"
    answer = world.order("restart")
    world.tick()

    assert answer.ok and world.commands("capture")[-1].incident == world.core.group("chat").incident


def test_a_restart_that_is_followed_by_no_progress_stops_and_pages() -> None:
    """False: an engine that hangs at its start is restarted until its disks are worn out."""
    world = World()
    world.stall(PYTHON)
    walk_to_stop(world)
    finish_restart(world)
    world.change("one", incarnation="one-b", phase="watching", moved_s=None)
    world.tick(200)

    assert world.phase == "halted" and world.told[-1] == "page"
    assert "breaker" in " ".join(world.order("restart", dry_run=True).says)
    assert world.order("breaker_reset").ok and world.phase == "calm"


def test_half_an_engine_that_comes_up_late_is_no_progress_of_the_group() -> None:
    """False: a restart that broke off is told as over while one host runs nothing, and what stalls then is restarted
    as if it were whole."""
    world = World(hosts=("one", "two"), delays=Delays(start_s=20.0))
    assert world.order("restart").ok
    for verb in ("capture", "stop"):
        world.tick()
        for command in world.commands(verb):
            world.ack(command)
            if verb == "stop":
                world.change(command.host, incarnation="", phase="absent", moved_s=None)
    world.tick(30)
    assert world.phase == "halted"
    world.moves("one", "one-b")
    world.tick(30)
    assert world.phase == "halted" and "closed" not in world.told
    world.moves("two", "two-b")
    world.tick(2)

    assert world.phase == "calm" and world.told[-1] == "closed"
    assert any("breaker" in why for why in world.order("restart", dry_run=True).says)


@pytest.mark.parametrize("incarnation", ["one-a", "one-b"])
def test_what_moved_during_an_incident_and_stands_again_is_judged_anew_and_restarted(incarnation: str) -> None:
    """False: one late line, or a restart by the engine's own supervisor, speaks against every remedy for ever."""
    world = World(limits=Limits(mode="auto", hold_s=200.0, young_s=0.0))
    world.stall(PYTHON)
    world.change("one", incarnation=incarnation, moved_s=world.now_s)
    world.tick(2)
    assert any("disagreement" in why for why in world.core.group("chat").refusals)
    world.tick(180)
    assert len(world.commands("capture")) == 1 and world.commands("probe") == []
    world.tick(25)
    world.ack(world.commands("capture")[1])
    world.tick(3)
    walk_to_stop(world)

    assert [command.incarnation for command in world.commands("stop")] == [incarnation]


def test_a_successor_on_a_younger_clock_judges_anew_no_later() -> None:
    """False: after a reboot of the coordinator's box nothing is judged anew for as long as it had run before."""
    limits = Limits(mode="observe", hold_s=10.0, young_s=0.0)
    before, after = World(limits=limits, now_s=1e6), World(limits=limits)
    before.stall(PYTHON)
    specs, at = tuple(after.core.specs.values()), Stamp(mono_ns=round(after.now_s * 1e9), wall_ns=0, boot_id="c")
    state = before.core.state
    after.core.step(Leading(at=at, epoch=8, limits=limits, delays=Delays(), groups=specs, state=state))
    after.change("one", incarnation="one-b", phase="judged", verdict=PYTHON, moved_s=after.now_s)
    after.tick(62)

    assert len(after.commands("capture")) == 1


def test_a_group_that_moves_now_and_then_is_not_judged_anew_all_the_time() -> None:
    """False: a slow engine that one host suspects has its stacks taken every minute."""
    world = World(limits=Limits(mode="auto", hold_s=90.0, young_s=0.0))
    world.stall(PYTHON)
    for _ in range(10):
        world.change("one", moved_s=world.now_s)
        world.tick(80)

    assert len(world.commands("capture")) == 1 and world.commands("stop") == []


def test_an_engine_that_answers_is_left_alone() -> None:
    """False: silence of a log alone kills a working engine."""
    world = World()
    world.stall(PYTHON)
    (command,) = world.commands("probe")
    world.ack(command, checks={"token": True})
    world.tick()

    assert world.phase == "calm" and world.commands("stop") == []


@pytest.mark.parametrize("outcome", ["unverified", "refused", "failed", "abandoned"])
def test_a_stop_that_is_not_proved_ends_the_plan(outcome: str) -> None:
    """False: a second engine is started beside one that cannot die."""
    world = World()
    world.stall(PYTHON)
    walk_to_stop(world)
    world.ack(world.commands("stop")[0], outcome, "D state")  # type: ignore[arg-type]
    world.tick(3)

    assert world.phase == "halted" and world.commands("start") == [] and "page" in world.told


def test_a_dead_incarnation_is_not_restarted() -> None:
    """False: an engine that its own supervisor brought back is killed for what its predecessor did."""
    world = World()
    world.stall(PYTHON)
    walk_to_stop(world)
    world.ack(world.commands("stop")[0], "noop")
    world.moves("one", "one-b")
    world.tick(3)

    assert world.phase == "calm" and world.commands("start") == []


def test_a_silent_agent_is_told_apart_from_a_stalled_rank() -> None:
    """False: a broken management network looks like a hang and costs all engines."""
    world = World(hosts=("one", "two"))
    world.silent = {"two"}
    world.tick(60)

    assert world.phase == "calm" and world.told == ["agent_silent"]
    world.change("one", phase="judged", verdict=PYTHON, moved_s=world.now_s - 50)
    world.tick(120)
    state = world.core.group("chat")
    assert world.commands("stop") == [] and world.commands("probe") == []
    assert state.verdict is None or not state.verdict.culprits.hosts


def test_a_host_that_falls_silent_before_the_stop_takes_the_plan_back() -> None:
    """False: half of the engine is stopped, and nobody knows about the other half."""
    world = World()
    world.stall(PYTHON)
    world.silent = {"one"}
    world.tick(20)

    assert world.phase == "judged" and "withdrawn" in world.told and world.commands("stop") == []
    assert world.core.group("chat").restarts == []


@pytest.mark.parametrize("mode", ["observe", "approve"])
def test_nothing_is_done_without_leave(mode: str) -> None:
    """False: an operator who asked to be asked is not asked."""
    world = World(limits=Limits(mode=mode, hold_s=10.0, young_s=0.0))  # type: ignore[arg-type]
    world.stall(PYTHON)
    world.tick(5)
    assert world.phase == "judged" and world.commands("probe") == []

    answer = world.order("approve", group=world.core.group("chat").incident)
    world.tick()
    assert answer.ok and (world.phase == "acting") == (mode == "approve")


def test_an_approval_is_for_what_was_told_and_not_for_what_is_found_later() -> None:
    """False: leave to end a hung Python lock ends an engine that is found to wait for a network under repair."""
    world = World(limits=Limits(mode="approve", hold_s=10.0, young_s=0.0))
    assert world.order("pause", seconds=60.0).ok
    world.stall(PYTHON)
    assert world.order("approve", group=world.core.group("chat").incident).ok
    world.change("one", verdict=msgspec.structs.replace(PYTHON, kind="hang.network", summary="a cable"))
    world.tick(70)

    assert world.phase == "judged" and world.told[-1] == "approval_wanted"
    assert world.order("approve", group=world.core.group("chat").incident).ok
    world.tick()
    assert world.phase == "acting"


def test_a_pause_holds_until_it_runs_out() -> None:
    """False: maintenance is disturbed by a restart, or a forgotten pause disarms Sentinel for ever."""
    world = World()
    assert not world.order("pause", seconds=90_000.0).ok
    assert world.order("pause", seconds=60.0).ok
    world.stall(PYTHON)
    world.tick(30)
    assert world.phase == "judged" and any("paused" in why for why in world.core.group("chat").refusals)
    world.tick(40)
    assert world.phase == "acting" and "pause_over" in world.told


def test_a_stuck_lane_is_unblocked_first_and_restarted_only_if_that_does_not_help() -> None:
    """False: a batch that could have failed alone costs the whole engine."""
    world = World()
    world.change("one", store=StoreReport(mode="nvme", live=True, stuck_lanes=(3,)))
    world.stall()
    (command,) = world.commands("unblock")
    world.ack(command)
    world.tick(2)
    assert world.phase == "proving" and world.commands("stop") == []
    world.tick(130)
    assert "not_enough" in world.told
    walk_to_stop(world)
    assert world.commands("stop") != [] and world.commands("stop")[0].plan.endswith("restart2")


def test_after_an_unblocking_that_helped_the_store_moves_to_ram() -> None:
    """False: the same stall comes back within the hour."""
    world = World()
    world.change("one", store=StoreReport(mode="nvme", live=True, stuck_lanes=(3,)))
    world.stall()
    world.ack(world.commands("unblock")[0])
    world.tick()
    world.change("one", store=StoreReport(mode="nvme", live=True))
    world.moves("one")
    world.tick(3)
    for verb in ("store_check", "store_set"):
        (command,) = world.commands(verb)
        assert command.args["mode"] == "ram"
        world.ack(command)
        world.tick()
    world.change("one", store=StoreReport(mode="ram", live=True))
    world.tick(2)

    assert world.phase == "calm" and world.core.group("chat").store_mode == "ram"
    answer = world.order("store", value="nvme")
    assert not answer.ok and any("toggle" in line for line in answer.says)


def test_a_store_that_does_not_fit_is_restarted_as_it_is() -> None:
    """False: an engine stays down because a table does not fit into memory."""
    world = World()
    world.stall()
    (command,) = world.commands("store_check")
    world.ack(command, "failed", "it does not fit")
    world.tick(2)
    assert "mode_refused" in world.told
    walk_to_stop(world)

    assert world.commands("stop") != []
    finish_restart(world)
    assert "mode" not in world.commands("start")[0].args


def test_a_switch_that_fails_half_way_is_rolled_back() -> None:
    """False: the hosts of one engine serve rows from different places, and nobody says so."""
    world = World(hosts=("one", "two"))
    assert world.order("store", value="ram").ok
    for _ in range(2):
        world.tick()
        for command in world.commands("store_check"):
            world.ack(command)
    first, second = world.commands("store_set")
    world.ack(first)
    world.ack(second, "failed", "no memory")
    world.tick(2)

    back = world.commands("store_set")[-1]
    assert back.host == first.host and back.args["mode"] == "nvme" and "rollback" in world.told
    world.ack(back)
    world.tick(3)
    assert world.phase == "calm"


def test_hosts_in_different_modes_are_an_alert() -> None:
    """False: a half-switched group is taken for a state."""
    world = World(hosts=("one", "two"))
    world.change("two", store=StoreReport(mode="ram", live=True))
    world.tick(30)

    assert world.told == ["mixed_modes"]


def test_every_change_by_a_person_needs_a_reason_and_is_told() -> None:
    """False: nobody can say afterwards who did what, and why."""
    world = World()
    assert not world.order("policy", value="observe", reason=" ").ok
    assert world.order("policy", value="observe", dry_run=True).ok and world.core.state.mode is None
    assert world.order("policy", value="observe").ok and world.core.state.mode == "observe"
    assert not world.order("policy", value="reckless").ok
    assert world.told == ["order"]
    assert world.order("maintenance", group="one", value="on").ok
    refused = world.order("restart", dry_run=True)
    assert not refused.ok and any("maintenance" in line for line in refused.says)


def test_an_order_is_obeyed_once_although_it_is_read_again() -> None:
    """False: a coordinator that starts anew repeats every restart that was ever ordered."""
    world = World()
    assert world.order("restart").ok
    before = world.core.group("chat").restarts
    world._orders -= 1
    count = len(world.effects)
    world.order("restart")

    assert world.core.group("chat").restarts == before and len(world.effects) == count


def test_an_order_from_before_is_not_obeyed_later() -> None:
    """False: a restart that was asked for on Friday is carried out when Sentinel is started on Monday."""
    world = World()

    assert not world.order("restart", stale=True).ok
    assert world.phase == "calm" and world.core.group("chat").restarts == []


def test_the_manual_shows_the_table_that_is_executed() -> None:
    """False: an operator reads a life of incidents that the program does not follow."""
    assert table() in (ROOT / "docs" / "coordinator.md").read_text()
