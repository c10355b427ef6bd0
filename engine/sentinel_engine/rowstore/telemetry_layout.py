"""Layout of the row store's telemetry page, and a reader for it that needs nothing else.

One 64 KiB page per rank, little-endian, written by the store and readable while its process
hangs, is stopped, or is gone. This table is the only description: the C header is generated
from it (`python telemetry_layout.py --c-header`), so both sides agree by construction. The
file imports only the standard library and may be copied into a program that reads pages.

All times are nanoseconds of CLOCK_MONOTONIC of the writing host.
"""

import struct
import sys
import time
from dataclasses import dataclass
from pathlib import Path

PAGE_BYTES = 65536
MAGIC = 0x31454C4554535752  # "RWSTELE1" read as a little-endian u64
VERSION = 1
LANES, SHARDS, INFLIGHT, HISTOGRAMS, BUCKETS, EVENTS = 16, 256, 256, 8, 64, 256

HEADER_AT, COUNTERS_AT, GAUGES_AT, LANES_AT = 0x0000, 0x0100, 0x0300, 0x0400
SHARDS_AT, INFLIGHT_AT, HISTOGRAMS_AT, EVENTS_AT = 0x0C00, 0x4C00, 0x6C00, 0x7C00
RESERVED_AT = 0x9C00

Field = tuple[str, str, int]  # name, struct code (Q I H B), element count; 1 = scalar

HEADER: tuple[Field, ...] = (
    ("magic", "Q", 1), ("layout_version", "I", 1), ("total_bytes", "I", 1),
    ("pid", "I", 1), ("rank", "I", 1), ("world", "I", 1), ("clock", "I", 1),
    ("process_start_ticks", "Q", 1), ("boot_id_hash", "Q", 1), ("host_id", "Q", 1),
    ("created_ns", "Q", 1), ("heartbeat_ns", "Q", 1), ("heartbeat_seq", "Q", 1),
    ("mode_current", "I", 1), ("mode_target", "I", 1), ("mode_state", "I", 1),
    ("handoff", "I", 1), ("engine", "I", 1), ("health", "I", 1), ("circuit", "I", 1),
    ("cache_policy", "I", 1),
)
COUNTERS: tuple[Field, ...] = (
    ("gathers", "Q", 1), ("rows", "Q", 1), ("unique_rows", "Q", 1), ("hits", "Q", 1),
    ("misses", "Q", 1), ("reads_issued", "Q", 1), ("reads_completed", "Q", 1),
    ("read_bytes", "Q", 1), ("hedges_issued", "Q", 1), ("hedges_won", "Q", 1),
    ("soft_deadlines", "Q", 1), ("warn_deadlines", "Q", 1), ("hard_deadlines", "Q", 1),
    ("degraded_rows", "Q", 1), ("crc_failures", "Q", 1), ("errors", "Q", 8),
    ("evictions", "Q", 1), ("ghost_hits", "Q", 1), ("prefetch_issued", "Q", 1),
    ("prefetch_useful", "Q", 1), ("prefetch_late", "Q", 1), ("seqlock_retries", "Q", 1),
    ("mode_switches", "Q", 1), ("prefetch_dropped", "Q", 1), ("insert_skips", "Q", 1),
    ("releases", "Q", 1), ("events_total", "Q", 1),
)
GAUGES: tuple[Field, ...] = (
    ("inflight_reads", "Q", 1), ("inflight_limit", "Q", 1), ("ring_backlog", "Q", 1),
    ("quarantined_slots", "Q", 1), ("oldest_read_start_ns", "Q", 1),
    ("oldest_read_page", "Q", 1), ("oldest_read_lane", "Q", 1), ("waiters", "Q", 1),
    ("cache_rows_used", "Q", 1), ("resident_bytes", "Q", 1), ("prefault_done_bytes", "Q", 1),
    ("prefault_total_bytes", "Q", 1), ("prefault_bytes_per_s", "Q", 1),
    ("prefault_errors", "Q", 1), ("owner_heartbeat_ns", "Q", 4),
)
LANE: tuple[Field, ...] = (
    ("seq", "I", 1), ("owner_tid", "I", 1), ("state", "B", 1), ("layer", "B", 1),
    ("flags", "H", 1), ("reserved0", "I", 1), ("enq", "Q", 1), ("gpu_pre", "Q", 1),
    ("enter", "Q", 1), ("exit", "Q", 1), ("gpu_post", "Q", 1), ("enter_ns", "Q", 1),
    ("state_ns", "Q", 1), ("rows", "I", 1), ("rows_done", "I", 1), ("misses", "I", 1),
    ("pending", "I", 1), ("deadline_ns", "Q", 1), ("request_tag", "Q", 1),
    ("last_error", "I", 1), ("stuck_spells", "I", 1), ("reserved1", "Q", 2),
)
SHARD: tuple[Field, ...] = (
    ("holder_tid", "I", 1), ("waiters", "I", 1), ("acquire_ns", "Q", 1),
    ("max_hold_ns", "Q", 1), ("contended", "Q", 1), ("acquisitions", "Q", 1),
    ("reserved", "Q", 3),
)
INFLIGHT_READ: tuple[Field, ...] = (
    ("page", "Q", 1), ("start_ns", "Q", 1), ("lane", "I", 1), ("tries", "H", 1),
    ("source", "H", 1), ("state", "I", 1), ("reserved", "I", 1),
)
EVENT: tuple[Field, ...] = (
    ("ns", "Q", 1), ("code", "I", 1), ("lane", "I", 1), ("arg0", "Q", 1), ("arg1", "Q", 1),
)

# name, offset of the first record, record fields, bytes a record is padded to, record count
BLOCKS: tuple[tuple[str, int, tuple[Field, ...], int, int], ...] = (
    ("header", HEADER_AT, HEADER, 256, 1),
    ("counters", COUNTERS_AT, COUNTERS, 512, 1),
    ("gauges", GAUGES_AT, GAUGES, 256, 1),
    ("lane", LANES_AT, LANE, 128, LANES),
    ("shard", SHARDS_AT, SHARD, 64, SHARDS),
    ("inflight", INFLIGHT_AT, INFLIGHT_READ, 32, INFLIGHT),
    ("histogram", HISTOGRAMS_AT, (("bucket", "Q", BUCKETS),), 512, HISTOGRAMS),
    ("event", EVENTS_AT, EVENT, 32, EVENTS),
)

LANE_STATES = (
    "idle", "enter", "check", "probe", "submit", "wait_io", "wait_lock", "pool_wait", "copy",
    "release", "exit", "failed",
)
MODES = ("none", "nvme", "ram", "legacy")
MODE_STATES = ("steady", "checking", "filling", "switching", "draining", "failed")
ENGINES = ("none", "uring", "aio", "pool", "inline")
HEALTHS = ("ok", "slow", "failing", "closed")
HANDOFFS = ("none", "hostfn", "memop", "prestage", "uva")
CIRCUITS = ("closed", "open")
POLICIES = ("none", "s3", "clk3", "direct")
INFLIGHT_STATES = ("free", "reading", "hedge", "abandoned")
ERROR_CLASSES = (
    "io", "short_read", "corrupt", "bad_id", "deadline", "circuit_open", "released", "other",
)
HISTOGRAM_NAMES = (
    "device_read", "gather_decode", "gather_prefill", "callback_dispatch", "lane_wait", "copy",
    "hint_to_use", "lock_wait",
)
EVENT_CODES = (
    "none", "opened", "io_chosen", "mode_switch", "mode_failed", "warn", "hard_deadline", "hedge",
    "circuit_open", "circuit_closed", "released", "read_error", "corrupt", "owner_stuck", "closed",
)
NAMES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("LANE", LANE_STATES), ("MODE", MODES), ("MODE_STATE", MODE_STATES), ("ENGINE", ENGINES),
    ("HEALTH", HEALTHS), ("HANDOFF", HANDOFFS), ("CIRCUIT", CIRCUITS), ("POLICY", POLICIES),
    ("INFLIGHT", INFLIGHT_STATES), ("ERROR", ERROR_CLASSES), ("HISTOGRAM", HISTOGRAM_NAMES),
    ("EVENT", EVENT_CODES),
)

SEQLOCK_TRIES = 8
SEQLOCK_BUDGET_NS = 1_000_000
HISTOGRAM_FLOOR_NS = 100

Value = int | tuple[int, ...]
Record = dict[str, Value]


class NotATelemetryPage(ValueError):
    """The bytes are not a telemetry page of this layout version."""


@dataclass(frozen=True, slots=True)
class LaneRecord:
    """One lane; `torn` means that a writer stopped in the middle of an update (see `seq`)."""

    index: int
    state: str
    torn: bool
    fields: Record

    @property
    def is_open(self) -> bool:
        """Whether a gather has entered this lane and not left it."""
        return self.fields["enter"] > self.fields["exit"]  # type: ignore[operator]


def _format(fields: tuple[Field, ...]) -> struct.Struct:
    return struct.Struct("<" + "".join(f"{count}{code}" for _, code, count in fields))


_FORMATS = {name: _format(fields) for name, _, fields, _, _ in BLOCKS}
_SIZES = {"Q": 8, "I": 4, "H": 2, "B": 1}


def offset_of(block: str, field: str) -> int:
    """Byte offset of `field` inside a record of `block`."""
    _, _, fields, _, _ = next(row for row in BLOCKS if row[0] == block)
    position = 0
    for name, code, count in fields:
        if name == field:
            return position
        position += _SIZES[code] * count
    raise KeyError(f"{block} has no field {field}")


def read_record(page: bytes | memoryview, block: str, index: int = 0) -> Record:
    """Decode one record; single u64 values are atomic, so counters need no protocol."""
    _, start, fields, stride, count = next(row for row in BLOCKS if row[0] == block)
    if not 0 <= index < count:
        raise IndexError(f"{block} {index} is outside 0..{count - 1}")
    values = _FORMATS[block].unpack_from(page, start + index * stride)
    record: Record = {}
    position = 0
    for name, _, elements in fields:
        part = values[position : position + elements]
        record[name] = part if elements > 1 else part[0]
        position += elements
    return record


def check_page(page: bytes | memoryview) -> None:
    """Raise NotATelemetryPage unless magic, version and size are those of this table."""
    if len(page) < PAGE_BYTES:
        raise NotATelemetryPage(f"{len(page)} bytes, a telemetry page has {PAGE_BYTES}")
    magic, version, total = struct.unpack_from("<QII", page, 0)
    if magic != MAGIC:
        raise NotATelemetryPage(f"magic is {magic:#018x}, expected {MAGIC:#018x}")
    if version != VERSION or total != PAGE_BYTES:
        raise NotATelemetryPage(
            f"layout version {version} of {total} bytes; this reader knows version {VERSION}: "
            "use the reader that was installed with the store"
        )


def read_lane(page: bytes | memoryview, index: int) -> LaneRecord:
    """Read one lane under its seqlock: at most 8 tries over 1 ms, then the torn values."""
    give_up_ns = time.monotonic_ns() + SEQLOCK_BUDGET_NS
    for _ in range(SEQLOCK_TRIES):
        before = read_record(page, "lane", index)["seq"]
        record = read_record(page, "lane", index)
        after = read_record(page, "lane", index)["seq"]
        torn = before != after or int(str(before)) % 2 == 1
        if not torn or time.monotonic_ns() > give_up_ns:
            break
    state = record["state"]
    assert isinstance(state, int)
    name = LANE_STATES[state] if state < len(LANE_STATES) else f"unknown({state})"
    return LaneRecord(index=index, state=name, torn=torn, fields=record)


def oldest_read(page: bytes | memoryview) -> Record | None:
    """The in-flight read that started first, or None; computed from the table, so it is right
    even when the process was stopped before its own gauge was refreshed."""
    oldest: Record | None = None
    for index in range(INFLIGHT):
        record = read_record(page, "inflight", index)
        if record["state"] == 0 or record["start_ns"] == 0:
            continue
        if oldest is None or record["start_ns"] < oldest["start_ns"]:  # type: ignore[operator]
            oldest = record
    return oldest


def recent_events(page: bytes | memoryview) -> list[Record]:
    """Events still in the ring, oldest first."""
    events = [read_record(page, "event", index) for index in range(EVENTS)]
    return sorted((event for event in events if event["ns"]), key=lambda event: event["ns"])


def bucket_floor_ns(bucket: int) -> float:
    """Lower edge of a histogram bucket: powers of two from 100 ns, each split in two."""
    octave, half = divmod(bucket, 2)
    return HISTOGRAM_FLOOR_NS * (1 << octave) * (1.5 if half else 1.0)


def c_header() -> str:
    """The C view of the table, with a static assertion per field."""
    widths = {"Q": "uint64_t", "I": "uint32_t", "H": "uint16_t", "B": "uint8_t"}
    lines = [
        "// Generated by telemetry_layout.py --c-header; edit the table there, not this file.",
        "#pragma once", "#include <cstddef>", "#include <cstdint>", "",
        "namespace rs::layout {", "",
        f"constexpr uint64_t kMagic = {MAGIC:#x};", f"constexpr uint32_t kVersion = {VERSION};",
        f"constexpr uint32_t kPageBytes = {PAGE_BYTES};", "",
    ]
    for block, _, fields, stride, _ in BLOCKS:
        name = block.capitalize()
        lines.append(f"struct {name} {{")
        for field, code, count in fields:
            lines.append(f"  {widths[code]} {field}{f'[{count}]' if count > 1 else ''};")
        used = _FORMATS[block].size
        if stride > used:
            lines.append(f"  uint8_t unused[{stride - used}];")
        lines.append("};")
        lines.append(f"static_assert(sizeof({name}) == {stride});")
        for field, _, _ in fields:
            at = offset_of(block, field)
            lines.append(f"static_assert(offsetof({name}, {field}) == {at});")
        lines.append("")
    lines += ["struct Page {"]
    for block, _, _, _, count in BLOCKS:
        lines.append(f"  {block.capitalize()} {block}{f'[{count}]' if count > 1 else ''};")
    lines += [f"  uint8_t reserved[{PAGE_BYTES - RESERVED_AT}];", "};"]
    lines.append("static_assert(sizeof(Page) == kPageBytes);")
    for block, start, _, _, _ in BLOCKS:
        lines.append(f"static_assert(offsetof(Page, {block}) == {start:#x});")
    lines.append("")
    for prefix, names in NAMES:
        for value, name in enumerate(names):
            lines.append(f"constexpr uint32_t {prefix}_{name.upper()} = {value};")
        lines.append("")
    lines += ["}  // namespace rs::layout", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    if sys.argv[1:] == ["--c-header"]:
        print(c_header(), end="")
    elif len(sys.argv) == 2:
        content = Path(sys.argv[1]).read_bytes()
        check_page(content)
        print(read_record(content, "header"))
    else:
        sys.exit("usage: telemetry_layout.py --c-header | PAGE")
