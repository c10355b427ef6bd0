"""What of the ring goes into an incident."""

from pathlib import Path

from sentinel.agent.incidents import Incidents
from sentinel.agent.ring import Ring


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
