"""The page of a real row store in `legacy` mode: one read stalled, a second lane waited for the lock across it."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

from sentinel.cli import Exit
from sentinel.collectors.rowstore_page import telemetry
from sentinel.model.observation import Origin

PAGE = gzip.decompress((Path(__file__).parent / "legacy_hang.page.gz").read_bytes())
HOLDER = 14828
HELD_AT = 0x0C00
"""First shard: holder, waiters."""


def test_lane_read_holder_and_waiters_of_a_real_hang_are_told() -> None:
    """False: an operator is not told which lane to release, nor which read holds it."""
    seen = telemetry(PAGE, Origin("page"))

    assert seen is not None and (seen.mode, seen.rank, seen.open_lane) == ("legacy", 0, 0)
    assert (seen.lock_holder_tid, seen.waiters, seen.values["inflight_reads"]) == (HOLDER, 1, 1.0)
    assert (seen.oldest_read_age_s or 0.0) > 10.0 and (seen.lane_age_s or 0.0) > 10.0
    assert seen.heartbeat_age_s == 0.0


def test_the_holder_is_told_when_nobody_else_waits() -> None:
    """False: a legacy engine with one lane hangs in a read under a lock whose holder nobody names."""
    alone = bytearray(PAGE)
    alone[HELD_AT + 4 : HELD_AT + 8] = bytes(4)

    seen = telemetry(bytes(alone), Origin("page"))

    assert seen is not None and (seen.lock_holder_tid, seen.waiters) == (HOLDER, 0)


def test_the_page_alone_names_the_rank_and_advises_to_unblock(tmp_path: Path) -> None:
    """False: a bundle with nothing but the page of a hung store says nothing about it."""
    (tmp_path / "anything").write_bytes(PAGE)

    done = subprocess.run(
        [sys.executable, "-m", "sentinel", "analyze", "--json", str(tmp_path)], capture_output=True, check=False
    )

    verdict = json.loads(done.stdout)
    assert (done.returncode, verdict["class"], verdict["culprits"]["ranks"]) == (
        Exit.STALLED, "hang.host_callback", [0],
    )  # fmt: skip
    assert verdict["actions"][0]["action"] == "unblock_lane"
    assert f"lock held by thread {HOLDER}" in verdict["evidence"][0]["says"]
