"""The co-packaged engine, and the rehearsal engine that stands in for it in drills: roles are plain arguments."""

from collections.abc import Sequence

from sentinel.engines.adapter import Adapter, Place, ProcessView, loopback_url, number
from sentinel.model.engine import KillDeadline
from sentinel.model.observation import Tags

WATCHDOG_S = 300.0
INCARNATION = "SENTINEL_ENGINE_INCARNATION"
"""Set by the launcher for every process of one launch, on all nodes."""
_ROOTS = ("sentinel_engine.worker", "sentinel.testing.rehearsal")
_MODULES = ("sentinel_engine", "sentinel.testing.rehearsal")


def claims(process: ProcessView) -> bool:
    """The supervisor of a node: `python -m sentinel_engine.worker` without a role, or with that of launcher."""
    named = any(word in _ROOTS for word in process.argv[:5])
    return named and process.flag("--role") in (None, "launcher")


def place(process: ProcessView, family: Sequence[ProcessView]) -> Place:
    """`--role rank --rank N`, `--role frontend`, `--role launcher`."""
    del family
    role = process.flag("--role") if _ours(process) else ""
    if role == "rank":
        rank = process.flag("--rank")
        known = int(rank) if rank is not None and rank.isdecimal() else None
        return Place(role="rank", rank=known, tags=None if known is None else Tags(tp=known))
    if role == "frontend":
        return Place(role="frontend")
    return Place(role="launcher" if role in (None, "launcher") else "other")


def deadline(root: ProcessView) -> KillDeadline | None:
    """As in SGLang: a watchdog that polls at half its time-out."""
    timeout_s = number(root.flag("--watchdog-timeout"), WATCHDOG_S)
    if timeout_s <= 0:
        return None
    return KillDeadline(earliest_s=timeout_s, latest_s=1.5 * timeout_s, why=f"--watchdog-timeout {timeout_s:g}")


def url(root: ProcessView) -> str | None:
    """The HTTP API, when a port is given."""
    port = root.flag("--port")
    return loopback_url(root.flag("--host"), int(port)) if port is not None and port.isdecimal() else None


def world_size(root: ProcessView) -> int | None:
    """`--world N`, or `--ranks N` of a rehearsal, over all hosts."""
    ranks = root.flag("--world", "--ranks", "--world-size")
    return int(ranks) if ranks is not None and ranks.isdecimal() else None


def launch(root: ProcessView) -> tuple[str, int] | None:
    """Nodes of one launch that share a box are one engine, the head first; without the launcher a root is alone."""
    incarnation, ranks = root.environ.get(INCARNATION), root.flag("--rank")
    first = "" if ranks is None else ranks.partition(",")[0]
    return (incarnation, int(first)) if incarnation and first.isdecimal() else None


def _ours(process: ProcessView) -> bool:
    return any(word in _MODULES or word.startswith("sentinel_engine.") for word in process.argv[:5])


ADAPTER = Adapter(
    name="packaged", claims=claims, place=place, deadline=deadline, url=url, world_size=world_size, launch=launch
)
