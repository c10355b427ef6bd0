"""The agent's side of the privileged helper (`sentinel.helper.server`): asks when it may not look for itself."""

import contextlib
import json
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import msgspec

from sentinel.model.engine import ProcessId

SOCKET = Path("/run/sentinel-helper.sock")
KERNEL_STACKS_SOCKET = Path("/run/sentinel-kstack.sock")
DEADLINE_S = 12.0
LOOP_DEADLINE_S = 2.0
"""For what the agent's loop itself asks; the rest is asked on threads of their own."""
HEADER_BYTES_MAX = 4096
BYTES_MAX = 8 << 20
CAP_SYS_PTRACE = 19
KEPT_MAX = 256
AGAIN_S = 60.0


class _Header(msgspec.Struct, frozen=True):
    v: int
    ok: bool
    bytes: int
    why: str = ""


class Described(msgspec.Struct, frozen=True):
    """Where a process's output goes (`fd/1`, `fd/2`), and the settings of it that may be told."""

    links: Mapping[str, str] = {}
    settings: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Told:
    """An answer, or why there is none. `fd` is the caller's to close; -1 when none came."""

    data: bytes = b""
    why: str = ""
    fd: int = -1


@dataclass(slots=True)
class Helper:
    """Asks through `path`. Every call is bounded; nothing is raised for what the helper does or does not do."""

    path: Path = SOCKET
    _described: dict[ProcessId, tuple[float, Described]] = field(default_factory=dict)

    def wanted(self) -> bool:
        """Whether to ask: this process may not trace others, and there is somebody who may."""
        return not _may_trace() and self.path.exists()

    def ask(self, verb: str, target: ProcessId | None = None, deadline_s: float = DEADLINE_S) -> Told:
        """One question, which takes no longer than `deadline_s`, a trickling answer included."""
        until_s = time.monotonic() + deadline_s
        request: dict[str, object] = {"v": 1, "verb": verb}
        if target is not None:
            request |= {"pid": target.pid, "started_ticks": target.started_ticks}
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as client:
                client.settimeout(deadline_s)
                client.connect(str(self.path))
                client.sendall(json.dumps(request).encode() + b"\n")
                return _answer(client, until_s, with_fd=target is None)
        except (OSError, msgspec.MsgspecError, ValueError, RecursionError) as error:
            return Told(why=f"helper: {error}")

    def describe(self, target: ProcessId) -> Described:
        """What the helper tells of a process; kept, and asked again a minute after a refusal."""
        now_s = time.monotonic()
        known = self._described.get(target)
        if known is not None and (known[1].links or now_s - known[0] < AGAIN_S):
            return known[1]
        told, described = self.ask("describe", target, LOOP_DEADLINE_S), Described()
        if told.data:
            with contextlib.suppress(msgspec.MsgspecError, RecursionError):
                described = msgspec.json.decode(told.data, type=Described)
        if len(self._described) >= KEPT_MAX:
            self._described.clear()
        self._described[target] = (now_s, described)
        return described


HELPER = Helper()
"""The one that the units install."""
KERNEL_STACKS = Helper(KERNEL_STACKS_SOCKET)
"""The optional service with the one verb `kernel_stacks`."""


def _answer(client: socket.socket, until_s: float, *, with_fd: bool) -> Told:
    """The answer; a descriptor that comes without being asked for is closed."""
    data, fds, _, _ = socket.recv_fds(client, 1 << 16, 1)
    fd = fds[0] if fds else -1
    try:
        told = _told(client, data, until_s)
    except BaseException:
        _close(fd)
        raise
    if told.why or not with_fd:
        _close(fd)
        return told
    return Told(data=told.data, fd=fd)


def _close(fd: int) -> None:
    if fd >= 0:
        os.close(fd)


def _told(client: socket.socket, data: bytes, until_s: float) -> Told:
    while b"\n" not in data and len(data) <= HEADER_BYTES_MAX and (part := _part(client, 1 << 16, until_s)):
        data += part
    line, _, body = data.partition(b"\n")
    header = msgspec.json.decode(line, type=_Header)
    if not header.ok or not 0 <= header.bytes <= BYTES_MAX:
        return Told(why=f"helper: {header.why or 'an answer of an unlikely size'}")
    parts, missing = [body], header.bytes - len(body)
    while missing > 0 and (part := _part(client, min(missing, 1 << 16), until_s)):
        parts.append(part)
        missing -= len(part)
    return Told(data=b"".join(parts)) if missing == 0 else Told(why="helper: the answer was cut")


def _part(client: socket.socket, size: int, until_s: float) -> bytes:
    """What comes next; nothing at the end or when time is up. Raises TimeoutError when it comes too late."""
    left_s = until_s - time.monotonic()
    if left_s <= 0:
        return b""
    client.settimeout(left_s)
    return client.recv(size)


@cache
def _may_trace() -> bool:
    """Whether this process holds CAP_SYS_PTRACE; it neither gains nor loses it while it runs."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> CAP_SYS_PTRACE & 1)
    return os.geteuid() == 0
