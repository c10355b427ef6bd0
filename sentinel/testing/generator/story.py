"""What happened: a small simulation of one engine from start-up to the moment the evidence was collected.

Ranks run the same program of collectives. A fault changes what one rank does from an instant on; the others then wait
where the mechanism makes them wait. Every writer reads only this record, so evidence and label follow from the fault.
"""

from dataclasses import dataclass, field
from random import Random
from typing import Literal

from sentinel.testing.generator.fleet import Fleet, Host, Rank

Gpu = Literal["parked", "held", "spin", "decode", "full", "lost", "hot"]
Place = Literal[
    "idle", "gpu_wait", "step", "tp_collective", "dp_gather", "cache_check", "control_broadcast", "lock", "native_call",
    "file_read", "reclaim", "compile", "gc", "window_register", "rendezvous", "comm_init", "load", "capture", "barrier",
    "socket_wait", "kernel_launch",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Beat:
    """One line of progress. `group` is the data-parallel group that printed it."""

    at_s: float
    kind: Literal["decode", "prefill"]
    group: int
    running: int
    queued: int
    tokens: int
    rate: float
    new_tokens: int = 0
    extra: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Call:
    """One enqueued operation of a step of the program; `replays` unlogged graph replays went before it."""

    op: str
    comm: int
    count: int
    dtype: int
    step: int = 0
    replays: int = 0


@dataclass(slots=True)
class State:
    """How one rank's process looks when the evidence is collected."""

    place: Place = "gpu_wait"
    process: str = "R"
    cpu: float = 99.0
    gpu: Gpu = "spin"
    wchan: str = "-"
    callback: Literal["mutex", "gil", "pread"] | None = None
    kernel: str | None = None
    children: tuple[str, ...] = ()
    tracer: int = 0
    kernel_stack: tuple[str, ...] = ()
    alive: bool = True


@dataclass(frozen=True, slots=True)
class Said:
    """A log line (or several) of one process. `rank` None = the main process of `host`; `raw` = no prefix."""

    at_s: float
    text: str
    host: Host
    rank: Rank | None = None
    level: str = "INFO"
    raw: bool = False
    core: bool = False


@dataclass(slots=True)
class Label:
    """The right answer, in the words of `expected.yaml`."""

    classes: tuple[str, ...] = ("unknown",)
    stalled: bool | None = True
    ranks: tuple[int, ...] | None = None
    hosts: tuple[str, ...] | None = None
    must: tuple[str, ...] = ()
    must_not: tuple[str, ...] = ()
    max_confidence: str | None = None
    situation: str = ""


@dataclass(slots=True)
class Story:
    """One run. Times are seconds on the local wall clock; `end_s` is when the evidence was collected."""

    fleet: Fleet
    rng: Random
    label: Label = field(default_factory=Label)
    ready_s: float | None = None
    boot_stop: str | None = None
    t0_s: float = 0.0
    end_s: float = 0.0
    running: int = 0
    waiting: int = 0
    beats: list[Beat] = field(default_factory=list)
    states: dict[int, State] = field(default_factory=dict)
    calls: dict[int, list[Call]] = field(default_factory=dict)
    comms: int = 2
    eager: bool = False
    said: list[Said] = field(default_factory=list)
    kernel: dict[str, list[tuple[float, str]]] = field(default_factory=dict)
    gpu_before: Gpu = "decode"
    init_missing: tuple[int, ...] = ()
    init_open: bool = False
    keep: set[str] = field(default_factory=set)
    """Sources that decide the case: noise may not take them away."""
    focus: tuple[int, ...] = ()
    """Ranks whose per-rank files decide the case."""
    health: Literal["ok", "failing", "none"] = "none"
    probes: list[tuple[float, int | None]] = field(default_factory=list)
    interval_s: float = 10.0
    """Seconds between progress lines."""
    counters: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Metric name -> values at the two scrapes."""
    files: list[tuple[Host, str, str]] = field(default_factory=list)
    """Files that a scenario wrote itself, all decisive: (host, name, text)."""
    extra_processes: list[tuple[Host, int, str, str, float]] = field(default_factory=list)
    frontend: Literal["parked", "busy"] = "parked"
    core_place: str = "wait_worker"
    bar: str | None = None
    """A progress bar that ends the log of rank 0 (carriage-return segments)."""

    @property
    def silence_s(self) -> float:
        """Seconds from the last progress to the end."""
        return self.end_s - self.t0_s

    def rank(self, number: int) -> Rank:
        """A rank by number."""
        return self.fleet.ranks[number]

    def say(
        self, at_s: float, text: str, rank: int | None = None, *, level: str = "INFO", raw: bool = False,
        host: Host | None = None, core: bool = False,
    ) -> None:  # fmt: skip
        """Add a line of a rank, or of the main process (of `host`, else of the first host)."""
        who = None if rank is None else self.rank(rank)
        where = who.host if who is not None else host or self.fleet.hosts[0]
        self.said.append(Said(at_s, text, where, who, level, raw, core))

    def printk(self, at_s: float, text: str, host: Host | None = None) -> None:
        """Add a line to a host's kernel log."""
        self.kernel.setdefault((host or self.fleet.hosts[0]).name, []).append((at_s, text))

    def all_states(self, **changes: object) -> None:
        """Give every rank the same state."""
        for rank in self.fleet.ranks:
            state = State()
            for name, value in changes.items():
                setattr(state, name, value)
            self.states[rank.rank] = state


def serve(
    story: Story, *, lines: int | None = None, boot_s: float | None = None, slow_from: float | None = None
) -> None:
    """Boot, then serve until T0: progress lines, and the same program of collectives on every rank.

    `slow_from`: fraction of the run after which steps take `1/0.4` of their time.
    """
    rng, fleet = story.rng, story.fleet
    story.ready_s = fleet.start_s + (boot_s if boot_s is not None else rng.uniform(60, 400))
    interval = 10.0 if fleet.engine == "vllm" else rng.choice((0.4, 0.9, 1.6, 3.2, 6.5))
    story.interval_s = interval
    count = lines if lines is not None else rng.randrange(25, 90)
    story.running = rng.randrange(1, 40)
    printers = fleet.dp if fleet.dp > 1 else 1
    count = max(count // printers, 14) if printers > 4 else count
    at = story.ready_s + rng.uniform(3, 20)
    tokens = [rng.randrange(2_000, 60_000) for _ in range(printers)]
    batch = [max(1, story.running + rng.randrange(-1, 2)) for _ in range(printers)]
    for number in range(count):
        stretch = 2.5 if slow_from is not None and number > slow_from * count else 1.0
        at += interval * stretch * rng.uniform(0.9, 1.1) if fleet.engine != "vllm" else 10.0
        for group in range(printers):
            steps = 40.0
            tokens[group] += int(batch[group] * steps)
            rate = (
                batch[group] * steps / (interval * stretch) if fleet.engine != "vllm" else batch[group] * 31.0 / stretch
            )
            if rng.random() < 0.12 and slow_from is None:
                new = rng.randrange(200, 8000)
                story.beats.append(Beat(at - 0.2, "prefill", group, batch[group], 0, tokens[group], new / 0.6, new))
            story.beats.append(
                Beat(at + group * 0.01, "decode", group, batch[group], 0, tokens[group], rate * rng.uniform(0.93, 1.07))
            )
    story.running = batch[0]
    story.t0_s = story.beats[-1].at_s
    _program(story, rng.randrange(18, 60))


def _program(story: Story, steps: int) -> None:
    """The collectives of `steps` logged steps, the same on every rank."""
    rng, fleet = story.rng, story.fleet
    story.comms = rng.choice((1, 2, 2, 3))
    story.eager = rng.random() < 0.25
    width = rng.choice((2048, 4096, 5120, 7168, 8192))
    shape: list[tuple[str, int, int, int]] = [("AllReduce", 0, width, 9)] * rng.choice((2, 4, 6))
    shape.append(("AllGather", 0, rng.choice((16160, 19072, 32000, 4040)), 9))
    if story.comms > 1:
        shape.append(("Broadcast", 1, 1, 4))
    if story.comms > 2:
        shape.insert(rng.randrange(len(shape)), ("AllReduce", 2, 1, 2))
    program: list[Call] = []
    for step in range(steps):
        size = rng.choice((1, 2, 4, 8, 16, 32))
        replays = 0 if story.eager or step == 0 else rng.randrange(1, 50)  # no replay before the first eager call
        for index, (op, comm, count, dtype) in enumerate(shape):
            scaled = count * size if count > 1 else count
            program.append(Call(op, comm, scaled, dtype, step, replays if index == 0 else 0))
    for rank in fleet.ranks:
        story.calls[rank.rank] = list(program)


def hang(story: Story, silence_s: float | None = None) -> None:
    """The engine makes no progress from T0 on; every rank waits for its GPU, spinning.

    Collected `silence_s` later, and never before the silence is long against the interval between progress lines. GPU
    samples are kept, so that something dated shows the silence.
    """
    rng = story.rng
    least = 8.0 * story.interval_s + 15.0
    wanted = silence_s if silence_s is not None else rng.choice((45.0, 70.0, 130.0, 240.0, 280.0))
    story.end_s = story.t0_s + max(wanted, least)
    story.keep.add("gpu")
    story.all_states()
    story.waiting = rng.choice((0, 0, 1, 3, 12))
    story.counters.update(progress_counters(story, moving=False))


def progress_counters(story: Story, *, moving: bool) -> dict[str, tuple[float, float]]:
    """Token counters of the engine at two scrapes, and its request gauges."""
    first = float(story.rng.randrange(10_000, 2_000_000))
    second = first + (story.rng.randrange(500, 9_000) if moving else 0)
    running, waiting = float(story.running), float(story.waiting)
    if story.fleet.engine == "vllm":
        return {
            "vllm:num_requests_running": (running, running), "vllm:num_requests_waiting": (waiting, waiting),
            "vllm:generation_tokens_total": (first, second), "vllm:prompt_tokens_total": (first * 2, first * 2),
            "vllm:iteration_tokens_total_count": (first // 8, second // 8), "vllm:kv_cache_usage_perc": (0.11, 0.11),
        }  # fmt: skip
    return {
        "sglang:num_running_reqs": (running, running), "sglang:num_queue_reqs": (waiting, waiting),
        "sglang:token_usage": (0.11, 0.11), "sglang:realtime_tokens_total": (first, second),
        "sglang:generation_tokens_total": (first / 2, first / 2),
    }  # fmt: skip


def victim_rank(story: Story) -> int:
    """A rank drawn at random to carry the fault; never only rank 0, never only the last."""
    return story.rng.randrange(story.fleet.world)


def cut_short(story: Story, rank: int) -> None:
    """The rank stops before it enqueues one of the operations of the last step; its peers enqueue the whole step."""
    calls = story.calls[rank]
    length = sum(1 for call in calls if call.step == calls[-1].step)
    del calls[len(calls) - story.rng.randrange(1, length + 1) :]
