"""Facts of the GPUs during the silence; ranks by bus address, pid, device number or position."""

from collections.abc import Callable
from statistics import median

from sentinel.core.fact import Cite, Fact, FactSpec, unknown
from sentinel.core.facts._devices import Device, devices, rank_of_bus, ranks_of_devices
from sentinel.core.facts._gpu_state import IDLE_BIT, THERMAL, Gpu, gpus
from sentinel.core.facts._moments import in_order, moment_s
from sentinel.core.picture import Picture
from sentinel.core.timeline import progress
from sentinel.model.observation import GpuHealth, GpuSample

MISSING = "nvidia-smi samples from the silence"
SLOW_CLOCK, CLOCK_FLOOR = 0.7, 0.5
"""Clock as a share of that of its peers or of its own past: slow with a thermal or power bit, and without one."""
USED_SHARE = 0.25
"""A GPU that holds less than this share of the fullest one's memory is not one of the engine's."""
WAITING_UTIL, UNWAITING_SHARE = 50.0, 0.3
"""A rank whose peers wait for it in every step is less busy than they are: they spin, it does not."""
CITED = 8


def _engine_gpus(picture: Picture) -> dict[Device, Gpu]:
    """GPUs that the engine uses: those placed on ranks, else those that hold memory."""
    found = picture.memo(gpus)
    placed = picture.memo(ranks_of_devices)
    if any(device in placed for device in found):
        return {device: gpu for device, gpu in found.items() if device in placed}
    fullest = max((gpu.used_mib or 0.0 for gpu in found.values()), default=0.0)
    return {
        device: gpu
        for device, gpu in found.items()
        if gpu.used_mib is None or gpu.state == "lost" or gpu.used_mib >= USED_SHARE * fullest
    }


def _ranks(picture: Picture, chosen: list[Gpu]) -> Fact:
    """Ranks of the chosen GPUs; unknown when one of them is not placed on a rank."""
    if not picture.memo(gpus):
        return unknown(MISSING)
    cites = tuple(Cite(gpu.says, gpu.origin) for gpu in chosen[:CITED])
    placed = picture.memo(ranks_of_devices)
    ranks = {placed[gpu.device] for gpu in chosen if gpu.device in placed}
    if chosen and not ranks:
        return Fact(value=None, cites=cites, missing=("which rank uses which GPU",))
    if not chosen:
        cites = tuple(Cite(gpu.says, gpu.origin) for gpu in list(picture.memo(_engine_gpus).values())[:CITED])
    return Fact(value=tuple(sorted(ranks)), cites=cites)


def _in_state(*states: str) -> Callable[[Picture], Fact]:
    def compute(picture: Picture) -> Fact:
        chosen = [gpu for gpu in picture.memo(_engine_gpus).values() if gpu.state in states]
        if not chosen and states in (("spin",), ("compute",)):
            undecided = [gpu for gpu in picture.memo(_engine_gpus).values() if gpu.state == "busy"]
            if undecided:
                return unknown("power of these GPUs while they compute, or their power limit")
        return _ranks(picture, chosen)

    return compute


def _all(*states: str) -> Callable[[Picture], Fact]:
    def compute(picture: Picture) -> Fact:
        found = list(picture.memo(_engine_gpus).values())
        if not found:
            return unknown(MISSING)
        cites = tuple(Cite(gpu.says, gpu.origin) for gpu in found[:CITED])
        if all(gpu.state in states for gpu in found):
            return Fact(value=True, cites=cites)
        decided = [gpu for gpu in found if gpu.state not in (*states, "busy")]
        if decided:
            return Fact(value=False, cites=tuple(Cite(gpu.says, gpu.origin) for gpu in decided[:CITED]))
        return Fact(value=None, cites=cites, missing=("power of these GPUs while they compute, or their power limit",))

    return compute


def _mixed(picture: Picture) -> Fact:
    found = list(picture.memo(_engine_gpus).values())
    if not found:
        return unknown(MISSING)
    idle = [gpu for gpu in found if gpu.state == "idle"]
    waiting = [gpu for gpu in found if gpu.state in ("spin", "busy")]
    shown = [*idle[:2], *waiting[:2]] or found[:CITED]
    value = bool(idle) and bool(waiting)
    return Fact(value=value, cites=tuple(Cite(gpu.says, gpu.origin) for gpu in shown))


def _idle_power(picture: Picture) -> Fact:
    found = list(picture.memo(_engine_gpus).values())
    if not found:
        return unknown(MISSING)
    cites = tuple(Cite(f"{gpu.says}, {gpu.sm_mhz or 0:.0f} MHz", gpu.origin) for gpu in found[:CITED])
    if any(gpu.state != "idle" for gpu in found):
        return Fact(value=False, cites=cites)
    resting = [_rests(picture, gpu) for gpu in found]
    if any(rests is None for rests in resting):
        return unknown("SM clocks of the GPUs")
    return Fact(value=all(resting), cites=cites)


def _rests(picture: Picture, gpu: Gpu) -> bool | None:
    """Whether an idle GPU let its clocks down; a context with work pending keeps them up."""
    if gpu.throttle & IDLE_BIT:
        return True
    samples = picture.memo(devices)[gpu.device]
    if gpu.sm_mhz is None:
        return None
    fastest = max(sample.sm_mhz for sample in samples if sample.sm_mhz is not None)
    peers = [other.sm_mhz for other in picture.memo(gpus).values() if other.sm_mhz is not None]
    return gpu.sm_mhz <= CLOCK_FLOOR * max(fastest, *peers)


def _throttled(picture: Picture) -> Fact:
    found = picture.memo(_engine_gpus)
    if not found:
        return unknown(MISSING)
    if all(gpu.sm_mhz is None for gpu in found.values()):
        return unknown("SM clocks of the GPUs")
    slow = picture.memo(_slow_gpus)
    fact = _ranks(picture, slow)
    return Fact(value=fact.value, cites=_cite_clocks(slow) or fact.cites, missing=fact.missing)


def _any_throttled(picture: Picture) -> Fact:
    """Also where no evidence tells which rank uses which GPU."""
    found = picture.memo(_engine_gpus)
    if all(gpu.sm_mhz is None for gpu in found.values()):
        return unknown("SM clocks of the GPUs")
    slow = picture.memo(_slow_gpus)
    return Fact(value=bool(slow), cites=_cite_clocks(slow or list(found.values())))


def _slow_gpus(picture: Picture) -> list[Gpu]:
    found = picture.memo(_engine_gpus)
    return [gpu for gpu in found.values() if gpu.state not in ("idle", "lost") and _is_slow(picture, gpu, found)]


def _cite_clocks(found: list[Gpu]) -> tuple[Cite, ...]:
    return tuple(
        Cite(f"{gpu.says}, {gpu.sm_mhz or 0:.0f} MHz, clock limits 0x{gpu.throttle:x}", gpu.origin)
        for gpu in found[:CITED]
    )


def _is_slow(picture: Picture, gpu: Gpu, found: dict[Device, Gpu]) -> bool:
    if gpu.sm_mhz is None:
        return False
    peers = [other.sm_mhz for other in found.values() if other is not gpu and other.sm_mhz is not None]
    past = [
        sample.sm_mhz for sample in in_order(picture, picture.memo(devices)[gpu.device]) if sample.sm_mhz is not None
    ]
    usual = max(median(peers) if peers else 0.0, max(past, default=0.0))
    share = SLOW_CLOCK if gpu.throttle & THERMAL else CLOCK_FLOOR
    return gpu.sm_mhz < share * usual


def _lost(picture: Picture) -> Fact:
    """Ranks whose GPU does not answer, from samples and from failed queries."""
    if not picture.has(GpuSample) and not picture.has(GpuHealth):
        return unknown("an nvidia-smi query")
    ranks: set[int] = set()
    cites: list[Cite] = []
    unplaced = False
    placed = picture.memo(ranks_of_devices)
    for gpu in picture.memo(gpus).values():
        if gpu.state == "lost":
            cites.append(Cite(gpu.says, gpu.origin))
            ranks |= {placed[gpu.device]} if gpu.device in placed else set()
            unplaced |= gpu.device not in placed
    for health in picture.all(GpuHealth):
        if health.lost:
            cites.append(Cite(health.text or "a GPU is lost", health.origin))
            rank = _rank_of_health(picture, health)
            ranks |= {rank} if rank is not None else set()
            unplaced |= rank is None
    if unplaced and not ranks:
        return Fact(value=None, cites=tuple(cites), missing=("which rank uses the lost GPU",))
    if not cites:
        cites = [Cite(gpu.says, gpu.origin) for gpu in list(picture.memo(gpus).values())[:1]]
    return Fact(value=tuple(sorted(ranks)), cites=tuple(cites[:CITED]))


def _rank_of_health(picture: Picture, health: GpuHealth) -> int | None:
    if health.index is not None and (health.host, health.index) in picture.memo(ranks_of_devices):
        return picture.memo(ranks_of_devices)[health.host, health.index]
    return rank_of_bus(picture, health.host, health.pci)


def _reset_ranks(picture: Picture) -> Fact:
    """Ranks whose GPU asks for a reset or has used up its spare memory rows, by nvidia-smi."""
    if not picture.has(GpuHealth):
        return unknown("nvidia-smi -q")
    ranks: set[int] = set()
    cites: list[Cite] = []
    for health in picture.all(GpuHealth):
        action = (health.recovery_action or "None").lower()
        if health.remap_failed or action not in ("none", "n/a", "[n/a]", "0", "[not supported]"):
            cites.append(Cite(health.text, health.origin))
            rank = _rank_of_health(picture, health)
            ranks |= {rank} if rank is not None else set()
    if cites and not ranks:
        return Fact(value=None, cites=tuple(cites), missing=("which rank uses that GPU",))
    return Fact(value=tuple(sorted(ranks)), cites=tuple(cites) or (_first_health(picture),))


def _first_health(picture: Picture) -> Cite:
    health = next(picture.all(GpuHealth))
    return Cite(health.text or "no GPU asks for a reset", health.origin)


def _unwaiting(picture: Picture) -> Fact:
    """Ranks that hardly keep their GPU busy while their peers' GPUs wait, during the time of progress."""
    marks = picture.memo(progress).marks
    placed = picture.memo(ranks_of_devices)
    if not marks or not placed:
        return unknown("nvidia-smi samples from a time of progress")
    utils: dict[int, float] = {}
    shown: dict[int, GpuSample] = {}
    for device, rank in placed.items():
        timed = [(moment_s(picture, one), one) for one in picture.memo(devices)[device] if one.util_percent is not None]
        inside = [one for at, one in timed if at is not None and marks[0].at_s <= at <= marks[-1].at_s]
        if len(inside) >= 3:
            utils[rank] = median(one.util_percent or 0.0 for one in inside)
            shown[rank] = inside[-1]
    if len(utils) < 2:
        return unknown("nvidia-smi samples of several ranks from a time of progress")
    busiest = max(utils.values())
    slow = sorted(rank for rank, util in utils.items() if busiest >= WAITING_UTIL and util <= UNWAITING_SHARE * busiest)
    cites = [
        Cite(
            f"rank {rank}'s GPU was {utils[rank]:.0f} % busy during decode, the busiest {busiest:.0f} %",
            shown[rank].origin,
        )
        for rank in slow or sorted(utils)[:2]
    ]
    return Fact(value=tuple(slow) if len(slow) * 2 <= len(utils) else (), cites=tuple(cites))


def _spec(name: str, unit: str, about: str, compute: Callable[[Picture], Fact]) -> FactSpec:
    return FactSpec(name=name, unit=unit, about=about, compute=compute)


FACTS: tuple[FactSpec, ...] = (
    _spec("gpu.spinning_ranks", "ranks", "Ranks whose GPU is fully busy without reading memory or drawing power.",
          _in_state("spin")),
    _spec("gpu.computing_ranks", "ranks", "Ranks whose GPU is fully busy and really computes.", _in_state("compute")),
    _spec("gpu.busy_ranks", "ranks", "Ranks whose GPU is fully busy, whether it waits or computes.",
          _in_state("spin", "compute", "busy")),
    _spec("gpu.idle_ranks", "ranks", "Ranks whose GPU runs nothing.", _in_state("idle")),
    _spec("gpu.lost_ranks", "ranks", "Ranks whose GPU does not answer.", _lost),
    _spec("gpu.reset_ranks", "ranks", "Ranks whose GPU asks for a reset, by nvidia-smi.", _reset_ranks),
    _spec("gpu.throttled_ranks", "ranks", "Ranks whose GPU runs far below the clock of its peers or of its past.",
          _throttled),
    _spec("gpu.throttled", "bool", "Some GPU of the engine runs far below the clock of its peers or of its past.",
          _any_throttled),
    _spec("gpu.unwaiting_ranks", "ranks", "Ranks whose GPU is hardly busy in each step while their peers' GPUs wait.",
          _unwaiting),
    _spec("gpu.all_spinning", "bool", "Every GPU of the engine is busy with waiting.", _all("spin")),
    _spec("gpu.all_computing", "bool", "Every GPU of the engine computes.", _all("compute")),
    _spec("gpu.all_busy", "bool", "Every GPU of the engine is fully busy.", _all("spin", "compute", "busy")),
    _spec("gpu.all_idle", "bool", "No GPU of the engine runs anything.", _all("idle")),
    _spec("gpu.mixed", "bool", "Some GPUs are busy while others run nothing.", _mixed),
    _spec("gpu.idle_power", "bool", "Every GPU is idle and has let its clocks down.", _idle_power),
)  # fmt: skip
