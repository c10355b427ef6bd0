"""What a successor is left with has to fit into one record: what only explains is left out, what decides never."""

import msgspec

from sentinel.model.cluster import ClusterState, GroupState
from sentinel.model.group import Ack
from sentinel.model.verdict import Action, Culprits, Verdict, Victims

WORDS_MAX = 300
NAMES_MAX = 64
FEEDBACK_KEPT = 8


def fitted(state: ClusterState, bytes_max: int) -> bytes:
    """The state as JSON. Where it would be larger than `bytes_max`, verdicts keep what is decided by and not why.

    How much was left out is the verdict's `missing`. The result may still be larger: it grows with the groups.
    """
    data = msgspec.json.encode(state)
    if len(data) <= bytes_max:
        return data
    groups = {name: _brief_group(group) for name, group in state.groups.items()}
    return msgspec.json.encode(msgspec.structs.replace(state, groups=groups))


def _brief_group(group: GroupState) -> GroupState:
    plan = group.plan
    return msgspec.structs.replace(
        group,
        captures={host: _brief_ack(ack) for host, ack in group.captures.items()},
        verdict=None if group.verdict is None else _brief_verdict(group.verdict),
        breaker=group.breaker[:WORDS_MAX],
        refusals=tuple(why[:WORDS_MAX] for why in group.refusals[:NAMES_MAX]),
        feedback=dict(list(group.feedback.items())[-FEEDBACK_KEPT:]),
        plan=None if plan is None else msgspec.structs.replace(
            plan, acks={name: _brief_ack(ack) for name, ack in plan.acks.items()}
        ),
    )  # fmt: skip


def _brief_ack(ack: Ack) -> Ack:
    return msgspec.structs.replace(ack, why=ack.why[:WORDS_MAX])


def _brief_verdict(verdict: Verdict) -> Verdict:
    kept = Verdict(
        kind=verdict.kind,
        stalled=verdict.stalled,
        confidence=verdict.confidence,
        culprits=Culprits(**{name: getattr(verdict.culprits, name)[:NAMES_MAX] for name in Culprits.__struct_fields__}),
        victims=Victims(ranks=verdict.victims.ranks[:NAMES_MAX]),
        t0=verdict.t0,
        clock_error_s=verdict.clock_error_s,
        summary=verdict.summary[:WORDS_MAX],
        actions=_brief_actions(verdict.actions),
        do_not=_brief_actions(verdict.do_not),
        rule=verdict.rule,
    )
    lines = sum(len(part) for part in (verdict.evidence, verdict.ruled_out, verdict.missing, verdict.alternatives))
    why = f"{lines} lines of this verdict, which the saved state had no room for; the incident's bundles have them"
    return msgspec.structs.replace(kept, missing=(why,))


def _brief_actions(actions: tuple[Action, ...]) -> tuple[Action, ...]:
    return tuple(msgspec.structs.replace(action, why=action.why[:WORDS_MAX]) for action in actions)
