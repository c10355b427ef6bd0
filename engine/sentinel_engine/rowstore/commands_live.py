"""Commands that look at or steer a running store, or run the keeper."""

import argparse
import time
from pathlib import Path
from typing import Any

from . import control
from . import telemetry_layout as layout
from .commands_table import progress_bar
from .errors import BadTable, StoreRefused

Output = dict[str, Any]

HEARTBEAT_STALE_NS = 2_000_000_000


def process_state(pid: int, start_ticks: int) -> str:
    """`gone`, or the kernel's one-letter state of the process that wrote the page.

    A process identifier is used again, its start time is not.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return "gone"
    return fields[0] if int(fields[19]) == start_ticks else "gone"


def _liveness(header: layout.Record, now_ns: int) -> str:
    pid, ticks, beat = header["pid"], header["process_start_ticks"], header["heartbeat_ns"]
    assert isinstance(pid, int) and isinstance(ticks, int) and isinstance(beat, int)
    state = process_state(pid, ticks)
    if state == "gone":
        return "gone: this is a post-mortem page"
    if state in "Tt":
        return "stopped by a signal or a tracer"
    if now_ns - beat > HEARTBEAT_STALE_NS:
        return f"frozen: no heartbeat for {(now_ns - beat) / 1e9:.1f} s (process state {state})"
    return "alive"


def _name(names: tuple[str, ...], value: layout.Value) -> str:
    assert isinstance(value, int)
    return names[value] if value < len(names) else f"unknown({value})"


def _holders(page: bytes, now_ns: int) -> list[Output]:
    """Shards that threads wait for, or that are held: the lock holder of a legacy hang."""
    held = []
    for index in range(layout.SHARDS):
        shard = layout.read_record(page, "shard", index)
        acquired = shard["acquire_ns"]
        if shard["holder_tid"] and isinstance(acquired, int) and acquired:
            held.append({
                "shard": index,
                "holder_tid": shard["holder_tid"],
                "waiters": shard["waiters"],
                "held_ms": (now_ns - acquired) / 1e6,
            })
    return held


def _lanes(page: bytes, now_ns: int) -> list[Output]:
    lanes = []
    for index in range(layout.LANES):
        lane = layout.read_lane(page, index)
        since = lane.fields["state_ns"]
        if lane.is_open and isinstance(since, int):
            lanes.append({
                "lane": index,
                "state": lane.state,
                "torn": lane.torn,
                "tid": lane.fields["owner_tid"],
                "state_ms": (now_ns - since) / 1e6,
                "rows_done": lane.fields["rows_done"],
                "rows": lane.fields["rows"],
            })
    return lanes


def read_stat(page: bytes, now_ns: int) -> Output:
    """A page as an operator wants to see it; times are ages at `now_ns`."""
    layout.check_page(page)
    header = layout.read_record(page, "header")
    counters = layout.read_record(page, "counters")
    oldest = layout.oldest_read(page)
    output: Output = {
        "process": _liveness(header, now_ns),
        "pid": header["pid"],
        "rank": header["rank"],
        "mode": _name(layout.MODES, header["mode_current"]),
        "mode_target": _name(layout.MODES, header["mode_target"]),
        "mode_state": _name(layout.MODE_STATES, header["mode_state"]),
        "engine": _name(layout.ENGINES, header["engine"]),
        "health": _name(layout.HEALTHS, header["health"]),
        "circuit": _name(layout.CIRCUITS, header["circuit"]),
        "open_lanes": _lanes(page, now_ns),
        "held_shards": _holders(page, now_ns),
        "oldest_read": None,
    }
    if oldest is not None and isinstance(oldest["start_ns"], int):
        output["oldest_read"] = {
            "page": oldest["page"],
            "lane": oldest["lane"],
            "age_ms": (now_ns - oldest["start_ns"]) / 1e6,
        }
    return output | counters | layout.read_record(page, "gauges")


def stat(options: argparse.Namespace) -> tuple[Output, bool]:
    """Read a page; well means: alive, healthy, circuit closed."""
    try:
        output = read_stat(options.page.read_bytes(), time.monotonic_ns())
    except layout.NotATelemetryPage as error:
        raise BadTable(f"{options.page}: {error}") from error
    return output, output["process"] == "alive" and output["health"] == "ok"


def mode(options: argparse.Namespace) -> tuple[Output, bool]:
    """Ask for a switch and wait for its outcome."""
    answer = control.ask(options.control, f"mode {options.target}")
    if answer["status"] != "ok":
        raise StoreRefused(
            answer["status"], f"the switch was refused: {answer['status']}; try again when the "
            "running one has ended"
        )
    give_up = time.monotonic() + options.timeout_s
    with progress_bar(f"to {options.target}") as progress:
        while (answer := control.ask(options.control, "ticket"))["status"] == "pending":
            progress(answer["done_bytes"], max(1, answer["total_bytes"]))
            if time.monotonic() > give_up:
                raise StoreRefused("pending", f"not switched after {options.timeout_s} s")
            time.sleep(0.05)
    served = _name(layout.MODES, answer["mode"])
    return {"status": answer["status"], "mode": served, "reason": answer["reason"],
            "elapsed_ms": answer["elapsed_ns"] / 1e6}, served == options.target


def unblock(options: argparse.Namespace) -> tuple[Output, bool]:
    """Release a lane; collect the evidence (`rowstore stat`) first, it is gone afterwards."""
    answer = control.ask(options.control, f"release {options.lane}")
    return {"lane": options.lane, "status": answer["status"]}, answer["status"] == "ok"


def keeper(options: argparse.Namespace) -> tuple[Output, bool]:
    """Run the keeper in the foreground until SIGTERM."""
    from . import keeper as service

    service.run(
        options.socket, options.tables, threads=options.threads,
        reserve_bytes=options.reserve_bytes, report=lambda line: print(line, flush=True),
    )
    return {"keeper": "stopped"}, True
