"""What is left to see, and to use, when a process is stopped, killed, forked or sandboxed."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tables import LAYER, Child, eventually, expected_rows, some_ids

from sentinel_engine.rowstore import telemetry_layout as layout
from sentinel_engine.rowstore.cli import main

HUNG = """
import sys
import numpy as np
from pathlib import Path
from sentinel_engine.rowstore import Store
store = Store(Path(sys.argv[1]), mode="nvme", lanes=1, inject=True, telemetry=sys.argv[2],
              hard_ms=600000, cache_policy="none")
store.inject("fault=delay ms=600000")
out = np.empty((1, 264), np.uint8)
ticket = store.submit(7, np.array([131], np.int64), out)
print("ready", flush=True)
sys.stdin.readline()
"""

FORKED = """
import os, sys
import numpy as np
from pathlib import Path
from sentinel_engine.rowstore import Store
store = Store(Path(sys.argv[1]), mode=sys.argv[2], lanes=1)
ids = np.array([101], np.int64)
before = store.gather(7, ids).status
child = os.fork()
if child == 0:
    os._exit(0 if store.gather(7, ids).status == "forked" else 1)
_, status = os.waitpid(child, 0)
print(before, os.waitstatus_to_exitcode(status), store.gather(7, ids).status, flush=True)
store.close()
"""

NO_IO_URING = """
import ctypes, struct, sys
import numpy as np
from pathlib import Path
from sentinel_engine.rowstore import Store
SECCOMP_RET_ERRNO, ALLOW, EPERM, IO_URING_SETUP = 0x00050000, 0x7fff0000, 1, 425
program = b"".join(struct.pack("HBBI", *line) for line in (
    (0x20, 0, 0, 0),                               # load the system call's number
    (0x15, 0, 1, IO_URING_SETUP),                  # is it io_uring_setup?
    (0x06, 0, 0, SECCOMP_RET_ERRNO | EPERM),
    (0x06, 0, 0, ALLOW),
))
buffer = ctypes.create_string_buffer(program)
class Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0             # no new privileges
assert libc.prctl(22, 2, ctypes.byref(Filter(4, ctypes.addressof(buffer)))) == 0
with Store(Path(sys.argv[1]), mode="nvme", lanes=1) as store:
    reason = store.info()["io_reason"]
    got = store.gather(7, np.array([101], np.int64))
print(got.status, "not uring" in reason and "not permitted" in reason, flush=True)
"""

SMALL_MEMLOCK = """
import ctypes, resource, struct, sys
from pathlib import Path
from sentinel_engine.rowstore import Store, StoreRefused
libc = ctypes.CDLL(None, use_errno=True)
head = ctypes.create_string_buffer(struct.pack("Ii", 0x20080522, 0))
data = (ctypes.c_uint32 * 6)()
assert libc.capget(head, data) == 0
data[0] &= ~(1 << 14)                              # CAP_IPC_LOCK out of the effective set
assert libc.capset(head, data) == 0
resource.setrlimit(resource.RLIMIT_MEMLOCK, (1 << 20, 1 << 20))
try:
    Store(Path(sys.argv[1]), mode="ram", lanes=1, reserve_bytes=0)
except StoreRefused as error:
    print(error.status, "RLIMIT_MEMLOCK" in str(error), flush=True)
with Store(Path(sys.argv[1]), mode="nvme", lanes=1) as store:
    print(store.switch("ram").status, flush=True)
"""


def shown(capsys: pytest.CaptureFixture[str], page: Path) -> str:
    main(["stat", str(page)])
    return capsys.readouterr().out.splitlines()[0]


def stuck(page: Path) -> bool:
    if not page.exists() or len(page.read_bytes()) < layout.PAGE_BYTES:
        return False
    return layout.oldest_read(page.read_bytes()) is not None


@pytest.fixture
def hung(table: Path, tmp_path: Path, child: Callable[..., Child]) -> tuple[Child, Path]:
    page = tmp_path / "page"
    engine = child(HUNG, table, page)
    engine.expect("ready")
    eventually(lambda: stuck(page), "the read is listed")
    return engine, page


def test_the_page_of_a_stopped_process_is_readable(
    hung: tuple[Child, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    engine, page = hung
    engine.process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, engine.process.pid, os.WSTOPPED)

    assert "stopped" in shown(capsys, page)
    before = layout.read_record(page.read_bytes(), "header")["heartbeat_seq"]
    lane = layout.read_lane(page.read_bytes(), 0)
    assert lane.is_open and lane.state == "wait_io"

    engine.process.send_signal(signal.SIGCONT)
    eventually(
        lambda: layout.read_record(page.read_bytes(), "header")["heartbeat_seq"] != before,
        "the heart beats again",
    )
    assert "alive" in shown(capsys, page)


def test_the_page_of_a_killed_process_is_a_post_mortem(
    hung: tuple[Child, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    engine, page = hung
    engine.kill()

    assert "post-mortem" in shown(capsys, page)
    oldest = layout.oldest_read(page.read_bytes())
    assert oldest is not None and oldest["page"] == 2
    assert layout.read_lane(page.read_bytes(), 0).is_open


@pytest.mark.parametrize("mode", ["nvme", "ram"])
def test_a_forked_child_gets_an_error_and_the_parent_goes_on(
    table: Path, child: Callable[..., Child], mode: str
) -> None:
    process = child(FORKED, table, mode)
    process.expect("ok 0 ok")

    assert process.end() == 0


def test_a_sandbox_without_io_uring_gets_another_engine(
    table: Path, child: Callable[..., Child]
) -> None:
    process = child(NO_IO_URING, table)
    process.expect("ok True")

    assert process.end() == 0


def test_a_small_memlock_limit_is_named(tmp_path: Path, child: Callable[..., Child],
                                        table: Path) -> None:
    process = child(SMALL_MEMLOCK, table)
    process.expect("no_memory True")
    process.expect("no_memory")

    assert process.end() == 0


CRASH_LOOP = """
import sys
import numpy as np
from pathlib import Path
from sentinel_engine.rowstore import Store
store = Store(Path(sys.argv[1]), mode="nvme", lanes=1, telemetry=sys.argv[2], cache_bytes=300000)
ids = np.random.default_rng(1).integers(101, 4000, 200)
print("ready", flush=True)
while True:
    store.gather(7, ids)
"""


def test_pages_of_processes_killed_anywhere_can_be_read(
    table: Path, tmp_path: Path, child: Callable[..., Child]
) -> None:
    page = tmp_path / "page"
    for _ in range(5):
        process = child(CRASH_LOOP, table, page)
        process.expect("ready")
        eventually(
            lambda: layout.read_record(page.read_bytes(), "counters")["gathers"] != 0, "running"
        )
        process.kill()
        content = page.read_bytes()
        layout.check_page(content)
        lane = layout.read_lane(content, 0)
        assert lane.torn == (int(str(lane.fields["seq"])) % 2 == 1)


def test_the_expected_rows_differ_from_their_neighbours() -> None:
    """A control for all parity tests: a shift by one row must not go unnoticed."""
    ids = some_ids(100)

    assert (expected_rows(ids) != expected_rows(ids + 1)).any(axis=1).all()
    assert (expected_rows(ids) != expected_rows(ids, layer=LAYER + 1)).any(axis=1).all()
    assert np.unique(expected_rows(np.unique(ids)), axis=0).shape[0] == len(np.unique(ids))
