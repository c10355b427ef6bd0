"""Where an engine runs: hosts, ranks, pids, GPUs, versions. All numbers are drawn from the seed."""

# ruff: noqa: E501 - printed lines stay whole, so that they can be searched for

from dataclasses import dataclass
from random import Random
from typing import Literal

EngineName = Literal["sglang", "vllm", "trtllm", "packaged"]


@dataclass(frozen=True, slots=True)
class GpuModel:
    """A GPU and its power levels in watts: parked (no context), held (context, idle clocks up), spin, decode, full."""

    name: str
    limit_w: float | None
    parked_w: float
    held_w: float
    spin_w: float
    decode_w: float
    full_w: float
    memory_mib: int | None
    sm_mhz: int
    bus_step: int = 0x11


GPUS: tuple[GpuModel, ...] = (
    GpuModel("NVIDIA H100 80GB HBM3", 700, 71, 116, 158, 420, 660, 81559, 1980),
    GpuModel("NVIDIA H200", 700, 76, 118, 147, 440, 655, 143771, 1980),
    GpuModel("NVIDIA A100-SXM4-80GB", 400, 56, 78, 108, 255, 372, 81920, 1410),
    GpuModel("NVIDIA A100 80GB PCIe", 300, 45, 63, 91, 196, 279, 81920, 1410),
    GpuModel("NVIDIA L40S", 350, 34, 82, 112, 220, 322, 46068, 2520),
    GpuModel("NVIDIA B200", 1000, 142, 203, 288, 590, 905, 183359, 1965),
    GpuModel("NVIDIA GB10", None, 4.5, 11, 22, 46, 78, None, 2405),
)

SGLANG = ("0.4.6", "0.5.4", "0.5.8", "0.5.10", "0.5.13", "0.5.16", "0.5.18", "0.5.23")
VLLM = ("0.9.2", "0.11.2", "0.15.1", "0.17.1", "0.20.2", "0.27.1", "0.30.0", "0.33.0")
TRTLLM = ("1.0.0", "1.1.0", "1.2.0")
NCCL_OF = {
    "0.4.6": "2.21.5", "0.5.4": "2.27.3", "0.5.8": "2.27.5", "0.5.10": "2.27.5", "0.5.13": "2.28.9", "0.5.16": "2.28.9",
    "0.5.18": "2.28.9", "0.5.23": "2.30.7", "0.9.2": "2.26.2", "0.11.2": "2.27.5", "0.15.1": "2.27.5", "0.17.1": "2.28.9",
    "0.20.2": "2.28.9", "0.27.1": "2.29.7", "0.30.0": "2.30.4", "0.33.0": "2.30.7",
}  # fmt: skip

HOST_STYLES = ("node{n}", "gpu-{n:03d}", "h{n:02d}", "infer-{n}", "dgx{n:02d}", "worker-{n}")


@dataclass(frozen=True, slots=True)
class Host:
    """One machine. `boot_s` is on the local wall scale; `main_pid` the engine's main process there."""

    name: str
    address: str
    index: int
    main_pid: int
    core_pid: int
    boot_s: float


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank: its host, pid, local GPU index, parallel coordinates and PCI bus number."""

    rank: int
    host: Host
    pid: int
    local: int
    dp: int
    pp: int
    tp: int
    bus: int


@dataclass(frozen=True, slots=True)
class Fleet:
    """A whole deployment. `start_s`: seconds since the epoch of the local wall clock read as UTC.

    `utc_offset_s` is how far local time is ahead of UTC: container runtimes and the journal stamp in UTC.
    """

    engine: EngineName
    version: str
    nccl: str
    gpu: GpuModel
    hosts: tuple[Host, ...]
    ranks: tuple[Rank, ...]
    tp: int
    pp: int
    dp: int
    dp_attention: bool
    start_s: float
    utc_offset_s: float

    @property
    def world(self) -> int:
        """Number of ranks."""
        return len(self.ranks)

    def on(self, host: Host) -> tuple[Rank, ...]:
        """Ranks of a host."""
        return tuple(rank for rank in self.ranks if rank.host is host)

    def at_least(self, version: str) -> bool:
        """Whether the engine's version is `version` or newer."""
        return _key(self.version) >= _key(version)

    def nccl_at_least(self, version: str) -> bool:
        """Whether NCCL's version is `version` or newer."""
        return _key(self.nccl) >= _key(version)

    @property
    def counts_ops(self) -> bool:
        """Whether opCount advances: always before NCCL 2.27.3, later on network transports only."""
        return len(self.hosts) > 1 or not self.nccl_at_least("2.27.3")

    def title(self, rank: Rank) -> str:
        """Process title of a rank."""
        if self.engine == "sglang":
            return "sglang::scheduler" + "".join("_" + tag for tag in self.tags(rank).split())
        if self.engine == "vllm":
            return "VLLM::" + self.worker(rank)
        return (
            "/usr/bin/python3 -m mpi4py.futures.server"
            if self.engine == "trtllm"
            else "/opt/venv/bin/python3 /srv/engine/engine.py"
        )

    def worker(self, rank: Rank) -> str:
        """vLLM's name of a worker process; data-parallel engines of one rank run inside their core."""
        if self.dp > 1:
            return f"EngineCore_DP{rank.dp}"
        stage = f"_PP{rank.pp}" if self.pp > 1 else ""
        return f"Worker{stage}_TP{rank.tp}"

    def tags(self, rank: Rank) -> str:
        """SGLang's rank tags, each only when its size is over 1 (the oldest version always prints TP)."""
        parts = []
        if self.dp > 1:
            parts.append(f"DP{rank.dp}")
        pp = [f"PP{rank.pp}"] if self.pp > 1 else []
        if self.at_least("0.5.6"):
            parts += pp
        if self.tp > 1 or not self.at_least("0.4.10"):
            parts.append(f"TP{rank.tp}")
        if self.dp_attention:
            parts.append(f"EP{rank.tp}")
        return " ".join(parts if self.at_least("0.5.6") else [*parts, *pp])


def _key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def make_fleet(
    rng: Random,
    *,
    engines: tuple[EngineName, ...] = ("sglang", "vllm", "trtllm", "packaged"),
    min_world: int = 2,
    max_world: int = 64,
    hosts: int | None = None,
    plain: bool = False,
) -> Fleet:
    """Draw a deployment. `plain` keeps one tensor-parallel group (no pipeline, no data parallelism)."""
    engine = rng.choice(engines)
    host_count, per_host = _shape(rng, engine, min_world, max_world, hosts)
    world = host_count * per_host
    gpu = rng.choice([model for model in GPUS if model.limit_w is not None or per_host == 1])
    version = rng.choice({"sglang": SGLANG, "vllm": VLLM, "trtllm": TRTLLM, "packaged": ("0.1.0",)}[engine])
    tp, pp, dp, attention = _parallel(rng, engine, host_count, per_host, plain)
    start = 1_785_000_000.0 + rng.randrange(10_000_000)
    made = _hosts(rng, engine, host_count, start)
    ranks = []
    firsts = [_first_pid(rng, host) for host in made]
    bus0 = rng.choice((0x07, 0x18, 0x19, 0x1B, 0x3B))
    for rank in range(world):
        host = made[rank // per_host]
        local = rank % per_host
        in_group = rank % (tp * pp)
        ranks.append(
            Rank(
                rank=rank,
                host=host,
                pid=firsts[host.index] + local,
                local=local,
                dp=rank // (world // dp),
                pp=in_group // tp if pp > 1 else 0,
                tp=rank if attention else in_group % tp,
                bus=bus0 + local * gpu.bus_step,
            )
        )
    return Fleet(
        engine=engine, version=version, nccl=NCCL_OF.get(version, "2.28.9"), gpu=gpu, hosts=made, ranks=tuple(ranks),
        tp=world if attention else tp, pp=pp, dp=dp, dp_attention=attention, start_s=start, utc_offset_s=rng.choice((0.0, 0.0, 0.0, 7200.0, -14400.0, 19800.0)),
    )  # fmt: skip


def _shape(rng: Random, engine: EngineName, low: int, high: int, hosts: int | None) -> tuple[int, int]:
    if engine in ("trtllm", "packaged"):
        host_choices, per_choices = [1], [2, 4, 8]
    else:
        host_choices, per_choices = [1, 1, 1, 2, 2, 3, 4, 8], [1, 2, 4, 8, 8]
    shapes = [
        (count, per)
        for count in host_choices
        for per in per_choices
        if low <= count * per <= high and (hosts is None or count == hosts)
    ]
    return rng.choice(shapes)


def _parallel(rng: Random, engine: EngineName, hosts: int, per_host: int, plain: bool) -> tuple[int, int, int, bool]:
    """tp, pp, dp, and whether dp is SGLang's attention parallelism inside one tensor group."""
    world = hosts * per_host
    if plain or engine in ("trtllm", "packaged") or rng.random() < 0.55:
        return world, 1, 1, False
    if engine == "vllm":
        if hosts > 1 and per_host > 1 and rng.random() < 0.5:
            return per_host, hosts, 1, False
        return 1, 1, world, False
    if world >= 4 and rng.random() < 0.6:
        return 1, 1, world, True
    if hosts > 1 and per_host > 1:
        return per_host, hosts, 1, False
    return world, 1, 1, False


def _hosts(rng: Random, engine: EngineName, count: int, start: float) -> tuple[Host, ...]:
    style, first = rng.choice(HOST_STYLES), rng.randrange(1, 90)
    net = rng.randrange(0, 200)
    made = []
    for index in range(count):
        main = rng.choice((1, 7, 9, rng.randrange(400, 90_000)))
        made.append(
            Host(
                name=style.format(n=first + index),
                address=f"10.{net}.0.{first + index}",
                index=index,
                main_pid=main,
                core_pid=main + rng.randrange(30, 300) if engine == "vllm" else main,
                boot_s=start - rng.randrange(4_000, 3_000_000),
            )
        )
    return tuple(made)


def _first_pid(rng: Random, host: Host) -> int:
    return host.core_pid + rng.randrange(20, 900)
