"""TensorRT-LLM: iterations of both runtimes are progress, error lines are failures."""

from sentinel.collectors import trtllm_log
from sentinel.model.observation import Decode, Notice, Phase
from tests.unit.log_reading import at, read

PARSER = trtllm_log.PARSER


def test_an_iteration_line_is_progress_of_its_rank() -> None:
    """Otherwise a TensorRT-LLM engine would have no progress at all."""
    (step,) = read(
        PARSER,
        "[11/29/2026-21:02:00] [TRT-LLM] [RANK 1] [I] iter = 7, global_rank = 1, rank = 1, "
        "currank_total_requests = 0/0, "
        "host_step_time = 15.22ms, prev_device_step_time = 14.82ms, timestamp = 2026-11-29 21:02:00, "
        "num_scheduled_requests: 6, "
        "states = {'num_ctx_requests': 1, 'num_ctx_tokens': 512, 'num_generation_tokens': 24}",
    )
    assert isinstance(step, Decode)
    assert (step.at_s, step.rank, step.iteration, step.running) == (at("21:02:00"), 1, 7, 6)
    assert step.extra["num_ctx_tokens"] == 512.0


def test_the_statistics_object_of_the_other_runtime_is_progress_too() -> None:
    """Otherwise the C++ runtime's log would be unreadable."""
    (step,) = read(
        PARSER,
        '[11/29/2026-07:00:00] [TRT-LLM] [I] {"Active Request Count":20,"Iteration Counter":120,"Max KV cache '
        'blocks":400,'
        '"Used KV cache blocks":100,"Scheduled Requests":5,"Timestamp":"11-29-2026 07:00:00"}',
    )
    assert isinstance(step, Decode)
    assert (step.iteration, step.running, step.usage) == (120, 20, 0.25)


def test_stages_and_errors_are_told_apart() -> None:
    """Otherwise an error would pass for a start-up line."""
    seen = read(
        PARSER,
        "[11/29/2026-07:00:00] [TRT-LLM] [RANK 0] [I] TensorRT LLM version: 1.2.0\n"
        "[11/29/2026-07:00:01] [TRT-LLM] [RANK 0] [I] Loading weights: 100% done\n"
        "[11/29/2026-07:00:02] [TRT-LLM] [RANK 0] [E] Error in event loop: RuntimeError: CUDA error: "
        "device-side assert\n"
        "[11/29/2026-07:00:03] [TRT-LLM] [RANK 1] [E] Hang detected on rank 1\n"
        'I1129 07:00:04.102203 1 http_server.cc:4661] "HTTP request: 0 /v2/health/ready"\n',
    )
    assert [(one.phase, one.edge) for one in seen if isinstance(one, Phase)] == [("start", "begin"), ("load", "end")]
    assert [(one.notice, one.rank) for one in seen if isinstance(one, Notice)] == [
        ("cuda_error", 0), ("watchdog_timeout", 1), ("other", None),
    ]  # fmt: skip
    assert seen[-1].at_s == at("07:00:04") + 0.102203
