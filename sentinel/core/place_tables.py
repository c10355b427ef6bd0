"""Which function of which module means which place: data for `places.py`, nothing else.

Names are those of SGLang 0.4 to 0.5.23, vLLM 0.8 to 0.33, TensorRT-LLM 0.20 to 1.2, torch 2.4 to 2.14, NCCL 2.18 to
2.30, CUDA 12 and 13, and the libraries around them. A file fragment is compared with the path as the tool printed it,
which may be shortened down to the base name; a rule without fragments holds for the function in any file.
"""

from typing import NamedTuple


class Rule(NamedTuple):
    """`functions` in a file whose path contains one of `files` mean `place`."""

    place: str
    functions: frozenset[str]
    files: tuple[str, ...] = ()


def _rule(place: str, functions: str, *files: str) -> Rule:
    return Rule(place, frozenset(functions.split()), files)


DECISIVE: tuple[Rule, ...] = (
    # Waiting for the GPU.
    _rule("gpu_wait", "synchronize wait_event query", "cuda/streams.py", "cuda/__init__.py", "accelerator/__init__.py", "xpu/"),
    _rule("gpu_wait", "_cuda_synchronize device_synchronize local_scalar_dense_cuda THCPModule_cudaSynchronize"),
    _rule("gpu_wait", "get_output", "gpu_model_runner.py", "gpu/async_utils.py", "worker/gpu"),
    _rule("gpu_wait", "_bookkeeping_sync _to_list", "gpu_model_runner.py"),
    _rule("gpu_wait", "decoderSync waitForDecoder", "libtensorrt_llm", "batch_manager"),
    # Host code of a collective. Functions of `distributed_c10d.py` outside this list and `INIT` also count as one.
    _rule("collective", "all_reduce all_gather reduce_scatter reduce_scatter_tensor broadcast send recv reduce_scatterv all_gatherv "
          "gather all_gather_into_tensor all_to_all all_to_all_single barrier dispatch combine", "device_communicators/",
          "parallel_state.py", "pynccl.py", "cpu_communicator.py", "cuda_communicator.py", "all2all.py", "custom_all_reduce",
          "quick_all_reduce", "symm_mem", "communication_op.py", "shm_allreduce", "communicator.py", "xpu_communicator.py"),
    _rule("collective", "dispatch combine low_latency_dispatch low_latency_combine internode_dispatch internode_combine "
          "intranode_dispatch intranode_combine", "deep_ep", "deepep", "mooncake_ep", "pplx", "flashinfer/comm"),
    _rule("collective", "ncclAllReduce ncclAllGather ncclReduceScatter ncclBroadcast ncclReduce ncclSend ncclRecv ncclAlltoAll "
          "ncclGroupEnd ncclGroupStart ncclGather ncclScatter groupLaunch"),
    _rule("collective", "_synchronize_dp_ranks coordinate_batch_across_dp has_unfinished_dp num_tokens_across_dp get_dp_padding "
          "prepare_mlp_sync_batch prepare_mlp_sync_batch_raw prepare_dp_attn_batch _has_global_unfinished_reqs"),
    _rule("collective", "shm_allreduce shm_allgather shm_send_tensor_list shm_recv_tensor_list shm_allreduce_sum shm_cc_loop"),
    _rule("collective", "allgather tp_allgather pp_allgather tp_gather cp_allgather allreduce bcast barrier tp_barrier tp_cp_allgather "
          "recv_object isend_object send_object recv_tensor_list gather", "tensorrt_llm/_torch/distributed", "_mnnvl", "mpi4py"),
    # The scheduler's request broadcast.
    _rule("control_broadcast", "broadcast_pyobj _broadcast_reqs_across_ranks broadcast_reqs point_to_point_pyobj "
          "_pp_recv_pyobj_from_prev_stage broadcast_requests _broadcast_new_requests _broadcast_requests"),
    _rule("control_broadcast", "getNewReqWithIds fetchNewRequests"),
    # Rendezvous and communicator set-up.
    _rule("comm_init", "ncclCommInitRank ncclCommInitRankConfig ncclCommInitRankScalable ncclCommInitAll ncclGetUniqueId "
          "ncclCommInitRankDev ncclCommInitRankFunc ncclAsyncJobMain initTransportsRank"),
    _rule("comm_init", "init_process_group new_group new_subgroups split_group _new_process_group_helper _store_based_barrier "
          "_new_group_with_tag init_device_mesh", "distributed_c10d.py", "device_mesh.py", "torch/distributed", "distributed/utils.py"),
    _rule("comm_init", "_create_c10d_store _env_rendezvous_handler _tcp_rendezvous_handler rendezvous next_rendezvous"),
    _rule("comm_init", "waitForWorkers doWait TCPStore connect_store TCPClient"),
    _rule("comm_init", "stateless_init_torch_distributed_process_group stateless_init_process_group init_gloo_process_group"),
    # Host-side NCCL calls that are no collective and no init.
    _rule("nccl_host", "ncclCommWindowRegister ncclCommWindowDeregister ncclCommRegister ncclCommDeregister ncclMemAlloc ncclMemFree "
          "ncclCommSplit ncclCommShrink ncclCommGrow ncclCommAbort ncclCommDestroy ncclCommFinalize ncclDevCommCreate "
          "ncclDevCommDestroy ncclCommSuspend ncclCommResume register_comm_window_raw register_comm_window"),
    # The driver, blocking the caller.
    _rule("native_call", "cuLaunchHostFunc cudaLaunchHostFunc cuStreamAddCallback cudaStreamAddCallback launch_hostfunc"),
    _rule("native_call", "_host_emptyCache pin_memory cudaHostRegister cudaHostUnregister", "cuda/memory.py", "torch/"),
    # Compiling.
    _rule("compile", "compile _do_compile make_cubin make_ptx make_llir make_ttgir make_ttir ast_to_ttir do_bench _bench benchmark "
          "autotune check_disk_cache compile_module_from_src", "triton/"),
    _rule("compile", "compile build compile_kernel", "deep_gemm/", "tilelang", "cute_dsl", "cutlass"),
    _rule("compile", "_compile_deep_gemm_one_type_all _maybe_compile_deep_gemm_one_type_all deep_gemm_execution_hook "
          "_compile_one_deepgemm_warmup deepgemm_warmup run_ninja_build _run_ninja_build _write_ninja_file_and_build_library "
          "load_inline build_and_load_ninja load_jit build_and_load compile_to_module codegen_and_compile compile_fx compile_fx_inner "
          "aot_autograd compile_inner _compile_inner convert_frame_assert aot_module_simplified bw_compiler fw_compiler"),
    _rule("compile", "compile", "vllm/compilation/", "compilation/"),
    _rule("compile", "autotune_to_one_config benchmark_all_configs precompile _precompile_worker _make_launchers "
          "coordinate_descent_tuning wait_for_compile", "_inductor/"),
    _rule("compile", "reset _compile mark_dynamic optimize", "torch/_dynamo/__init__.py"),
    _rule("compile", "autotune choose_one tune warmup_autotune", "flashinfer/autotuner", "autotuner.py"),
    # The collector of garbage.
    _rule("gc", "gc_collect_main gc_collect_generations gc_collect_with_callback gc_collect_region gc_collect_young gc_collect_full "
          "gc_collect_increment gc_collect_internal gc_collect PyGC_Collect Py_RunGC deduce_unreachable subtract_refs "
          "move_unreachable untrack_tuples delete_garbage"),
    # Grammars and JSON schemas.
    _rule("grammar", "compile_grammar _create_grammar _async_create_grammar compile_json_schema compile_regex compile_structural_tag "
          "dispatch_json dispatch_regex dispatch_ebnf dispatch_structural_tag init_value_impl _init_value_dispatch "
          "get_cached_or_future_value fill_next_token_bitmask fill_vocab_mask grammar_bitmask", "xgrammar", "outlines", "llguidance",
          "guidance", "structured_output", "constrained", "lmformatenforcer", "grammar"),
    # Loading weights.
    _rule("load", "load_model load_weights get_model get_all_weights get_weights_iterator _get_weights_iterator download_weights "
          "safetensors_weights_iterator pt_weights_iterator np_cache_weights_iterator fastsafetensors_weights_iterator "
          "multi_thread_safetensors_weights_iterator runai_safetensors_weights_iterator load_weights_and_postprocess "
          "snapshot_download hf_hub_download _prefetch_all_checkpoints prefetch_files process_weights_after_loading "
          "load_weights_from_remote buffered_multi_thread_safetensors_weights_iterator"),
    _rule("pause", "_wait_until_resumed wait_for_resume wait_until_resumed _pause_wait wait_for_unpause"),
)  # fmt: skip

DECISIVE_FILES: tuple[tuple[str, str, frozenset[str]], ...] = (
    ("distributed_c10d.py", "collective", frozenset({"destroy_process_group", "get_rank", "get_world_size", "is_initialized"})),
    ("_dynamo/convert_frame.py", "compile", frozenset()),
    ("_dynamo/symbolic_convert.py", "compile", frozenset()),
    ("_dynamo/output_graph.py", "compile", frozenset()),
    ("_dynamo/repro/", "compile", frozenset()),
    ("_dynamo/variables/", "compile", frozenset()),
    ("_inductor/graph.py", "compile", frozenset()),
    ("_inductor/scheduler.py", "compile", frozenset()),
    ("_inductor/compile_fx.py", "compile", frozenset()),
    ("_inductor/codegen/", "compile", frozenset()),
    ("_inductor/codecache.py", "compile", frozenset()),
    ("_inductor/async_compile.py", "compile", frozenset()),
    ("_inductor/select_algorithm.py", "compile", frozenset()),
    ("_inductor/lowering.py", "compile", frozenset()),
    ("_inductor/fx_passes/", "compile", frozenset()),
    ("_inductor/compile_worker/", "compile", frozenset()),
    ("_functorch/aot_autograd.py", "compile", frozenset()),
    ("_functorch/partitioners.py", "compile", frozenset()),
    ("utils/cpp_extension.py", "compile", frozenset()),
    ("utils/file_baton.py", "compile", frozenset()),
    ("flashinfer/jit/", "compile", frozenset()),
    ("deep_gemm/jit/", "compile", frozenset()),
    ("triton/compiler/", "compile", frozenset({"__getattribute__", "__getattr__", "launch_metadata", "__getitem__", "runner"})),
    ("triton/backends/", "compile", frozenset({"__call__", "load_binary", "get_current_device", "is_active", "get_device_properties"})),
    ("tvm_ffi/cpp", "compile", frozenset()),
    ("xgrammar/", "grammar", frozenset()),
    ("outlines/", "grammar", frozenset()),
    ("outlines_core/", "grammar", frozenset()),
    ("llguidance/", "grammar", frozenset()),
    ("lmformatenforcer/", "grammar", frozenset()),
    ("safetensors/", "load", frozenset()),
    ("model_loader/", "load", frozenset()),
    ("huggingface_hub/", "load", frozenset()),
    ("torch/serialization.py", "load", frozenset()),
    ("kv_connector/", "kv_transfer", frozenset({"__init__", "_get_kv_connector_output", "maybe_get_kv_connector_output"})),
    ("lmcache/", "kv_transfer", frozenset()),
    ("mooncake/", "kv_transfer", frozenset()),
    ("nixl/", "kv_transfer", frozenset()),
    ("nixl_connector", "kv_transfer", frozenset()),
    ("common/conn.py", "kv_transfer", frozenset()),
)  # fmt: skip
"""(path fragment, place, functions that do not count): any other function of these files is decisive."""

LOOPS = frozenset(
    "run run_loop worker worker_loop transfer_worker bootstrap_thread decode_thread prefill_thread heartbeat_checker "
    "listen_loop _nixl_handshake_listener serve serve_forever poll_loop event_loop main_loop loop thread_loop "
    "_run_loop process_loop monitor monitor_loop report_loop prefetch_loop backup_thread_func prefetch_thread_func "
    "_worker_loop _background_loop run_forever worker_thread".split()
)  # fmt: skip
"""Outer functions of helper threads; a thread that only waits for work directly under one of them decides nothing."""

INIT = frozenset(
    "initialize_model_parallel init_distributed_environment init_worker_distributed_environment init_torch_distributed "
    "initialize_dp_attention init_world_group init_model_parallel_group ensure_model_parallel_initialized init_device "
    "ensure_kv_transfer_initialized create_stateless_dp_group _init_data_parallel _initialize_distributed".split()
)  # fmt: skip
"""Start-up functions around communicator set-up: a control-plane collective inside them belongs to the set-up."""

CONTROL = frozenset(
    "recv_requests recv_reqs _recv_requests _fetch_new_requests fetch_new_requests fetch_and_activate_new_requests "
    "_fetch_and_activate_new_requests _fetch_and_enqueue_requests _get_new_requests process_input_requests "
    "_broadcast_reqs_across_ranks get_new_requests recv_requests_from_tokenizer".split()
)  # fmt: skip
"""Functions in which a scheduler takes new requests: waiting there for a message is idling, a collective there is its broadcast."""

IDLE = CONTROL | frozenset(
    "_process_input_queue process_input_queue maybe_sleep maybe_sleep_on_idle idle_sleep self_check_during_idle on_idle "
    "check_memory get_from_request_queue get_from_waiting_queue _wait_for_requests wait_for_requests "
    "run_task_loop main_loop wait_for_work worker_busy_loop async_output_busy_loop forward_thread_func_ forward_thread_func "
    "step_dummy_batch _maybe_sleep".split()
)  # fmt: skip
"""Functions in which an engine process waits for the next thing to do."""

LOOP_BODY = frozenset(
    "event_loop_normal event_loop_overlap event_loop_pp event_loop_pdmux event_loop_overlap_disagg_decode "
    "event_loop_normal_disagg_decode event_loop_overlap_disagg_prefill event_loop_normal_disagg_prefill event_loop_mlx "
    "event_loop_pp_disagg_prefill event_loop_pp_disagg_decode run_event_loop dispatch_event_loop run_busy_loop "
    "_executor_loop _executor_loop_overlap _executor_loop_pp executionLoop _event_loop_wrapper get_next_batch_to_run "
    "get_next_disagg_decode_batch_to_run get_next_disagg_prefill_batch_to_run get_new_batch_prefill "
    "_process_engine_step step_with_batch_queue".split()
)  # fmt: skip
"""Bodies of a scheduler's loop: being directly in one of them is polling."""

STEP = frozenset(
    "run_batch forward_batch_generation forward_batch_embedding _forward_raw forward_extend forward_decode forward _forward "
    "forward_idle forward_step _forward_step _forward_step_inner execute_model _model_forward execute_dummy_batch _dummy_run "
    "profile_run determine_available_memory capture_model capture capture_one_batch_size run_once replay kernel_warmup warmup "
    "sample sample_tokens _sample process_batch_result process_batch_result_decode process_batch_result_prefill "
    "update_running_batch prepare_for_decode prepare_for_extend schedule step update_from_output collective_rpc _prepare_inputs "
    "_update_requests _handle_guided_decoder _sample_async get_response forwardAsync forwardSync decode prefill cuda_graph_replay "
    "propose propose_draft_token_ids forward_draft_extend draft verify forward_target_verify launch run_graph graph_replay "
    "writing_check loading_check check_hicache_events init_device_graphs init_cuda_graphs compile_or_warm_up_model".split()
)  # fmt: skip
"""Functions of a step (also of a step at start-up): work is under way when nothing more exact is known."""

RESULT_WAITS = frozenset(
    "process_batch_result process_batch_result_decode process_batch_result_prefill resolve_last_batch_result "
    "resolve_batch_result process_batch_result_disagg_prefill process_batch_result_idle resolve_spec_overlap_token_ids".split()
)  # fmt: skip
"""Scheduler functions whose own C calls copy results from the GPU: innermost and active, they wait for it."""

ENGINE_LOOPS = frozenset(
    "_executor_loop _executor_loop_overlap _executor_loop_pp _event_loop_wrapper forward_thread_func_ forward_thread_func "
    "async_output_busy_loop worker_busy_loop run_busy_loop executionLoop run_scheduler_process run_engine_core worker_main "
    "event_loop_normal event_loop_overlap event_loop_pp".split()
)  # fmt: skip
"""Functions that mark a thread as one that does the engine's steps, whatever its name."""

WEAK_PYTHON: tuple[Rule, ...] = (
    _rule("queue", "get put join", "queue.py", "queues.py"),
    _rule("event", "wait wait_for acquire join _wait_for_tstate_lock __enter__", "threading.py", "synchronize.py"),
    _rule("event", "result exception wait as_completed", "concurrent/futures"),
    _rule("queue", "_worker", "concurrent/futures"),
    _rule("mutex", "acquire __enter__", "filelock", "lock.py"),
    _rule("poll", "_recv _recv_bytes recv recv_bytes poll _poll wait", "multiprocessing/"),
    _rule("poll", "poll recv recv_multipart recv_pyobj recv_string recv_json sock_recv _recv_multipart", "zmq/", "io_struct.py"),
    _rule("poll", "select poll", "selectors.py", "select"),
    _rule("poll", "communicate _communicate wait _wait _try_wait", "subprocess.py"),
    _rule("poll", "readinto read recv recv_into recvfrom accept", "socket.py", "ssl.py"),
    _rule("poll", "dequeue acquire_read acquire_write enqueue wait", "shm_broadcast.py"),
    _rule("sleep", "sleep", "asyncio", "time"),
)  # fmt: skip
"""Generic waits; what they mean depends on the frames around them. Later ones, further out, replace earlier ones."""

WEAK_NATIVE: dict[str, str] = {
    **dict.fromkeys(
        ("pthread_mutex_lock", "lll_lock_wait", "lll_lock_wait_private", "pthread_rwlock_rdlock", "pthread_rwlock_wrlock",
         "pthread_mutex_timedlock", "gthread_mutex_lock", "sem_wait", "new_sem_wait", "new_sem_wait_slow", "sem_timedwait",
         "PyThread_acquire_lock_timed", "PyThread_acquire_lock", "PyMutex_LockTimed", "lock_PyThread_acquire_lock"), "mutex"),
    **dict.fromkeys(("take_gil", "PyEval_RestoreThread", "PyEval_AcquireThread", "PyGILState_Ensure", "gil_scoped_acquire"), "gil"),
    **dict.fromkeys(("pthread_cond_wait", "pthread_cond_timedwait", "pthread_cond_clockwait", "futex_abstimed_wait_common64",
                     "futex_abstimed_wait_common"), "event"),
    **dict.fromkeys(("nanosleep", "clock_nanosleep", "usleep", "time_sleep", "pysleep", "pause"), "sleep"),
    **dict.fromkeys(("read", "pread", "pread64", "preadv", "preadv64", "readv", "open", "open64", "openat", "openat64", "fsync", "fdatasync",
                     "stat", "fstat", "statx", "fstatat64", "io_getevents", "io_uring_enter", "write", "pwrite", "pwrite64", "close",
                     "libc_read", "libc_pread64", "libc_open64", "msync", "posix_fadvise", "readahead", "getdents64"), "file"),
    **dict.fromkeys(("poll", "ppoll", "epoll_wait", "epoll_pwait", "epoll_pwait2", "select", "pselect", "recv", "recvmsg", "recvfrom", "accept",
                     "accept4", "connect", "waitpid", "wait4", "waitid", "send", "sendmsg", "sendto", "zmq_msg_recv", "zmq_poll",
                     "sigtimedwait", "sigwait"), "poll"),
    **dict.fromkeys(("sched_yield", "clock_gettime", "vdso_clock_gettime"), "yield"),
    "ioctl": "ioctl",
}  # fmt: skip
"""C library and interpreter functions by what a thread in them waits for (leading underscores and version suffixes off)."""

GPU_SYNC = ("cuStreamSynchronize", "cuCtxSynchronize", "cuEventSynchronize", "cudaDeviceSynchronize", "cudaStreamSynchronize",
            "cudaEventSynchronize", "cudaMemcpyDtoH", "cuMemcpyDtoH", "cuStreamQuery", "cuEventQuery", "cudaStreamQuery", "cudaEventQuery",
            "cuMemcpyHtoD", "cuMemcpy_", "cudaThreadSynchronize")  # fmt: skip
"""Driver and runtime calls (prefixes) that return when the GPU has finished something."""

GPU_LAUNCH = ("cuLaunchKernel", "cuLaunchCooperativeKernel", "cuLaunch_", "cuGraphLaunch", "cudaLaunchKernel", "cudaGraphLaunch", "cuMemsetD",
              "cudaMemset", "cudaMemcpyAsync", "cuMemcpyAsync", "cuStreamWaitEvent", "cuEventRecord", "cudaEventRecord",
              "cudaStreamWaitEvent", "cuStreamWaitValue", "cuStreamWriteValue", "cuStreamBatchMemOp", "cudaLaunchCooperativeKernel",
              "cuMemcpyDtoDAsync", "cuMemcpyPeerAsync", "cuMemcpy2DAsync")  # fmt: skip
"""Calls that only enqueue; one that yields or sleeps inside the driver waits for room in the launch queue."""

COLLECTIVE_NATIVE = ("PMPI_", "MPI_", "ompi_", "MPIR_", "MPID", "gloo::", "c10d::ProcessGroupGloo", "c10d::Work::wait", "shm_allreduce",
                     "shm_allgather", "tensorrt_llm::mpi::MpiComm::", "c10d::ops::", "ucc_", "ucp_")  # fmt: skip
"""Prefixes of native functions that wait for other ranks."""

LIBRARY_FILES = (
    "torch/", "threading.py", "queue.py", "queues.py", "zmq/", "multiprocessing/", "concurrent/", "asyncio/", "selectors.py", "subprocess.py",
    "contextlib.py", "_contextlib.py", "c10d_logger.py", "parallel_state.py", "communication_op.py", "pynccl", "device_communicators/",
    "<frozen", "<string>", "uvloop/", "uvicorn/", "nvtx_utils.py", "scheduler_stage_metrics.py", "distributed_c10d.py", "mpi4py/", "triton/",
    "importlib", "runpy", "socket.py", "ssl.py", "io_struct.py", "anyio/", "shm_broadcast.py", "tqdm/",
)  # fmt: skip
"""Files whose frames do not say where in the engine a thread is."""
