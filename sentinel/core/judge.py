"""From observations to a verdict: fill the picture, compute the facts, ask the rules, write down what they say.

The ladder of rules is asked from the top ("is it a hang at all?") and the first that fires with support is the
verdict. Every step leaves its reasons in the verdict: evidence for and against, what was ruled out and why, what was
missing and which single observation would decide.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sentinel.core import timeline
from sentinel.core.fact import Fact
from sentinel.core.facts import CATALOGUE
from sentinel.core.picture import Picture
from sentinel.core.reasons import alternatives, evidence, missing, ruled_out, what_decides
from sentinel.core.rules import Outcome, Rule, advised, evaluate
from sentinel.core.whereabouts import hosts_of, pids_of
from sentinel.model.observation import Observation
from sentinel.model.verdict import Action, Culprits, GraphCoverage, Skipped, Verdict, Victims


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict with everything it was derived from."""

    verdict: Verdict
    picture: Picture
    facts: Mapping[str, Fact]
    outcomes: tuple[Outcome, ...]


def judge(
    observations: Iterable[Observation],
    rules: Sequence[Rule],
    *,
    now_s: float | None = None,
    clock_error_s: float = 0.0,
    skipped: Sequence[Skipped] = (),
) -> Judgement:
    """Judge a finished set of observations. `rules` in ladder order; `now_s` None means the end of the evidence."""
    picture = Picture(now_s=now_s, clock_error_s=clock_error_s)
    for seen in observations:
        picture.note(seen)
    return judge_picture(picture, rules, skipped)


def judge_picture(picture: Picture, rules: Sequence[Rule], skipped: Sequence[Skipped] = ()) -> Judgement:
    """Judge what a picture shows now."""
    facts = {spec.name: spec.compute(picture) for spec in CATALOGUE}
    world = timeline.world(picture)
    outcomes = tuple(evaluate(rule, facts, world) for rule in rules if rule.status != "retired")
    winner = choose(outcomes)
    verdict = _undecided(facts, outcomes) if winner is None else _decided(picture, facts, winner, outcomes)
    return Judgement(_finish(picture, verdict, skipped), picture, facts, outcomes)


def choose(outcomes: Sequence[Outcome]) -> Outcome | None:
    """The first rule of the ladder that fires with more support than contradiction; else the first that fires."""
    firing = [outcome for outcome in outcomes if outcome.fires is True]
    return next((outcome for outcome in firing if outcome.points > 0), firing[0] if firing else None)


def _decided(picture: Picture, facts: Mapping[str, Fact], winner: Outcome, outcomes: Sequence[Outcome]) -> Verdict:
    rule = winner.rule
    forbidden = {piece.action for piece in advised(rule.forbid, facts)}
    hosts = winner.hosts or hosts_of(picture, winner.culprits)
    pids = tuple(sorted({*winner.pids, *pids_of(picture, winner.culprits)}))
    return Verdict(
        kind=rule.kind,
        stalled=rule.stalled,
        confidence=winner.confidence,
        culprits=Culprits(ranks=winner.culprits, hosts=hosts, pids=pids, requests=winner.requests),
        victims=Victims(ranks=winner.victims),
        summary=_summary(picture, winner, hosts, pids),
        evidence=evidence(rule, facts),
        ruled_out=ruled_out(winner, outcomes, facts),
        missing=missing(winner, outcomes, facts),
        decides=what_decides(winner, outcomes, facts),
        alternatives=alternatives(winner, outcomes),
        actions=tuple(
            Action(action=piece.action, why=piece.why, to=piece.to)
            for piece in advised(rule.suggest, facts)
            if piece.action not in forbidden
        ),
        do_not=tuple(Action(action=piece.action, why=piece.why, to=piece.to) for piece in advised(rule.forbid, facts)),
        graph_coverage=_graph_coverage(facts) if rule.rests_on_enqueues else None,
        rule=rule.id,
    )


def _undecided(facts: Mapping[str, Fact], outcomes: Sequence[Outcome]) -> Verdict:
    """No rule fires, not even the one for undecided stalls: the evidence shows neither progress nor a stall."""
    return Verdict(
        kind="unknown",
        stalled=None,
        confidence="low",
        summary="The evidence shows neither progress nor a stall; nothing can be said about the engine.",
        ruled_out=ruled_out(None, outcomes, facts),
        missing=missing(None, outcomes, facts),
        decides=what_decides(None, outcomes, facts),
        alternatives=alternatives(None, outcomes),
        actions=(Action(action="capture_more", why="no source that shows progress could be read"),),
        do_not=(Action(action="restart_engine", why="nothing shows that the engine is stalled"),),
    )


def _finish(picture: Picture, verdict: Verdict, skipped: Sequence[Skipped]) -> Verdict:
    """Add what every verdict carries: T0, clock error, skipped files."""
    t0 = picture.memo(timeline.progress).t0
    fields = {name: getattr(verdict, name) for name in verdict.__struct_fields__}
    fields["t0"] = None if t0 is None else iso(t0.at_s)
    fields["clock_error_s"] = picture.clock_error_s
    fields["skipped"] = tuple(skipped)
    return Verdict(**fields)


def iso(at_s: float) -> str:
    """Seconds on the evidence's wall scale as ISO 8601; the `Z` is the scale's own, see `Observation.at_s`."""
    return datetime.fromtimestamp(at_s, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _summary(picture: Picture, winner: Outcome, hosts: tuple[str, ...], pids: tuple[int, ...]) -> str:
    t0 = picture.memo(timeline.progress).t0
    words = {
        "culprits": _ranks(winner.culprits) or _names(hosts) or _pids(pids) or "a rank that cannot be named",
        "victims": _ranks(winner.victims) or "its peers",
        "hosts": _names(hosts) or "a host that the evidence does not name",
        "since": "" if t0 is None else f" since {iso(t0.at_s)[11:19]}",
        "requests": _names(winner.requests) or "a request that the evidence does not name",
    }
    said = winner.rule.says.format_map(words)
    return said[:1].upper() + said[1:]


def _ranks(ranks: tuple[int, ...]) -> str:
    if not ranks:
        return ""
    if len(ranks) > 6:
        return f"{len(ranks)} ranks ({ranks[0]}…{ranks[-1]})"
    return f"rank {ranks[0]}" if len(ranks) == 1 else "ranks " + ", ".join(map(str, ranks))


def _pids(pids: tuple[int, ...]) -> str:
    return ("process " if len(pids) == 1 else "processes ") + ", ".join(map(str, pids)) if pids else ""


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(names)


def _graph_coverage(facts: Mapping[str, Fact]) -> GraphCoverage:
    fact = facts["collective.graph_coverage"]
    why = fact.cites[0].says if fact.cites else "nothing shows whether graphs were replayed"
    match fact.value:
        case "none" | "partial" | "full":
            return GraphCoverage(coverage=fact.value, why=why)
        case _:
            return GraphCoverage(coverage="unknown", why=why)
