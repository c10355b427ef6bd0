"""Which of several spinning GPUs spins in another kernel than its peers, told by a steady difference in power.

Every kernel that waits draws its own constant power: a collective's wait keeps many multiprocessors polling, a stuck
compute kernel few or others. Peers in one collective on alike GPUs draw the same within a few watts, so one GPU that
differs steadily is in another kernel. Measured on H200: 160 W in a NVLink all-reduce wait, 126 W in a stuck kernel.
"""

from dataclasses import dataclass
from statistics import median

from sentinel.core.fact import Cite, Fact, FactSpec, unknown
from sentinel.core.facts._devices import devices, ranks_of_devices
from sentinel.core.facts._gpu_state import gpus, silent_samples
from sentinel.core.facts._moments import in_order
from sentinel.core.facts._process_ends import living
from sentinel.core.picture import Picture
from sentinel.model.observation import Origin, ProcessExit

SAMPLES_MIN = 5
DIFFERENCE = 0.12
"""Smallest share by which an odd GPU differs; alike GPUs in one kernel stay within 5 %."""
RELEASED_SHARE = 0.6
"""A live process keeps its memory pools; only its end gives them back."""
STEADY_SHARE, FALLING_MAX = 0.9, 2
"""Memory this near to a level is at it; so many samples may fall into the instant in which a process ends."""
SPREADS = 4.0
"""The difference must exceed this many times the wobble of either GPU, or it is not steady."""


@dataclass(frozen=True, slots=True)
class _Draw:
    watts: float
    wobble: float
    origin: Origin


def _odd_spinning(picture: Picture) -> Fact:
    draws = picture.memo(_draws)
    if len(draws) < 2:
        return unknown("power of every spinning GPU over several seconds")
    ordered = sorted(draws, key=lambda rank: draws[rank].watts)
    # With more than two the majority's power is the reference; with two, the one in the smaller kernel is odd:
    # a collective's wait polls on every channel.
    usual = median(draw.watts for draw in draws.values()) if len(draws) > 2 else draws[ordered[-1]].watts
    wobble = max(draw.wobble for draw in draws.values())
    odd = [rank for rank in ordered if _differs(draws[rank].watts, usual, wobble)]
    if 2 * len(odd) > len(draws):
        odd = []
    shown = odd or ordered[:1]
    cites = [Cite(f"rank {rank}'s GPU spins at {draws[rank].watts:.0f} W, its peers at {usual:.0f} W",
                  draws[rank].origin) for rank in shown]  # fmt: skip
    return Fact(value=tuple(sorted(odd)), cites=tuple(cites))


def _differs(watts: float, usual: float, wobble: float) -> bool:
    gap = abs(watts - usual)
    return gap >= DIFFERENCE * usual and gap >= SPREADS * wobble


def _draws(picture: Picture) -> dict[int, _Draw]:
    """Power of each rank's GPU that spins all through the silence; wobble is the median distance from the median."""
    placed, states = picture.memo(ranks_of_devices), picture.memo(gpus)
    found: dict[int, _Draw] = {}
    for device, samples in picture.memo(devices).items():
        gpu = states.get(device)
        if gpu is None or gpu.state not in ("spin", "busy") or device not in placed:
            continue
        silent = silent_samples(picture, in_order(picture, samples))
        powers = [one.power_w for one in silent if one.power_w is not None and (one.util_percent or 0.0) >= 90.0]
        if len(powers) >= SAMPLES_MIN:
            middle = median(powers)
            wobble = median(abs(power - middle) for power in powers)
            found[placed[device]] = _Draw(middle, wobble, gpu.origin)
    return found


def _released(picture: Picture) -> Fact:
    """Ranks whose GPU memory shrank since the engine worked, while peers keep theirs: their process is gone.

    Memory that went up and down before was not one engine's alone, and whoever is seen alive has not ended: then
    another user of the same GPU gave memory back.
    """
    placed, states, alive = picture.memo(ranks_of_devices), picture.memo(gpus), picture.memo(_alive)
    kept: dict[int, float] = {}
    cites: dict[int, Cite] = {}
    for device, samples in picture.memo(devices).items():
        used = [one.mem_used_mib for one in in_order(picture, samples) if one.mem_used_mib is not None]
        gpu, rank = states.get(device), placed.get(device)
        if gpu is None or gpu.used_mib is None or rank is None or len(used) < SAMPLES_MIN:
            continue
        most = max(used)
        share = gpu.used_mib / most if most > 0 else 1.0
        if share <= RELEASED_SHARE and rank in alive:
            share = 1.0
        elif share <= RELEASED_SHARE and not _was_steady(used, most, gpu.used_mib):
            continue
        kept[rank] = share
        cites[rank] = Cite(f"rank {rank}'s GPU holds {gpu.used_mib:.0f} MiB of {most:.0f} MiB before", gpu.origin)
    if len(kept) < 2:
        return unknown("GPU memory use of every rank before and during the silence")
    released = sorted(rank for rank, share in kept.items() if share <= RELEASED_SHARE)
    if len(released) == len(kept):
        released = []
    shown = [cites[rank] for rank in released or sorted(cites)[:1]]
    return Fact(value=tuple(released), cites=tuple(shown))


def _was_steady(used: list[float], most: float, now: float) -> bool:
    """Whether memory, once filled, fell in one step: it was near the most, then near what is left."""
    filled = next(at for at, one in enumerate(used) if one >= STEADY_SHARE * most)
    between = [one for one in used[filled:] if now / STEADY_SHARE < one < STEADY_SHARE * most]
    return len(between) <= FALLING_MAX


def _alive(picture: Picture) -> frozenset[int]:
    """Ranks whose process a table shows alive, and that is not known to have ended since."""
    # The agent's own tables are partial: whoever ended is just not in the next one.
    ended = {(seen.host, seen.pid) for seen in picture.all(ProcessExit)}
    return frozenset(rank for rank, one in picture.memo(living).items() if (one.host, one.pid) not in ended)


FACTS: tuple[FactSpec, ...] = (
    FactSpec(
        name="gpu.released_ranks",
        unit="ranks",
        about="Ranks whose GPU memory was given back while their peers keep theirs: the process behind it ended.",
        compute=_released,
    ),
    FactSpec(
        name="gpu.odd_spinning_ranks",
        unit="ranks",
        about="Ranks whose GPU spins at a steadily different power than its spinning peers: another kernel.",
        compute=_odd_spinning,
    ),
)
