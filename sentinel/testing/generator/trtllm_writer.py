"""TensorRT-LLM's log (1.x, PyTorch back end): one iteration line per rank and step."""

from sentinel.testing.generator import clock
from sentinel.testing.generator.fleet import Host, Rank
from sentinel.testing.generator.story import Said, Story

Lines = list[tuple[float, str]]


def log_of(story: Story, host: Host) -> Lines:
    """All lines of one host's `trtllm-serve`, in order of time."""
    lines: Lines = []
    for rank in story.fleet.on(host):
        lines += _boot(story, rank)
        iteration = 200
        for beat in story.beats:
            if beat.kind == "decode":
                iteration += 1
                lines.append((beat.at_s, _head(beat.at_s, rank) + _iteration(beat.at_s, rank, iteration, beat.running)))
    lines += [(said.at_s, _said(said)) for said in story.said if said.host is host]
    lines.sort(key=lambda line: line[0])
    return lines


def _head(at_s: float, rank: Rank | None, level: str = "I") -> str:
    return f"[{clock.trtllm(at_s)}] [TRT-LLM] {f'[RANK {rank.rank}] ' if rank is not None else ''}[{level}] "


def _said(said: Said) -> str:
    return said.text if said.raw else _head(said.at_s, said.rank, said.level[0]) + said.text


def _boot(story: Story, rank: Rank) -> Lines:
    begin = story.fleet.start_s
    end = story.ready_s if story.ready_s is not None else story.t0_s
    span = max(end - begin, 10.0)
    texts = [
        (begin, f"TensorRT LLM version: {story.fleet.version}"),
        (begin + span * 0.6, "Loading weights: 100% done"),
        (begin + span * 0.9, "[Autotuner] Autotuning process ends"),
    ]
    return [(at_s, _head(at_s, rank) + text) for at_s, text in texts]


def _iteration(at_s: float, rank: Rank, number: int, running: int) -> str:
    return (
        f"iter = {number}, global_rank = {rank.rank}, rank = {rank.rank}, currank_total_requests = 0/0, "
        f"host_step_time = 14.31ms, prev_device_step_time = 13.91ms, timestamp = {clock.full(at_s)}, "
        f"num_scheduled_requests: {running}, states = {{'num_ctx_requests': 0, 'num_ctx_tokens': 0, "
        f"'num_generation_tokens': {running}}}"
    )
