"""What each GPU does while the engine is silent: idle, spinning in a wait kernel, computing, or busy without telling.

A kernel that waits (a collective, a flag) keeps utilisation at 100 % but moves no memory and draws little power; one
that computes does both. Power limits and idle power differ by model, so every measure is relative: to memory
utilisation where the device reports it, else to the GPU's own past, its limit, or its peers. What none of them decides
is `busy`.
"""

from dataclasses import dataclass
from statistics import median
from typing import Literal

from sentinel.core.facts._devices import Device, devices
from sentinel.core.facts._moments import in_order, kill_s, moment_s, stalled_since
from sentinel.core.picture import Picture
from sentinel.core.timeline import progress
from sentinel.model.observation import GpuSample, Origin

State = Literal["idle", "spin", "compute", "busy", "partial", "lost"]
"""`busy`: utilisation high, nature undecided. `partial`: between idle and busy."""

IDLE_UTIL, BUSY_UTIL = 5.0, 90.0
SPIN_MEMORY, COMPUTE_MEMORY = 5.0, 10.0
"""Memory utilisation in percent: below the first nothing is read, above the second a model is."""
SETTLE_S = 2.0
"""Utilisation is an average over up to a second, so samples this soon after T0 still show the last step."""
WINDOW_S = 120.0
"""Length of the window after T0: later samples may already show the clean-up by people or supervisors."""
NEWEST = 6
"""Samples a GPU that count as "now" when no stall frames a window."""
SPIN_OF_RUN, COMPUTE_OF_RUN = 0.7, 0.85
"""Power as a share of the GPU's own median while the engine computed."""
SPIN_OF_LIMIT, COMPUTE_OF_LIMIT = 0.35, 0.5
"""Power as a share of the limit: NCCL's wait kernels stay below a third on every data-centre model."""
COMPUTE_OF_IDLE = 2.5
"""Power as a multiple of the idle draw at full clocks; waiting stays below 1.6 times."""
PEER_RATIO = 2.0

POWER_CAP, THERMAL = 0x4, 0x20 | 0x40 | 0x80 | 0x8
IDLE_BIT = 0x1


@dataclass(frozen=True, slots=True)
class Gpu:
    """Medians of one GPU's samples in the window, and what they say."""

    device: Device
    state: State
    origin: Origin
    util: float | None
    memory: float | None
    power_w: float | None
    sm_mhz: float | None
    throttle: int
    used_mib: float | None
    says: str


def gpus(picture: Picture) -> dict[Device, Gpu]:
    """State of every GPU that has a sample where it counts."""
    found: dict[Device, Gpu] = {}
    for device, samples in picture.memo(devices).items():
        ordered = [sample for sample in in_order(picture, samples) if _has_values(sample)]
        counted = silent_samples(picture, ordered)
        if counted:
            found[device] = _judge(picture, device, counted, ordered)
    return _compare_peers(found)


def _has_values(sample: GpuSample) -> bool:
    return sample.lost or sample.util_percent is not None or sample.power_w is not None


def silent_samples(picture: Picture, samples: list[GpuSample]) -> list[GpuSample]:
    """Samples that show the silence: after T0 and before the engine ends itself; the newest when nothing is silent."""
    t0, end_s = picture.memo(progress).t0, kill_s(picture, samples[0].host if samples else None)
    timed = [(moment_s(picture, sample), sample) for sample in samples]
    alive = [(at, one) for at, one in timed if at is None or end_s is None or at <= end_s + picture.clock_error_s]
    if t0 is not None:
        start_s = t0.at_s + SETTLE_S
        after = [one for at, one in alive if at is not None and start_s <= at <= start_s + WINDOW_S]
        later = [one for at, one in alive if at is not None and at > start_s]
        if after or later:
            return after or later
        limit_s = picture.memo(progress).limit_s
        if picture.memo(stalled_since) is not None:
            alive = [(at, one) for at, one in alive if at is None or at >= t0.at_s - limit_s]
    return [one for _, one in alive][-NEWEST:]


def _middle(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _judge(picture: Picture, device: Device, window: list[GpuSample], history: list[GpuSample]) -> Gpu:
    util = _middle([sample.util_percent for sample in window])
    memory = _middle([sample.mem_util_percent for sample in window])
    power = _middle([sample.power_w for sample in window])
    limit = _middle([sample.power_limit_w for sample in history])
    bits = [sample.throttle for sample in window if sample.throttle is not None]
    throttle = sum(1 << bit for bit in range(16) if bits and sum(one >> bit & 1 for one in bits) * 2 > len(bits))
    newest = window[-1]
    lost = sum(sample.lost for sample in window) * 2 > len(window)
    state: State
    if lost:
        state = "lost"
    elif util is None:
        state = "partial"
    elif util <= IDLE_UTIL:
        state = "idle"
    elif util < BUSY_UTIL:
        state = "partial"
    elif throttle & POWER_CAP:
        state = "compute"
    else:
        past = _before_t0(picture, history)
        state = _nature(memory if _reports_memory(picture, history) else None, power, limit, past)
    return Gpu(
        device=device, state=state, origin=newest.origin, util=util, memory=memory, power_w=power,
        sm_mhz=_middle([sample.sm_mhz for sample in window]), throttle=throttle,
        used_mib=_middle([sample.mem_used_mib for sample in window]), says=_says(device, lost, util, memory, power),
    )  # fmt: skip


def _before_t0(picture: Picture, history: list[GpuSample]) -> list[GpuSample]:
    """Samples of the time when the engine still made progress: only they show what its work looks like."""
    t0 = picture.memo(progress).t0
    if t0 is None:
        return []
    timed = [(moment_s(picture, sample), sample) for sample in history]
    return [sample for at_s, sample in timed if at_s is not None and at_s <= t0.at_s]


def _nature(memory: float | None, power: float | None, limit: float | None, past: list[GpuSample]) -> State:
    """Waiting or computing of a GPU at full utilisation."""
    share = power / limit if power is not None and limit else None
    run, idle = _run_power(past), _idle_power(past)
    if memory is not None:
        if memory >= COMPUTE_MEMORY or (share is not None and share >= COMPUTE_OF_LIMIT):
            return "compute"
        if power is not None and idle is not None and power >= COMPUTE_OF_IDLE * idle:
            return "compute"
        return "spin" if memory <= SPIN_MEMORY else "busy"
    if power is not None and run is not None:
        if power <= SPIN_OF_RUN * run:
            return "spin"
        return "compute" if power >= COMPUTE_OF_RUN * run else "busy"
    if share is not None:
        return "spin" if share <= SPIN_OF_LIMIT else "compute" if share >= COMPUTE_OF_LIMIT else "busy"
    return "busy"


def _run_power(past: list[GpuSample]) -> float | None:
    """Median power while the GPU was busy before; None without three such samples."""
    values = [one.power_w for one in past if (one.util_percent or 0) >= BUSY_UTIL and one.power_w is not None]
    return median(values) if len(values) >= 3 else None


def _idle_power(past: list[GpuSample]) -> float | None:
    """Median power while idle at full clocks; idle at low clocks says nothing about waiting."""
    fastest = max((one.sm_mhz for one in past if one.sm_mhz is not None), default=None)
    values = [
        one.power_w for one in past
        if one.power_w is not None and one.util_percent is not None and one.util_percent <= IDLE_UTIL
        and one.sm_mhz is not None and fastest is not None and one.sm_mhz >= 0.9 * fastest
    ]  # fmt: skip
    return median(values) if values else None


def _reports_memory(picture: Picture, history: list[GpuSample]) -> bool:
    """Whether 0 % memory utilisation means anything: unified-memory devices report neither it nor their memory."""
    if any((one.mem_util_percent or 0) > 0 for one in history):
        return True
    if not any(one.mem_util_percent is not None for one in history):
        return False
    if any(one.mem_used_mib is not None or one.mem_temp_c is not None for one in history):
        return True
    names = {one.name for one in history if one.name}
    return any(one.name in names and (one.mem_util_percent or 0) > 0 for one in picture.all(GpuSample))


def _compare_peers(found: dict[Device, Gpu]) -> dict[Device, Gpu]:
    """Undecided busy GPUs side by side: one that draws twice as much as another computes while the other waits."""
    undecided = [gpu for gpu in found.values() if gpu.state == "busy" and gpu.power_w is not None]
    if len(undecided) < 2:
        return found
    powers = [gpu.power_w or 0.0 for gpu in undecided]
    low, high = min(powers), max(powers)
    if low <= 0 or high < PEER_RATIO * low:
        return found
    for gpu in undecided:
        power = gpu.power_w or 0.0
        state: State = "spin" if power * PEER_RATIO <= high else "compute" if power >= PEER_RATIO * low else "busy"
        found[gpu.device] = _with_state(gpu, state)
    return found


def _with_state(gpu: Gpu, state: State) -> Gpu:
    return Gpu(
        device=gpu.device, state=state, origin=gpu.origin, util=gpu.util, memory=gpu.memory, power_w=gpu.power_w,
        sm_mhz=gpu.sm_mhz, throttle=gpu.throttle, used_mib=gpu.used_mib, says=gpu.says,
    )  # fmt: skip


def _says(device: Device, lost: bool, util: float | None, memory: float | None, power: float | None) -> str:
    host, index = device
    name = f"GPU {index}" if host is None else f"GPU {index} of {host}"
    if lost:
        return f"{name} is lost"
    parts = [] if util is None else [f"{util:.0f} % busy"]
    parts += [] if memory is None else [f"memory {memory:.0f} %"]
    parts += [] if power is None else [f"{power:.0f} W"]
    return f"{name}: {', '.join(parts) or 'no values'}"
