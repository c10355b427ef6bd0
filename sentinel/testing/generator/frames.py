"""Which frames a process shows at a place: Python frames by engine, native frames by mechanism; innermost first."""

# ruff: noqa: E501 - printed lines stay whole, so that they can be searched for

from sentinel.testing.generator.fleet import EngineName, Fleet
from sentinel.testing.generator.story import Place

PyFrame = tuple[str, str, int]

_COMMON: tuple[PyFrame, ...] = (
    ("run", "multiprocessing/process.py", 108), ("_bootstrap", "multiprocessing/process.py", 314),
    ("_main", "multiprocessing/spawn.py", 135), ("spawn_main", "multiprocessing/spawn.py", 122), ("<module>", "<string>", 1),
)  # fmt: skip
_SGLANG_LOOP: tuple[PyFrame, ...] = (
    ("event_loop_overlap", "sglang/srt/managers/scheduler.py", 1213), ("decorate_context", "torch/utils/_contextlib.py", 120),
    ("run_scheduler_process", "sglang/srt/managers/scheduler.py", 3312), *_COMMON,
)  # fmt: skip
_SGLANG_FORWARD: tuple[PyFrame, ...] = (
    ("forward", "sglang/srt/models/llama.py", 512), ("forward_decode", "sglang/srt/model_executor/model_runner.py", 2201),
    ("forward_batch_generation", "sglang/srt/managers/tp_worker.py", 241), ("run_batch", "sglang/srt/managers/scheduler.py", 2088),
    *_SGLANG_LOOP,
)  # fmt: skip
_SGLANG_BOOT: tuple[PyFrame, ...] = (
    ("__init__", "sglang/srt/managers/scheduler.py", 402), ("run_scheduler_process", "sglang/srt/managers/scheduler.py", 3290), *_COMMON,
)  # fmt: skip
_VLLM_LOOP: tuple[PyFrame, ...] = (
    ("worker_busy_loop", "vllm/v1/executor/multiproc_executor.py", 862), ("worker_main", "vllm/v1/executor/multiproc_executor.py", 779), *_COMMON,
)  # fmt: skip
_VLLM_FORWARD: tuple[PyFrame, ...] = (
    ("forward", "vllm/model_executor/models/llama.py", 388), ("_model_forward", "vllm/v1/worker/gpu_model_runner.py", 3311),
    ("execute_model", "vllm/v1/worker/gpu_model_runner.py", 3702), ("execute_model", "vllm/v1/worker/gpu_worker.py", 712),
    ("execute_model", "vllm/v1/worker/worker_base.py", 365), *_VLLM_LOOP,
)  # fmt: skip
_VLLM_BOOT: tuple[PyFrame, ...] = (
    ("load_model", "vllm/v1/worker/gpu_model_runner.py", 2640), ("__init__", "vllm/v1/executor/multiproc_executor.py", 437),
    ("worker_main", "vllm/v1/executor/multiproc_executor.py", 770), *_COMMON,
)  # fmt: skip
_TRT_LOOP: tuple[PyFrame, ...] = (
    ("_executor_loop_overlap", "tensorrt_llm/_torch/pyexecutor/py_executor.py", 1422),
    ("Thread.run", "threading.py", 1012), ("Thread._bootstrap_inner", "threading.py", 1075), ("Thread._bootstrap", "threading.py", 1032),
)  # fmt: skip
_TRT_FORWARD: tuple[PyFrame, ...] = (
    ("forward", "tensorrt_llm/_torch/models/modeling_llama.py", 611), ("_forward_step", "tensorrt_llm/_torch/pyexecutor/py_executor.py", 1588),
    *_TRT_LOOP,
)  # fmt: skip
_PACKAGED: tuple[PyFrame, ...] = (("step", "engine.py", 61), ("<module>", "engine.py", 76))

_LOOP: dict[EngineName, tuple[PyFrame, ...]] = {
    "sglang": _SGLANG_LOOP,
    "vllm": _VLLM_LOOP,
    "trtllm": _TRT_LOOP,
    "packaged": _PACKAGED,
}
_FORWARD: dict[EngineName, tuple[PyFrame, ...]] = {
    "sglang": _SGLANG_FORWARD, "vllm": _VLLM_FORWARD, "trtllm": _TRT_FORWARD, "packaged": _PACKAGED,
}  # fmt: skip
_BOOT: dict[EngineName, tuple[PyFrame, ...]] = {
    "sglang": _SGLANG_BOOT,
    "vllm": _VLLM_BOOT,
    "trtllm": _TRT_LOOP,
    "packaged": _PACKAGED[1:],
}

_SYNC = ("synchronize", "torch/cuda/streams.py", 231)
_GPU_WAIT: dict[EngineName, tuple[PyFrame, ...]] = {
    "sglang": (
        _SYNC, ("process_batch_result_decode", "sglang/srt/managers/scheduler_output_processor_mixin.py", 318),
        ("process_batch_result", "sglang/srt/managers/scheduler.py", 2204), *_SGLANG_LOOP,
    ),
    "vllm": (
        _SYNC, ("get_output", "vllm/v1/worker/gpu_model_runner.py", 241), ("execute_model", "vllm/v1/worker/worker_base.py", 365), *_VLLM_LOOP,
    ),
    "trtllm": (_SYNC, ("_update_requests", "tensorrt_llm/_torch/pyexecutor/py_executor.py", 1702), *_TRT_LOOP),
    "packaged": (("synchronize", "torch/cuda/__init__.py", 1162), ("<module>", "engine.py", 76)),
}  # fmt: skip
_IDLE: dict[EngineName, tuple[PyFrame, ...]] = {
    "sglang": (
        ("poll", "zmq/sugar/poll.py", 106), ("maybe_sleep", "sglang/srt/managers/scheduler.py", 402),
        ("recv_requests", "sglang/srt/managers/scheduler.py", 1390), *_SGLANG_LOOP,
    ),
    "vllm": (
        ("acquire_read", "vllm/distributed/device_communicators/shm_broadcast.py", 598),
        ("dequeue", "vllm/distributed/device_communicators/shm_broadcast.py", 688), *_VLLM_LOOP,
    ),
    "trtllm": (
        ("wait", "threading.py", 355), ("get", "queue.py", 171), ("get_from_request_queue", "tensorrt_llm/_torch/pyexecutor/executor_request_queue.py", 112),
        *_TRT_LOOP,
    ),
    "packaged": (("<module>", "engine.py", 92),),
}  # fmt: skip
_BROADCAST: tuple[PyFrame, ...] = (
    ("broadcast", "torch/distributed/distributed_c10d.py", 2808), ("wrapper", "torch/distributed/c10d_logger.py", 81),
    ("broadcast_pyobj", "sglang/srt/utils/common.py", 1254), ("recv_requests", "sglang/srt/managers/scheduler.py", 1431),
)  # fmt: skip

_HEADS: dict[Place, tuple[PyFrame, ...]] = {
    "tp_collective": (("all_reduce", "torch/distributed/distributed_c10d.py", 2921), ("wrapper", "torch/distributed/c10d_logger.py", 81)),
    "lock": (("wait", "threading.py", 355), ("reserve", "rowcache/pool.py", 88)),
    "native_call": (("empty_cache", "torch/cuda/memory.py", 214),),
    "file_read": (("readinto", "tempfile.py", 499), ("fetch_rows", "rowcache/reader.py", 118)),
    "compile": (("make_cubin", "triton/backends/nvidia/compiler.py", 391), ("compile", "triton/compiler/compiler.py", 312), ("run", "triton/runtime/jit.py", 621)),
    "kernel_launch": (("_call_impl", "torch/nn/modules/module.py", 1775),),
    "step": (("_call_impl", "torch/nn/modules/module.py", 1775),),
    "window_register": (
        ("ncclCommWindowRegister", "pynccl_wrapper.py", 611), ("register_comm_window_raw", "pynccl.py", 402),
        ("__exit__", "pynccl_allocator.py", 231),
    ),
    "socket_wait": (("recv", "socket.py", 719), ("fetch", "urllib3/connection.py", 507)),
}  # fmt: skip
_LOOP_HEADS: dict[Place, tuple[PyFrame, ...]] = {
    "barrier": (("barrier", "torch/distributed/distributed_c10d.py", 4711), ("wrapper", "torch/distributed/c10d_logger.py", 81)),
    "gc": (("gc_collect_main", "python3.12", 0), ("<listcomp>", "schedule_batch.py", 1588)),
    "dp_gather": (
        ("all_gather_into_tensor", "torch/distributed/distributed_c10d.py", 4044), ("wrapper", "torch/distributed/c10d_logger.py", 81),
        ("prepare_mlp_sync_batch_raw", "sglang/srt/managers/scheduler_dp_attn_mixin.py", 171),
        ("get_next_batch_to_run", "sglang/srt/managers/scheduler.py", 1812),
    ),
    "cache_check": (
        ("all_reduce", "torch/distributed/distributed_c10d.py", 2921), ("wrapper", "torch/distributed/c10d_logger.py", 81),
        ("writing_check", "sglang/srt/mem_cache/hiradix_cache.py", 402), ("get_next_batch_to_run", "sglang/srt/managers/scheduler.py", 1791),
    ),
    "control_broadcast": _BROADCAST,
}  # fmt: skip
_BOOT_HEADS: dict[Place, tuple[PyFrame, ...]] = {
    "rendezvous": (
        ("_create_c10d_store", "torch/distributed/rendezvous.py", 199), ("init_process_group", "torch/distributed/distributed_c10d.py", 1831),
    ),
    "comm_init": (("ncclCommInitRank", "pynccl_wrapper.py", 402), ("__init__", "pynccl.py", 111)),
    "load": (("__getitem__", "safetensors/__init__.py", 0), ("safetensors_weights_iterator", "weight_utils.py", 621)),
    "capture": (("capture_one_batch_size", "cuda_graph_runner.py", 724), ("capture", "cuda_graph_runner.py", 560)),
}  # fmt: skip


def python_frames(engine: EngineName, place: Place) -> tuple[PyFrame, ...]:
    """Python frames of the main thread at a place."""
    if place == "gpu_wait":
        return _GPU_WAIT[engine]
    if place == "idle":
        return _IDLE[engine]
    if place in _LOOP_HEADS:
        return _LOOP_HEADS[place] + _LOOP[engine]
    if place in _BOOT_HEADS:
        return _BOOT_HEADS[place] + _BOOT[engine]
    if place == "reclaim":
        return _FORWARD[engine]
    return _HEADS[place] + _FORWARD[engine]


_PY = ("_PyEval_EvalFrameDefault", "python3.12")
_WAITS = {"idle", "control_broadcast", "dp_gather", "cache_check", "barrier", "socket_wait", "rendezvous"}
_NATIVE: dict[Place, tuple[tuple[str, str], ...]] = {
    "gpu_wait": (("", "libcuda.so.1"), ("", "libcuda.so.1"), ("cuEventSynchronize", "libcuda.so.1"), ("cudaEventSynchronize", "libcudart.so.13")),
    "lock": (("__futex_abstimed_wait_common", "libc.so.6"), ("sem_wait", "libc.so.6"), ("PyThread_acquire_lock_timed", "python3.12")),
    "native_call": (
        ("ioctl", "libc.so.6"), ("", "libcuda.so.1"), ("cuMemFreeHost", "libcuda.so.1"), ("cudaFreeHost", "libcudart.so.13"),
        ("at::native::CachingHostAllocatorImpl::empty_cache", "libtorch_cuda.so"),
    ),
    "file_read": (("pread64", "libc.so.6"), ("_io_FileIO_readinto", "python3.12")),
    "window_register": (
        ("recvmsg", "libc.so.6"), ("ncclIpcSocketRecvMsg(ncclIpcSocket*, void*, int, int*)", "libnccl.so.2"),
        ("ncclProxyCallBlockingUDS", "libnccl.so.2"), ("ncclCommWindowRegister", "libnccl.so.2"), ("ffi_call", "libffi.so.8"),
    ),
    "kernel_launch": (("sched_yield", "libc.so.6"), ("", "libcuda.so.1"), ("cuLaunchKernel", "libcuda.so.1")),
    "comm_init": (("poll", "libc.so.6"), ("bootstrapAllGather(void*, void*, int)", "libnccl.so.2"), ("ncclCommInitRank", "libnccl.so.2")),
    "gc": (("gc_collect_main", "python3.12"), ("gc_collect_generations", "python3.12")),
    "tp_collective": (("", "libcuda.so.1"), ("cuEventSynchronize", "libcuda.so.1"), ("c10d::ProcessGroupNCCL::allreduce", "libtorch_cuda.so")),
}  # fmt: skip


def native_frames(engine: EngineName, place: Place) -> tuple[tuple[str, str], ...]:
    """Native frames of the main thread at a place: (symbol, library); an empty symbol has none."""
    if engine == "packaged" and place == "idle":
        return (("clock_nanosleep", "libc.so.6"), _PY, _PY)
    if place in _NATIVE:
        return (*_NATIVE[place], _PY)
    if place in _WAITS:
        return (
            ("poll", "libc.so.6"),
            ("gloo::transport::tcp::UnboundBuffer::waitRecv", "libtorch_cpu.so")
            if place != "idle"
            else ("zmq_poll", "libzmq.so.5"),
            _PY,
        )
    return (_PY, _PY)


CALLBACKS: dict[str, tuple[tuple[str, str], ...]] = {
    "mutex": (
        ("__lll_lock_wait", "libc.so.6"), ("pthread_mutex_lock", "libc.so.6"), ("rowcache_gather(void*)", "librowcache.so"),
        ("", "libcuda.so.1"), ("", "libcuda.so.1"), ("start_thread", "libc.so.6"),
    ),
    "pread": (
        ("pread64", "libc.so.6"), ("rowcache_gather(void*)", "librowcache.so"), ("", "libcuda.so.1"), ("", "libcuda.so.1"),
        ("start_thread", "libc.so.6"),
    ),
    "gil": (
        ("__futex_abstimed_wait_common", "libc.so.6"), ("pthread_cond_timedwait", "libc.so.6"), ("take_gil", "python3.12"),
        ("PyGILState_Ensure", "python3.12"), ("ffi_closure_unix64_inner", "libffi.so.8"), ("", "libcuda.so.1"), ("start_thread", "libc.so.6"),
    ),
}  # fmt: skip
"""Native frames of the thread on which the driver runs host callbacks, by what the callback waits for."""

POOL: tuple[tuple[str, str], ...] = (
    ("__futex_abstimed_wait_common", "libc.so.6"), ("pthread_cond_wait", "libc.so.6"), ("blas_thread_server", "libopenblas.so"),
)  # fmt: skip

CORE: dict[str, tuple[PyFrame, ...]] = {
    "wait_worker": (
        ("acquire_read", "vllm/distributed/device_communicators/shm_broadcast.py", 602), ("dequeue", "vllm/distributed/device_communicators/shm_broadcast.py", 688),
        ("get_response", "vllm/v1/executor/multiproc_executor.py", 341), ("step_with_batch_queue", "vllm/v1/engine/core.py", 431),
        ("_process_engine_step", "vllm/v1/engine/core.py", 1204),
    ),
    "idle": (("wait", "threading.py", 355), ("get", "queue.py", 171), ("_process_input_queue", "vllm/v1/engine/core.py", 1189)),
    "schedule": (("schedule", "vllm/v1/core/sched/scheduler.py", 611), ("step_with_batch_queue", "vllm/v1/engine/core.py", 402), ("_process_engine_step", "vllm/v1/engine/core.py", 1204)),
    "lock": (
        ("wait", "threading.py", 355), ("allocate_slots", "vllm/v1/core/kv_cache_manager.py", 288), ("schedule", "vllm/v1/core/sched/scheduler.py", 544),
        ("step_with_batch_queue", "vllm/v1/engine/core.py", 402), ("_process_engine_step", "vllm/v1/engine/core.py", 1204),
    ),
}  # fmt: skip
"""Frames of vLLM's engine core by what it does, above its busy loop."""

CORE_BASE: tuple[PyFrame, ...] = (
    ("run_busy_loop", "vllm/v1/engine/core.py", 1178), ("run_engine_core", "vllm/v1/engine/core.py", 1102), *_COMMON,
)  # fmt: skip


def uses_core(fleet: Fleet) -> bool:
    """Whether the engine has a core process beside its workers."""
    return fleet.engine == "vllm" and fleet.dp == 1
