"""SGLang: flags and process titles as of 0.4 to 0.5.23 (`srt/server_args.py`, `srt/utils/watchdog.py`)."""

from collections.abc import Mapping, Sequence

from sentinel.core.identity import tags_of
from sentinel.engines.adapter import Adapter, LoadQuestion, Place, ProcessView, loopback_url, number
from sentinel.model.engine import KillDeadline

WATCHDOG_S = 300.0
PORT = 30000
_RANK_TITLES = ("sglang::scheduler",)
_FRONTEND_TITLES = ("sglang::detokenizer", "sglang::tokenizer", "sglang::data_parallel_controller", "sglang::http")


def claims(process: ProcessView) -> bool:
    """The launcher: `python -m sglang.launch_server …` or `sglang serve …`."""
    words = process.argv[:4]
    module = any(word in ("sglang.launch_server", "sglang.srt.entrypoints.http_server") for word in words)
    return module or any(word.rpartition("/")[2] == "sglang" and "serve" in words for word in words)


def place(process: ProcessView, family: Sequence[ProcessView]) -> Place:
    """A scheduler is a rank; a single one without tags is rank 0."""
    title = process.argv[0] if process.argv else ""
    if title.startswith(_RANK_TITLES):
        tags = tags_of(title)
        alone = sum(other.title.startswith(_RANK_TITLES) for other in family) == 1
        return Place(role="rank", tags=tags, rank=0 if tags is None and alone else None)
    if title.startswith(_FRONTEND_TITLES) or claims(process):
        return Place(role="frontend")
    return Place(role="other")


def deadline(root: ProcessView) -> KillDeadline | None:
    """The hard watchdog polls at half its time-out: it fires between 1.0 and 1.5 times it."""
    timeout_s = number(root.flag("--watchdog-timeout"), WATCHDOG_S)
    if timeout_s <= 0:
        return None
    return KillDeadline(earliest_s=timeout_s, latest_s=1.5 * timeout_s, why=f"--watchdog-timeout {timeout_s:g}")


def url(root: ProcessView) -> str | None:
    """Only node 0 serves the real API."""
    if number(root.flag("--node-rank"), 0) > 0:
        return None
    return loopback_url(root.flag("--host"), int(number(root.flag("--port"), PORT)))


def world_size(root: ProcessView) -> int | None:
    """Tensor times pipeline parallel size; data-parallel attention lives inside the tensor group."""
    tp = number(root.flag("--tp-size", "--tp", "--tensor-parallel-size"), 1)
    pp = number(root.flag("--pp-size", "--pipeline-parallel-size"), 1)
    dp = 1.0 if root.has("--enable-dp-attention") else number(root.flag("--dp-size", "--data-parallel-size"), 1)
    return int(tp * pp * dp)


def load_samples(answer: object) -> Mapping[str, float]:
    """Running and waiting requests over all schedulers, from `/v1/loads` (0.5.10) or `/get_load` (0.5.0)."""
    loads = answer.get("loads") if isinstance(answer, dict) else answer
    running = waiting = 0.0
    counted = False
    for load in loads if isinstance(loads, list) else ():
        if isinstance(load, dict):
            queued = _count(load.get("num_waiting_reqs"))
            active = _count(load.get("num_running_reqs", _count(load.get("num_reqs")) - queued))
            counted |= "num_running_reqs" in load or "num_reqs" in load
            running, waiting = running + active, waiting + queued
    return {"sglang:num_running_reqs": running, "sglang:num_queue_reqs": waiting} if counted else {}


def _count(value: object) -> float:
    return max(0.0, float(value)) if isinstance(value, int | float) else 0.0


ADAPTER = Adapter(
    name="sglang",
    claims=claims,
    place=place,
    deadline=deadline,
    url=url,
    world_size=world_size,
    load=LoadQuestion(paths=("/v1/loads?include=core", "/get_load"), samples=load_samples),
)
