"""Clocks of several hosts against each other, told by moments that all hosts of an engine share.

A rendezvous ends on all ranks within a second or two, and so do the creation of a communicator and the capture of
graphs that contain collectives. Hosts whose clocks disagree about two such moments by the same amount have clocks
that differ by it; about one moment, only a difference of whole quarters of an hour (a zone) is believed.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median

from sentinel.evidence.clock import QUARTER_S
from sentinel.model.observation import NcclComm, Observation, Phase

AGREE_S = 3.0
"""Shared moments are printed within this on hosts whose clocks agree."""
_ZONE_SLACK_S = 30.0
_MOST_S = 14 * 3600.0
_MOST_ERROR_S = 60.0
_BURST_S = 60.0

Moment = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Alignment:
    """What to add to the times of each host, and how far shared moments still lie apart afterwards, in seconds."""

    shifts: Mapping[str, float]
    error_s: float
    notes: tuple[str, ...] = ()


def align(observations: Iterable[Observation]) -> Alignment:
    """Compare the hosts of the evidence; hosts that share no moment with the others are left as they are."""
    shared = _moments(observations)
    reference = _most_connected(shared)
    shifts: dict[str, float] = {}
    notes: list[str] = []
    error_s = 0.0
    for host in sorted({host for times in shared.values() for host in times} - {reference}):
        apart = {
            moment: times[host] - times[reference]
            for moment, times in shared.items()
            if host in times and reference in times
        }
        lead_s = _lead(list(apart.values()))
        if lead_s is None:
            sharp = [abs(one) for moment, one in apart.items() if moment[0] != "capture" and abs(one) > AGREE_S]
            error_s = max(error_s, min(max(sharp, default=0.0), _MOST_ERROR_S))
            continue
        shifts[host] = -lead_s
        error_s = max(error_s, max(abs(one - lead_s) for one in apart.values()))
        way = "ahead of" if lead_s > 0 else "behind"
        notes.append(f"the clock of {host} is {abs(lead_s):.0f} s {way} that of {reference}: corrected")
    return Alignment(shifts, error_s, tuple(notes))


def _lead(apart: list[float]) -> float | None:
    """Seconds that a clock is ahead, if the differences at shared moments prove it; None when they do not."""
    middle = median(apart) if apart else 0.0
    if abs(middle) <= AGREE_S or abs(middle) > _MOST_S:
        return None
    if len(apart) > 1 and max(apart) - min(apart) <= AGREE_S:
        return middle
    zone_s = round(middle / QUARTER_S) * QUARTER_S
    return zone_s if zone_s and all(abs(one - zone_s) <= _ZONE_SLACK_S for one in apart) else None


def _moments(observations: Iterable[Observation]) -> dict[Moment, dict[str, float]]:
    """Moment -> host -> its time there. A start counts only if all hosts show as many starts: it may be another one."""
    seen_at: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for seen in observations:
        if seen.at_s is None or seen.host is None:
            continue
        if isinstance(seen, NcclComm) and seen.event == "init_complete" and seen.comm_id is not None:
            seen_at[f"{seen.comm_id}/{seen.nranks}"][seen.host].append(seen.at_s)
        elif isinstance(seen, Phase) and seen.edge == "end" and seen.phase in ("dist_init", "capture"):
            seen_at[seen.phase][seen.host].append(seen.at_s)
    found: dict[Moment, dict[str, float]] = {}
    for what, hosts in seen_at.items():
        ends = {host: _ends(times) for host, times in hosts.items()}
        if len(ends) > 1 and len({len(times) for times in ends.values()}) == 1:
            for count in range(len(next(iter(ends.values())))):
                found[what, count] = {host: times[count] for host, times in ends.items()}
    return found


def _ends(times: list[float]) -> list[float]:
    """The last time of each burst, a burst being the same moment on the ranks of one host."""
    ordered = sorted(times)
    return [one for one, after in zip(ordered, [*ordered[1:], float("inf")], strict=True) if after - one > _BURST_S]


def _most_connected(shared: Mapping[Moment, Mapping[str, float]]) -> str:
    counts: dict[str, int] = defaultdict(int)
    for times in shared.values():
        for host in times:
            counts[host] += 1
    return min(counts, key=lambda host: (-counts[host], host), default="")
