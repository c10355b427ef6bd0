"""GPU plots: utilisation, memory utilisation and power per GPU on the axis of the timeline, and the newest sample."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from sentinel.core.facts._devices import devices, ranks_of_devices
from sentinel.core.picture import Picture
from sentinel.model.observation import GpuSample
from sentinel.report.axis import Axis, Tick

WIDTH = 440.0
HEIGHT = 96.0
GPUS_MAX = 64
COLUMNS = 220
GAP_FACTOR = 8.0
SEEN_SHARE = 0.2
SAMPLES_MIN = 8
"""With fewer samples the table of numbers says it better than a curve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """One GPU. Curves are SVG point lists; several where samples have a gap. `newest` is shown as numbers."""

    label: str
    util: tuple[str, ...] = ()
    memory: tuple[str, ...] = ()
    power: tuple[str, ...] = ()
    newest: GpuSample
    samples: int

    @property
    def drawn(self) -> bool:
        """Whether there are enough timed samples for a curve."""
        return bool(self.util or self.power)


@dataclass(frozen=True, slots=True)
class Panel:
    """All GPUs. `t0_x` is where T0 lies, in plot units; None when it is not on the axis."""

    plots: tuple[Plot, ...]
    ticks: tuple[Tick, ...]
    t0_x: float | None
    cut: int
    top_w: float
    width: float = WIDTH
    height: float = HEIGHT


def panel(picture: Picture, axis: Axis | None) -> Panel:
    """One plot per GPU, with its rank where the evidence places it."""
    by_gpu, rank_of = picture.memo(devices), picture.memo(ranks_of_devices)
    axis = _fitted(axis, by_gpu.values())
    top_w = _power_top(sample for samples in by_gpu.values() for sample in samples)
    keys = sorted(by_gpu, key=lambda key: (key[0] or "", key[1]))
    plots = tuple(_plot(key, by_gpu[key], axis, top_w, rank_of.get(key)) for key in keys[:GPUS_MAX])
    t0_x = WIDTH * axis.share(axis.t0_s) if axis and axis.t0_s is not None and axis.holds(axis.t0_s) else None
    ticks = tuple(axis.ticks())[::2] if axis else ()
    return Panel(plots, ticks, t0_x, max(len(keys) - GPUS_MAX, 0), top_w)


def _fitted(axis: Axis | None, series: Iterable[list[GpuSample]]) -> Axis | None:
    """The axis of the timeline, or that of the samples alone where they cover too little of it to be seen."""
    times = [sample.at_s for samples in series for sample in samples if sample.at_s is not None]
    if axis is None or not times:
        return axis
    first_s, last_s = min(times), max(times)
    inside_s = min(last_s, axis.end_s) - max(first_s, axis.start_s)
    if inside_s >= axis.length_s * SEEN_SHARE:
        return axis
    return Axis(first_s - 0.5, last_s + 0.5, axis.t0_s)


def _plot(
    key: tuple[str | None, int], samples: list[GpuSample], axis: Axis | None, top_w: float, rank: int | None
) -> Plot:
    host, index = key
    label = f"GPU {index}" + (f" on {host}" if host else "") + (f", rank {rank}" if rank is not None else "")
    newest = samples[-1]
    timed = [sample for sample in samples if axis and sample.at_s is not None and axis.holds(sample.at_s)]
    if axis is None or len(timed) < SAMPLES_MIN:
        return Plot(label=label, newest=newest, samples=len(samples))
    return Plot(
        label=label,
        util=_curve(timed, axis, lambda sample: sample.util_percent, 100.0),
        memory=_curve(timed, axis, lambda sample: sample.mem_util_percent, 100.0),
        power=_curve(timed, axis, lambda sample: sample.power_w, top_w),
        newest=newest,
        samples=len(samples),
    )


def _power_top(samples: Iterable[GpuSample]) -> float:
    """One power scale for all GPUs, so that they can be compared: the limit, else the highest value, in round watts."""
    highest = max((max(sample.power_w or 0.0, sample.power_limit_w or 0.0) for sample in samples), default=0.0)
    return max(-(-highest // 50) * 50, 50.0)


def _curve(
    samples: list[GpuSample], axis: Axis, value_of: Callable[[GpuSample], float | None], top: float
) -> tuple[str, ...]:
    """Point lists of one quantity, averaged per column, broken where nothing was sampled for long."""
    columns: dict[int, list[float]] = defaultdict(list)
    for sample in samples:
        value = value_of(sample)
        if value is not None and sample.at_s is not None:
            columns[round(axis.share(sample.at_s) * COLUMNS)].append(value)
    places = sorted(columns)
    if len(places) < 2:
        return ()
    gap = GAP_FACTOR * max(median(later - earlier for earlier, later in pairwise(places)), 1)
    runs: list[list[str]] = [[]]
    last = places[0]
    for place in places:
        if place - last > gap:
            runs.append([])
        level = min(max(sum(columns[place]) / len(columns[place]) / top, 0.0), 1.0)
        runs[-1].append(f"{place / COLUMNS * WIDTH:.1f},{HEIGHT * (1 - level):.1f}")
        last = place
    return tuple(" ".join(run) for run in runs if len(run) > 1)
