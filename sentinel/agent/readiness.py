"""Would the evidence be there? Asked for every rank before anything hangs, with one line on how to repair what is not.

Nothing here attaches to a process. Opening `/proc/PID/mem` asks the kernel the same question as an attach
(PTRACE_MODE_ATTACH, ptrace(2), security modules included) without stopping anything.
"""

import os
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from sentinel.agent import ladder, procfs, ras
from sentinel.agent.helper import HELPER
from sentinel.agent.journal_follow import COMMAND, PREFIX
from sentinel.agent.sources import kernel
from sentinel.model.engine import Engine, EngineProcess

CONNECT_S = 0.5
EVERY_S = 300.0
FLIGHT_PIPE = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
PACKAGES = {
    "py-spy": "pip install py-spy",
    "pystack": "pip install pystack",
    "eu-stack": "install the package elfutils",
    "gdb": "install the package gdb",
}
RIGHTS_FIX = "run the agent as root or grant CAP_SYS_PTRACE; in a container --cap-add SYS_PTRACE"
HELPER_FIX = "list the engine's control group in /etc/sentinel/helper.conf: allow-cgroup /system.slice/UNIT"
KERNEL_LOG_FIX = "start sentinel-helper.socket, run as root, grant CAP_SYSLOG, or sysctl kernel.dmesg_restrict=0"
TRACE_FIX = "start the engine with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,COLL NCCL_DEBUG_FILE=/var/log/nccl.%h.%p"
FLIGHT_FIX = f"start the engine with {FLIGHT_PIPE}=/run/torch-dump- and TORCH_FR_BUFFER_SIZE=2000"


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One question and its answer. `engine` None for the host, `rank` None for the engine as a whole."""

    what: str
    ok: bool
    says: str
    fix: str = ""
    engine: str | None = None
    pid: int | None = None
    rank: int | None = None


class Readiness:
    """Asks on a thread of its own, when the engines change and every few minutes; `checks` is the newest answer."""

    def __init__(self) -> None:
        self._checks: tuple[Check, ...] = ()
        self._asked: tuple[Engine, ...] | None = None
        self._asked_s = 0.0
        self._thread: threading.Thread | None = None

    def look(self, engines: tuple[Engine, ...]) -> None:
        """Ask again if it is time. Never waits."""
        busy = self._thread is not None and self._thread.is_alive()
        now_s = time.monotonic()
        if busy or (engines == self._asked and now_s - self._asked_s < EVERY_S):
            return
        self._asked, self._asked_s = engines, now_s
        self._thread = threading.Thread(target=self._ask, args=(engines,), name="readiness", daemon=True)
        self._thread.start()

    def checks(self) -> tuple[Check, ...]:
        """The newest answers; empty before the first."""
        return self._checks

    def _ask(self, engines: tuple[Engine, ...]) -> None:
        self._checks = (*host(), *(check for one in engines for check in of_engine(one)))


def host() -> Iterator[Check]:
    """Tools and the kernel log."""
    for name, path in ladder.available().items():
        yield Check(what=name, ok=path is not None, says=path or "not installed", fix="" if path else PACKAGES[name])
    try:
        os.close(kernel.opened())
    except OSError as error:
        yield Check(what="kernel log", ok=False, says=f"{kernel.DEVICE}: {error.strerror}", fix=KERNEL_LOG_FIX)
    else:
        yield Check(what="kernel log", ok=True, says="readable")


def of_engine(engine: Engine) -> Iterator[Check]:
    """An engine's log, its metrics, its collectives, and whether each rank may be looked into."""
    yield _log(engine)
    if engine.url is not None:
        yield _metrics(engine)
    yield _ras(engine)
    for process in engine.ranks:
        yield _ptrace(engine, process)
        yield from _settings(engine, process)


def _log(engine: Engine) -> Check:
    path = next((process.log for process in engine.processes if process.log), None)
    if path is None and (why := _why_not(procfs.PROC / str(engine.root.pid) / "fd", os.O_RDONLY)):
        return Check(what="engine log", ok=False, says=why, fix=RIGHTS_FIX, engine=engine.key)
    if path is None:
        fix = "send the engine's output to a file (`>> engine.log 2>&1`)"
        return Check(what="engine log", ok=False, says="goes to a pipe or a terminal", fix=fix, engine=engine.key)
    if path.startswith(PREFIX):
        why = "" if shutil.which(COMMAND[0]) else f"{COMMAND[0]} is not installed"
        fix = "install systemd's journalctl, or send the engine's output to a file" if why else ""
        return Check(what="engine log", ok=not why, says=why or path, fix=fix, engine=engine.key)
    why = _why_not(Path(path), os.O_RDONLY | os.O_NONBLOCK)
    fix = f"let the agent read it: setfacl -m u:{os.geteuid()}:r {path}" if why else ""
    return Check(what="engine log", ok=not why, says=why or path, fix=fix, engine=engine.key)


def _metrics(engine: Engine) -> Check:
    parts = urlsplit(engine.url or "")
    where = f"{parts.hostname}:{parts.port}"
    try:
        with socket.create_connection((parts.hostname or "", parts.port or 80), CONNECT_S) as client:
            client.settimeout(CONNECT_S)
            client.sendall(f"GET /metrics HTTP/1.0\r\nHost: {where}\r\n\r\n".encode())
            first = client.recv(64).partition(b"\r\n")[0].decode(errors="replace")
    except OSError as error:
        first = f"{where}: {error.strerror or error}"
    ok = " 200 " in f"{first} "
    fix = "" if ok else "start the engine with its metrics on (SGLang: --enable-metrics)"
    return Check(what="metrics", ok=ok, says=where if ok else first, fix=fix, engine=engine.key)


def _ras(engine: Engine) -> Check:
    try:
        socket.create_connection(ras.ADDRESS, CONNECT_S).close()
    except OSError as error:
        fix = "NCCL 2.24 or newer answers there unless NCCL_RAS_ENABLE=0"
        return Check(what="NCCL RAS", ok=False, says=str(error.strerror or error), fix=fix, engine=engine.key)
    return Check(what="NCCL RAS", ok=True, says="{}:{}".format(*ras.ADDRESS), engine=engine.key)


def _ptrace(engine: Engine, process: EngineProcess) -> Check:
    why = _why_not(procfs.PROC / str(process.id.pid) / "mem", os.O_RDONLY)
    says, fix = why or "ptrace is allowed", RIGHTS_FIX if why else ""
    if why and HELPER.wanted():
        told = HELPER.ask("describe", process.id)
        says, why, fix = told.why or "through the helper", told.why, HELPER_FIX if told.why else ""
    return Check(
        what="stacks", ok=not why, says=says, fix=fix, engine=engine.key, pid=process.id.pid,
        rank=process.rank,
    )  # fmt: skip


def _settings(engine: Engine, process: EngineProcess) -> Iterator[Check]:
    """What only the engine's own environment can switch on."""
    view = procfs.view(process.id.pid)
    if view is None:
        return
    unreadable = "" if view.environ_readable else "the environment of the process cannot be read"
    answers = (
        ("NCCL trace", process.nccl_debug_file, "not written", TRACE_FIX),
        ("flight recorder", view.environ.get(FLIGHT_PIPE), "no pipe", FLIGHT_FIX),
    )
    for what, value, otherwise, fix in answers:
        yield Check(
            what=what, ok=value is not None, says=value or unreadable or otherwise, fix="" if value else fix,
            engine=engine.key, pid=process.id.pid, rank=process.rank,
        )  # fmt: skip


def _why_not(path: Path, flags: int) -> str:
    """Why a file cannot be opened; empty when it can."""
    try:
        os.close(os.open(path, flags | os.O_CLOEXEC))
    except OSError as error:
        return f"{path}: {error.strerror}"
    return ""
