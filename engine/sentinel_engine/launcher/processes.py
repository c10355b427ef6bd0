"""Processes of an engine on this host, found by what their environment says."""

import os
import select
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from .plan import INCARNATION_KEY, NAME_KEY, NODE_KEY


@dataclass(frozen=True, slots=True)
class Member:
    """A process that carries an engine's name; zombies do not count."""

    pid: int
    state: str
    started_ticks: int
    node: str
    incarnation: str
    command: str


def _stat(pid: int) -> tuple[str, int] | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return fields[0], int(fields[19])


def started_ticks(pid: int) -> int | None:
    """Start time in clock ticks since boot, which tells a reused pid; None when gone."""
    stat = _stat(pid)
    return stat[1] if stat else None


def alive(pid: int, ticks: int | None) -> bool:
    """The same process is there and is no zombie."""
    stat = _stat(pid)
    return stat is not None and stat[0] not in "ZX" and stat[1] == ticks


def _member(pid: int, name: str) -> Member | None:
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
        command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return None
    environment = dict(pair.partition("=")[::2] for pair in raw.split("\0"))
    stat = _stat(pid)
    if environment.get(NAME_KEY) != name or stat is None or stat[0] in "ZX":
        return None
    return Member(pid, *stat, environment.get(NODE_KEY, ""), environment.get(INCARNATION_KEY, ""),
                  command.replace("\0", " ").strip())  # fmt: skip


def members(name: str) -> list[Member]:
    """Every process of this host that carries the name and that this user may look at."""
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())
    found = (_member(pid, name) for pid in pids)
    return sorted((each for each in found if each), key=lambda member: member.started_ticks)


def send(member: Member, number: signal.Signals) -> None:
    """Signal a process unless it is gone or its pid is another's by now."""
    with suppress(ProcessLookupError):
        descriptor = os.pidfd_open(member.pid)
        try:
            if alive(member.pid, member.started_ticks):
                signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)


def wait_gone(those: Iterable[Member], limit_s: float) -> list[Member]:
    """Wait for processes to end; returns those that had not after `limit_s`."""
    give_up = time.monotonic() + limit_s
    left = []
    for member in those:
        try:
            descriptor = os.pidfd_open(member.pid)
        except ProcessLookupError:
            continue
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        # A pidfd becomes readable when the process ends, also before it is reaped.
        poll.poll(max(0.0, give_up - time.monotonic()) * 1000)
        if alive(member.pid, member.started_ticks):
            left.append(member)
        os.close(descriptor)
    return left
