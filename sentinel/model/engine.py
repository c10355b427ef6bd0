"""An engine as the agent sees it: its processes by identity, their roles and ranks, and when it will kill itself."""

from typing import Literal

import msgspec

from sentinel.model.observation import Tags

Role = Literal["rank", "core", "frontend", "launcher", "other"]
"""rank: runs a shard; core: drives ranks (vLLM EngineCore with workers); frontend: HTTP, tokenizer, detokenizer."""


class ProcessId(msgspec.Struct, frozen=True, order=True):
    """A process by identity: a pid is reused, a pid with its start time (clock ticks since boot) is not."""

    pid: int
    started_ticks: int


class KillDeadline(msgspec.Struct, frozen=True, kw_only=True):
    """When the engine ends itself after its last progress, from its own arguments and environment.

    `earliest_s` is what capture must beat; `why` names the setting. SGLang polls at half its time-out, so it fires
    between 1.0 and 1.5 times it; vLLM's execute-model time-out fires once.
    """

    earliest_s: float
    latest_s: float
    why: str


class EngineProcess(msgspec.Struct, frozen=True, kw_only=True):
    """One process of an engine. `log` is where its output goes when that could be found out."""

    id: ProcessId
    role: Role
    title: str
    rank: int | None = None
    tags: Tags | None = None
    log: str | None = None
    nccl_debug_file: str | None = None
    container: str | None = None


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """One engine on this host: what is restarted as a unit.

    `key` is stable for one incarnation: adapter, pid and start time of its first root, which need not live any more.
    `deadline` is None when nothing would kill it (watchdog off, or frozen processes watch themselves).
    """

    key: str
    adapter: Literal["sglang", "vllm", "packaged"]
    root: ProcessId
    processes: tuple[EngineProcess, ...]
    url: str | None = None
    deadline: KillDeadline | None = None
    world_size: int | None = None

    @property
    def called_pid(self) -> int:
        """The pid in its key: what is kept of it is called by this one, whoever of it lives."""
        return int(self.key.split(":")[1])

    @property
    def roots(self) -> tuple[ProcessId, ...]:
        """The root of each of its process trees: several where nodes of one launch share a box."""
        others = (process.id for process in self.processes if process.role == "launcher" and process.id != self.root)
        return (self.root, *others)

    @property
    def ranks(self) -> tuple[EngineProcess, ...]:
        """Processes that run a model shard on this host."""
        return tuple(process for process in self.processes if process.role == "rank")
