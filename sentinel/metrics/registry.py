"""Every metric that Sentinel exposes: name, kind, labels with their closed sets of values, unit and meaning.

Names follow the Prometheus conventions: one prefix, base units, `_total` on counters, `_info` with the value 1, and
`_timestamp_seconds` for instants, so that ages are computed where they are asked for. A label either has a closed set
of values, to which unknown ones are mapped as `other`, or a bound on how many values it may have at once.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Literal, get_args

from sentinel.model.group import Verb
from sentinel.model.observation import KernelKind
from sentinel.model.verdict import CLASSES

Kind = Literal["counter", "gauge", "histogram", "info"]
OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """A label. `values` None: open, with at most `bound` values at once."""

    name: str
    values: tuple[str, ...] | None = None
    bound: int = 0

    def admit(self, value: str) -> str:
        """The value, or `other` when it is outside a closed set."""
        return value if self.values is None or value in self.values else OTHER


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric. `name` is what queries use; `unit` is a base unit or empty for plain numbers."""

    name: str
    kind: Kind
    help: str
    labels: tuple[Label, ...] = ()
    unit: Literal["", "seconds", "bytes", "ratio"] = ""
    buckets: tuple[float, ...] = ()

    @property
    def family(self) -> str:
        """The name without the suffix that its kind adds to samples."""
        suffix = {"counter": "_total", "info": "_info"}.get(self.kind, "")
        return self.name.removesuffix(suffix)

    @property
    def samples(self) -> tuple[str, ...]:
        """Names of the series that a query can ask for."""
        if self.kind == "histogram":
            return tuple(f"{self.name}{suffix}" for suffix in ("_bucket", "_count", "_sum"))
        return (self.name,)

    def closed_combinations(self) -> Iterator[tuple[str, ...]]:
        """All label values when every label is closed; nothing otherwise."""
        if all(label.values is not None for label in self.labels):
            yield from product(*(label.values or () for label in self.labels))


def closed(name: str, *values: str) -> Label:
    """A label with a closed set of values; `other` is always among them."""
    return Label(name=name, values=(*(value for value in values if value != OTHER), OTHER))


def exact(name: str, *values: str) -> Label:
    """A label whose values are an enumeration of our own code, so that nothing else can occur."""
    return Label(name=name, values=values)


FAST_S = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SLOW_S = (5.0, 10.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 180.0, 300.0, 600.0, 1800.0)

ENGINE = Label(name="engine", bound=64)
LOOP = exact("loop", "turn", "discovery", "coordinator")
AGENT_STATE = exact("state", "watching", "degraded", "blind")
SERVING = exact("state", "starting", "working", "idle", "paused", "closing", "unknown")
PHASE = exact("phase", "watching", "suspected", "capturing", "judged")
QUEUE = exact("queue", "running", "waiting")
PROC_STATE = exact("proc_state", "ok", "D", "T", "Z")
CAUSE = exact("cause", *CLASSES)
PROBE = closed(
    "probe", "log", "metrics", "loads", "processes", "settings", "nccl", "store", "pressure", "kernel", "gpu", "rdma",
    "block",
)  # fmt: skip
DUMP = closed("kind", "threads", "py-spy", "eu-stack", "pystack", "gdb", "ras", "processes")
DUMP_REASON = closed("reason", "timeout", "denied", "missing", "gone", "unwanted", "state")
CHECK = closed(
    "check", "py-spy", "pystack", "eu-stack", "gdb", "kernel log", "engine log", "metrics", "NCCL RAS", "stacks",
    "NCCL trace", "flight recorder",
)  # fmt: skip
PART = exact("part", "journal", "ring", "incidents", "bundle", "status", "metrics")
KERNEL = closed("class", *get_args(KernelKind))
XID = closed("xid", "13", "31", "32", "43", "45", "48", "61", "62", "63", "64", "68", "69", "74", "79", "92", "94",
             "95", "109", "119", "120", "121", "122", "136", "140", "143", "144", "145", "149", "154")  # fmt: skip
RESOURCE = exact("resource", "cpu", "memory", "io")
STORE_MODE = closed("mode", "none", "nvme", "ram", "legacy")
GROUP = Label(name="group", bound=64)
NODE = Label(name="node", bound=64)
GLOBAL = "_global"
"""What stands for all groups together where a group is named."""
NODE_STATE = exact("state", "healthy", "suspect", "unknown", "maintenance")
GROUP_STATE = exact("state", "calm", "suspected", "capturing", "reading", "judged", "acting", "proving", "halted")
SEVERITY = exact("severity", "info", "warning", "critical")
STEP = exact("phase", "fits", "capture", "ask", "stop", "start", "ready", "prove")
RESTART_REASON = closed("reason", "ordered", "hang", "crash", "fault")
VERB = exact("verb", *get_args(Verb))
FENCE = exact("reason", "host", "stale_epoch", "not_alive", "other_epoch", "late", "malformed", "incarnation")
GUARD = closed(
    "guard", "supervisor", "breaker", "maintenance", "concurrency", "blind", "budget", "cooldown", "store", "toggle",
    "paused", "policy", "approval", "disagreement", "starved", "jumped", "young", "long_phase", "hold", "verdict",
    "confidence", "remedy",
)  # fmt: skip


def _gauge(name: str, text: str, *labels: Label, unit: Literal["", "seconds", "bytes", "ratio"] = "") -> Metric:
    return Metric(name=name, kind="gauge", help=text, labels=labels, unit=unit)


def _counter(name: str, text: str, *labels: Label, unit: Literal["", "seconds", "bytes", "ratio"] = "") -> Metric:
    return Metric(name=name, kind="counter", help=text, labels=labels, unit=unit)


def _seconds(name: str, text: str, buckets: tuple[float, ...], *labels: Label) -> Metric:
    return Metric(name=name, kind="histogram", help=text, labels=labels, unit="seconds", buckets=buckets)


ITSELF: tuple[Metric, ...] = (
    Metric(
        name="sentinel_build_info", kind="info", help="What runs.",
        labels=(Label(name="version", bound=1), Label(name="python", bound=1)),
    ),
    _gauge("sentinel_agent_state", "1 for the state that the agent is in: it sees everything it should (watching), "
           "something of it failed (degraded), or an engine runs whose progress nothing tells (blind).", AGENT_STATE),
    _gauge("sentinel_agent_start_timestamp_seconds", "When the agent began to watch.", unit="seconds"),
    _gauge("sentinel_snapshot_timestamp_seconds", "When these values were taken; a scrape takes none.", unit="seconds"),
    _gauge("sentinel_loop_last_tick_timestamp_seconds", "When a loop of the agent last turned.", LOOP, unit="seconds"),
    _seconds("sentinel_loop_lag_seconds", "How much later than planned a turn of the main loop began.", FAST_S),
    _seconds("sentinel_loop_turn_duration_seconds", "How long a turn of the main loop took.", FAST_S),
    _gauge("sentinel_trouble", "1 while a part of the agent cannot do its work, see `sentinel status`.", PART),
    _gauge("sentinel_evidence_missing", "Evidence that could not be had if an engine hung now, by check.", CHECK),
    _counter("sentinel_observations_shed_total", "Observations dropped because a source said too many at once."),
    _counter("process_cpu_seconds_total", "CPU time of the agent, its children included.", unit="seconds"),
    _gauge("process_resident_memory_bytes", "Resident memory of the agent.", unit="bytes"),
    _gauge("process_start_time_seconds", "When the agent's process started.", unit="seconds"),
    _gauge("process_open_fds", "Open files of the agent."),
    _gauge("process_max_fds", "Most files that the agent may open."),
)  # fmt: skip

ENGINES: tuple[Metric, ...] = (
    Metric(
        name="sentinel_engine_info", kind="info", help="An engine under watch; `key` names this incarnation.",
        labels=(ENGINE, Label(name="adapter", values=("sglang", "vllm", "packaged")), Label(name="key", bound=64)),
    ),
    _gauge("sentinel_engine_state", "1 for what the engine does.", ENGINE, SERVING),
    _gauge("sentinel_engine_phase", "1 for where the agent stands with the engine.", ENGINE, PHASE),
    _gauge("sentinel_engine_ranks", "Ranks of the engine on this host.", ENGINE),
    _gauge("sentinel_engine_start_timestamp_seconds", "When the engine's first process started.", ENGINE,
           unit="seconds"),
    _gauge("sentinel_engine_last_progress_timestamp_seconds", "Newest sign of progress, from whatever shows it.",
           ENGINE, unit="seconds"),
    _gauge("sentinel_engine_silence_limit_seconds", "How long the engine may be silent now before it is suspected.",
           ENGINE, unit="seconds"),
    _gauge("sentinel_engine_kill_deadline_seconds", "Silence after which the engine ends itself, at the earliest.",
           ENGINE, unit="seconds"),
    _gauge("sentinel_engine_outstanding_requests", "Requests as the engine last told.", ENGINE, QUEUE),
    _gauge("sentinel_engine_processes", "Processes of the engine by state; ok is running or sleeping.", ENGINE,
           PROC_STATE),
    _gauge("sentinel_stall_active", "1 while a verdict says that the engine is stalled; 0 with the cause none else.",
           ENGINE, CAUSE),
    _gauge("sentinel_store_mode", "Processes of the engine whose row store is in this mode.", ENGINE, STORE_MODE),
    _gauge("sentinel_store_oldest_read_seconds", "Age of the oldest read in flight of the engine's row stores.", ENGINE,
           unit="seconds"),
)  # fmt: skip

WORK: tuple[Metric, ...] = (
    _counter("sentinel_suspicions_total", "Times that progress was overdue with work outstanding."),
    _counter("sentinel_near_misses_total", "Suspicions that ended because progress came back before a capture."),
    _counter("sentinel_stalls_total", "Incidents with a verdict of a stall, by the first cause.", CAUSE),
    _counter("sentinel_recoveries_total", "Incidents that are over."),
    _seconds("sentinel_detection_delay_seconds", "From the last progress to the first verdict of an incident.", SLOW_S),
    _seconds("sentinel_incident_duration_seconds", "From the last progress to the end of an incident.", SLOW_S),
    _counter("sentinel_dumps_total", "Attempts to take evidence of a process.", DUMP),
    _counter("sentinel_dump_failures_total", "Attempts that brought nothing.", DUMP, DUMP_REASON),
    _seconds("sentinel_dump_duration_seconds", "How long an attempt took.", FAST_S, DUMP),
    _counter("sentinel_target_left_stopped_total", "Processes that a stack tool left stopped; they were continued."),
    _counter("sentinel_bundles_total", "Incidents whose evidence is on disk."),
    _counter("sentinel_bundle_failures_total", "Incidents whose evidence could not be kept."),
    _gauge("sentinel_bundle_store_bytes", "Size of all kept incidents.", unit="bytes"),
    _gauge("sentinel_bundle_store_limit_bytes", "Most that the kept incidents may take.", unit="bytes"),
    _counter("sentinel_probes_total", "Times that a source was asked.", PROBE),
    _counter("sentinel_probe_failures_total", "Times that a source failed when it was asked.", PROBE),
    _counter("sentinel_probe_seconds_total", "Time that the main loop spent on a source.", PROBE, unit="seconds"),
    _counter("sentinel_probe_observations_total", "What a source said.", PROBE),
    _gauge("sentinel_probe_last_success_timestamp_seconds", "When a source last answered.", PROBE, unit="seconds"),
    _gauge("sentinel_probe_quarantined", "Sources that are not asked for a while because they failed.", PROBE),
    _counter("sentinel_log_lost_bytes_total", "Bytes of logs that were gone before they could be read.", PROBE,
             unit="bytes"),
    _counter("sentinel_kmsg_events_total", "Lines of the kernel log with a known meaning.", KERNEL),
    _counter("sentinel_xid_events_total", "Errors that the NVIDIA driver reported.", XID),
    _gauge("sentinel_psi_full_ratio", "Share of time in which all tasks of the host waited, 10 s average.", RESOURCE,
           unit="ratio"),
)  # fmt: skip

LEAD: tuple[Metric, ...] = (
    _gauge("sentinel_coordinator_leader", "1 while this process coordinates; 0 while it stands by or cannot."),
    _gauge("sentinel_coordinator_epoch", "Epoch of the lease as this process last read it."),
    _gauge("sentinel_coordinator_lease_last_renew_timestamp_seconds", "When this process last wrote the lease.",
           unit="seconds"),
    _counter("sentinel_coordinator_transitions_total", "Times that this process began or ceased to coordinate."),
    _counter("sentinel_coordinator_lease_renew_failures_total",
             "Times that the holder of the lease could not read or write it."),
    _counter("sentinel_notifications_total", "Notices that reached a configured place."),
    _counter("sentinel_notification_failures_total", "Notices that were given up after all tries."),
)  # fmt: skip

HAND: tuple[Metric, ...] = (
    _gauge("sentinel_fencing_epoch", "Highest epoch that this host ever obeyed."),
    _counter("sentinel_commands_received_total", "Commands that this host saw for the first time.", VERB),
    _counter("sentinel_commands_rejected_total", "Commands that this host did not obey, by what stood against it.",
             FENCE),
)  # fmt: skip

GROUPS: tuple[Metric, ...] = (
    _gauge("sentinel_nodes", "Hosts of all groups, by how well they are heard.", NODE_STATE),
    _gauge("sentinel_node_last_heartbeat_timestamp_seconds", "When a host was last heard.", NODE, unit="seconds"),
    _gauge("sentinel_groups", "Groups by where they stand.", GROUP_STATE),
    _gauge("sentinel_group_store_modes", "Different row-store modes that the hosts of a group report.", GROUP),
    _gauge("sentinel_paused", "1 while a pause forbids acting."),
    _gauge("sentinel_restart_breaker_open", "1 while a breaker forbids acting on a group; _global stands for all.",
           GROUP),
    _gauge("sentinel_restart_budget_remaining", "Restarts of a group that may still be begun in the window.", GROUP),
    _gauge("sentinel_incidents_open", "Groups with an open incident; info until it is judged.", SEVERITY),
    _counter("sentinel_incidents_total", "Incidents of groups that were judged, by the first verdict.", CAUSE,
             SEVERITY),
    _seconds("sentinel_group_incident_duration_seconds", "From the suspicion to the end of a judged incident.", SLOW_S),
    _counter("sentinel_classifications_total", "Verdicts about groups.", CAUSE,
             exact("confidence", "low", "medium", "high")),
    _counter("sentinel_verdict_feedback_total", "What people said about verdicts.",
             exact("verdict", "confirmed", "false_alarm")),
    _counter("sentinel_restarts_total", "Restarts whose every step was acknowledged, by kind of cause.", GROUP,
             RESTART_REASON),
    _seconds("sentinel_restart_phase_duration_seconds",
             "How long a host took for a step of a restart; stop includes its proof, prove is the wait for progress.",
             SLOW_S, STEP),
    _counter("sentinel_actions_suppressed_total", "Times that a guard newly stood against acting on a judged incident.",
             GUARD),
)  # fmt: skip

AGENT: tuple[Metric, ...] = (*ITSELF, *ENGINES, *WORK)
COORDINATOR: tuple[Metric, ...] = (*LEAD, *HAND, *GROUPS)
BY_NAME = {metric.name: metric for metric in (*AGENT, *COORDINATOR)}
assert len(BY_NAME) == len(AGENT) + len(COORDINATOR), "a metric is declared twice"
