"""Words of the contract in the language of a person on call, and times and rank sets as they are read."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from sentinel.model.verdict import Action, Verdict

TITLES: Mapping[str, str] = {
    "none": "The engine works",
    "quiet.idle": "Idle: nothing to do, silence is normal",
    "quiet.paused": "Paused on purpose, never resumed",
    "busy.boot": "Still starting",
    "busy.graph_capture": "Capturing CUDA graphs",
    "busy.jit": "Compiling kernels",
    "busy.prefill": "One long prefill",
    "hang.host_callback": "A GPU stream waits for a host callback",
    "hang.storage": "Blocked in file I/O",
    "hang.python": "The interpreter of a rank is blocked",
    "hang.stopped": "A process is stopped or traced",
    "hang.memory": "The host reclaims memory without end",
    "hang.rank_divergence": "Ranks disagree on which collective comes next",
    "hang.collective_stuck": "All ranks wait in the same collective",
    "hang.network": "The transport under a collective failed",
    "hang.device_spin": "A GPU kernel never finishes",
    "hang.comm_init": "Communicators never came up",
    "hang.scheduler": "The control plane is stuck, GPUs idle",
    "hang.kv_pool": "Nothing is admitted for want of KV cache",
    "hang.kv_transfer": "KV transfers never complete",
    "hang.grammar": "A grammar compile blocks the scheduler",
    "hang.frontend": "The front end is stuck, the engine is fine",
    "crash.oom": "A rank was killed for want of memory",
    "crash.rank_exit": "A rank is gone",
    "fault.gpu": "GPU or driver fault",
    "fault.nic": "NIC or link fault",
    "slow.straggler": "Slow: one rank or device lags",
    "slow.recovered": "It froze and recovered by itself",
    "unknown": "The evidence does not decide",
}

DEEDS: Mapping[str, str] = {
    "none": "Nothing to do",
    "wait": "Wait",
    "capture_more": "Capture more evidence",
    "unblock_lane": "Unblock the row-store lane",
    "resume": "Resume the engine",
    "continue_process": "Continue the stopped process",
    "abort_request": "Abort the request",
    "restart_engine": "Restart the engine, all ranks",
    "restart_frontend": "Restart the front end only",
    "rowstore_mode": "Switch the row store",
    "drain_node": "Drain the node",
    "page_human": "Call a person",
    "change_setting": "Change a setting",
}

UNITS: tuple[tuple[float, str], ...] = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))


def title_of(kind: str) -> str:
    """A short human name of a verdict class; the class itself for one that this version does not know."""
    return TITLES.get(kind, kind)


def deed(action: Action) -> str:
    """What to do, in words, with the target of a mode switch or setting.

    >>> deed(Action(action="rowstore_mode", to="ram"))
    'Switch the row store to ram'
    """
    words = DEEDS[action.action]
    return (
        f"{words} to {action.to}"
        if action.to and action.action == "rowstore_mode"
        else (f"{words}: {action.to}" if action.to else words)
    )


def state_of(verdict: Verdict) -> str:
    """The headline: whether anything is stalled."""
    if verdict.stalled is None:
        return "CANNOT TELL"
    return "STALLED" if verdict.stalled else "NOT STALLED"


def span(numbers: Iterable[int]) -> str:
    """A set of ranks or pids in the shortest exact form.

    >>> span([0, 1, 2, 5, 7, 8])
    '0-2, 5, 7, 8'
    """
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)


def many(noun: str, numbers: Iterable[int]) -> str:
    """`rank 3` or `ranks 0-2`; the empty string for nobody."""
    members = sorted(set(numbers))
    if not members:
        return ""
    return f"{noun}{'s' if len(members) > 1 else ''} {span(members)}"


def clock(at_s: float, *, fraction: bool = False) -> str:
    """Time of day of a local-wall timestamp.

    >>> clock(0.25, fraction=True)
    '00:00:00.250'
    """
    moment = datetime.fromtimestamp(at_s, UTC)
    return moment.strftime("%H:%M:%S") + (f".{moment.microsecond // 1000:03d}" if fraction else "")


def day(at_s: float) -> str:
    """Calendar day of a local-wall timestamp."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d")


def lasting(seconds: float) -> str:
    """A duration with two significant parts of precision.

    >>> lasting(95), lasting(4), lasting(7300)
    ('1.6 min', '4 s', '2.0 h')
    """
    for size, unit in UNITS:
        if abs(seconds) >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s" if abs(seconds) < 3 else f"{seconds:.0f} s"


def culprit_line(verdict: Verdict) -> str:
    """Everybody whom the verdict accuses, on one line; the empty string when nobody can be named."""
    who = verdict.culprits
    parts = [
        many("rank", who.ranks),
        f"host{'s' if len(who.hosts) > 1 else ''} {', '.join(who.hosts)}" if who.hosts else "",
        many("pid", who.pids),
        f"request{'s' if len(who.requests) > 1 else ''} {', '.join(who.requests)}" if who.requests else "",
    ]
    return " · ".join(part for part in parts if part)


def moment(t0: str) -> str:
    """`2026-11-29T17:30:34Z` as a person reads it."""
    return t0.replace("T", " ").removesuffix("Z")
