"""Disks, RDMA ports, the row store and the settings of processes, read from what the kernel or their owner shows."""

import importlib.util
import os
import struct
import sys
from pathlib import Path
from types import ModuleType

import pytest

from sentinel.agent.ring import Ring
from sentinel.agent.sources.block import BlockDevices
from sentinel.agent.sources.environment import ProcessSettings
from sentinel.agent.sources.rdma import RdmaDevices
from sentinel.agent.sources.store_page import StorePages
from sentinel.collectors.rowstore_page import PAGE_BYTES, owner_of, telemetry
from sentinel.model.engine import Engine, EngineProcess
from sentinel.model.observation import DeviceCounters, Environment, Observation, Origin, StoreTelemetry, Unavailable
from sentinel.model.stamp import Stamp
from tests.agent.targets import IDLE, eventually, identity, python, stop

LAYOUT = Path(__file__).resolve().parents[2] / "engine/sentinel_engine/rowstore/telemetry_layout.py"
SECOND_NS = 1_000_000_000


def at(seconds: float) -> Stamp:
    return Stamp(mono_ns=round(seconds * 1e9), wall_ns=10**18)


def disk(name: str, in_flight: int, reads: int = 100) -> str:
    return f" 259 0 {name} {reads} 0 800 50 10 0 80 5 {in_flight} 60 55 0 0 0 0 0 0\n"


def test_a_disk_that_never_answers_shows_its_requests(tmp_path: Path) -> None:
    """If false, a dead disk under the weights would look like a hang of the engine."""
    stats, block = tmp_path / "diskstats", tmp_path / "block"
    for name in ("nvme0n1", "loop0"):
        (block / name).mkdir(parents=True)
    stats.write_text(disk("nvme0n1", 7) + disk("nvme0n1p1", 7) + disk("loop0", 1))
    source = BlockDevices(Ring(tmp_path / "ring"), stats, block)
    seen = [said.seen for said in source.poll(at(0)) for _ in (0,)] + [said.seen for said in source.poll(at(5))]

    assert [(one.device, one.values["in_flight"]) for one in seen if isinstance(one, DeviceCounters)] == [
        ("nvme0n1", 7.0),
        ("nvme0n1", 7.0),
    ]


def test_an_idle_disk_is_told_now_and_then(tmp_path: Path) -> None:
    """If false, sixty idle disks would fill the journal."""
    stats, block = tmp_path / "diskstats", tmp_path / "block"
    (block / "sda").mkdir(parents=True)
    stats.write_text(disk("sda", 0))
    source = BlockDevices(Ring(tmp_path / "ring"), stats, block)

    told = sum(len(list(source.poll(at(5.0 * turn)))) for turn in range(24))

    assert told == 3


def port(folder: Path, device: str, number: int = 1, state: str = "4: ACTIVE") -> Path:
    home = folder / device / "ports" / str(number)
    (home / "counters").mkdir(parents=True)
    (home / "hw_counters").mkdir()
    (home / "state").write_text(f"{state}\n")
    (home / "counters" / "port_rcv_data").write_text("123456\n")
    (home / "hw_counters" / "local_ack_timeout_err").write_text("3\n")
    return home


def devices(source: RdmaDevices, count: int) -> list[Observation]:
    seen: list[Observation] = []

    def look() -> bool:
        seen.extend(said.seen for said in source.poll(at(0)))
        return len(seen) >= count

    eventually(look)
    return seen


def test_rdma_ports_are_enumerated_with_their_counters(tmp_path: Path) -> None:
    """If false, a port that is down would have to be guessed from NCCL's time-outs."""
    port(tmp_path / "ib", "mlx5_0")
    port(tmp_path / "ib", "mlx5_0", 2, state="1: DOWN")
    source = RdmaDevices(Ring(tmp_path / "ring"), tmp_path / "ib")
    first, second, *_ = devices(source, 2)
    source.close()

    assert isinstance(first, DeviceCounters) and isinstance(second, DeviceCounters)
    assert (first.device, first.states["state"]) == ("mlx5_0", "ACTIVE")
    assert dict(first.values) == {"port_rcv_data": 123456.0, "local_ack_timeout_err": 3.0}
    assert (second.device, second.states["state"]) == ("mlx5_0:2", "DOWN")


def test_a_device_that_errors_is_left_out_and_the_others_are_read(tmp_path: Path) -> None:
    """If false, one broken adapter would hide all of them, or be asked until its firmware gives up."""
    port(tmp_path / "ib", "mlx5_1")
    (tmp_path / "ib" / "mlx5_0").mkdir()
    source = RdmaDevices(Ring(tmp_path / "ring"), tmp_path / "ib", read_every_s=0.01)
    seen = devices(source, 4)
    source.close()

    assert sum(isinstance(one, Unavailable) for one in seen) == 1
    assert {one.device for one in seen if isinstance(one, DeviceCounters)} == {"mlx5_1"}


def test_a_host_without_rdma_has_no_thread_for_it(tmp_path: Path) -> None:
    """If false, every host would pay for adapters that it does not have."""
    assert list(RdmaDevices(Ring(tmp_path), tmp_path / "missing").poll(at(0))) == []


def test_settings_are_told_once_a_process() -> None:
    """If false, a wrong NCCL variable could not be a cause, or would be told all day."""
    with python(IDLE, environ={"NCCL_IB_GID_INDEX": "3", "NCCL_SECRET_TOKEN": "x"}) as child:
        process = EngineProcess(id=identity(child.pid), role="rank", title="rank", rank=0)
        source = ProcessSettings(Engine(key="e", adapter="sglang", root=process.id, processes=(process,)))
        (said,) = source.poll(at(0))
        again = list(source.poll(at(5)))

    assert isinstance(said.seen, Environment) and said.seen.values["NCCL_IB_GID_INDEX"] == "3"
    assert "NCCL_SECRET_TOKEN" not in said.seen.values and again == []


# --- the row store's page ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def layout() -> ModuleType:
    """The store's own table of offsets, loaded from its file: what the reader must agree with."""
    if not LAYOUT.exists():
        pytest.skip("the engine's sources are not here")
    spec = importlib.util.spec_from_file_location("rowstore_layout", LAYOUT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class Page:
    """A telemetry page, written field by field through the store's own table."""

    def __init__(self, layout: ModuleType) -> None:
        self.layout, self.data = layout, bytearray(PAGE_BYTES)
        self.put("header", magic=layout.MAGIC, layout_version=layout.VERSION, total_bytes=layout.PAGE_BYTES)

    def put(self, block: str, index: int = 0, **values: int) -> None:
        _, start, fields, stride, _ = next(row for row in self.layout.BLOCKS if row[0] == block)
        codes = {name: code for name, code, _ in fields}
        for name, value in values.items():
            at = start + index * stride + self.layout.offset_of(block, name)
            struct.pack_into(f"<{codes[name]}", self.data, at, value)


def test_the_page_is_read_where_the_store_writes(layout: ModuleType) -> None:
    """If false, a stuck gather would be seen in the wrong lane, or not at all."""
    page = Page(layout)
    page.put("header", pid=42, rank=3, process_start_ticks=777, heartbeat_ns=90 * SECOND_NS, mode_current=1)
    page.put("lane", 5, enter=8, exit=7, enter_ns=60 * SECOND_NS)
    page.put("lane", 6, enter=8, exit=7, enter_ns=80 * SECOND_NS)
    page.put("lane", 7, enter=9, exit=9, enter_ns=10 * SECOND_NS)
    page.put("inflight", 9, state=1, start_ns=70 * SECOND_NS)
    page.put("shard", 11, holder_tid=4711, waiters=2, acquire_ns=61 * SECOND_NS)
    page.put("counters", crc_failures=6, gathers=100)

    seen = telemetry(bytes(page.data), Origin("page"), 100 * SECOND_NS)

    assert owner_of(bytes(page.data)) == (42, 777)
    assert seen is not None and (seen.pid, seen.rank, seen.mode, seen.open_lane) == (42, 3, "nvme", 5)
    assert (seen.heartbeat_age_s, seen.lane_age_s, seen.oldest_read_age_s) == (10.0, 40.0, 30.0)
    assert (seen.lock_holder_tid, seen.waiters) == (4711, 2)
    assert (seen.values["crc_failures"], seen.values["gathers"]) == (6.0, 100.0)


def test_bytes_that_are_no_page_are_nothing() -> None:
    """If false, any file of the right size could accuse a rank."""
    assert telemetry(b"", Origin("x")) is None
    assert telemetry(bytes(PAGE_BYTES), Origin("x")) is None
    assert telemetry(b"RWSTELE1" + bytes(PAGE_BYTES), Origin("x")) is None


@pytest.mark.parametrize("fate", ["running", "stopped", "dead"])
def test_the_page_is_read_whatever_its_owner_does(layout: ModuleType, tmp_path: Path, fate: str) -> None:
    """If false, the evidence would be gone in the one moment for which it is kept."""
    with python(IDLE) as child:
        process = EngineProcess(id=identity(child.pid), role="rank", title="rank", rank=0)
        engine = Engine(key="e", adapter="packaged", root=process.id, processes=(process,))
        page = Page(layout)
        page.put("header", pid=child.pid, process_start_ticks=process.id.started_ticks, mode_current=2, heartbeat_ns=1)
        (tmp_path / "rank0").write_bytes(page.data)
        (tmp_path / "other").write_bytes(bytes(PAGE_BYTES))
        source = StorePages(engine, tmp_path)
        if fate == "stopped":
            stop(child.pid)
        before = [said.seen for said in source.poll(at(0))]
    after = [said.seen for said in source.poll(at(10))] if fate == "dead" else before
    source.close()

    (seen,) = after
    assert isinstance(seen, StoreTelemetry) and (seen.mode, seen.pid) == ("ram", process.id.pid)


def test_a_page_that_its_owner_cuts_is_not_read_any_more(layout: ModuleType, tmp_path: Path) -> None:
    """If false, an engine that makes its page shorter ends the agent that watches it."""
    with python(IDLE) as child:
        process = EngineProcess(id=identity(child.pid), role="rank", title="rank", rank=0)
        engine = Engine(key="e", adapter="packaged", root=process.id, processes=(process,))
        page = Page(layout)
        page.put("header", pid=child.pid, process_start_ticks=process.id.started_ticks, mode_current=2)
        (tmp_path / "rank0").write_bytes(page.data)
        source = StorePages(engine, tmp_path)
        assert len(list(source.poll(at(0)))) == 1
        os.truncate(tmp_path / "rank0", 100)

        assert list(source.poll(at(10))) == []
        source.close()


def test_a_page_of_a_process_before_is_nobodys(layout: ModuleType, tmp_path: Path) -> None:
    """If false, the page that a crash left behind would accuse the rank that was started after it."""
    with python(IDLE) as child:
        process = EngineProcess(id=identity(child.pid), role="rank", title="rank", rank=0)
        engine = Engine(key="e", adapter="packaged", root=process.id, processes=(process,))
        page = Page(layout)
        page.put("header", pid=child.pid, process_start_ticks=process.id.started_ticks - 5)
        (tmp_path / "rank0").write_bytes(page.data)

        assert list(StorePages(engine, tmp_path).poll(at(0))) == []
