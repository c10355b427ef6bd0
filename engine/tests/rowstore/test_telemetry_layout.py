"""The page that the sentinel reads must lie exactly where both sides think it lies."""

import subprocess
import sys
from pathlib import Path

import pytest
from tables import LAYER, some_ids

from sentinel_engine.rowstore import Store
from sentinel_engine.rowstore import telemetry_layout as layout

HEADER = Path(__file__).parents[2] / "rowstore" / "telemetry_layout.h"


def test_blocks_lie_at_the_published_offsets() -> None:
    blocks = {name: (start, stride * count) for name, start, _, stride, count in layout.BLOCKS}

    assert blocks == {
        "header": (0x0000, 256),
        "counters": (0x0100, 512),
        "gauges": (0x0300, 256),
        "lane": (0x0400, 2048),
        "shard": (0x0C00, 16384),
        "inflight": (0x4C00, 8192),
        "histogram": (0x6C00, 4096),
        "event": (0x7C00, 8192),
    }
    assert layout.RESERVED_AT == 0x9C00 and layout.PAGE_BYTES == 65536


def test_the_committed_c_header_is_the_generated_one() -> None:
    assert HEADER.read_text() == layout.c_header()


@pytest.mark.parametrize("block", [name for name, *_ in layout.BLOCKS])
def test_fields_are_naturally_aligned_and_fit(block: str) -> None:
    _, _, fields, stride, _ = next(row for row in layout.BLOCKS if row[0] == block)
    size = {"Q": 8, "I": 4, "H": 2, "B": 1}
    for name, code, _ in fields:
        assert layout.offset_of(block, name) % size[code] == 0, name
    last, code, count = fields[-1]
    assert layout.offset_of(block, last) + size[code] * count <= stride


def test_the_layout_file_runs_alone(tmp_path: Path) -> None:
    """It is vendored by readers that do not install the store."""
    copied = tmp_path / "layout.py"
    copied.write_bytes(Path(layout.__file__).read_bytes())

    printed = subprocess.run(
        [sys.executable, "-I", str(copied), "--c-header"], capture_output=True, check=True
    )

    assert printed.stdout.decode() == layout.c_header()


def test_a_gather_shows_in_lane_counters_and_histogram(table: Path, tmp_path: Path) -> None:
    page = tmp_path / "rank3.page"
    with Store(table, mode="nvme", lanes=2, telemetry=page, rank=3, world=4) as store:
        assert store.gather(LAYER, some_ids(50), lane=1).ok
        content = page.read_bytes()

    layout.check_page(content)
    header = layout.read_record(content, "header")
    assert (header["rank"], header["world"], header["mode_current"]) == (3, 4, 1)
    counters = layout.read_record(content, "counters")
    assert counters["gathers"] == 1 and counters["rows"] == 50
    lane = layout.read_lane(content, 1)
    assert (lane.state, lane.torn, lane.is_open) == ("idle", False, False)
    assert lane.fields["enter"] == lane.fields["exit"] == 1
    buckets = layout.read_record(content, "histogram", 1)["bucket"]
    assert isinstance(buckets, tuple) and sum(buckets) == 1
    assert layout.oldest_read(content) is None
    codes = {layout.EVENT_CODES[int(str(event["code"]))] for event in layout.recent_events(content)}
    assert {"opened", "io_chosen", "mode_switch"} <= codes


def test_a_writer_stopped_in_the_middle_reads_as_torn() -> None:
    page = bytearray(layout.PAGE_BYTES)
    page[layout.LANES_AT] = 7

    lane = layout.read_lane(memoryview(page), 0)

    assert lane.torn and lane.fields["seq"] == 7


def test_other_bytes_are_refused() -> None:
    with pytest.raises(layout.NotATelemetryPage, match="magic"):
        layout.check_page(bytes(layout.PAGE_BYTES))
    with pytest.raises(layout.NotATelemetryPage, match="bytes"):
        layout.check_page(b"short")


def test_bucket_edges_grow_by_half_octaves() -> None:
    edges = [layout.bucket_floor_ns(bucket) for bucket in range(6)]

    assert edges == [100, 150, 200, 300, 400, 600]
