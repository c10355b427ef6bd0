"""The driver is asked by a child that may be stuck, may talk nonsense or die, and none of it reaches the agent."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from sentinel.agent.nvml_child import HEADER, PROCESSES
from sentinel.agent.ring import Ring
from sentinel.agent.sources.gpu import RESTART_S, RESTARTS_MAX, STUCK_S, Gpus
from sentinel.model.observation import GpuSample, Observation, Unavailable
from sentinel.model.stamp import Stamp
from tests.agent.targets import eventually, script

UUID = "GPU-01234567-89ab-cdef-0123-456789abcdef"
ROW = (
    f"2026/03/01 10:00:00.000, 3, {UUID}, 00000000:5E:00.0, 97 %, 1 %, 180.00 W, 700.00 W, 1980 MHz, 65000 MiB, 45, 0x0"
)


@pytest.fixture
def gpus(tmp_path: Path) -> Iterator["Stub"]:
    stub = Stub(tmp_path)
    yield stub
    stub.close()


class Stub:
    """A GPU source whose child is a script of the test; `seen` collects what it says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seen: list[Observation] = []
        self.source: Gpus | None = None

    def child(self, text: str) -> None:
        argv = [str(script(self.folder / "child", f"echo $$ >> {self.folder}/pids\n{text}"))]
        self.source = Gpus(Ring(self.folder / "ring"), child=argv)

    def poll(self, at_s: float) -> list[Observation]:
        assert self.source is not None
        self.seen += [said.seen for said in self.source.poll(Stamp(mono_ns=round(at_s * 1e9), wall_ns=10**18))]
        return self.seen

    def until(self, kind: type[Observation], at_s: float) -> Observation:
        eventually(lambda: any(isinstance(one, kind) for one in self.poll(at_s)))
        return next(one for one in self.seen if isinstance(one, kind))

    @property
    def pids(self) -> list[int]:
        path = self.folder / "pids"
        return [int(word) for word in path.read_text().split()] if path.exists() else []

    def close(self) -> None:
        if self.source is not None:
            self.source.close()
        for pid in self.pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def test_samples_and_processes_are_read(gpus: Stub) -> None:
    """If false, a spinning GPU could not be told from one that computes."""
    gpus.child(f"echo '{HEADER}'; echo '# GPU 3'; echo '{ROW}'; echo '{PROCESSES}'; echo '{UUID}, 3, 4711'; cat")
    eventually(lambda: len([one for one in gpus.poll(0.0) if isinstance(one, GpuSample)]) == 2)

    sample, processes = (one for one in gpus.seen if isinstance(one, GpuSample))
    assert (sample.index, sample.util_percent, sample.power_w, sample.sm_mhz) == (3, 97.0, 180.0, 1980.0)
    assert processes.pids == (4711,) and processes.index == 3


def test_a_call_that_blocks_is_evidence_and_the_child_is_left_alone(gpus: Stub) -> None:
    """If false, a hung driver would be no news, or the kill of its client would take the GPU down."""
    gpus.child(f"echo '{HEADER}'; echo '# GPU 5'; exec sleep 3600")
    gpus.poll(0.0)
    eventually(lambda: gpus.pids and gpus.poll(1.0) is not None)
    for turn in range(100):
        gpus.poll(1.0 + turn)

    (news,) = [one for one in gpus.seen if isinstance(one, Unavailable)]
    assert f"{STUCK_S:.0f} s (GPU 5)" in news.reason
    assert gpus.source is not None
    gpus.source.close()
    os.kill(gpus.pids[0], 0)
    assert len(gpus.pids) == 1


def test_nonsense_is_no_sample(gpus: Stub) -> None:
    """If false, an update of the driver's library could invent GPUs."""
    gpus.child(f"echo '{HEADER}'; echo 'a, b, c'; head -c 100000 /dev/urandom; echo; echo '{ROW}'; cat")
    sample = gpus.until(GpuSample, 0.0)

    assert isinstance(sample, GpuSample) and sample.index == 3


def test_a_child_that_dies_is_started_again_but_not_for_ever(gpus: Stub) -> None:
    """If false, one crash would blind the agent, or a crashing library would be started all day."""
    gpus.child("exit 9")
    for start in range(RESTARTS_MAX + 3):
        at_s = start * (RESTART_S + 1)
        deaths = min(start + 1, RESTARTS_MAX + 1)
        eventually(lambda at_s=at_s, deaths=deaths: len(gpus.poll(at_s)) >= deaths)  # type: ignore[misc]

    assert len(gpus.pids) == RESTARTS_MAX + 1
    assert all(isinstance(one, Unavailable) and "status 9" in one.reason for one in gpus.seen)


def test_a_host_without_a_driver_is_told_once(gpus: Stub) -> None:
    """If false, a host without GPUs would start a process again and again, or look as if its GPUs were well."""
    gpus.child("echo '# no driver: NVML Shared Library Not Found'; exit 3")
    news = gpus.until(Unavailable, 0.0)
    for turn in range(10):
        gpus.poll(1000.0 * turn)

    assert isinstance(news, Unavailable) and "NVML Shared Library Not Found" in news.reason
    assert len(gpus.seen) == 1 and len(gpus.pids) == 1


def test_a_missing_child_is_said(tmp_path: Path) -> None:
    """If false, a broken installation would look like a host without GPUs."""
    source = Gpus(Ring(tmp_path), child=[str(tmp_path / "missing")])
    (said,) = source.poll(Stamp(mono_ns=0, wall_ns=0))

    assert isinstance(said.seen, Unavailable) and "cannot start" in said.seen.reason
