"""What a row-store drill must have shown, by variant. Pure: from what was seen to complaints."""

from collections.abc import Iterator

import msgspec

from sentinel.model.cluster import Told
from sentinel.model.group import Ack
from sentinel.model.verdict import Verdict
from sentinel.testing.packaged.variants import PLAIN, Variant
from sentinel.testing.restart_drill import too_slow

KIND, CULPRITS = "hang.host_callback", (1,)


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen; seconds after the fault, None for what did not happen.

    `stop_s`: when the first stop began. `added_s`: what Sentinel added to the group's verdict and its hold until it was
    verified. `still_runs`: the engine that hung. `killed`: whether the variant's victim was killed in its phase.
    `mode`: the row store's at the end.
    """

    time_scale: float
    verdict: Verdict | None
    captured_s: float | None
    kill_due_s: float
    bundle: bool
    told: tuple[Told, ...]
    stops: tuple[Ack, ...]
    stop_s: float | None
    added_s: float | None
    token_s: float | None
    still_runs: bool
    killed: bool
    launches: int
    relaunches: int
    mode: str


def complaints(variant: Variant, seen: Seen) -> Iterator[str]:
    """Everything that is not as it has to be."""
    yield from _verdict(seen)
    if variant.keeps_evidence:
        yield from _evidence(seen)
    if tuple(ack.outcome for ack in seen.stops) != variant.stops:
        yield f"wanted stops {list(variant.stops)}, got {[(ack.outcome, ack.why) for ack in seen.stops]}"
    if seen.still_runs == variant.acts:
        yield "the hanging engine still runs" if variant.acts else "the engine was stopped"
    yield from _end(variant, seen)
    if (seen.launches, seen.relaunches) != (variant.launches, variant.relaunches):
        yield f"launched {seen.launches} times and counted {seen.relaunches} relaunches"
    if variant.ends != "page" and seen.mode not in variant.modes:
        yield f"the row store is in mode {seen.mode or 'unknown'}, wanted {' or '.join(variant.modes)}"
    if variant.victim and not seen.killed:
        yield f"the {variant.victim} was never seen in phase {variant.phase}, so it was not killed"
    if variant is PLAIN:
        yield from too_slow(seen.added_s, seen.time_scale)


def _verdict(seen: Seen) -> Iterator[str]:
    verdict = seen.verdict
    if verdict is None:
        yield "no verdict"
    elif (verdict.kind, verdict.culprits.ranks) != (KIND, CULPRITS):
        yield f"judged {verdict.kind} of {list(verdict.culprits.ranks)}, wanted {KIND} of {list(CULPRITS)}"


def _evidence(seen: Seen) -> Iterator[str]:
    if seen.captured_s is None:
        yield "no evidence of the incident was kept"
        return
    if not seen.bundle:
        yield "no bundle was made of the evidence"
    if seen.captured_s > seen.kill_due_s:
        yield f"captured {seen.captured_s - seen.kill_due_s:.1f} s after the engine's own kill was due"
    if seen.stop_s is not None and seen.captured_s > seen.stop_s:
        yield "the engine was stopped before its evidence was kept"


def _end(variant: Variant, seen: Seen) -> Iterator[str]:
    last = "; ".join(told.words for told in seen.told[-3:])
    worked = "worked" if variant.ends == "closed" else ""
    ends = [told for told in seen.told if told.what == variant.ends and worked in told.words]
    if len(ends) < variant.closings:
        yield f"it did not end with `{variant.ends}` as it should; said last: {last}"
    if not any(variant.says in told.words for told in seen.told):
        yield f"nobody was told that it {variant.says}; said last: {last}"
    if variant.guard and not any(f"{variant.guard}:" in told.words for told in ends):
        yield f"the reason `{variant.guard}` was not told; said last: {last}"
    if variant.ends == "closed" and seen.token_s is None:
        yield "no token came again"
