"""The row store's telemetry page: 64 KiB that its process maps and anybody may read, also when the process hangs.

Format: layout version 1, little-endian, offsets below. Times are nanoseconds of CLOCK_MONOTONIC of the writing host.
A lane that is being written has an odd sequence number; one that stays odd belongs to a writer that was stopped in the
middle of an update, and its values are used as they are.
"""

import struct
from collections.abc import Iterator

from sentinel.collector import Blob, Context, DocumentParser, Sample
from sentinel.model.observation import Observation, Origin, StoreTelemetry

PAGE_BYTES = 65536
MAGIC = b"RWSTELE1"
VERSION = 1

_HEADER = struct.Struct("<8s6I6Q7I")
"""magic, version, bytes, pid, rank, world, clock; start ticks, boot, host, created, heartbeat, beats; modes, states."""
_GAUGES = struct.Struct("<8Q")
_LANE = struct.Struct("<2I2BHI7Q")
_SHARD = struct.Struct("<2I2Q")
_READ = struct.Struct("<2Q")
_COUNTERS = struct.Struct("<15Q")
_COUNTERS_AT, _GAUGES_AT, _LANES_AT, _SHARDS_AT, _READS_AT = 0x0100, 0x0300, 0x0400, 0x0C00, 0x4C00
_LANES, _LANE_BYTES, _SHARDS, _SHARD_BYTES, _READS, _READ_BYTES = 16, 128, 256, 64, 256, 32
_READ_STATE_AT = 24
_MODES = ("none", "nvme", "ram", "legacy")
_NAMES = (
    "gathers", "rows", "unique_rows", "hits", "misses", "reads_issued", "reads_completed", "read_bytes",
    "hedges_issued", "hedges_won", "soft_deadlines", "warn_deadlines", "hard_deadlines", "degraded_rows",
    "crc_failures",
)  # fmt: skip


def owner_of(page: bytes) -> tuple[int, int] | None:
    """(pid, start ticks) of the process that writes this page; None when it is none of a layout we know."""
    if len(page) < PAGE_BYTES or not page.startswith(MAGIC):
        return None
    header = _HEADER.unpack_from(page)
    return (header[3], header[7]) if header[1] == VERSION and header[2] == PAGE_BYTES else None


def telemetry(page: bytes, origin: Origin, now_ns: int | None = None) -> StoreTelemetry | None:
    """What a page shows at `now_ns` of its host's CLOCK_MONOTONIC; None takes the newest heartbeat for now.

    None for bytes that are no page. Ages are those of the oldest lane that is inside a gather and of the oldest read.
    """
    owner = owner_of(page)
    if owner is None:
        return None
    header = _HEADER.unpack_from(page)
    rank, heartbeat_ns, mode = header[4], header[11], header[13]
    at_ns = heartbeat_ns if now_ns is None else now_ns
    lane, lane_ns = _oldest_lane(page)
    shards = [_SHARD.unpack_from(page, _SHARDS_AT + n * _SHARD_BYTES) for n in range(_SHARDS)]
    # A legacy lock is held across a read, so its holder counts; elsewhere a shard is only busy while somebody waits.
    legacy = mode == _MODES.index("legacy")
    holders = sorted((shard[2], shard[0]) for shard in shards if shard[0] and (shard[1] or legacy))
    gauges = _GAUGES.unpack_from(page, _GAUGES_AT)
    read_ns = _oldest_read(page)
    return StoreTelemetry(
        origin=origin,
        pid=owner[0],
        rank=rank,
        mode=_MODES[mode] if mode < len(_MODES) else f"unknown({mode})",
        heartbeat_age_s=_age_s(heartbeat_ns, at_ns),
        open_lane=lane,
        lane_age_s=_age_s(lane_ns, at_ns),
        oldest_read_age_s=_age_s(read_ns, at_ns),
        lock_holder_tid=holders[0][1] if holders else None,
        waiters=max(gauges[7], sum(shard[1] for shard in shards)),
        values={
            **dict(zip(_NAMES, map(float, _COUNTERS.unpack_from(page, _COUNTERS_AT)), strict=True)),
            "inflight_reads": float(gauges[0]),
            "ring_backlog": float(gauges[2]),
        },
    )


def _oldest_lane(page: bytes) -> tuple[int | None, int]:
    """(index, when it was entered) of the lane that has been inside a gather for longest."""
    found: tuple[int | None, int] = (None, 0)
    for index in range(_LANES):
        lane = _LANE.unpack_from(page, _LANES_AT + index * _LANE_BYTES)
        entered, left, enter_ns = lane[8], lane[9], lane[11]
        if entered > left and enter_ns and (found[0] is None or enter_ns < found[1]):
            found = (index, enter_ns)
    return found


def _oldest_read(page: bytes) -> int:
    """When the oldest read in flight began, from the table itself: the gauge is as old as its owner's last turn."""
    begun = [
        start_ns
        for at in range(_READS_AT, _READS_AT + _READS * _READ_BYTES, _READ_BYTES)
        if page[at + _READ_STATE_AT] and (start_ns := _READ.unpack_from(page, at)[1])
    ]
    return min(begun, default=0)


def _age_s(since_ns: int, now_ns: int) -> float | None:
    return max(0.0, (now_ns - since_ns) / 1e9) if since_ns else None


def _recognise(sample: Sample) -> bool:
    return sample.head.startswith(MAGIC.decode())


def _parse(blob: Blob, context: Context) -> Iterator[Observation]:
    data = bytearray()
    for chunk in blob.chunks():
        data += chunk
        if len(data) >= PAGE_BYTES:
            break
    seen = telemetry(bytes(data[:PAGE_BYTES]), Origin(context.name))
    if seen is not None:
        yield seen


PARSER = DocumentParser(name="rowstore_page", recognise=_recognise, parse=_parse)
