"""Reads of /proc that every part of the agent needs: identity, arguments, environment, links.

Formats: proc(5). Nothing here touches memory-map files, which can stall the process they describe.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from sentinel.engines.adapter import ProcessView
from sentinel.model.engine import ProcessId

PROC = Path("/proc")
ENVIRON_PREFIXES = ("NCCL_", "SGLANG_", "SGL_", "VLLM_", "TORCH_", "CUDA_", "SENTINEL_", "JOURNAL_STREAM")
_PREFIXES = tuple(prefix.encode() for prefix in ENVIRON_PREFIXES)
TREE_MAX = 4096
STACK_TOOLS = frozenset({"py-spy", "eu-stack", "pystack"})
STAT_BYTES_MAX = 4096
CMDLINE_BYTES_MAX = 64 << 10
ENVIRON_BYTES_MAX = 1 << 20


def inodes(proc: Path = PROC) -> dict[int, int]:
    """All process ids, each with the inode of its folder: another number means another process."""
    with os.scandir(proc) as entries:
        return {int(entry.name): entry.inode() for entry in entries if entry.name.isdecimal()}


def stat_fields(pid: int, proc: Path = PROC) -> list[str] | None:
    """Fields of /proc/PID/stat from the state letter on (field 3 is index 0); None when the process is gone.

    The command name is in parentheses and may hold any character, so the line is split at the last one.
    """
    stat = _read(f"{proc}/{pid}/stat", STAT_BYTES_MAX)
    return None if stat is None else stat.decode(errors="replace").rpartition(")")[2].split()


def identity(pid: int, proc: Path = PROC) -> tuple[ProcessId, int] | None:
    """(identity, parent pid); None when it is gone or a zombie."""
    fields = stat_fields(pid, proc)
    if fields is None or len(fields) < 20 or fields[0] in "ZX":
        return None
    return ProcessId(pid, int(fields[19])), int(fields[1])


def still_same(target: ProcessId, proc: Path = PROC) -> bool:
    """Whether the pid still belongs to the process that was meant."""
    found = identity(target.pid, proc)
    return found is not None and found[0] == target


def tracer_of(pid: int, proc: Path = PROC) -> int | None:
    """Pid of the process that traces this one; None when nobody does or it cannot be told."""
    status = _read(f"{proc}/{pid}/status", CMDLINE_BYTES_MAX) or b""
    for line in status.split(b"\n"):
        if line.startswith(b"TracerPid:"):
            tracer = int(line.split()[1])
            return tracer or None
    return None


def cmdline(pid: int, proc: Path = PROC) -> bytes:
    """The raw arguments; empty for kernel threads, zombies and processes that are gone."""
    return _read(f"{proc}/{pid}/cmdline", CMDLINE_BYTES_MAX) or b""


def held_by_stack_tool(pid: int, proc: Path = PROC) -> bool:
    """Whether what traces a process is a stack tool, ours or anybody's: it lets go within a second."""
    tracer = tracer_of(pid, proc)
    words = () if tracer is None else _words(cmdline(tracer, proc))
    # gdb is one only when it runs by itself: a person in a debugger holds a process for as long as the person likes.
    by_itself = bool(words) and words[0].rpartition("/")[2] == "gdb" and bool({"-batch", "--batch"}.intersection(words))
    return by_itself or any(word.rpartition("/")[2] in STACK_TOOLS for word in words[:3])


def view(pid: int, proc: Path = PROC) -> ProcessView | None:
    """A process as adapters want it; None when it is gone."""
    found = identity(pid, proc)
    if found is None:
        return None
    argv = _words(cmdline(pid, proc))
    environ = _read(f"{proc}/{pid}/environ", ENVIRON_BYTES_MAX)
    return ProcessView(
        id=found[0],
        ppid=found[1],
        argv=argv,
        environ=_settings(environ or b""),
        environ_readable=environ is not None,
    )


def tree(root: int, proc: Path = PROC) -> list[int]:
    """A process and its descendants, parents first, at most `TREE_MAX` of them."""
    found, queue = [root], [root]
    while queue and len(found) < TREE_MAX:
        pid = queue.pop(0)
        for path in sorted((proc / str(pid) / "task").glob("*/children")):
            children = [int(word) for word in (_read(str(path), CMDLINE_BYTES_MAX) or b"").split()]
            fresh = [child for child in children if child not in found]
            found += fresh
            queue += fresh
    return found[:TREE_MAX]


def link(pid: int, name: str, proc: Path = PROC) -> str | None:
    """Target of a link such as `fd/1` or `cwd`; None when it cannot be read."""
    try:
        return str((proc / str(pid) / name).readlink())
    except OSError:
        return None


def _words(cmdline: bytes) -> tuple[str, ...]:
    # A title written over the arguments is padded with spaces or zeros.
    return tuple(word.decode(errors="replace").strip() for word in cmdline.split(b"\0") if word.strip())


def _settings(environ: bytes) -> Mapping[str, str]:
    kept = (entry for entry in environ.split(b"\0") if entry.startswith(_PREFIXES))
    pairs = (entry.decode(errors="replace").partition("=") for entry in kept)
    return {name: value for name, equals, value in pairs if equals}


def _read(path: str, limit: int) -> bytes | None:
    """A small file of /proc. Plain system calls: this is most of what the agent does all day."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        data = os.read(fd, limit)
        while len(data) < limit and (more := os.read(fd, limit - len(data))):
            data += more
        return data
    except OSError:
        return None
    finally:
        os.close(fd)
