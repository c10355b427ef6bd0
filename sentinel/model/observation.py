"""Everything a collector can say, as a closed set of frozen records.

An observation is what a source printed or showed, never what it means: meaning is computed in `core/`.
The fields that every observation carries:

- `origin`: file and line (offline) or source name (live) that a person can look up.
- `at_s`: seconds since the epoch on the *host's local wall clock read as if it were UTC*; None when the source
  carries no time. Logs rarely name their zone, so one scale is used and `evidence/clock.py` states its error.
- `host`, `pid`, `tags`, `rank`: what the source itself said about who it speaks of; None when it did not say.
  Joining pids, titles and tags to global ranks happens in `core/identity.py` and nowhere else.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec


class Origin(msgspec.Struct, frozen=True, order=True, gc=False):
    """Where a person finds it: path relative to the evidence folder (or a live source's name) and 1-based line."""

    file: str
    line: int | None = None

    def __str__(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"


class Tags(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Parallel coordinates as an engine prints them in line prefixes and process titles; None = not printed."""

    dp: int | None = None
    pp: int | None = None
    tp: int | None = None
    ep: int | None = None


class Observation(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """Base of all observations; see the module docstring for the meaning of these fields."""

    origin: Origin
    at_s: float | None = None
    clock_s: float | None = None
    host: str | None = None
    pid: int | None = None
    tags: Tags | None = None
    rank: int | None = None


# --- engine logs -----------------------------------------------------------------------------------------------


class Decode(Observation, frozen=True, kw_only=True, gc=False, tag="decode"):
    """One progress line of a scheduler: SGLang "Decode batch", TensorRT-LLM "iter = N"; printed every n-th step."""

    engine: str
    running: int | None = None
    queued: int | None = None
    tokens: int | None = None
    usage: float | None = None
    throughput: float | None = None
    iteration: int | None = None
    extra: Mapping[str, float] = {}


class Prefill(Observation, frozen=True, kw_only=True, gc=False, tag="prefill"):
    """One prefill forward, also one chunk of a chunked prefill."""

    engine: str
    new_seqs: int
    new_tokens: int
    cached_tokens: int = 0
    running: int | None = None
    queued: int | None = None
    usage: float | None = None
    throughput: float | None = None
    extra: Mapping[str, float] = {}


class EngineStats(Observation, frozen=True, kw_only=True, tag="engine_stats"):
    """vLLM's periodic statistics line (every 10 s by wall clock, silent when idle or hung)."""

    engine_index: int | None
    prompt_tps: float
    generation_tps: float
    running: int
    waiting: int
    kv_usage_percent: float | None = None
    extra: Mapping[str, float] = {}


PhaseName = Literal["start", "dist_init", "load", "memory", "compile", "capture", "warmup", "ready", "shutdown"]


class Phase(Observation, frozen=True, kw_only=True, tag="phase"):
    """A start-up or shutdown phase line. `progress` is a moving bar; `percent` then says how far."""

    engine: str
    phase: PhaseName
    edge: Literal["begin", "progress", "end"]
    percent: float | None = None
    text: str = ""


NoticeKind = Literal[
    "server_args", "version", "request", "request_done", "request_abort", "queue_timeout",
    "health_ok", "health_failed", "http_error", "probe_timeout",
    "watchdog_timeout", "soft_watchdog", "sigquit", "sigterm", "kill_tree", "exit", "core_dump_wait",
    "exception", "cuda_error", "nccl_error", "subprocess_exit", "worker_died", "engine_dead", "rpc_timeout",
    "shm_wait", "retract", "pool_full", "request_too_long", "grammar", "grammar_abort", "transfer_failed",
    "pause", "resume", "sleep", "wake", "flush", "weights_updated",
    "collective_timeout", "flight_dump", "peer_closed", "store_error", "heartbeat_stuck", "remote_error",
    "host_alloc", "repeated", "other",
]  # fmt: skip


class Notice(Observation, frozen=True, kw_only=True, tag="notice"):
    """A line of an engine or of torch that reports an event. `fields` hold what its text names (numbers as text)."""

    engine: str
    notice: NoticeKind
    text: str
    fields: Mapping[str, str] = {}


class HealthProbe(Observation, frozen=True, kw_only=True, tag="health_probe"):
    """An HTTP probe of the engine made by somebody. `status` None = no answer within the prober's limit.

    `error` is the prober's own word for no answer; a refused connection is no silence, it says that nobody listens.
    """

    url: str
    status: int | None
    latency_ms: float | None = None
    error: str = ""


# --- NCCL and torch --------------------------------------------------------------------------------------------


class NcclComm(Observation, frozen=True, kw_only=True, tag="nccl_comm"):
    """A communicator life-cycle line; joins the process-local pointer to the shared `comm_id`."""

    comm: str
    comm_id: str | None
    comm_rank: int
    nranks: int
    event: Literal["init_start", "init_complete", "destroy", "abort", "revoke"]
    cuda_dev: int | None = None
    bus_id: str | None = None
    parent: str | None = None
    color: int | None = None


class Op(msgspec.Struct, frozen=True, kw_only=True):
    """One enqueued operation. `order` counts all enqueue lines of the process, across communicators, from 0."""

    op: str
    op_count: int
    count: int
    dtype: int
    root: int
    comm: str
    order: int
    line: int | None = None
    at_s: float | None = None

    @property
    def shape(self) -> tuple[str, int, int, int]:
        """What must agree across ranks: operation, element count, data type, root (peer for Send and Recv)."""
        return (self.op, self.count, self.dtype, self.root)


class Enqueues(Observation, frozen=True, kw_only=True, tag="enqueues"):
    """All COLL lines of one process on one communicator so far. A line proves *enqueued*, never started.

    `digests[k]` is a digest of the shapes of the first (k+1)*`digest_every` operations, so that two ranks can be
    compared at any common length without keeping every line. `tail` holds the last operations, oldest first.
    `unlogged_ops` is the growth of opCount beyond logged calls (graph replays on the network transport); None when
    opCount does not advance on this transport. `missing` names the parts of the log that are known to be absent
    (`truncated` when any is): `head` the first calls or the life-cycle lines before them, `middle` lines in between,
    `tail` the rest of the last line.
    """

    comm: str
    nranks: int
    total: int
    by_op: Mapping[str, int]
    first_op_count: int
    last_op_count: int
    tail: tuple[Op, ...]
    digest_every: int
    digests: tuple[str, ...] = ()
    digest: str = ""
    unlogged_ops: int | None = None
    last_line: int | None = None
    truncated: bool = False
    missing: tuple[Literal["head", "middle", "tail"], ...] = ()


class NcclNote(Observation, frozen=True, kw_only=True, tag="nccl_note"):
    """A NCCL line that is neither life cycle nor COLL: warnings, transport set-up, start-up stages."""

    level: Literal["info", "warn"]
    topic: Literal[
        "version", "bootstrap", "network", "channel", "connected", "ras",
        "ib_completion", "ib_async", "peer_closed", "call_failed", "cuda_failure", "mismatch", "proxy", "result",
        "other",
    ]  # fmt: skip
    text: str
    fields: Mapping[str, str] = {}


class RasRank(msgspec.Struct, frozen=True, kw_only=True):
    """One rank of a communicator in a RAS answer."""

    rank: int | None
    host: str | None = None
    pid: int | None = None
    counts: Mapping[str, int] = {}
    status: str = ""


class RasComm(msgspec.Struct, frozen=True, kw_only=True):
    """One communicator (or group of alike ones) in a RAS answer. `lagging` maps an operation to ranks with fewer."""

    comm_id: str | None
    size: int | None
    status: str
    errors: tuple[str, ...]
    ranks: tuple[RasRank, ...] = ()
    missing: tuple[RasRank, ...] = ()
    mismatch: Mapping[str, Mapping[str, int]] = {}


class Ras(Observation, frozen=True, kw_only=True, tag="ras"):
    """One answer of NCCL's RAS service; `error` says why there was none (a time-out is evidence).

    In `RasComm.mismatch`, operation name -> {rank as text, or "others": operations launched}.
    """

    comms: tuple[RasComm, ...] = ()
    nccl_version: str | None = None
    dead: tuple[RasRank, ...] = ()
    error: str | None = None
    garbled: bool = False


class FlightGroup(msgspec.Struct, frozen=True, kw_only=True):
    """One process group of a flight-recorder dump. Sequence numbers are -1 when nothing was enqueued."""

    name: str
    desc: str
    ranks: tuple[int, ...]
    last_enqueued: int | None
    last_started: int | None
    last_completed: int | None


class FlightEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded collective."""

    group: str
    seq: int
    op: str
    in_sizes: tuple[tuple[int, ...], ...]
    out_sizes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    state: str
    created_ns: int | None
    frames: tuple[str, ...] = ()


class FlightTrace(Observation, frozen=True, kw_only=True, tag="flight_trace"):
    """torch's flight recorder of one rank (JSON or pickle), last entries kept, oldest first."""

    version: str
    groups: tuple[FlightGroup, ...]
    entries: tuple[FlightEntry, ...]


# --- stacks, processes, threads --------------------------------------------------------------------------------


class Frame(msgspec.Struct, frozen=True):
    """One frame. `file` is a source file for Python and a library or source for native code."""

    function: str
    file: str | None = None
    line: int | None = None
    native: bool = False


class Thread(msgspec.Struct, frozen=True, kw_only=True):
    """One thread of a stack dump; frames innermost first."""

    name: str | None
    tid: int | None
    state: Literal["active", "idle", "unknown"] = "unknown"
    owns_gil: bool | None = None
    frames: tuple[Frame, ...] = ()


class Stack(Observation, frozen=True, kw_only=True, tag="stack"):
    """Stacks of one process by one tool; `error` says why there are none (also evidence, e.g. a stopped process)."""

    tool: Literal["py-spy", "pystack", "eu-stack", "gdb", "faulthandler"]
    title: str | None = None
    threads: tuple[Thread, ...] = ()
    native: bool = False
    error: str | None = None


class GpuKernels(Observation, frozen=True, kw_only=True, tag="gpu_kernels"):
    """Kernels resident on a GPU as a device debugger shows them (`info cuda kernels`)."""

    kernels: tuple[str, ...]


class ThreadRow(msgspec.Struct, frozen=True, kw_only=True):
    """One thread from /proc/PID/task. `syscall` is -1 when the thread was running or the number is not known."""

    tid: int
    comm: str = ""
    state: str = "?"
    wchan: str = ""
    syscall: int = -1
    args: tuple[int, ...] = ()
    running: bool = False
    cpu_ticks: int | None = None
    kernel_stack: tuple[str, ...] = ()


class ThreadTable(Observation, frozen=True, kw_only=True, tag="thread_table"):
    """Threads of one process (`pid`) at one instant."""

    threads: tuple[ThreadRow, ...]
    arch: Literal["x86_64", "aarch64"] = "x86_64"


class ProcessRow(msgspec.Struct, frozen=True, kw_only=True):
    """One process; None where the table has no such column."""

    pid: int
    ppid: int | None = None
    state: str = "?"
    command: str = ""
    elapsed_s: float | None = None
    cpu_percent: float | None = None
    rss_kib: int | None = None
    wchan: str | None = None
    tracer_pid: int | None = None


class ProcessTable(Observation, frozen=True, kw_only=True, tag="process_table"):
    """A `ps`, `top` or /proc/PID/status view. `complete` False when it shows only some processes."""

    rows: tuple[ProcessRow, ...]
    complete: bool = True


class ProcessCounters(Observation, frozen=True, kw_only=True, tag="process_counters"):
    """Counters of one process (`pid`) at one instant: /proc/PID/io, utime and stime ticks, faults."""

    values: Mapping[str, float]


class ProcessExit(Observation, frozen=True, kw_only=True, tag="process_exit"):
    """A process of the engine was seen to be gone (live: by the agent; offline: a table shows its absence)."""

    how: str
    role: str = ""
    exit_code: int | None = None


# --- machine ---------------------------------------------------------------------------------------------------


class GpuSample(Observation, frozen=True, kw_only=True, tag="gpu_sample"):
    """One GPU at one instant; None = the driver had no answer. `throttle` is the clocks-event bit mask."""

    index: int
    uuid: str | None = None
    pci: str | None = None
    name: str | None = None
    util_percent: float | None = None
    mem_util_percent: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    sm_mhz: float | None = None
    mem_used_mib: float | None = None
    temp_c: float | None = None
    mem_temp_c: float | None = None
    throttle: int | None = None
    lost: bool = False
    pids: tuple[int, ...] = ()


class GpuHealth(Observation, frozen=True, kw_only=True, tag="gpu_health"):
    """Error state of a GPU from `nvidia-smi -q`, remapped-row queries or a failed device handle."""

    pci: str | None
    index: int | None = None
    recovery_action: str | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    uncorrectable: int | None = None
    lost: bool = False
    text: str = ""


KernelKind = Literal[
    "xid", "sxid", "gpu_lost", "hung_task", "soft_lockup", "oom_kill", "nvme", "io_error", "nfs",
    "mlx5", "link_down", "link_up", "cable", "nic_health", "aer", "pcie_link_down", "mce", "segfault",
    "panic", "throttle", "other",
]  # fmt: skip


class KernelEvent(Observation, frozen=True, kw_only=True, tag="kernel_event"):
    """A kernel log line with a known meaning. `mono_s` is its time since boot, when that is what the log printed.

    `code` is the number of an Xid or SXid, `cause_code` the earlier Xid that the driver names as its cause. For an
    `oom_kill` in a memory cgroup `device` is the cgroup.
    """

    event: KernelKind
    text: str
    mono_s: float | None = None
    code: int | None = None
    pci: str | None = None
    device: str | None = None
    comm: str | None = None
    severity: Literal["info", "warning", "error", "fatal"] = "error"
    cause_code: int | None = None


class KernelLog(Observation, frozen=True, kw_only=True, tag="kernel_log"):
    """A kernel log was readable, with this many lines: makes "nothing in the kernel log" a fact, not blindness."""

    lines: int
    first_at_s: float | None = None
    last_at_s: float | None = None


class BootTime(Observation, frozen=True, kw_only=True, tag="boot_time"):
    """When the host booted (`uptime`, kernel log); aligns times since boot. `error_s` is half its resolution.

    `dated` False: the source printed a time of day only, and `boot_s` counts from midnight of that unknown day (it is
    negative when the host booted on an earlier day).
    """

    boot_s: float
    error_s: float
    dated: bool = True


class Scrape(Observation, frozen=True, kw_only=True, tag="scrape"):
    """A Prometheus text scrape: series `name{label="v"}` -> value, labels sorted; engine and store families only."""

    samples: Mapping[str, float]


class DeviceCounters(Observation, frozen=True, kw_only=True, tag="device_counters"):
    """Counters and states of a NIC, block device or cgroup at one instant, enumerated, not chosen."""

    device: str
    family: Literal["rdma", "netdev", "block", "cgroup", "memory", "vmstat", "other"]
    values: Mapping[str, float]
    states: Mapping[str, str] = {}


class Pressure(Observation, frozen=True, kw_only=True, tag="pressure"):
    """Pressure-stall information of the host or of a cgroup; percentages over 10 s and 60 s, total in microseconds."""

    resource: Literal["cpu", "memory", "io", "irq"]
    some_avg10: float | None = None
    some_avg60: float | None = None
    full_avg10: float | None = None
    full_avg60: float | None = None
    some_total_us: float | None = None


class Sockets(Observation, frozen=True, kw_only=True, tag="sockets"):
    """A socket table (`ss`): per pid, connections with unread bytes, and the accept backlog of its listeners."""

    unread_by_pid: Mapping[str, int] = {}
    backlog_by_pid: Mapping[str, int] = {}
    established: int = 0


class Environment(Observation, frozen=True, kw_only=True, tag="environment"):
    """Settings of a process: environment variables of the engine, NCCL, CUDA and torch families, and argv if known."""

    values: Mapping[str, str] = {}
    argv: tuple[str, ...] = ()


class NicGids(Observation, frozen=True, kw_only=True, tag="nic_gids"):
    """RoCE GID table of a host: device -> indices present, with their RoCE version."""

    gids: Mapping[str, tuple[int, ...]]


class StoreTelemetry(Observation, frozen=True, kw_only=True, tag="store_telemetry"):
    """The row store's telemetry page of one process: open lane, oldest read, lock holder, waiters, heartbeat."""

    mode: str
    heartbeat_age_s: float | None = None
    open_lane: int | None = None
    lane_age_s: float | None = None
    oldest_read_age_s: float | None = None
    lock_holder_tid: int | None = None
    waiters: int = 0
    values: Mapping[str, float] = {}

    @property
    def gather_s(self) -> float:
        """For how long a gather has been open; 0 when none is."""
        return 0.0 if self.open_lane is None else self.lane_age_s or 0.0


class Silence(Observation, frozen=True, kw_only=True, tag="silence"):
    """The agent's own clock: an engine with work outstanding was silent for `silence_s`, longer than the `limit_s` that
    its pace allows. Both are monotonic seconds, so no step of the wall clock is in them."""

    silence_s: float
    limit_s: float


class Unavailable(Observation, frozen=True, kw_only=True, tag="unavailable"):
    """A source that exists in principle could not be read; never evidence of health."""

    source: str
    reason: str


AnyObservation = (
    Decode | Prefill | EngineStats | Phase | Notice | HealthProbe
    | NcclComm | Enqueues | NcclNote | Ras | FlightTrace
    | Stack | GpuKernels | ThreadTable | ProcessTable | ProcessCounters | ProcessExit
    | GpuSample | GpuHealth | KernelEvent | KernelLog | BootTime | Scrape | DeviceCounters | Pressure
    | Sockets | Environment | NicGids | StoreTelemetry | Silence | Unavailable
)  # fmt: skip
