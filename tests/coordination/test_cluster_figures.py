"""What the coordinator counts, over a real leader."""

import ast
from collections import Counter
from pathlib import Path

import msgspec
import pytest

import sentinel.core.fence
import sentinel.core.policy
from sentinel.agent.loop import AgentLoop
from sentinel.agent.serve import served
from sentinel.bus.memory import MemoryBus
from sentinel.config import Config, Folders, Metrics
from sentinel.coordinator.embed import coordinating
from sentinel.coordinator.figures import bounded
from sentinel.coordinator.hand import Hand
from sentinel.coordinator.ledger import MemoryLedger
from sentinel.coordinator.names import FOLDER, LEASE, command_slot
from sentinel.core.cluster_life import GroupPhase
from sentinel.core.plan import restart_steps
from sentinel.groups import Coordination, Group
from sentinel.metrics.exposition import encode
from sentinel.metrics.registry import COORDINATOR, FENCE, GROUP, GROUP_STATE, GUARD, STEP
from sentinel.model.cluster import Delays, Limits
from sentinel.model.group import Ack, Command, GroupSpec, Lease, StoreReport, Verb
from sentinel.model.verdict import Action, Verdict
from sentinel.testing.virtual import VirtualClock
from tests.coordination.cluster_world import CALLBACK, RULES
from tests.coordination.led import Led
from tests.metrics.scrapes import OPENMETRICS, samples, value

STOPPED = Verdict(
    kind="hang.stopped", stalled=True, confidence="high", summary="stopped", actions=(Action(action="restart_engine"),)
)


def restarted(led: Led) -> None:
    """From the stall through every step to the next progress."""
    led.stall(STOPPED)
    led.turn(3)
    led.ack("probe", checks={"token": False}, took_s=5.0)
    led.ack("stop", took_s=12.0)
    led.change(incarnation="", phase="absent", moved_s=None)
    led.ack("start", took_s=40.0)
    led.change(incarnation="one-b", phase="watching", moved_s=None, verdict=None)
    led.ack("ready", checks={"token": True}, took_s=50.0)
    led.turn(5)
    led.change(moved_s=led.now_s)
    led.turn(3)


def test_a_restart_is_told_from_the_verdict_to_the_proof() -> None:
    """False: nobody can see how long restarts take, how many there were, or whether the verdicts were right."""
    led = Led()
    led.turn(3)
    assert led.value("sentinel_restarts_total", group="chat", reason="hang") == 0
    restarted(led)
    assert led.leader.core is not None
    incident = led.leader.core.group("chat").incident
    led.order("feedback", group=incident, value="confirmed")
    page = led.page()

    assert value(page, "sentinel_restarts_total", group="chat", reason="hang") == 1
    assert value(page, "sentinel_classifications_total", cause="hang.stopped", confidence="high") == 1
    assert value(page, "sentinel_incidents_total", cause="hang.stopped", severity="critical") == 1
    assert value(page, "sentinel_verdict_feedback_total", verdict="confirmed") == 1
    assert value(page, "sentinel_verdict_feedback_total", verdict="false_alarm") == 0
    assert value(page, "sentinel_restart_budget_remaining", group="chat") == 2
    assert value(page, "sentinel_group_incident_duration_seconds_count") == 1
    assert 10 < (value(page, "sentinel_group_incident_duration_seconds_sum") or 0) < 60
    for phase, took_s in (("ask", 5.0), ("stop", 12.0), ("start", 40.0), ("ready", 50.0)):
        assert value(page, "sentinel_restart_phase_duration_seconds_sum", phase=phase) == took_s
    assert 4 <= (value(page, "sentinel_restart_phase_duration_seconds_sum", phase="prove") or 0) < 20
    assert {sample.name for sample in page} <= {
        *(name for metric in COORDINATOR for name in metric.samples), "sentinel_loop_last_tick_timestamp_seconds"
    }  # fmt: skip


def test_what_stands_open_is_shown_while_it_does() -> None:
    """False: a stalled group, a breaker or a pause is invisible to whoever looks at the boards."""
    led = Led(limits=Limits(mode="observe", young_s=0.0))
    led.turn(3)
    assert value(led.page(), "sentinel_incidents_open", severity="critical") == 0
    led.stall(CALLBACK)
    led.order("pause", group="", seconds=600.0)
    page = led.page()
    assert value(page, "sentinel_incidents_open", severity="critical") == 1
    assert value(page, "sentinel_groups", state="judged") == 1 and value(page, "sentinel_groups", state="calm") == 0
    assert value(page, "sentinel_paused") == 1
    led.order("resume", group="")
    led.change(phase="watching", verdict=None, moved_s=led.now_s + 20.0)
    page = led.page()
    assert value(page, "sentinel_groups", state="calm") == 1 and value(page, "sentinel_paused") == 0
    assert value(page, "sentinel_incidents_total", cause="hang.host_callback", severity="critical") == 1


def test_a_step_that_fails_opens_the_breaker_on_the_page() -> None:
    """False: the page that calls a person to a halted group never comes."""
    led = Led()
    led.turn(3)
    led.stall(STOPPED)
    led.turn(3)
    assert led.value("sentinel_restart_breaker_open", group="chat") == 0
    led.ack("probe", checks={"token": False})
    led.ack("stop", "unverified", why="process 7 is still there")
    page = led.page()

    assert value(page, "sentinel_restart_breaker_open", group="chat") == 1
    assert value(page, "sentinel_restart_breaker_open", group="_global") == 0
    assert value(page, "sentinel_groups", state="halted") == 1
    assert value(page, "sentinel_restarts_total", group="chat", reason="hang") == 0


@pytest.mark.parametrize(
    ("mode", "acts", "counted"),
    [("auto", True, {"budget"}), ("observe", True, {"policy"}), ("auto", False, {"supervisor"})],
)
def test_a_refusal_counts_once_and_only_where_sentinel_is_meant_to_act(
    mode: str, acts: bool, counted: set[str]
) -> None:
    """False: an alert about refused actions fires on every stall of a site that only observes, or never."""
    led = Led(limits=Limits(mode=mode, young_s=0.0, hold_s=1.0, restarts_max=1), acts=acts)  # type: ignore[arg-type]
    led.turn(3)
    assert led.leader.core is not None
    led.leader.core.group("chat").restarts = [led.now_s - 2000.0]
    led.stall(STOPPED)
    led.turn(20)
    guards = {
        sample.labels["guard"]: sample.value
        for sample in led.page()
        if sample.name == "sentinel_actions_suppressed_total" and sample.value
    }

    assert guards == dict.fromkeys(counted, 1.0)


def test_hosts_are_told_by_how_well_they_are_heard() -> None:
    """False: a host whose agent is gone looks healthy."""
    led = Led(groups={"chat": ("one", "two"), "code": ("three",), "math": ("four",)})
    led.silent = {"four"}
    led.turn(3)
    led.order("maintenance", group="three", value="on")
    led.silent = {"four", "two"}
    led.turn(20)
    page = led.page()
    found = {s.labels["state"]: s.value for s in page if s.name == "sentinel_nodes"}
    heard = {s.labels["node"]: s.value for s in page if s.name == "sentinel_node_last_heartbeat_timestamp_seconds"}
    assert found == {"healthy": 1, "suspect": 1, "unknown": 1, "maintenance": 1}
    assert heard.keys() == {"one", "two", "three"} and heard["one"] - heard["two"] > 15
    led.turn(40)
    assert led.value("sentinel_nodes", state="unknown") == 2


def test_hosts_in_different_modes_are_counted() -> None:
    """False: a group that is slow because one host reads from its disk shows nothing."""
    led = Led(groups={"chat": ("one", "two")})
    led.turn(3)
    assert led.value("sentinel_group_store_modes", group="chat") == 1
    two = led.engines["chat", "two"]
    led.engines["chat", "two"] = msgspec.structs.replace(two, store=StoreReport(mode="ram", live=True))
    assert led.value("sentinel_group_store_modes", group="chat") == 2


def test_a_process_that_stands_by_says_so_and_tells_no_group_twice() -> None:
    """False: two processes on one box show every incident twice, or none of them is known to lead."""
    led = Led()
    led.turn(3)
    second = Led(bus=led.bus, me="there")
    second.now_s = led.now_s
    page = second.page()

    assert value(page, "sentinel_coordinator_leader") == 0 and led.value("sentinel_coordinator_leader") == 1
    assert value(page, "sentinel_coordinator_epoch") == 1
    assert not any(sample.name.startswith(("sentinel_groups", "sentinel_restart")) for sample in page)


def test_a_leader_that_takes_over_does_not_count_what_was_counted_before() -> None:
    """False: every failover shows a burst of restarts and verdicts that never happened."""
    led = Led()
    led.turn(3)
    restarted(led)
    after = Led(bus=led.bus, me="there")
    after.now_s, after.engines = led.now_s, led.engines
    after.turn(40)
    page = after.page()

    assert value(page, "sentinel_coordinator_leader") == 1 and value(page, "sentinel_coordinator_epoch") == 2
    assert value(page, "sentinel_coordinator_transitions_total") == 1
    assert value(page, "sentinel_restarts_total", group="chat", reason="hang") == 0
    assert value(page, "sentinel_restart_phase_duration_seconds_count", phase="stop") == 0
    assert value(page, "sentinel_classifications_total", cause="hang.stopped", confidence="high") == 0


def test_a_bus_that_does_not_answer_is_counted_and_ends_the_lead() -> None:
    """False: a leader that lost its lease still looks like one."""
    led = Led()
    led.turn(3)
    led.bus.away = True
    led.turn(30)
    page = led.page()

    assert value(page, "sentinel_coordinator_leader") == 0
    assert value(page, "sentinel_coordinator_transitions_total") == 2
    assert (value(page, "sentinel_coordinator_lease_renew_failures_total") or 0) >= 15


def test_a_site_with_more_groups_than_the_page_may_name_still_has_a_page() -> None:
    """False: series grow with the site, or one breaker of many is not shown at all."""
    names = [f"g{number:03}" for number in range(100)]
    assert bounded(GROUP, "g000", names) == "g000" and bounded(GROUP, "g099", names) == "other"
    assert len({bounded(GROUP, name, names) for name in names}) == GROUP.bound
    led = Led(groups=dict.fromkeys(names, ("one",)))
    led.turn(3)
    assert led.leader.core is not None
    led.leader.core.group("g099").breaker = "test"
    page = led.page()
    assert value(page, "sentinel_restart_breaker_open", group="other") == 1
    assert value(page, "sentinel_restart_breaker_open", group="g000") == 0
    assert len(page) < 1200


def test_closed_sets_are_those_of_the_code() -> None:
    """False: a new guard, phase or step of a plan is counted under no name of its own."""
    assert GROUP_STATE.values == tuple(phase.value for phase in GroupPhase)
    tree = ast.parse(Path(sentinel.core.policy.__file__).read_text())
    guards = {
        text.value
        for node in ast.walk(tree)
        if isinstance(node, ast.keyword) and node.arg == "guard"
        for text in (node.value.body if isinstance(node.value, ast.IfExp) else node.value,)
        if isinstance(text, ast.Constant) and isinstance(text.value, str)
    }
    assert len(guards) > 12 and guards <= set(GUARD.values or ())
    spec = GroupSpec(name="chat", hosts=("one", "two"))
    tree = ast.parse(Path(sentinel.core.fence.__file__).read_text())
    ignored = {
        node.args[1].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and len(node.args) == 2 and ast.unparse(node.func) == "Ignore"
        if isinstance(node.args[1], ast.Constant)
    }
    assert ignored | {"malformed", "incarnation"} == set(FENCE.values or ())
    steps = restart_steps(spec, Delays(), fresh_capture=True, ask=True, mode="ram")
    assert {step.name.partition("_")[0] for step in steps} | {"prove"} == set(STEP.values or ())


class Idle:
    """A host on which the named incarnation runs, and nothing that is asked comes to an end."""

    def running(self, group: str) -> str | None:
        return f"{group}-a"

    def resolve(self, command: Command, running: str | None) -> Ack | None:
        return None

    def perform(self, command: Command, hand: Hand) -> None: ...


def test_a_command_that_is_not_obeyed_counts_once_by_what_stood_against_it() -> None:
    """False: a coordinator of a lower epoch, or one that means another engine, tries in vain, and nobody learns it."""
    led = Led()
    hand = Hand("one", ("chat",), led.bus, MemoryLedger(), Idle())
    led.figures.hand = hand
    led.turn(3)
    hand.turn(led.now_s)
    led.turn(6)
    hand.turn(led.now_s)

    def given(name: str, epoch: int, incarnation: str, verb: Verb = "stop") -> None:
        lease = msgspec.json.decode(led.bus.read(LEASE).data, type=Lease)  # type: ignore[union-attr]
        command = Command(id=name, epoch=epoch, beat=lease.beat, verb=verb, group="chat", host="one",
                          incarnation=incarnation)  # fmt: skip
        slot = led.bus.read(command_slot("one", "chat"))
        led.bus.write(command_slot("one", "chat"), msgspec.json.encode(command), 0 if slot is None else slot.revision)
        for _ in range(3):
            hand.turn(led.now_s)

    given("chat-1.1/restart1/stop/one", 1, "chat-b")
    given("chat-1.1/restart2/stop/one", 1, "chat-a")
    given("chat-1.1/capture1/one", 0, "chat-a", "capture")
    page = led.page()
    counted = {s.labels["reason"]: s.value for s in page if s.name == "sentinel_commands_rejected_total" and s.value}

    assert counted == {"incarnation": 1, "stale_epoch": 1}
    assert value(page, "sentinel_commands_received_total", verb="stop") == 2
    assert value(page, "sentinel_commands_received_total", verb="capture") == 1
    assert value(page, "sentinel_fencing_epoch") == 1


def test_a_command_that_its_coordinator_left_behind_is_not_one_of_a_stale_coordinator() -> None:
    """False: every takeover alerts about a coordinator that writes although another leads."""
    bus, ledger = MemoryBus(), MemoryLedger()
    hand = Hand("one", ("chat", "code"), bus, ledger, Idle())

    def put(slot: str, what: Lease | Command) -> None:
        known = bus.read(slot)
        bus.write(slot, msgspec.json.encode(what), 0 if known is None else known.revision)

    def turn(second: int, epoch: int) -> Counter[str]:
        put(LEASE, Lease(holder="x", epoch=epoch, beat=second))
        hand.turn(float(second))
        return hand.rejected

    def given(group: str, epoch: int, beat: int) -> None:
        name = f"{group}-{epoch}.1/capture1/one"
        put(command_slot("one", group), Command(id=name, epoch=epoch, beat=beat, verb="capture", group=group,
                                                host="one", incarnation=f"{group}-a"))  # fmt: skip

    turn(1, epoch=1)
    given("chat", epoch=1, beat=90)
    turn(2, epoch=1)
    given("code", epoch=2, beat=3)
    turn(3, epoch=2)
    assert turn(4, epoch=2)["stale_epoch"] == 0 and ledger.epoch() == 2
    hand = Hand("one", ("chat", "code"), bus, ledger, Idle())
    assert turn(5, epoch=2)["stale_epoch"] == turn(6, epoch=2)["stale_epoch"] == 0
    given("chat", epoch=1, beat=91)

    assert turn(7, epoch=2)["stale_epoch"] == turn(8, epoch=2)["stale_epoch"] == 1


def test_the_coordinator_is_on_the_agents_page(tmp_path: Path) -> None:
    """False: what is counted is served nowhere, or breaks the page of the agent."""
    clock = VirtualClock()
    file = tmp_path / "agent.prom"
    config = Config(folders=Folders(state=str(tmp_path / "state")), metrics=Metrics(listen="", textfile=str(file)))
    loop = AgentLoop(config, RULES, clock)
    with served(loop), coordinating(loop, Coordination(groups={"chat": Group()}), RULES) as together:
        assert together is not None
        together.stop.set()
        together.turn()
        loop.turn()
    loop.close()
    assert loop.measured is not None and "sentinel_coordinator_leader 1.0" in file.read_text()
    page = list(samples(encode(loop.measured, OPENMETRICS)[0].decode()))

    assert value(page, "sentinel_coordinator_leader") == 1 and value(page, "sentinel_groups", state="calm") == 1
    loops = {s.labels["loop"] for s in page if s.name == "sentinel_loop_last_tick_timestamp_seconds"}
    families = [series.metric.name for series in loop.measured]
    assert "coordinator" in loops and len(set(families)) == len(families)


def test_a_bus_that_cannot_be_had_is_a_missing_leader(tmp_path: Path) -> None:
    """False: a box whose coordinator cannot start looks like one that never should have any."""
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / FOLDER).write_text("in the way")
    config = Config(folders=Folders(state=str(tmp_path / "state")), metrics=Metrics(listen=""))
    loop = AgentLoop(config, RULES, VirtualClock())
    with coordinating(loop, Coordination(groups={"chat": Group()}), RULES) as together:
        loop.turn()
    loop.close()
    assert together is None and loop.measured is not None
    page = list(samples(encode(loop.measured, OPENMETRICS)[0].decode()))

    assert value(page, "sentinel_coordinator_leader") == 0
