"""What makes two incidents the same kind: the verdict's class and where the ranks stood, without numbers of lines."""

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from sentinel.model.observation import Environment, NcclNote, Notice, Observation, Ras, Stack, Thread
from sentinel.model.verdict import Verdict
from sentinel.record.manifest import Stand

FRAMES = 6
_TOOLS = ("py-spy", "pystack", "faulthandler", "gdb", "eu-stack")
"""Python's own view of a process first: its main thread is known, its places are the engine's."""
_NUMBER = re.compile(r"\d+")
_VERSION = re.compile(r"(?i)\bversion[ :=]{1,3}v?(\d{1,4}(?:\.\d{1,6}){1,3}[\w.+-]{0,40})")
_NCCL = re.compile(r"NCCL version (\S{1,40})")


def stands(observations: Iterable[Observation]) -> tuple[Stand, ...]:
    """Places where processes stood in their last dump, most populated first."""
    last: dict[tuple[str | None, int | None, str], Stack] = {}
    for seen in observations:
        if not isinstance(seen, Stack) or not seen.threads:
            continue
        key = (seen.host, seen.pid, seen.origin.file if seen.pid is None else "")
        known = last.get(key)
        if known is None or _TOOLS.index(seen.tool) <= _TOOLS.index(known.tool):
            last[key] = seen
    groups: dict[tuple[str, tuple[str, ...]], list[int | None]] = defaultdict(list)
    for stack in last.values():
        thread = _deciding(stack)
        frames = tuple(_place(frame.function, frame.file) for frame in thread.frames[:FRAMES])
        if frames:
            groups[_role(stack), frames].append(_rank(stack))
    found = [
        Stand(
            role=role,
            frames=frames,
            count=len(ranks),
            ranks=tuple(sorted(rank for rank in ranks if rank is not None)),
        )
        for (role, frames), ranks in groups.items()
    ]
    return tuple(sorted(found, key=lambda stand: (-stand.count, stand.role, stand.frames)))


def signature(verdict: Verdict, where: Sequence[Stand]) -> str:
    """Equal for incidents of the same kind, whatever the hosts, ranks and times."""
    parts = [verdict.kind, *sorted({f"{stand.role}|{'|'.join(stand.frames)}" for stand in where})]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def settings(observations: Iterable[Observation]) -> Mapping[str, str]:
    """Variables of the engines' environments that the evidence shows; several values of one are joined."""
    values: dict[str, set[str]] = defaultdict(set)
    for seen in observations:
        if isinstance(seen, Environment):
            for name, value in seen.values.items():
                values[name].add(value)
    return {name: " | ".join(sorted(found)) for name, found in sorted(values.items())}


def versions(observations: Iterable[Observation]) -> Mapping[str, str]:
    """Versions that the evidence prints, by program."""
    found: dict[str, set[str]] = defaultdict(set)
    for seen in observations:
        if isinstance(seen, Ras) and seen.nccl_version:
            found["nccl"].add(seen.nccl_version)
        elif isinstance(seen, Notice | NcclNote):
            for name, version in _versions_in(seen):
                found[name].add(version)
    return {name: ", ".join(sorted(many)) for name, many in sorted(found.items())}


def _versions_in(seen: Notice | NcclNote) -> Iterable[tuple[str, str]]:
    if (nccl := _NCCL.search(seen.text)) is not None:
        yield "nccl", nccl[1]
    elif isinstance(seen, Notice) and (plain := _VERSION.search(seen.text)) is not None:
        yield seen.engine, plain[1]
    for name, value in seen.fields.items():
        if name.endswith("version") and len(value) < 60:
            yield "nccl" if isinstance(seen, NcclNote) else seen.engine, value


def _deciding(stack: Stack) -> Thread:
    """The main thread (by name, or the thread whose number is the process's), else a running one, else the first."""
    main = [
        thread
        for thread in stack.threads
        if thread.name == "MainThread" or (thread.tid is not None and thread.tid == stack.pid)
    ]
    active = [thread for thread in stack.threads if thread.state == "active" and thread.frames]
    return (main or active or list(stack.threads))[0]


def _place(function: str, file: str | None) -> str:
    return function if not file else f"{function} ({'/'.join(file.rsplit('/', 2)[-2:])})"


def _role(stack: Stack) -> str:
    title = re.split(r"[\s/]", (stack.title or "").strip())[0]
    return _NUMBER.sub("#", title)[:60] or "process"


def _rank(stack: Observation) -> int | None:
    if stack.rank is not None:
        return stack.rank
    return stack.tags.tp if stack.tags is not None else None
