"""Generic waits and the engine functions around them: data for `places.py`, nothing else (see `place_tables.py`)."""

from sentinel.core.place_tables import read_rules


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _prefixes(text: str) -> tuple[str, ...]:
    return tuple(text.split())


LOOPS = _words("""
run run_loop worker worker_loop transfer_worker bootstrap_thread decode_thread prefill_thread heartbeat_checker
listen_loop _nixl_handshake_listener serve serve_forever poll_loop event_loop main_loop loop thread_loop _run_loop
process_loop monitor monitor_loop report_loop prefetch_loop backup_thread_func prefetch_thread_func _worker_loop
_background_loop run_forever worker_thread _read_thread _monitor _monitor_loop start_thread
""")
"""Outer functions of helper threads; one that only waits for work directly under one of them decides nothing."""

INIT = _words("""
initialize_model_parallel init_distributed_environment init_worker_distributed_environment init_torch_distributed
initialize_dp_attention init_world_group init_model_parallel_group ensure_model_parallel_initialized init_device
ensure_kv_transfer_initialized create_stateless_dp_group _init_data_parallel _initialize_distributed
""")
"""Start-up functions around communicator set-up: a control-plane collective inside them belongs to the set-up."""

CONTROL = _words("""
recv_requests recv_reqs _recv_requests _fetch_new_requests fetch_new_requests fetch_and_activate_new_requests
_fetch_and_activate_new_requests _fetch_and_enqueue_requests _get_new_requests process_input_requests
_broadcast_reqs_across_ranks get_new_requests recv_requests_from_tokenizer getNewReqWithIds fetchNewRequests
""")
"""A scheduler takes new requests here: waiting for a message is idling, a collective is its request broadcast."""

IDLE = CONTROL | _words("""
_process_input_queue process_input_queue maybe_sleep maybe_sleep_on_idle idle_sleep self_check_during_idle on_idle
check_memory get_from_request_queue get_from_waiting_queue _wait_for_requests wait_for_requests run_task_loop
main_loop wait_for_work wait_for_request next_request worker_busy_loop async_output_busy_loop forward_thread_func_
forward_thread_func _maybe_sleep
""")
"""Functions in which an engine process waits for the next thing to do."""

LOOP_BODY = _words("""
event_loop_normal event_loop_overlap event_loop_pp event_loop_pdmux event_loop_overlap_disagg_decode event_loop_mlx
event_loop_normal_disagg_decode event_loop_overlap_disagg_prefill event_loop_normal_disagg_prefill
event_loop_pp_disagg_prefill event_loop_pp_disagg_decode run_event_loop dispatch_event_loop run_busy_loop
_executor_loop _executor_loop_overlap _executor_loop_pp executionLoop _event_loop_wrapper get_next_batch_to_run
get_next_disagg_decode_batch_to_run get_next_disagg_prefill_batch_to_run get_new_batch_prefill
""")
"""Bodies of a scheduler's loop: being directly in one of them is polling."""

STEP = _words("""
run_batch forward_batch_generation forward_batch_embedding _forward_raw forward_extend forward_decode forward _forward
forward_idle forward_step _forward_step _forward_step_inner execute_model _model_forward execute_dummy_batch
_dummy_run profile_run determine_available_memory capture_model capture capture_one_batch_size run_once replay
kernel_warmup warmup sample sample_tokens _sample process_batch_result process_batch_result_decode
process_batch_result_prefill update_running_batch prepare_for_decode prepare_for_extend schedule step
step_with_batch_queue _process_engine_step update_from_output collective_rpc _prepare_inputs _update_requests
_handle_guided_decoder _sample_async get_response forwardAsync forwardSync decode prefill cuda_graph_replay propose
propose_draft_token_ids forward_draft_extend draft verify forward_target_verify run_graph graph_replay
writing_check loading_check check_hicache_events init_device_graphs init_cuda_graphs compile_or_warm_up_model
resolve_last_batch_result resolve_batch_result execute_dummy_step
""")
"""Functions of a step (also of a step at start-up): work is under way when nothing more exact is known."""

RESULT_WAITS = _words("""
process_batch_result process_batch_result_decode process_batch_result_prefill resolve_last_batch_result
resolve_batch_result process_batch_result_disagg_prefill process_batch_result_idle resolve_spec_overlap_token_ids
""")
"""Scheduler functions whose own C calls copy results from the GPU: innermost and active, they wait for it."""

ENGINE_LOOPS = _words("""
_executor_loop _executor_loop_overlap _executor_loop_pp _event_loop_wrapper forward_thread_func_ forward_thread_func
async_output_busy_loop worker_busy_loop run_busy_loop executionLoop run_scheduler_process run_engine_core worker_main
event_loop_normal event_loop_overlap event_loop_pp
""")
"""Functions that mark a thread as one that does the engine's steps, whatever its name."""

WEAK_PYTHON = read_rules("""
queue in queue.py queues.py: get put join
event in threading.py synchronize.py: wait wait_for acquire join _wait_for_tstate_lock __enter__
event in concurrent/futures: result exception wait as_completed
queue in concurrent/futures: _worker
mutex in filelock: acquire __enter__
message in multiprocessing/: _recv _recv_bytes recv recv_bytes poll _poll wait
message in shm_broadcast.py: dequeue acquire_read acquire_write enqueue wait
message in subprocess.py: communicate _communicate wait _wait _try_wait
poll in zmq/ io_struct.py: poll recv recv_multipart recv_pyobj recv_string recv_json sock_recv _recv_multipart
poll in selectors.py: select
poll in socket.py ssl.py urllib3/ http/client.py: readinto read recv recv_into recvfrom accept connect sendall
file in tempfile.py pathlib codecs.py _pyio.py gzip.py shutil.py mmap memmap.py npyio numpy/lib: read readinto readline
    readlines read_text read_bytes write open load fromfile copyfileobj __new__
sleep in asyncio/tasks: sleep
""")
"""Generic waits; what they mean depends on the frames around them. Ones further out replace inner ones."""

_NATIVE = {
    "mutex": _words("""
        pthread_mutex_lock lll_lock_wait lll_lock_wait_private pthread_rwlock_rdlock pthread_rwlock_wrlock
        pthread_mutex_timedlock gthread_mutex_lock sem_wait new_sem_wait new_sem_wait_slow sem_timedwait
        PyThread_acquire_lock_timed PyThread_acquire_lock PyMutex_LockTimed lock_PyThread_acquire_lock
    """),
    "gil": _words("take_gil PyEval_RestoreThread PyEval_AcquireThread PyGILState_Ensure gil_scoped_acquire"),
    "event": _words("""
        pthread_cond_wait pthread_cond_timedwait pthread_cond_clockwait futex_abstimed_wait_common64
        futex_abstimed_wait_common futex_wait
    """),
    "sleep": _words("nanosleep clock_nanosleep usleep time_sleep pysleep pause"),
    "file": _words("""
        read pread pread64 preadv preadv64 readv open open64 openat openat64 fsync fdatasync stat fstat statx fstatat64
        io_getevents io_uring_enter write pwrite pwrite64 close libc_read libc_pread64 libc_open64 msync posix_fadvise
        readahead getdents64
    """),
    "poll": _words("""
        poll ppoll epoll_wait epoll_pwait epoll_pwait2 select pselect recv recvmsg recvfrom accept accept4 connect
        waitpid wait4 waitid send sendmsg sendto zmq_msg_recv zmq_poll sigtimedwait sigwait
    """),
    "yield": _words("sched_yield clock_gettime vdso_clock_gettime"),
    "ioctl": _words("ioctl"),
}
WEAK_NATIVE = {name: kind for kind, names in _NATIVE.items() for name in names}
"""C library and interpreter functions by what they wait for; leading underscores and version suffixes are off."""

GPU_SYNC = _prefixes("""
cuStreamSynchronize cuCtxSynchronize cuEventSynchronize cudaDeviceSynchronize cudaStreamSynchronize
cudaEventSynchronize cudaMemcpyDtoH cuMemcpyDtoH cuStreamQuery cuEventQuery cudaStreamQuery cudaEventQuery cuMemcpyHtoD
cudaThreadSynchronize
""")
"""Driver and runtime calls (prefixes) that return when the GPU has finished something."""

GPU_LAUNCH = _prefixes("""
cuLaunchKernel cuLaunchCooperativeKernel cuGraphLaunch cudaLaunchKernel cudaGraphLaunch cuMemsetD cudaMemset
cudaMemcpyAsync cuMemcpyAsync cuStreamWaitEvent cuEventRecord cudaEventRecord cudaStreamWaitEvent cuStreamWaitValue
cuStreamWriteValue cuStreamBatchMemOp cudaLaunchCooperativeKernel cuMemcpyDtoDAsync cuMemcpyPeerAsync cuMemcpy2DAsync
""")
"""Calls (prefixes) that only enqueue; one that yields or sleeps in the driver waits for room in the launch queue."""

COLLECTIVE_NATIVE = _prefixes("""
PMPI_ MPI_ ompi_ MPIR_ MPID gloo:: c10d::ProcessGroupGloo c10d::Work::wait shm_allreduce shm_allgather
tensorrt_llm::mpi::MpiComm:: c10d::ops:: ucc_
""")
"""Prefixes of native functions that wait for other ranks."""

LIBRARY_FILES = _prefixes("""
torch/ threading.py queue.py queues.py zmq/ multiprocessing/ concurrent/ asyncio/ selectors.py subprocess.py
contextlib.py _contextlib.py c10d_logger.py parallel_state.py communication_op.py pynccl device_communicators/ <frozen
<string> uvloop/ uvicorn/ nvtx_utils.py scheduler_stage_metrics.py distributed_c10d.py mpi4py/ triton/ importlib runpy
socket.py ssl.py io_struct.py anyio/ shm_broadcast.py tqdm/ cuda/ nn/
""")
"""Files whose frames do not say where in the engine a thread is."""

ENGINE_NATIVE = _prefixes("tensorrt_llm:: vllm:: sglang:: sgl_kernel:: triton::backend triton::core")
"""Namespaces of engines written in C++."""
