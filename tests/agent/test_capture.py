"""A capture takes evidence of every process in its order, ends in time, and accounts for what it could not have."""

import threading
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from sentinel.agent.capture import Capture, Captured
from sentinel.evidence.load import load
from sentinel.model.engine import Engine, EngineProcess, ProcessId
from sentinel.model.observation import ProcessTable, Stack, ThreadTable
from sentinel.model.stamp import Stamp
from sentinel.plumbing.clock import SystemClock
from tests.agent.engines import rehearsal
from tests.agent.targets import IDLE, identity, python, script, stop


@dataclass
class HastyClock:
    """Every look at it costs `step_s`, so that a budget is used up without waiting."""

    step_s: float
    looks: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def now(self) -> Stamp:
        with self.lock:
            self.looks += 1
            return Stamp(mono_ns=round(self.looks * self.step_s * 1e9), wall_ns=1_790_000_000_000_000_000)


def engine_of(*pids: int, stranger: ProcessId | None = None) -> Engine:
    """An engine whose ranks are these processes."""
    ids = [identity(pid) for pid in pids] + ([stranger] if stranger else [])
    ranks = [EngineProcess(id=one, role="rank", title=f"rank {rank}", rank=rank) for rank, one in enumerate(ids)]
    frontend = EngineProcess(id=ids[0], role="frontend", title="frontend")
    return Engine(key="e", adapter="packaged", root=ids[0], processes=(frontend, *ranks))


def capture(
    folder: Path, engine: Engine, budget_s: float = 60.0, clock: SystemClock | HastyClock | None = None
) -> Captured:
    return Capture(engine, folder, clock or SystemClock(), budget_s, lambda: True).run()


def test_every_rank_is_taken_twice_and_the_folder_can_be_read_again(tmp_path: Path) -> None:
    """If false, nobody could tell stuck from slow, or judge the bundle later."""
    with rehearsal(tmp_path / "engine") as engine:
        found = engine.engine()
        captured = capture(tmp_path / "evidence", found)

    seen = list(load(captured.folder).observations)
    pids = {process.id.pid for process in found.ranks}
    assert captured.complete and captured.with_stacks == {0, 1}
    for kind in (Stack, ThreadTable):
        per_pid = [one.pid for one in seen if isinstance(one, kind) and one.pid in pids]
        assert all(per_pid.count(pid) >= 2 for pid in pids)
    assert any(isinstance(one, ProcessTable) for one in seen)


def test_ranks_come_before_helpers_and_cheap_rungs_before_attaching_ones(tmp_path: Path) -> None:
    """If false, what is irreplaceable could be what the deadline cuts off."""
    with python(IDLE) as one, python(IDLE) as two:
        captured = capture(tmp_path, engine_of(one.pid, two.pid))

    rungs = [step.what for step in captured.steps]
    assert max(rungs.index("threads"), rungs.index("py-spy")) < rungs.index("eu-stack")
    assert [step.pass_no for step in captured.steps if step.what == "eu-stack"] == [2, 2]


def test_a_dead_and_a_stopped_rank_are_accounted_for(tmp_path: Path) -> None:
    """If false, a missing stack would look like a forgotten one, although its absence is the evidence."""
    with python(IDLE) as alive, python(IDLE) as stopped:
        stop(stopped.pid)
        dead = ProcessId(identity(alive.pid).pid, 1)
        captured = capture(tmp_path, engine_of(alive.pid, stopped.pid, stranger=dead))

    assert captured.complete and captured.with_stacks == {0, 1}
    assert captured.without == {2: "py-spy: the process is gone"}
    assert any("state T" in step.why for step in captured.steps if step.pid == stopped.pid)


def test_nothing_is_begun_after_the_budget(tmp_path: Path) -> None:
    """If false, the capture would still run when the engine kills itself, and hold the verdict back."""
    with python(IDLE) as child:
        captured = capture(tmp_path, engine_of(child.pid), budget_s=20.0, clock=HastyClock(step_s=2.0))

    late = [step for step in captured.steps if "time is up" in step.why]
    assert late and {step.what for step in late} >= {"eu-stack", "pystack"}
    assert captured.steps[0].file is not None


def test_tools_that_hang_do_not_hold_the_capture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If false, one stuck process would cost the evidence of all the others."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    script(tmp_path / "eu-stack", "exec sleep 3600")
    with python(IDLE) as child:
        captured = capture(tmp_path / "evidence", engine_of(child.pid))

    assert any(step.what == "eu-stack" and "not finished" in step.why for step in captured.steps)
    assert captured.complete


def test_a_recovered_engine_ends_the_capture(tmp_path: Path) -> None:
    """If false, a near miss would be followed by attaching to a healthy engine."""
    with python(IDLE) as child:
        captured = Capture(engine_of(child.pid), tmp_path, SystemClock(), 60.0, lambda: False).run()

    assert all("no longer wanted" in step.why for step in captured.steps if step.pid == child.pid)


def test_a_full_disk_is_a_reason_and_no_end(tmp_path: Path) -> None:
    """If false, a disk without space would end the capture, and with it the verdict."""
    folder = tmp_path / "evidence"
    folder.mkdir()
    with python(IDLE) as child:
        for number in (1, 2):
            (folder / f"pass{number}-threads-{child.pid}.txt").mkdir()
        captured = capture(folder, engine_of(child.pid))

    assert any("cannot write" in step.why for step in captured.steps if step.what == "threads")
    assert captured.with_stacks == {0}


def test_a_folder_that_cannot_be_made_ends_the_capture_with_its_reason(tmp_path: Path) -> None:
    """If false, a full disk would leave the incident in its capture for ever, and the engine stuck."""
    (tmp_path / "full").touch()
    with python(IDLE) as child:
        captured = capture(tmp_path / "full" / "evidence", engine_of(child.pid))

    assert not captured.complete and captured.steps == []
    assert str(tmp_path / "full") in captured.why_incomplete


def test_steps_can_be_written_as_a_manifest(tmp_path: Path) -> None:
    """If false, a bundle could not say what was tried."""
    with python(IDLE) as child:
        captured = capture(tmp_path, engine_of(child.pid))

    assert all(
        {"what", "pid", "file", "why"} <= set(row) for row in msgspec.json.decode(msgspec.json.encode(captured.steps))
    )
