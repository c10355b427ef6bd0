"""One broken source costs its own evidence, for a while, and nothing else."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from sentinel.agent.gather import BACK_OFF_FIRST_S, BACK_OFF_MAX_S, SAID_PER_POLL_MAX, Gather
from sentinel.agent.source import Said
from sentinel.model.observation import HealthProbe, Origin, Unavailable
from sentinel.model.stamp import Stamp

SEEN = HealthProbe(origin=Origin("test"), url="/health", status=200)


@dataclass
class Talker:
    """A source that says `count` things, or fails after the first one."""

    name: str
    every_s: float = 1.0
    count: int = 1
    fails: bool = False
    asked_at: list[float] = field(default_factory=list)
    closed: bool = False

    def poll(self, now: Stamp) -> Iterator[Said]:
        self.asked_at.append(now.mono_s)
        for number in range(self.count):
            if self.fails and number == 1:
                raise RuntimeError("broken")
            yield Said(None, SEEN)

    def close(self) -> None:
        self.closed = True


def at(seconds: float) -> Stamp:
    return Stamp(mono_ns=round(seconds * 1e9), wall_ns=round(seconds * 1e9))


def gathered(gather: Gather, seconds: float) -> list[object]:
    return [said.seen for said in gather.poll(at(seconds))]


def test_sources_are_asked_when_they_are_due() -> None:
    """If false, a slow source would be asked as often as a fast one, and the agent would cost what it must not."""
    slow, fast = Talker("slow", every_s=5.0), Talker("fast", every_s=0.5)
    gather = Gather()
    gather.add(slow)
    gather.add(fast)

    for turn in range(20):
        gathered(gather, turn * 0.5)

    assert slow.asked_at == [0.0, 5.0] and len(fast.asked_at) == 20


def test_a_failing_source_is_reported_and_the_others_go_on() -> None:
    """If false, a bug in one parser would blind the agent altogether."""
    gather = Gather()
    gather.add(Talker("broken", count=2, fails=True))
    gather.add(Talker("good"))

    seen = gathered(gather, 0.0)

    assert [type(one) for one in seen] == [HealthProbe, Unavailable, HealthProbe]
    assert isinstance(seen[1], Unavailable) and seen[1].source == "broken" and "RuntimeError: broken" in seen[1].reason
    assert gather.health["broken"].failures == 1


def test_a_failing_source_is_left_alone_longer_each_time() -> None:
    """If false, a source that always fails would be asked for ever at full rate, and fill the journal."""
    broken = Talker("broken", count=2, fails=True)
    gather = Gather()
    gather.add(broken)

    for turn in range(2 * round(BACK_OFF_MAX_S)):
        gathered(gather, float(turn))

    gaps = [later - earlier for earlier, later in zip(broken.asked_at, broken.asked_at[1:], strict=False)]
    assert gaps[:3] == [BACK_OFF_FIRST_S, 2 * BACK_OFF_FIRST_S, 4 * BACK_OFF_FIRST_S]
    assert max(gaps) <= BACK_OFF_MAX_S


def test_a_source_that_works_again_is_asked_at_its_own_rate_again() -> None:
    """If false, one bad moment would leave a source in quarantine for the rest of the day."""
    source = Talker("flaky", count=2, fails=True)
    gather = Gather()
    gather.add(source)
    gathered(gather, 0.0)
    source.fails = False

    for turn in range(10):
        gathered(gather, BACK_OFF_FIRST_S + turn)

    assert source.asked_at[1:] == [BACK_OFF_FIRST_S + turn for turn in range(10)]


def test_a_source_that_never_stops_talking_is_cut_off_and_counted() -> None:
    """If false, one flood would keep the loop from ever seeing the other sources."""
    gather = Gather()
    gather.add(Talker("flood", count=SAID_PER_POLL_MAX + 7))

    assert len(gathered(gather, 0.0)) == SAID_PER_POLL_MAX
    assert gather.shed == 7


def test_a_dropped_source_is_closed() -> None:
    """If false, every engine that ends would leave descriptors behind."""
    source = Talker("gone")
    gather = Gather()
    gather.add(source)
    gather.drop("gone")

    assert source.closed and gathered(gather, 0.0) == []
