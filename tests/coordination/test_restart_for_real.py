"""A restart of real processes by order, from the command line to the first token of the next incarnation."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
import yaml

from sentinel.agent import procfs
from sentinel.bus.embedded import EmbeddedBus
from sentinel.coordinator.names import ACKS, NOTICES, bus_folder
from sentinel.model.cluster import Told
from sentinel.model.engine import ProcessId
from sentinel.model.group import Ack
from sentinel.testing.ports import free_port

WITHIN_S = 300.0
POLL_S = 0.1
OWNER = (sys.executable, "-m", "sentinel.testing.rehearsal.detached")


class Box:
    """A state folder, a configuration with one group, and an engine under a pair of commands."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.state, self.engines = folder, folder / "state", folder / "engines"
        port = free_port()
        self.start = (*OWNER, "start", "--folder", str(self.engines), "--ranks", "2", "--port", str(port))
        self.stop = (*OWNER, "stop", "--folder", str(self.engines))
        self.config = folder / "sentinel.yaml"
        owner = {"kind": "command", "start": list(self.start), "stop": list(self.stop)}
        group = {"hosts": ["here"], "port": port, "supervisor": owner, "term_s": 5.0, "verify_s": 20.0}
        self.config.write_text(yaml.safe_dump({
            "groups": {"chat": group}, "coordinator": {"host": "here"}, "metrics": {"listen": ""},
            "timing": {"discover_every_s": 1.0},
        }))  # fmt: skip

    def newest(self) -> ProcessId:
        home = self.engines / (self.engines / "current").read_text()
        pid, ticks = map(int, (home / "engine.pid").read_text().split())
        return ProcessId(pid, ticks)

    def sentinel(self, *words: str) -> "subprocess.CompletedProcess[str]":
        argv = [sys.executable, "-m", "sentinel", *words, "--config", str(self.config), "--state", str(self.state)]
        return subprocess.run(argv, capture_output=True, text=True, timeout=200, check=False)

    @contextmanager
    def watching(self) -> Iterator["subprocess.Popen[bytes]"]:
        argv = [sys.executable, "-m", "sentinel", "watch", "--config", str(self.config), "--state", str(self.state)]
        with (self.folder / "watch.log").open("ab") as log, subprocess.Popen(argv, stderr=log) as watch:
            try:
                yield watch
            finally:
                watch.kill()

    def told(self) -> list[Told]:
        bus = EmbeddedBus(bus_folder(self.state))
        try:
            return [msgspec.json.decode(record.data, type=Told) for record in bus.follow(NOTICES, 0)]
        finally:
            bus.close()

    def acks(self) -> list[Ack]:
        bus = EmbeddedBus(bus_folder(self.state))
        try:
            return [msgspec.json.decode(record.data, type=Ack) for record in bus.follow(ACKS, 0)]
        finally:
            bus.close()


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    made = Box(tmp_path)
    subprocess.run(made.start, check=True, timeout=60, env={**os.environ})
    yield made
    subprocess.run(made.stop, check=False, timeout=60)


def until(happened: "threading.Event | None", condition: object, what: str) -> None:
    """Wait for something that real processes do; the bound is for a test that would hang."""
    waiting = happened or threading.Event()
    assert callable(condition)
    for _ in range(int(WITHIN_S / POLL_S)):
        if condition():
            return
        waiting.wait(POLL_S)
    raise AssertionError(f"{what} did not happen")


def accepted(box: Box) -> bool:
    return box.sentinel("restart", "chat", "--reason", "test", "--dry-run").returncode == 0


@pytest.mark.timeout(900)
def test_an_ordered_restart_replaces_the_engine_and_survives_a_kill_of_the_watcher(box: Box) -> None:
    """False: an order leaves the engine down, kills it twice, or is forgotten when Sentinel is killed in the middle."""
    before = box.newest()
    with box.watching() as watch:
        until(None, lambda: accepted(box), "a plan that nothing speaks against")
        ordered = box.sentinel("restart", "chat", "--reason", "new weights", "--json")
        assert ordered.returncode == 0 and json.loads(ordered.stdout)["ok"]
        until(None, lambda: any(ack.id.endswith("/stop/here") for ack in box.acks()), "the stop")
        watch.kill()
    assert not procfs.still_same(before)

    with box.watching():
        until(None, lambda: any(told.what in ("closed", "page") for told in box.told()), "the end of the incident")
        shown = box.sentinel("incidents")

    outcomes = {ack.id.split("/")[-2]: ack for ack in box.acks()}
    assert [told.what for told in box.told()][-1] == "closed", box.told()[-1].words
    assert outcomes["stop"].outcome == "done" and outcomes["stop"].checks["processes_gone"]
    assert outcomes["ready"].checks == {"token": True}
    assert sum(path.name.isdecimal() for path in box.engines.iterdir()) == 2
    assert procfs.still_same(box.newest()) and box.newest() != before
    assert shown.returncode == 0 and "chat" in shown.stdout


def test_nothing_is_ordered_where_no_coordinator_has_run(tmp_path: Path) -> None:
    """False: an operator believes that an order was given, and nobody ever reads it."""
    box = Box(tmp_path)

    refused = box.sentinel("pause", "--reason", "test")

    assert refused.returncode == 4 and "sentinel watch" in refused.stdout
    assert box.sentinel("pause").returncode == 2
