"""Live sources say what is there, when it is there, and why they cannot say it."""

import json
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from sentinel.agent.journal_follow import JournalFollow
from sentinel.agent.ring import Ring
from sentinel.agent.source import Said, Source
from sentinel.agent.sources.background import Background
from sentinel.agent.sources.engine_log import EngineLog
from sentinel.agent.sources.kernel import KernelRecords
from sentinel.agent.sources.metrics import Metrics
from sentinel.agent.sources.nccl_files import NcclFiles
from sentinel.agent.sources.pressure import HostPressure
from sentinel.agent.sources.processes import Processes
from sentinel.model.engine import Engine, EngineProcess, ProcessId
from sentinel.model.observation import (
    Decode,
    Enqueues,
    HealthProbe,
    KernelEvent,
    NcclComm,
    Observation,
    Origin,
    Pressure,
    ProcessTable,
    Scrape,
    Unavailable,
)
from sentinel.model.stamp import Stamp
from sentinel.testing.rehearsal import prints
from tests.agent.targets import IDLE, eventually, identity, now, python, running, script, stop

ROOT = ProcessId(os.getpid(), 1)


def engine(*ranks: EngineProcess, url: str | None = None) -> Engine:
    return Engine(key=f"packaged:{ROOT.pid}:1", adapter="packaged", root=ROOT, processes=ranks, url=url)


def rank(pid: int, number: int = 0, **fields: str) -> EngineProcess:
    return EngineProcess(id=ProcessId(pid, 1), role="rank", title="rank", rank=number, **fields)  # type: ignore[arg-type]


def at(seconds: float) -> Stamp:
    """`seconds` of monotonic time, at the present wall time."""
    return Stamp(mono_ns=round(seconds * 1e9), wall_ns=now().wall_ns)


def asked(source: Source, seconds: float = 0.0) -> list[Observation]:
    return [said.seen for said in source.poll(at(seconds))]


def line(text: str) -> str:
    return f"[2026-03-01 10:00:00 TP0] {text}\n"


# --- the engine's log ------------------------------------------------------------------------------------------


def test_lines_that_arrive_carry_their_arrival_and_old_ones_their_own_time(tmp_path: Path) -> None:
    """If false, an agent started during a hang would take old lines for fresh progress."""
    log = tmp_path / "log"
    log.write_text(line(prints.decode(4, 100, 50.0)))
    source = EngineLog(engine(), str(log), Ring(tmp_path / "ring"))
    (old,) = [seen for seen in asked(source) if isinstance(seen, Decode)]
    with log.open("a") as file:
        file.write(line(prints.decode(4, 200, 50.0)))
    (new,) = [seen for seen in asked(source) if isinstance(seen, Decode)]

    assert old.at_s is not None and new.at_s is not None
    assert now().wall_s - old.at_s > 3600 and abs(now().wall_s - new.at_s) < 3600


def grown_after_a_poll(folder: Path) -> tuple[Path, EngineLog, int]:
    """A log that was polled once and has one line more since: it, its source, and the wall time of the poll in ns."""
    log = folder / "log"
    log.write_text(line(prints.decode(4, 100, 50.0)))
    source = EngineLog(engine(), str(log), Ring(folder / "ring"))
    began = now().wall_ns
    list(source.poll(Stamp(mono_ns=0, wall_ns=began)))
    with log.open("a") as file:
        file.write(line(prints.decode(4, 200, 50.0)))
    return log, source, began


def test_a_line_carries_the_time_at_which_it_was_written(tmp_path: Path) -> None:
    """If false, a silence would begin up to half a second late, at the poll that found the last line."""
    log, source, began = grown_after_a_poll(tmp_path)
    os.utime(log, ns=(began, began + 100_000_000))
    (new,) = [said.seen for said in source.poll(Stamp(mono_ns=0, wall_ns=began + 500_000_000))]

    assert new.at_s is not None and abs(new.at_s - (began / 1e9 + 0.1)) < 1e-3


@pytest.mark.parametrize("beside_s", [-60.0, 60.0])
def test_a_time_that_cannot_be_true_is_not_believed(tmp_path: Path, beside_s: float) -> None:
    """If false, a file server with a wrong clock would hide a silence, or make one up."""
    log, source, began = grown_after_a_poll(tmp_path)
    written = began + round(beside_s * 1e9)
    os.utime(log, ns=(written, written))
    polled = began + 500_000_000
    (new,) = [said.seen for said in source.poll(Stamp(mono_ns=0, wall_ns=polled))]

    assert new.at_s == polled / 1e9


def test_old_lines_of_the_journal_carry_their_own_time_too(tmp_path: Path) -> None:
    """If false, what an engine under systemd printed before the agent came would seem to be from 1970."""
    text = line(prints.decode(4, 100, 50.0))
    (tmp_path / "log").write_text(text)
    (in_file,) = asked(EngineLog(engine(), str(tmp_path / "log"), Ring(tmp_path / "ring")))
    record = json.dumps({"__CURSOR": "s=1", "__REALTIME_TIMESTAMP": "1", "MESSAGE": text.strip()})
    follower = script(tmp_path / "journalctl", f"echo '{record}'; exec sleep 3600")
    source = EngineLog(engine(), "journal:_PID=1", Ring(tmp_path / "ring"), (str(follower),))
    follow = source._tail
    assert isinstance(follow, JournalFollow) and follow._start()
    assert follow._child is not None and follow._child.stdout is not None
    # Before the first look, so that no look before it tells that the record is old.
    select.select([follow._child.stdout], [], [], 60.0)
    seen = asked(source)
    source.close()

    assert [one.at_s for one in seen] == [in_file.at_s]


def test_a_line_in_two_halves_is_one_line(tmp_path: Path) -> None:
    """If false, a poll in the middle of a write would lose the line, and with it a sign of life."""
    log = tmp_path / "log"
    text = line(prints.decode(4, 100, 50.0))
    log.write_text(text[:40])
    source = EngineLog(engine(), str(log), Ring(tmp_path / "ring"))
    assert asked(source) == []
    with log.open("a") as file:
        file.write(text[40:])

    assert [type(seen) for seen in asked(source)] == [Decode]


def test_the_log_is_kept_in_the_ring_as_it_was(tmp_path: Path) -> None:
    """If false, an engine that deletes its log with its container would leave no log in the bundle."""
    log, ring = tmp_path / "log", Ring(tmp_path / "ring")
    log.write_text("anything\nat all\n")
    asked(EngineLog(engine(), str(log), ring))

    assert [path.read_text() for path in ring.files()] == ["anything\nat all\n"]


# --- NCCL debug files ------------------------------------------------------------------------------------------


def nccl(folder: Path, number: int = 0, ranks: int = 2) -> prints.NcclTrace:
    trace = prints.NcclTrace(folder, number, ranks)
    trace.init()
    return trace


def test_a_debug_file_that_appears_later_is_found_and_counted(tmp_path: Path) -> None:
    """If false, the trace would be followed only for engines that started before the agent."""
    process = rank(os.getpid(), nccl_debug_file=str(tmp_path / "nccl.%h.%p"))
    source = NcclFiles(engine(process))
    assert asked(source, 0.0) == []
    trace = nccl(tmp_path)
    for _ in range(5):
        trace.all_reduce(4096)

    seen = asked(source, 100.0)

    assert [type(one) for one in seen[:2]] == [NcclComm, NcclComm]
    (counts,) = [one for one in seen if isinstance(one, Enqueues)]
    assert (counts.total, counts.pid) == (5, os.getpid())


def test_counts_are_fresh_when_a_capture_asks(tmp_path: Path) -> None:
    """If false, a verdict would compare ranks as they were ten seconds ago, each at another moment."""
    source = NcclFiles(engine(rank(os.getpid(), nccl_debug_file=str(tmp_path / "nccl.%h.%p"))))
    trace = nccl(tmp_path)
    asked(source, 100.0)
    trace.all_reduce(1)
    assert not any(isinstance(one, Enqueues) for one in asked(source, 101.0))
    trace.all_reduce(1)
    source.tell_now()

    assert [one.total for one in asked(source, 101.5) if isinstance(one, Enqueues)] == [2]


def test_a_capture_is_told_what_has_not_changed_too(tmp_path: Path) -> None:
    """If false, the counts of an engine that stands still would be missing from its bundle: they were told before."""
    source = NcclFiles(engine(rank(os.getpid(), nccl_debug_file=str(tmp_path / "nccl.%h.%p"))))
    nccl(tmp_path).all_reduce(1)
    asked(source, 100.0)
    assert asked(source, 101.0) == []
    source.tell_now()

    assert [type(one) for one in asked(source, 102.0)] == [NcclComm, NcclComm, Enqueues]
    assert asked(source, 103.0) == []


# --- processes -------------------------------------------------------------------------------------------------


def test_a_stopped_process_is_told_when_it_lasts_and_only_once() -> None:
    """If false, a SIGSTOP would be found only by the capture, or fill the journal every second; or the moment in which
    a stack tool attaches to a healthy rank would be taken for one."""
    with python(IDLE) as child:
        process = EngineProcess(id=identity(child.pid), role="rank", title="rank", rank=0)
        source = Processes(engine(process))
        asked(source, 100.0)
        assert asked(source, 101.0) == []
        stop(child.pid)
        assert asked(source, 102.0) == []
        (table,) = asked(source, 103.0)
        again = asked(source, 104.0)
        os.kill(child.pid, signal.SIGCONT)

    assert isinstance(table, ProcessTable) and [row.state for row in table.rows] == ["T"]
    assert again == []


def test_the_agents_own_stack_tools_do_not_make_a_process_look_traced() -> None:
    """If false, every capture would end in the verdict that somebody debugs the engine."""
    seize = "libc.ptrace(16, pid, None, None); os.waitpid(pid, 0x40000000)"
    tracer = f"import ctypes, os, sys; libc = ctypes.CDLL(None); pid = int(sys.argv[1]); {seize}\n{IDLE}"
    with python(IDLE) as child, running(sys.executable, "-c", tracer, str(child.pid)):
        process = EngineProcess(id=identity(child.pid), role="rank", title="rank", rank=0)
        (table,) = asked(Processes(engine(process)), 100.0)

    assert isinstance(table, ProcessTable) and table.rows[0].state == "S"


def test_a_dead_process_is_left_out_of_the_table() -> None:
    """If false, a rank that is gone would be shown in its last state."""
    with python(IDLE) as child:
        process = EngineProcess(id=identity(child.pid), role="rank", title="rank", rank=0)
        source = Processes(engine(process))
        asked(source, 100.0)

    assert [one.rows for one in asked(source, 200.0) if isinstance(one, ProcessTable)] == [()]


# --- the host --------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not Path("/proc/pressure/cpu").exists(), reason="this kernel has no pressure-stall information")
def test_pressure_of_this_host_is_read() -> None:
    """If false, a starved host would be taken for a hanging engine."""
    seen = asked(HostPressure())

    assert {one.resource for one in seen if isinstance(one, Pressure)} >= {"cpu", "memory", "io"}


def test_a_kernel_without_pressure_information_says_nothing(tmp_path: Path) -> None:
    """If false, old kernels would have no agent."""
    assert asked(HostPressure(tmp_path)) == []


def can_write_kernel_log() -> bool:
    try:
        os.close(os.open("/dev/kmsg", os.O_RDWR))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not can_write_kernel_log(), reason="the kernel log cannot be written here")
def test_a_line_in_the_kernel_log_is_an_event_and_is_kept(tmp_path: Path) -> None:
    """If false, a GPU that fell off the bus would be an unexplained hang."""
    ring = Ring(tmp_path)
    source = KernelRecords(ring)
    asked(source)
    Path("/dev/kmsg").write_text("<3>NVRM: Xid (PCI:0000:5e:00): 79, pid=4711, GPU has fallen off the bus.\n")
    found: list[KernelEvent] = []

    def look() -> bool:
        found.extend(one for one in asked(source) if isinstance(one, KernelEvent))
        return bool(found)

    eventually(look)
    source.close()

    assert (found[0].event, found[0].code, found[0].pci) == ("xid", 79, "0000:5e:00")
    assert b"fallen off the bus" in ring.files()[0].read_bytes()


def test_an_unreadable_kernel_log_is_said_once(tmp_path: Path) -> None:
    """If false, "nothing in the kernel log" would be a fact although nobody could look."""
    source = KernelRecords(Ring(tmp_path), tmp_path / "missing")

    (first,) = asked(source)
    assert isinstance(first, Unavailable) and "CAP_SYSLOG" in first.reason
    assert asked(source) == []


# --- the metrics page ------------------------------------------------------------------------------------------


@pytest.fixture
def page() -> Iterator[tuple[str, dict[str, str]]]:
    """An HTTP server whose `/metrics` is what the test puts into the mapping."""
    content = {"text": ""}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = content["text"].encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            del args

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", content
    server.shutdown()
    server.server_close()


def first_said(source: Source) -> Observation:
    """What a source that works in the background says first."""
    seen: list[Observation] = []

    def look() -> bool:
        seen.extend(asked(source))
        return bool(seen)

    eventually(look)
    return seen[0]


def test_families_that_facts_need_are_kept_and_the_rest_is_not(
    page: tuple[str, dict[str, str]], tmp_path: Path
) -> None:
    """If false, flat counters would not be seen, or the journal would hold every bucket of every histogram."""
    url, content = page
    content["text"] = '# HELP x\nsglang:num_running_reqs{tp_rank="0"} 4.0\nsglang:e2e_bucket{le="1"} 7\n'
    source = Metrics(engine(url=url), Ring(tmp_path), scrape_every_s=0.01)
    seen = first_said(source)
    source.close()

    assert isinstance(seen, Scrape) and dict(seen.samples) == {'sglang:num_running_reqs{tp_rank="0"}': 4.0}


def test_a_page_that_never_answers_is_evidence(tmp_path: Path) -> None:
    """If false, a frozen front end would look like one without metrics."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        source = Metrics(engine(url=f"http://127.0.0.1:{silent.getsockname()[1]}"), Ring(tmp_path))
        seen = first_said(source)
        source.close()

    assert isinstance(seen, HealthProbe) and seen.status is None and seen.latency_ms is not None


def test_background_work_that_fails_is_raised_where_it_is_asked_for() -> None:
    """If false, a source that fails on its own thread would be silent for ever and nobody would know."""

    def work() -> list[Said]:
        raise RuntimeError("broken")

    background = Background("test", 3600.0, work)
    eventually(lambda: background.error)

    with pytest.raises(RuntimeError, match="broken"):
        list(background.drain())
    assert list(background.drain()) == []


def test_a_full_outbox_drops_the_oldest_and_counts() -> None:
    """If false, a loop that is held up would make the agent's memory grow."""
    seen = HealthProbe(origin=Origin("test"), url="/", status=200)
    background = Background("test", 3600.0, lambda: [Said(None, seen)] * 100)
    eventually(lambda: background.dropped)

    assert background.dropped == 36 and len(list(background.drain())) == 64
    background.close()
