"""vLLM V1: flags, environment and process titles as of 0.8 to 0.33 (`vllm/envs.py`, `v1/executor`, setproctitle)."""

from collections.abc import Sequence

from sentinel.core.identity import tags_of
from sentinel.engines.adapter import Adapter, Place, ProcessView, loopback_url, number
from sentinel.model.engine import KillDeadline

EXECUTE_MODEL_S = 300.0
PORT = 8000
_MODULES = ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.cli.main")


def claims(process: ProcessView) -> bool:
    """The API server: `vllm serve …` or `python -m vllm.entrypoints.openai.api_server …`."""
    words = process.argv[:4]
    served = any(word.rpartition("/")[2] == "vllm" for word in words) and "serve" in words
    return served or any(word in _MODULES for word in words)


def place(process: ProcessView, family: Sequence[ProcessView]) -> Place:
    """Workers are ranks; an EngineCore without workers of its own is one."""
    title = process.argv[0] if process.argv else ""
    _, _, name = title.partition("::")
    if name.startswith("Worker"):
        tags = tags_of(name)
        workers = sum("::Worker" in other.title for other in family)
        return Place(role="rank", tags=tags, rank=0 if tags is None and workers == 1 else None)
    if name.startswith("EngineCore"):
        tags = tags_of(name)
        if any("::Worker" in other.title for other in family):
            return Place(role="core", tags=tags)
        return Place(role="rank", tags=tags, rank=0 if tags is None else None)
    if name or claims(process):
        return Place(role="frontend")
    return Place(role="other")


def deadline(root: ProcessView) -> KillDeadline | None:
    """EngineCore gives up on a worker after its execute-model time-out and ends the engine within seconds."""
    timeout_s = number(root.environ.get("VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS"), EXECUTE_MODEL_S)
    if timeout_s <= 0:
        return None
    why = f"VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS {timeout_s:g}"
    if not root.environ_readable:
        why += " (the default; its environment is not readable)"
    return KillDeadline(earliest_s=timeout_s, latest_s=timeout_s + 15.0, why=why)


def url(root: ProcessView) -> str | None:
    """Where the API server listens; a headless node has none."""
    if root.has("--headless"):
        return None
    return loopback_url(root.flag("--host"), int(number(root.flag("--port"), PORT)))


def world_size(root: ProcessView) -> int | None:
    """Tensor times pipeline times data parallel size."""
    tp = number(root.flag("--tensor-parallel-size", "-tp"), 1)
    pp = number(root.flag("--pipeline-parallel-size", "-pp"), 1)
    dp = number(root.flag("--data-parallel-size", "-dp"), 1)
    return int(tp * pp * dp)


ADAPTER = Adapter(name="vllm", claims=claims, place=place, deadline=deadline, url=url, world_size=world_size)
