"""Laws of the coordinator's parts, for any order of events."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sentinel.bus.memory import MemoryBus
from sentinel.coordinator.hand import Hand
from sentinel.coordinator.ledger import MemoryLedger
from sentinel.coordinator.names import LEASE, command_slot
from sentinel.core.cluster_life import GROUP_LIFE, GroupPhase
from sentinel.core.experiment import rate_per_hour
from sentinel.core.fence import DESTRUCTIVE, Fence, Obey, wrong_incarnation
from sentinel.core.lease import GIVE_UP_S, TTL_S, LeaseWatch
from sentinel.core.policy import Question, View, refusals
from sentinel.model.cluster import ClusterState, Exposure, GroupState, Limits
from sentinel.model.group import Ack, Command, GroupSpec, Lease, Verb
from sentinel.model.stamp import Stamp
from sentinel.model.verdict import Action, Verdict

VERBS: tuple[Verb, ...] = ("capture", "probe", "stop", "start", "ready", "store_check", "store_set", "unblock")
STALL = Verdict(
    kind="hang.python",
    stalled=True,
    confidence="high",
    summary="a rank hangs",
    actions=(Action(action="restart_engine"),),
)


class World:
    """One engine of one host, and everything that was done to it."""

    def __init__(self) -> None:
        self.incarnation = "inc0"
        self.acts: list[Command] = []
        self.touched: list[tuple[str, str]] = []
        self.pending: list[Command] = []
        self.since_crash: set[str] = set()
        self.repeated: list[str] = []
        self.ledger = MemoryLedger()
        self.journalled_first = True

    def running(self, group: str) -> str | None:
        return self.incarnation

    def resolve(self, command: Command, running: str | None) -> Ack | None:
        if command.verb == "stop" and running != command.incarnation:
            return Ack(id=command.id, host="h", outcome="done")
        return None

    def perform(self, command: Command, hand: Hand) -> None:
        self.journalled_first &= command.id in self.ledger.commands
        if command.id in self.since_crash or command.id in self.ledger.answers():
            self.repeated.append(command.id)
        self.since_crash.add(command.id)
        self.acts.append(command)
        if command.verb in DESTRUCTIVE:
            self.touched.append((command.id, self.incarnation))
        self.pending.append(command)


class HandUnderFire(RuleBasedStateMachine):
    """Coordinators old and new write commands; the hand's agent crashes at will; engines come and go."""

    def __init__(self) -> None:
        super().__init__()
        self.bus, self.world, self.now_s = MemoryBus(), World(), 0.0
        self.hand = Hand("h", ("g",), self.bus, self.world.ledger, self.world)
        self.lease = Lease(holder="one", epoch=1)
        self.obeyed: list[int] = []
        self._put(LEASE, self.lease)

    def _put(self, slot: str, value: msgspec.Struct) -> None:
        known = self.bus.read(slot)
        self.bus.write(slot, msgspec.json.encode(value), 0 if known is None else known.revision)

    @rule(seconds=st.floats(0.1, 40.0))
    def time_passes(self, seconds: float) -> None:
        self.now_s += seconds
        before = len(self.world.acts)
        self.hand.turn(self.now_s)
        self.obeyed += [command.epoch for command in self.world.acts[before:]]

    @rule()
    def the_lease_is_renewed(self) -> None:
        self.lease = msgspec.structs.replace(self.lease, beat=self.lease.beat + 1)
        self._put(LEASE, self.lease)

    @rule()
    def another_leads(self) -> None:
        self.lease = Lease(holder=f"{self.lease.epoch}", epoch=self.lease.epoch + 1)
        self._put(LEASE, self.lease)

    @rule(back=st.integers(0, 3), number=st.integers(0, 4), verb=st.sampled_from(VERBS), live=st.booleans())
    def a_coordinator_commands(self, back: int, number: int, verb: Verb, live: bool) -> None:
        command = Command(
            id=f"plan/{verb}{number}",
            epoch=max(1, self.lease.epoch - back),
            beat=self.lease.beat,
            verb=verb,
            group="g",
            host="h",
            incarnation=self.world.incarnation if live else "inc-old",
        )
        self._put(command_slot("h", "g"), command)

    @precondition(lambda self: self.world.pending)
    @rule()
    def an_act_ends(self) -> None:
        command = self.world.pending.pop()
        if command.verb == "stop":
            self.world.incarnation = ""
        self.hand.done(Ack(id=command.id, host="h", outcome="done"))

    @rule()
    def the_agent_crashes(self) -> None:
        self.world.pending.clear()
        self.world.since_crash.clear()
        self.hand = Hand("h", ("g",), self.bus, self.world.ledger, self.world)

    @rule(number=st.integers(1, 9))
    def the_engine_is_started_by_others(self, number: int) -> None:
        self.world.incarnation = f"inc{number}"

    @invariant()
    def nothing_is_done_twice_unless_a_crash_cut_it_short(self) -> None:
        assert self.world.repeated == []

    @invariant()
    def epochs_never_fall(self) -> None:
        assert self.obeyed == sorted(self.obeyed)

    @invariant()
    def everything_was_journalled_before_it_was_done(self) -> None:
        assert self.world.journalled_first

    @invariant()
    def only_the_named_incarnation_is_touched(self) -> None:
        by_id = {command.id: command for command in self.world.acts}
        for name, incarnation in self.world.touched:
            assert by_id[name].verb == "start" or incarnation != "inc-old"


HandUnderFire.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_hand_under_fire = HandUnderFire.TestCase


views = st.builds(
    View,
    blind=st.sampled_from([(), ("host2 is silent",)]),
    moving=st.sampled_from([(), ("host1 saw progress",)]),
    starved=st.sampled_from([(), ("host1: no processor",)]),
    jumped=st.sampled_from([(), ("host1: its clock jumped",)]),
    young=st.sampled_from([(), ("host1: its agent is new",)]),
    long_phase=st.sampled_from([(), ("host1: starting",)]),
    still_s=st.one_of(st.none(), st.floats(0, 1000)),
    acting_groups=st.integers(0, 3),
)


@given(
    view=views,
    restarts=st.lists(st.floats(0, 10_000), max_size=6),
    mode=st.sampled_from(["observe", "approve", "auto"]),
    paused=st.booleans(),
    ordered=st.booleans(),
)
def test_nothing_is_allowed_that_is_blind_or_too_soon(
    view: View, restarts: list[float], mode: str, paused: bool, ordered: bool
) -> None:
    """False: a group that nobody sees is restarted, or one is restarted again and again."""
    now_s = 10_000.0
    cluster = ClusterState(saved=Stamp(mono_ns=0, wall_ns=0), paused_until_s=20_000.0 if paused else None)
    group = GroupState(verdict=STALL, restarts=sorted(restarts))
    question = Question(
        kind="restart", spec=GroupSpec(name="g", hosts=("host1", "host2"), acts=True), group=group, cluster=cluster,
        limits=Limits(), mode=msgspec.convert(mode, type=str), view=view, now_s=now_s,
        ordered_by="somebody" if ordered else "",
    )  # fmt: skip
    guards = {refusal.guard for refusal in refusals(question)}

    assert bool(view.blind) == ("blind" in guards)
    recent = [at_s for at_s in restarts if now_s - at_s < 3600.0]
    assert (len(recent) >= 3) == ("budget" in guards)
    if recent and now_s - max(recent) < 60.0:
        assert "cooldown" in guards
    if not ordered:
        assert paused == ("paused" in guards) and (mode == "observe") == ("policy" in guards)
        for name, guard in (
            ("moving", "disagreement"),
            ("starved", "starved"),
            ("jumped", "jumped"),
            ("young", "young"),
        ):
            assert bool(getattr(view, name)) == (guard in guards)


@given(st.lists(st.tuples(st.integers(0, 1), st.floats(0.1, 25.0), st.booleans()), max_size=60))
def test_two_candidates_never_lead_at_the_same_time(steps: list[tuple[int, float, bool]]) -> None:
    """False: two coordinators act on the same engine; only the fences of the hosts would be left."""
    lease: Lease | None = None
    watches = [LeaseWatch("one"), LeaseWatch("two")]
    now_s, renewed_s = 0.0, {0: 0.0, 1: 0.0}
    for which, seconds, reachable in steps:
        now_s += seconds
        watch = watches[which]
        move = watch.look(now_s, lease) if reachable else watch.blind(now_s)
        if move == "stand_down":
            watch.stood_down()
        elif move in ("take", "renew"):
            lease = Lease(
                holder=watch.me, epoch=1 if lease is None else lease.epoch + (move == "take"), beat=int(now_s * 10)
            )
            watch.took(now_s, lease)
            renewed_s[which] = now_s
        believers = [
            number for number, one in enumerate(watches) if one.leading and now_s - renewed_s[number] <= GIVE_UP_S
        ]
        assert len(believers) <= 1 and GIVE_UP_S < TTL_S


def test_every_phase_can_be_reached_and_left() -> None:
    """False: a group can get stuck in a phase that nothing ends, or a phase is dead code."""
    reached = {GroupPhase.CALM}
    while more := {after for (phase, _), after in GROUP_LIFE.items() if phase in reached} - reached:
        reached |= more

    assert reached == set(GroupPhase) == {phase for phase, _ in GROUP_LIFE}


@pytest.mark.parametrize(
    ("stalls", "hours", "lower", "upper"),
    [(0, 1.0, 0.0, 3.689), (1, 1.0, 0.02532, 5.572), (10, 2.0, 2.398, 9.195), (100, 10.0, 8.136, 12.163)],
)
def test_the_stall_rate_has_the_exact_poisson_interval(stalls: int, hours: float, lower: float, upper: float) -> None:
    """False: two quiet days are taken for a proof that the mode matters. Values: tables of Garwood's interval."""
    rate, low, high = rate_per_hour(Exposure(served_s=hours * 3600.0, stalls=stalls))

    assert rate == stalls / hours
    assert low == pytest.approx(lower, rel=1e-3) and high == pytest.approx(upper, rel=1e-3)
    assert rate_per_hour(Exposure()) == (None, 0.0, None)


def test_a_command_is_refused_by_another_incarnation() -> None:
    """False: a late command kills the engine that was started meanwhile."""
    command = Command(id="p/stop/h", epoch=1, beat=0, verb="stop", group="g", host="h", incarnation="a")

    gone, other, unknown = (wrong_incarnation(command, running) for running in ("", "b", None))
    assert gone is not None and gone.outcome == "noop"
    assert other is not None and other.outcome == "refused" and "b" in other.why
    assert unknown is not None and unknown.outcome == "refused"
    assert wrong_incarnation(command, "a") is None


def test_a_command_waits_until_its_coordinator_is_known_to_live() -> None:
    """False: an agent that was cut off executes an old command when the network comes back."""
    command = Command(id="p/stop/h", epoch=3, beat=7, verb="stop", group="g", host="h", incarnation="a")
    fence = Fence("h")

    fence.watch_lease(0.0, Lease(holder="one", epoch=3, beat=7))
    assert not isinstance(fence.judge(0.0, command), Obey)
    fence.watch_lease(5.0, Lease(holder="one", epoch=3, beat=8))
    assert isinstance(fence.judge(5.0, command), Obey)
    assert not isinstance(fence.judge(26.0, command), Obey)
    fence.watch_lease(27.0, Lease(holder="one", epoch=3, beat=30))
    assert not isinstance(fence.judge(27.0, command), Obey)
    fence.watch_lease(28.0, Lease(holder="two", epoch=4, beat=7))
    assert not isinstance(fence.judge(28.0, command), Obey)
