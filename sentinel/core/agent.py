"""The agent's core: events in, effects out. It suspects, asks for a capture in time, judges, and lets go again.

Suspicion, capture and verdict are three different things. Silence beyond the learned limit with work outstanding is a
suspicion and costs nothing. Sixty seconds of silence, or the approach of the engine's own kill, asks for a capture.
Only the evidence of a capture makes a verdict.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from sentinel.core.incident import Cue, Phase, advance
from sentinel.core.judge import judge_picture
from sentinel.core.picture import Picture, moved
from sentinel.core.pulse import Pulse
from sentinel.core.rules import Rule
from sentinel.model.effect import AnyEffect, Cleared, Judged, Recovered, StartCapture, Suspected, WriteBundle
from sentinel.model.engine import Engine
from sentinel.model.event import (
    AnyEvent,
    CaptureEnded,
    CoreSettings,
    EngineGone,
    EngineSeen,
    Observed,
    OpenIncident,
    Started,
    Tick,
)
from sentinel.model.observation import AnyObservation, Origin, ProcessExit, Silence
from sentinel.model.stamp import Stamp
from sentinel.model.verdict import Verdict

KEEP = 4_000
ENGINES_MAX = 64
DEADLINE_MARGIN_S = 5.0
PRINTED_S = 1.0
"""Resolution of the times that engines print."""
CLOCK_STEP_S = 1.0
"""A wall clock that moves this much against the monotonic one between two events was set, not slewed."""
DEATH_GRACE_S = 1.5
"""A shutdown ends its processes one after another; only a rank that stays missing this long has died."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How one engine stands: for displays. `incident` is empty and `verdict` None while nothing is wrong."""

    engine: Engine
    phase: Phase
    pulse: Pulse
    incident: str
    verdict: Verdict | None


@dataclass(slots=True)
class _Watch:
    """One engine under watch. All times are monotonic seconds."""

    engine: Engine
    pulse: Pulse
    picture: Picture
    met_s: float
    phase: Phase = Phase.WATCHING
    incident: str = ""
    number: int = 0
    since_s: float = 0.0
    capture_began_s: float = 0.0
    died_s: float | None = None
    judged_s: float = 0.0
    verdict: Verdict | None = None
    stale_until_s: float = 0.0


@dataclass(slots=True)
class AgentCore:
    """`step` is the only entry. The same events give the same effects, always."""

    rules: Sequence[Rule]
    settings: CoreSettings = field(default_factory=CoreSettings)
    near_misses: int = 0
    _watches: dict[str, _Watch] = field(default_factory=dict)
    _host_seen: deque[AnyObservation] = field(default_factory=lambda: deque(maxlen=KEEP))
    _left_open: dict[str, OpenIncident] = field(default_factory=dict)
    _ahead_s: float | None = None

    def step(self, event: AnyEvent) -> tuple[AnyEffect, ...]:
        """Take one event; return what is to be done, in order."""
        self._follow_clock(event.at)
        match event:
            case Started(settings=settings, left_open=left_open):
                self.settings = settings
                self._left_open = {left.engine: left for left in left_open}
            case EngineSeen(engine=engine):
                self._engine(event.at, engine)
            case EngineGone(key=key):
                return tuple(self._gone(event.at, key))
            case Observed():
                return tuple(self._observed(event))
            case CaptureEnded():
                return tuple(self._captured(event))
            case Tick():
                return tuple(effect for watch in self._watches.values() for effect in self._tick(event.at, watch))
        return ()

    def watched(self) -> tuple[Standing, ...]:
        """What is watched and how it stands, for status displays."""
        return tuple(
            Standing(
                watch.engine,
                watch.phase,
                watch.pulse,
                "" if watch.phase is Phase.WATCHING else watch.incident,
                None if watch.phase is Phase.WATCHING else watch.verdict,
            )
            for watch in self._watches.values()
        )

    def wonders(self, key: str, now_s: float) -> bool:
        """Whether an engine is half-way to a suspicion and nothing newer than its last progress tells its load."""
        watch = self._watches.get(key)
        silence_s = None if watch is None else watch.pulse.silence_s(now_s)
        if watch is None or silence_s is None or silence_s < watch.pulse.limit_s(now_s) / 2:
            return False
        told_s = watch.pulse.gauges_at_s
        stale = told_s is None or now_s - told_s >= self.settings.silence_floor_s / 2
        return stale and bool(watch.pulse.outstanding())

    def next_due_s(self, now_s: float) -> float | None:
        """When the next engine would be suspected if nothing came from any of them; None when none would be soon."""
        due = [
            watch.pulse.last_s + watch.pulse.limit_s(now_s)
            for watch in self._watches.values()
            if watch.phase is Phase.WATCHING and watch.pulse.last_s is not None and watch.pulse.outstanding()
        ]
        return min((due_s for due_s in due if due_s > now_s), default=None)

    def _follow_clock(self, at: Stamp) -> None:
        """Times of evidence are wall times; when somebody sets the clock, what is known already moves with it."""
        before_s, self._ahead_s = self._ahead_s, at.wall_s - at.mono_s
        if before_s is None or abs(self._ahead_s - before_s) < CLOCK_STEP_S:
            return
        stepped_s = self._ahead_s - before_s
        self._host_seen = deque((moved(seen, stepped_s) for seen in self._host_seen), maxlen=KEEP)
        for watch in self._watches.values():
            watch.picture.shift(stepped_s)

    def _engine(self, at: Stamp, engine: Engine) -> None:
        watch = self._watches.get(engine.key)
        if watch is None:
            assert len(self._watches) < ENGINES_MAX, "the agent watches more engines than a host can hold"
            watch = _Watch(engine, Pulse(self.settings), Picture(keep=KEEP), at.mono_s)
            self._watches[engine.key] = watch
            for seen in self._host_seen:
                watch.picture.note(seen)
            if (left := self._left_open.pop(engine.key, None)) is not None:
                _resume(at, watch, left)
        watch.engine = engine
        _introduce(watch.picture, engine)

    def _gone(self, at: Stamp, key: str) -> Iterator[AnyEffect]:
        watch = self._watches.pop(key, None)
        if watch is None:
            if (left := self._left_open.pop(key, None)) is not None:
                lasted_s = at.mono_s - left.since_s
                yield Recovered(engine=key, incident=left.incident, why="the engine is gone", lasted_s=lasted_s)
            return
        if watch.phase is Phase.WATCHING:
            if watch.pulse.closing or not (watch.pulse.booting or watch.pulse.outstanding()):
                return
            # It went too fast for a capture; what the log said last is all there will ever be.
            self._open(at, watch, at.mono_s)
            watch.phase = advance(watch.phase, Cue.DIED)
        if watch.phase is Phase.CAPTURING:
            yield from self._judge(at, watch)
            yield WriteBundle(engine=key, incident=watch.incident)
        yield Recovered(
            engine=key, incident=watch.incident, why="the engine is gone", lasted_s=at.mono_s - watch.since_s
        )

    def _observed(self, event: Observed) -> Iterator[AnyEffect]:
        seen = event.seen
        if seen.at_s is not None and seen.at_s > event.at.wall_s:
            # Nothing is seen before it happens: the clock was set back between the look and the word of it.
            seen = moved(seen, event.at.wall_s - seen.at_s)
        if event.engine is None:
            self._host_seen.append(seen)
            for watch in self._watches.values():
                watch.picture.note(seen)
            return
        known = self._watches.get(event.engine)
        if known is None:
            return
        known.picture.note(seen)
        if isinstance(seen, ProcessExit) and seen.role == "rank" and known.died_s is None:
            known.died_s = event.at.mono_s
        if known.pulse.note(event.at, seen) and (known.pulse.last_s or 0.0) > known.stale_until_s:
            yield from self._progressed(event.at, known)

    def _progressed(self, at: Stamp, watch: _Watch) -> Iterator[AnyEffect]:
        if watch.phase is Phase.SUSPECTED:
            self.near_misses += 1
            yield Cleared(
                engine=watch.engine.key, incident=watch.incident, silence_s=round(at.mono_s - watch.since_s, 3)
            )
        elif watch.phase is Phase.JUDGED:
            yield Recovered(
                engine=watch.engine.key,
                incident=watch.incident,
                why="progress came back",
                lasted_s=round(at.mono_s - watch.since_s, 3),
            )
            watch.verdict = None
        else:
            return
        watch.phase = advance(watch.phase, Cue.PROGRESS)

    def _tick(self, at: Stamp, watch: _Watch) -> Iterator[AnyEffect]:
        match watch.phase:
            case Phase.WATCHING | Phase.SUSPECTED:
                yield from self._overdue(at, watch)
            case Phase.CAPTURING:
                if at.mono_s > watch.capture_began_s + self.settings.capture_budget_s + DEADLINE_MARGIN_S:
                    yield from self._judge(at, watch)
            case Phase.JUDGED:
                if at.mono_s >= watch.judged_s + self.settings.rejudge_every_s:
                    yield from self._judge(at, watch)

    def _overdue(self, at: Stamp, watch: _Watch) -> Iterator[AnyEffect]:
        pulse = watch.pulse
        if watch.died_s is not None and at.mono_s >= watch.died_s + DEATH_GRACE_S:
            watch.died_s = None
            if not pulse.closing:
                self._open(at, watch, at.mono_s)
                yield from self._capture(at, watch, Cue.DIED, "a rank's process is gone")
            return
        if (silence := pulse.overdue(at.mono_s)) is None:
            return
        silence_s, limit_s = silence
        if watch.phase is Phase.WATCHING:
            if at.mono_s - watch.met_s < min(limit_s, 2 * self.settings.silence_floor_s):
                # The log's last progress before the agent came may be ten seconds old in perfect health.
                return
            self._open(at, watch, at.mono_s - silence_s)
            watch.phase = advance(watch.phase, Cue.OVERDUE)
            yield Suspected(
                engine=watch.engine.key,
                incident=watch.incident,
                silence_s=round(silence_s, 3),
                limit_s=round(limit_s, 3),
                why="the start stands still" if pulse.booting else "requests are outstanding and nothing moves",
            )
        if silence_s >= self._capture_after_s(watch, limit_s):
            yield from self._capture(at, watch, Cue.CAPTURE_DUE, f"{silence_s:.0f} s without progress")

    def _capture_after_s(self, watch: _Watch, limit_s: float) -> float:
        """Silence at which evidence is taken: as configured, earlier when the engine would kill itself before."""
        after_s = self.settings.capture_after_s
        deadline = watch.engine.deadline
        if deadline is not None:
            after_s = min(after_s, deadline.earliest_s - self.settings.capture_budget_s - DEADLINE_MARGIN_S)
        return max(after_s, limit_s if deadline is None else min(limit_s, deadline.earliest_s / 2))

    def _open(self, at: Stamp, watch: _Watch, since_s: float) -> None:
        if watch.phase is Phase.WATCHING:
            watch.number += 1
            watch.since_s = since_s
            watch.incident = f"{watch.engine.key}#{watch.number}@{at.wall_ns // 1_000_000_000}"

    def _capture(self, at: Stamp, watch: _Watch, cue: Cue, why: str) -> Iterator[AnyEffect]:
        watch.phase = advance(watch.phase, cue)
        watch.capture_began_s = at.mono_s
        budget_s = self.settings.capture_budget_s
        yield StartCapture(engine=watch.engine.key, incident=watch.incident, budget_s=budget_s, why=why)

    def _captured(self, event: CaptureEnded) -> Iterator[AnyEffect]:
        for watch in self._watches.values():
            if watch.incident == event.incident and watch.phase is Phase.CAPTURING:
                yield from self._judge(event.at, watch)
                yield WriteBundle(engine=watch.engine.key, incident=watch.incident)
                resumed = watch.pulse.last_s is not None and watch.pulse.last_s > watch.capture_began_s
                if resumed:
                    yield from self._progressed(event.at, watch)

    def _judge(self, at: Stamp, watch: _Watch) -> Iterator[AnyEffect]:
        if watch.phase is Phase.CAPTURING:
            watch.phase = advance(watch.phase, Cue.CAPTURED)
        watch.judged_s = at.mono_s
        watch.picture.now_s = at.wall_s
        if (silence := watch.pulse.overdue(at.mono_s)) is not None:
            # The facts go by the same clock and limit as the suspicion; measured anew, they might see progress in it.
            watch.picture.note(silence_seen(at, *silence))
        verdict = judge_picture(watch.picture, self.rules).verdict
        if watch.verdict is None or _differs(watch.verdict, verdict):
            watch.verdict = verdict
            yield Judged(engine=watch.engine.key, incident=watch.incident, verdict=verdict)


def _resume(at: Stamp, watch: _Watch, left: OpenIncident) -> None:
    """Go on with an incident of an agent before this one; what the log said before it is no progress."""
    watch.incident, watch.since_s, watch.verdict = left.incident, left.since_s, left.verdict
    watch.number = int(left.incident.rpartition("#")[2].partition("@")[0])
    watch.stale_until_s = left.since_s + PRINTED_S
    match left.stage:
        case "suspected":
            watch.phase = Phase.SUSPECTED
        case "capturing":
            watch.phase, watch.capture_began_s = Phase.CAPTURING, at.mono_s
        case "kept":
            watch.phase, watch.judged_s = Phase.JUDGED, at.mono_s


def silence_seen(at: Stamp, silence_s: float, limit_s: float) -> Silence:
    """A silence as evidence."""
    origin = Origin("agent/pulse")
    return Silence(origin=origin, at_s=at.wall_s, silence_s=round(silence_s, 3), limit_s=round(limit_s, 3))


def _introduce(picture: Picture, engine: Engine) -> None:
    """Tell the picture which process is which rank, as discovery found it."""
    identity = picture.identity
    identity.world_size = engine.world_size
    for process in engine.ranks:
        identity.introduce(process.id.pid, process.tags, process.rank)


def _differs(old: Verdict, new: Verdict) -> bool:
    """Whether a verdict is news: another class, culprit or confidence; fresher evidence alone is not."""
    key: Callable[[Verdict], tuple[object, ...]] = lambda v: (v.kind, v.stalled, v.confidence, v.culprits.ranks)  # noqa: E731
    return key(old) != key(new)
