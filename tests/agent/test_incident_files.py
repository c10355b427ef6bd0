"""What of the ring goes into an incident."""

import os
from pathlib import Path

import pytest

from sentinel.agent.incidents import Incidents
from sentinel.agent.ring import Ring
from sentinel.model.effect import Cleared, StartCapture, Suspected
from sentinel.model.stamp import Stamp


def test_an_incident_keeps_the_signals_of_its_engine_and_of_the_host_only(tmp_path: Path) -> None:
    """If false, a bundle of one engine holds the log of its neighbour, and is judged by the neighbour's progress."""
    ring = Ring(tmp_path / "ring")
    own, others = ("engine-10.log", "metrics-10.prom", "kmsg.txt"), ("engine-200.log", "old-metrics-200.prom")
    for name in (*own, *others):
        ring.write(name, b"line\n", 1.0)
    incidents = Incidents(tmp_path / "incidents", kept=3, bytes_max=1 << 20)

    assert incidents.finish("vllm:10:5#1@7", ring, root_pid="10") == "done"

    kept = {path.name for path in incidents.folder_of("vllm:10:5#1@7").iterdir()}
    assert kept == set(own)


@pytest.mark.parametrize("cut", [1, 20])
def test_a_line_that_a_crash_cut_does_not_swallow_the_next(tmp_path: Path, cut: int) -> None:
    """If false, after a full disk an incident that was closed is taken up again by every agent that starts."""
    incidents = Incidents(tmp_path / "incidents", kept=3, bytes_max=1 << 20)
    at, name = Stamp(mono_ns=1, wall_ns=1, boot_id="b"), {"engine": "vllm:10:5", "incident": "vllm:10:5#1"}
    incidents.note(at, Suspected(**name, silence_s=9.0, limit_s=8.0, why="silence"))
    incidents.note(at, StartCapture(**name, budget_s=30.0, why="silence"))
    record = incidents.folder_of(name["incident"]).parent / "incident.jsonl"
    os.truncate(record, record.stat().st_size - cut)
    assert [left.incident for left in incidents.left_open("b")] == ["vllm:10:5#1"]
    incidents.note(at, Cleared(**name, silence_s=20.0))

    assert incidents.left_open("b") == () and b"\n\n" not in record.read_bytes()
    assert record.read_bytes().count(b"\n") == 3
