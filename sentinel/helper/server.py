"""One connection: one request line, one answer. What is asked is looked at before anything is done.

Request: a JSON object on one line of at most 1024 bytes, `{"v":1,"verb":...,"pid":...,"started_ticks":...}`. Answer: a
JSON object on one line, `{"v":1,"ok":...,"bytes":N,"why":...}`, and N bytes. `kernel_log` answers with a descriptor of
/dev/kmsg for reading (SCM_RIGHTS) instead of bytes.
"""

import array
import contextlib
import json
import os
import shutil
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sentinel.helper.policy import Policy
from sentinel.plumbing.subprocesses import run_bounded

REQUEST_BYTES_MAX = 1024
REQUEST_S = 5.0
ANSWER_S = 10.0
TOOL_S = 8.0
ANSWER_BYTES_MAX = 4 << 20
THREADS_MAX = 4096
PID_MAX = 1 << 22
KMSG = Path("/dev/kmsg")
PATH = "/usr/bin:/bin"
SETTINGS = (b"JOURNAL_STREAM", b"NCCL_DEBUG_FILE", b"VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS")
"""The only variables of a process's environment that are ever told. None of them holds a secret."""
LINKS = ("fd/1", "fd/2")
NOT_ATTACHED = "DTtZX"


@dataclass(frozen=True, slots=True)
class Target:
    """The process that is asked about: a pid alone may belong to another one by now."""

    pid: int
    started_ticks: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back."""

    data: bytes = b""
    why: str = ""
    fd: int = -1


Verb = Callable[[Target], Answer]
Verbs = Mapping[str, Verb | None]
"""What one service answers; None for the kernel log, which belongs to no process."""


def serve(client: socket.socket, policy: Policy, verbs: Verbs | None = None) -> str:
    """Answer one request, of the helper's own verbs unless told others; returns a line for the log."""
    verbs = VERBS if verbs is None else verbs
    uid = peer_uid(client)
    verb, target, answer = "?", None, Answer(why="user not allowed; list it in helper.conf")
    if policy.admits(uid):
        try:
            verb, target = parse(_line(client), verbs)
            answer = _checked(verbs[verb], target, policy)
        except ValueError as error:
            answer = Answer(why=str(error))
        except OSError as error:
            answer = Answer(why=f"no request: {error}")
    client.settimeout(ANSWER_S)
    with contextlib.suppress(OSError):
        _send(client, answer)
    who = "" if target is None else f" pid={target.pid}"
    # What a tool printed may quote names that the target chose.
    why = "".join(char if char.isprintable() else "?" for char in answer.why)
    return f"uid={uid} verb={verb}{who} {'ok' if not why else f'refused: {why}'}"


def peer_uid(client: socket.socket) -> int:
    """Who is at the other end, as the kernel knows it."""
    _, uid, _ = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return int(uid)


def parse(line: bytes, verbs: Verbs | None = None) -> tuple[str, Target | None]:
    """(verb, target) of a request. Raises ValueError on anything but a request that this version knows."""
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError("the request is no JSON object") from None
    if not isinstance(request, dict) or request.get("v") != 1:
        raise ValueError("only version 1 is understood")
    verb = request.get("verb")
    verbs = VERBS if verbs is None else verbs
    if not isinstance(verb, str) or verb not in verbs:
        raise ValueError("no such verb")
    if verbs[verb] is None:
        if request.keys() != {"v", "verb"}:
            raise ValueError("kernel_log takes nothing else")
        return verb, None
    if request.keys() != {"v", "verb", "pid", "started_ticks"}:
        raise ValueError("pid and started_ticks are needed, and nothing else")
    pid, ticks = request["pid"], request["started_ticks"]
    if type(pid) is not int or type(ticks) is not int or not 1 < pid <= PID_MAX or not 0 < ticks < 1 << 62:
        raise ValueError("pid or started_ticks is out of range")
    return verb, Target(pid, ticks)


def _checked(verb: Verb | None, target: Target | None, policy: Policy) -> Answer:
    if target is None or verb is None:
        return _kernel_log()
    if not _is(target):
        return Answer(why="the process is gone")
    if not any(policy.covers(group) for group in cgroups(target.pid)):
        return Answer(why="its control group is not allowed; list it in helper.conf")
    answer = verb(target)
    # What a tool read of a pid that changed hands meanwhile belongs to somebody else.
    return answer if _is(target) else Answer(why="the process ended while it was looked at")


def cgroups(pid: int) -> list[str]:
    """Control groups of a process that systemd manages: the unified one and its own named hierarchy (cgroups(7))."""
    found = []
    for line in _read(f"/proc/{pid}/cgroup").decode(errors="replace").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if (number == "0" and not controllers) or controllers == "name=systemd":
            found.append(path)
    return found


def threads(target: Target) -> Answer:
    """Every thread with name, wait channel, system call and statistics, a line each."""
    lines = [f"# pid {target.pid}, one line a thread: tid ; comm= ; wchan= ; syscall= ; stat="]
    tasks = f"/proc/{target.pid}/task"
    try:
        tids = threads_of(target)
    except OSError as error:
        return Answer(why=f"{tasks}: {error.strerror}")
    for tid in tids:
        fields = (f"{name}={one_line(f'{tasks}/{tid}/{name}')}" for name in ("comm", "wchan", "syscall", "stat"))
        lines.append(f"{tid} ; " + " ; ".join(fields))
    return Answer(data=("\n".join(lines) + "\n").encode())


def threads_of(target: Target) -> list[int]:
    """Numbers of its threads, at most `THREADS_MAX`. Raises OSError."""
    return sorted(int(entry) for entry in os.listdir(f"/proc/{target.pid}/task") if entry.isdecimal())[:THREADS_MAX]


def python_stacks(target: Target) -> Answer:
    """Python stacks without a pause of the process, and never with local variables."""
    return _tool(target, "py-spy", "dump", "--nonblocking", "--json", "--pid", str(target.pid))


def native_stacks(target: Target) -> Answer:
    """Native stacks; attaches thread by thread for milliseconds, and only to what can be stopped and continued."""
    if (state := _state(target.pid)) in NOT_ATTACHED:
        return Answer(why=f"not attached to a process in state {state}")
    answer = _tool(target, "eu-stack", "-p", str(target.pid))
    if _state(target.pid) == "T":
        with contextlib.suppress(OSError):
            os.kill(target.pid, signal.SIGCONT)
    return answer


def describe(target: Target) -> Answer:
    """Where output goes and the few settings of `SETTINGS`, as JSON."""
    links = {}
    for name in LINKS:
        with contextlib.suppress(OSError):
            links[name] = str(Path(f"/proc/{target.pid}/{name}").readlink())
    entries = (entry.partition(b"=") for entry in _read(f"/proc/{target.pid}/environ").split(b"\0"))
    settings = {name.decode(): value.decode(errors="replace")[:4096] for name, _, value in entries if name in SETTINGS}
    return Answer(data=json.dumps({"links": links, "settings": settings}).encode())


OF_PROCESSES: dict[str, Verb] = {
    "threads": threads,
    "python_stacks": python_stacks,
    "native_stacks": native_stacks,
    "describe": describe,
}
"""Every verb that looks at a process. There is no other way in."""
VERBS: Verbs = {**OF_PROCESSES, "kernel_log": None}


def _kernel_log() -> Answer:
    try:
        return Answer(fd=os.open(KMSG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        return Answer(why=f"{KMSG}: {error.strerror}")


def _tool(target: Target, name: str, *arguments: str) -> Answer:
    beside = Path(sys.executable).parent / name
    path = str(beside) if beside.is_file() else shutil.which(name, path=PATH)
    if path is None:
        return Answer(why=f"{name} is not installed")
    ran = run_bounded([path, *arguments], deadline_s=TOOL_S, bytes_max=ANSWER_BYTES_MAX, env={"PATH": PATH})
    if ran.ok and ran.stdout:
        return Answer(data=ran.stdout)
    return Answer(why=ran.why or ran.said_first[:200] or f"{name} of {target.pid} printed nothing")


def _is(target: Target) -> bool:
    fields = _read(f"/proc/{target.pid}/stat").rpartition(b")")[2].split()
    return len(fields) > 19 and fields[0] not in (b"Z", b"X") and int(fields[19]) == target.started_ticks


def _state(pid: int) -> str:
    fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return fields[0].decode() if fields else "X"


def _line(client: socket.socket) -> bytes:
    """The request; all of it has to come within `REQUEST_S`, however slowly its bytes do."""
    data, until_s = b"", time.monotonic() + REQUEST_S
    while not data.endswith(b"\n"):
        client.settimeout(max(0.001, until_s - time.monotonic()))
        part = client.recv(REQUEST_BYTES_MAX + 1 - len(data))
        if not part:
            raise ValueError("the request does not end with a newline")
        data += part
        if len(data) > REQUEST_BYTES_MAX:
            raise ValueError(f"the request is longer than {REQUEST_BYTES_MAX} bytes")
    return data


def _send(client: socket.socket, answer: Answer) -> None:
    header = {"v": 1, "ok": not answer.why, "bytes": len(answer.data), "why": answer.why}
    line = json.dumps(header).encode() + b"\n"
    if answer.fd >= 0:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [answer.fd]))]
        client.sendmsg([line], rights)
        os.close(answer.fd)
    else:
        client.sendall(line + answer.data)


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(1 << 20)
    except OSError:
        return b""


def one_line(path: str) -> str:
    """The start of a file with its lines joined; empty when it cannot be read."""
    return " | ".join(_read(path)[:4096].decode(errors="replace").split("\n")).strip(" |")
