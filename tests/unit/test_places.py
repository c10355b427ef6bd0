"""One place word for a process, from the frames of its deciding thread, whatever engine and version printed them."""

import pytest

from sentinel.core.places import plain
from sentinel.core.stack_reading import Reading, frontend_busy, read_stack
from tests.unit.stack_texts import CORE_LOOP, SGLANG_LOOP, SPAWNED, VLLM_LOOP, dump, stacks, thread_of

SGLANG = "sglang::scheduler_TP1"
VLLM = "VLLM::Worker_TP1"
STEP = "    run_batch (sglang/srt/managers/scheduler.py:2088)\n" + SGLANG_LOOP
VLLM_STEP = "    execute_model (vllm/v1/worker/gpu_model_runner.py:3702)\n" + VLLM_LOOP
TRT_LOOP = """\
    _executor_loop_overlap (tensorrt_llm/_torch/pyexecutor/py_executor.py:1422)
    run (threading.py:1012)
"""
BOOT = "    __init__ (sglang/srt/managers/scheduler.py:402)\n    run_scheduler_process (scheduler.py:3312)\n" + SPAWNED


def reading(frames: str, title: str = SGLANG, state: str = "active", more: str = "") -> Reading:
    (stack,) = stacks(dump(title, frames, state=state) + more)
    return read_stack(stack)


BASES = {
    "sglang loop": SGLANG_LOOP,
    "sglang step": STEP,
    "sglang boot": BOOT,
    "vllm loop": VLLM_LOOP,
    "vllm step": VLLM_STEP,
    "trtllm loop": TRT_LOOP,
    "core loop": CORE_LOOP,
    "spawned": SPAWNED,
    "nothing": "",
}

PLACES = """\
gpu_wait of sglang::scheduler_TP1 above sglang loop
    synchronize (torch/cuda/streams.py:231)
    process_batch_result_decode (mixin.py:1)

gpu_wait of sglang::scheduler_TP1 above sglang step
    Event.synchronize (/opt/v/lib/python3.12/site-packages/torch/cuda/streams.py:231)

gpu_wait of sglang::scheduler_TP1 above sglang loop
    Scheduler.process_batch_result_prefill (scheduler.py:99)

gpu_wait of VLLM::Worker_TP1 above vllm step
    0x7f (libcuda.so.580)
    cuStreamSynchronize (libcuda.so.580)
    x (a/sampler.py:3)

gpu_wait of VLLM::Worker_TP1 above vllm step
    sched_yield (libc.so.6)
    0x7f (libcuda.so.1)
    cuLaunchKernelEx (libcuda.so.1)
    f (ops.py:3)

step of VLLM::Worker_TP1 above vllm step
    0x7f (libcuda.so.1)
    cuGraphLaunch (libcuda.so.1)
    replay (torch/cuda/graphs.py:133)

collective of sglang::scheduler_TP1 above sglang step
    all_reduce (distributed/parallel_state.py:699)
    forward (llama.py:9)

collective of VLLM::Worker_TP1 above vllm step
    shm_allreduce (shm.cpp:838)
    _CPUSHMDistributed.all_reduce (cpu_communicator.py:2)

collective of sglang::scheduler_TP1 above sglang loop
    poll (libc.so.6)
    c10d::Work::wait (libtorch_cpu.so)
    all_reduce (torch/distributed/distributed_c10d.py:1)
    writing_check (hiradix_cache.py:2)

collective of sglang::scheduler_TP1 above sglang step
    low_latency_dispatch (deep_ep/buffer.py:402)
    forward (token_dispatcher.py:3)

collective of /usr/bin/python3 -m mpi4py.futures.server above trtllm loop
    allgather (tensorrt_llm/_torch/distributed/communicator.py:3)
    _forward_step (py_executor.py:5)

control_broadcast of sglang::scheduler_TP1 above sglang loop
    broadcast (torch/distributed/distributed_c10d.py:28)
    broadcast_pyobj (sglang/srt/utils/common.py:1)
    Scheduler.recv_requests (scheduler.py:9)

control_broadcast of /usr/bin/python3 -m mpi4py.futures.server above trtllm loop
    bcast (tensorrt_llm/_torch/distributed/communicator.py:3)
    _fetch_new_requests (py_executor.py:5)

comm_init of VLLM::Worker_TP1 above vllm loop
    ncclCommInitRank (pynccl_wrapper.py:277)
    __init__ (pynccl.py:99)
    init_device (gpu_worker.py:118)

comm_init of sglang::scheduler_TP1 above sglang boot
    nanosleep (libc.so.6)
    c10d::TCPStore::waitForWorkers (libtorch_cpu.so)
    init_process_group (torch/distributed/distributed_c10d.py:8)

comm_init of sglang::scheduler_TP1 above sglang boot
    barrier (torch/distributed/distributed_c10d.py:8)
    init_torch_distributed (model_runner.py:3)

nccl_host of sglang::scheduler_TP1 above sglang step
    recvmsg (libc.so.6)
    ncclIpcSocketRecvMsg (libnccl.so.2)
    ncclCommWindowRegister (libnccl.so.2)
    forward (glm.py:7)

lock of VLLM::Worker_TP1 above vllm step
    wait (threading.py:355)
    reserve (pool.py:88)

lock of sglang::scheduler_TP1 above sglang step
    0x7f (libc.so.6)
    PyThread_acquire_lock_timed (python3.12)
    allocate (memory_pool.py:3)

lock of sglang::scheduler_TP1 above sglang step
    pthread_cond_timedwait (libc.so.6)
    take_gil (python3.12)
    f (x.py:3)

file_io of sglang::scheduler_TP1 above sglang step
    open64 (libc.so.6)
    fetch (plugin.py:3)

file_io of sglang::scheduler_TP1 above sglang step
    readinto (tempfile.py:499)
    fetch_rows (rows.py:3)

socket of sglang::scheduler_TP1 above sglang step
    recv (socket.py:719)
    fetch (remote.py:3)

native_call of VLLM::Worker_TP1 above vllm step
    ioctl (libc.so.6)
    0x7f (libcuda.so.1)
    cuMemFreeHost (libcuda.so.1)
    start_load_kv (vllm/distributed/kv_transfer/kv_connector/v1/base.py:1)

native_call of /usr/bin/python3 -m mpi4py.futures.server above trtllm loop
    sched_yield (libc.so.6)
    0x7f (libcuda.so.1)
    cuLaunchHostFunc (libcuda.so.1)
    execute (guided_decoder.py:5)

compile of sglang::scheduler_TP1 above sglang step
    _communicate (subprocess.py:2115)
    build (deep_gemm/jit/compiler.py:112)
    forward (layer.py:1)

compile of sglang::scheduler_TP1 above sglang step
    make_cubin (triton/backends/nvidia/compiler.py:391)
    run (triton/runtime/jit.py:6)
    forward (moe.py:1)

compile of VLLM::Worker_TP1 above vllm step
    codegen (torch/_inductor/scheduler.py:52)
    compile (vllm/compilation/backends.py:2)

step of VLLM::Worker_TP1 above vllm step
    __call__ (vllm/compilation/piecewise_backend.py:120)
    forward (torch/_dynamo/eval_frame.py:12)

step of sglang::scheduler_TP1 above sglang step
    run (triton/runtime/jit.py:621)
    forward (moe.py:1)

gc of sglang::scheduler_TP1 above sglang loop
    gc_collect_main (python3.12)
    <listcomp> (schedule_batch.py:15)
    prepare_for_decode (schedule_batch.py:1)

grammar of sglang::scheduler_TP1 above sglang loop
    compile_json_schema (xgrammar/compiler.py:231)
    dispatch_json (xgrammar_backend.py:2)

kv_transfer of VLLM::Worker_TP1 above vllm step
    wait (threading.py:355)
    retrieve (lmcache/v1/cache_engine.py:3)

load of VLLM::Worker_TP1 above vllm loop
    __getitem__ (safetensors/__init__.py)
    load_weights (vllm/model_executor/model_loader/default_loader.py:2)

load of sglang::scheduler_TP1 above sglang boot
    read (libc.so.6)
    safetensors_weights_iterator (weight_utils.py:3)
    load_model (model_runner.py:3)

idle_loop of sglang::scheduler_TP1 above sglang loop
    poll (zmq/sugar/poll.py:106)
    maybe_sleep (scheduler.py:402)
    recv_requests (scheduler.py:13)

idle_loop of sglang::scheduler_TP1 above sglang loop
    Scheduler.get_next_batch_to_run (scheduler.py:3997)
    wrapper (nvtx_utils.py:109)

idle_loop of VLLM::Worker_TP1 above vllm loop
    acquire_read (shm_broadcast.py:598)
    dequeue (shm_broadcast.py:688)

idle_loop of VLLM::EngineCore above core loop
    wait (threading.py:355)
    get (queue.py:171)
    _process_input_queue (core.py:11)

step of VLLM::EngineCore above core loop
    poll (zmq/sugar/poll.py:1)
    wait (shm_broadcast.py:210)
    acquire_read (shm_broadcast.py:8)
    get_response (multiproc_executor.py:4)
    step (core.py:6)

sleep of python3 engine.py above nothing
    clock_nanosleep (libc.so.6)
    <module> (engine.py:92)

unknown of python3 engine.py above nothing
    <module> (engine.py:92)

frontend of sglang::detokenizer above spawned
    recv_pyobj (zmq/sugar/socket.py:1)
    event_loop (detokenizer_manager.py:1)
    run_detokenizer_process (d.py:4)
"""


def cases() -> list[tuple[str, str, str]]:
    """(place, title, frames) of each block above."""
    found = []
    for block in PLACES.strip().split("\n\n"):
        head, _, frames = block.partition("\n")
        place, _, rest = head.partition(" of ")
        title, _, base = rest.partition(" above ")
        found.append((place, title, frames + "\n" + BASES[base]))
    return found


@pytest.mark.parametrize(("place", "title", "frames"), cases())
def test_the_place_of_a_process(place: str, title: str, frames: str) -> None:
    """False: a rank is said to stand where it does not, and the verdict names another cause."""
    assert reading(frames, title).place == place


def test_a_helper_that_waits_for_the_gpu_speaks_for_a_parked_main_thread() -> None:
    """False: a rank whose results never come back is called idle."""
    parked = "acquire_read (shm_broadcast.py:598)\ndequeue (shm_broadcast.py:688)\n" + VLLM_LOOP
    copier = thread_of(
        301, "active", "WorkerAsyncOutputCopy",
        "synchronize (torch/cuda/streams.py:2)\nget_output (gpu_model_runner.py:2)\nasync_output_busy_loop (m.py:8)",
    )  # fmt: skip
    read = reading(parked, VLLM, "idle", copier)

    assert (read.place, read.thread) == ("gpu_wait", "WorkerAsyncOutputCopy")


def test_a_forward_thread_speaks_for_a_scheduler_that_waits_for_it() -> None:
    """False: the overlap scheduler's wait for its own worker thread is taken for a dead lock."""
    main = "wait (threading.py:359)\nresolve_last_batch_result (tp_worker_overlap_thread.py:2)\n" + SGLANG_LOOP
    worker = thread_of(
        301, "active", "Thread-4",
        "all_reduce (torch/distributed/distributed_c10d.py:1)\nforward (llama.py:1)\nforward_thread_func_ (w.py:1)",
    )  # fmt: skip

    assert reading(main, more=worker).place == "collective"


def test_idle_helpers_never_decide() -> None:
    """False: a thread pool that waits for work makes a rank look stuck in a transfer or a lock."""
    helpers = thread_of(
        301, "idle", "kv", "wait (threading.py:1)\nget (queue.py:1)\ntransfer_worker (mooncake/conn.py:9)"
    )
    helpers += thread_of(302, "idle", "pool", "_worker (concurrent/futures/thread.py:90)\nrun (threading.py:1)")
    read = reading("synchronize (torch/cuda/streams.py:231)\n" + STEP, more=helpers)

    assert (read.place, read.sides) == ("gpu_wait", frozenset())


def test_a_helper_in_a_lookup_or_a_compile_is_named_beside_the_main_thread() -> None:
    """False: the one request that waits for a cache server or a grammar leaves no trace, since the loop is alive."""
    helpers = thread_of(
        140, "idle", "Thread-7", "poll (zmq/sugar/poll.py:1)\nget_result (lmcache/mq.py:2)\nlookup (lmcache/a.py:1)"
    )  # fmt: skip
    helpers += thread_of(141, "active", "pool", "compile_grammar (backend_xgrammar.py:112)\n_worker (thread.py:1)")
    main = "wait (threading.py:355)\nget (queue.py:171)\n_process_input_queue (core.py:11)\n" + CORE_LOOP
    read = reading(main, "VLLM::EngineCore", "idle", helpers)

    assert (read.place, read.role) == ("idle_loop", "core")
    assert read.sides == {"kv_transfer", "grammar"}


CALLBACK = """\
Thread 38 (Thread 0x7f19ac9fe640 (LWP 2288) "python3"):
#0  0x00007f1b6fa93ac1 in {leaf} () from /lib/x86_64-linux-gnu/libc.so.6
#1  0x00007f19e0c44b7a in gather_rows(void*) () from librows.so
#2  0x00007f1b2049c7a1 in ?? () from /lib/libcuda.so.1
#3  0x00007f1b204fe0d9 in ?? () from /lib/libcuda.so.1
#4  0x00007f1b6fa94ac3 in start_thread () from /lib/x86_64-linux-gnu/libc.so.6

Thread 37 (Thread 0x7f19c2bff640 (LWP 2287) "cuda-EvtHandlr"):
#0  0x00007f1b6fb19c3d in poll () from /lib/x86_64-linux-gnu/libc.so.6
#1  0x00007f1b20b1b0a2 in ?? () from /lib/libcuda.so.1
#2  0x00007f1b6fa94ac3 in start_thread () from /lib/x86_64-linux-gnu/libc.so.6

Thread 1 (Thread 0x7f2c1d0f9000 (LWP 2200) "python3"):
#0  0x00007f1b204a33c1 in ?? () from /lib/libcuda.so.1
#1  0x00007f1b205aa1f0 in cuEventSynchronize () from /lib/libcuda.so.1
"""


@pytest.mark.parametrize(
    ("leaf", "wait"), [("pthread_mutex_lock", "mutex"), ("pread64", "file"), ("take_gil", "gil"), ("memcpy", "")]
)
def test_a_host_callback_and_what_it_waits_for(leaf: str, wait: str) -> None:
    """False: a stream stopped behind a host callback is blamed on the collective that waits behind it."""
    (stack,) = stacks(CALLBACK.replace("{leaf}", leaf))
    read = read_stack(stack)

    assert read.place == "gpu_wait"
    assert read.callback is not None and (read.callback.function, read.callback.wait) == ("gather_rows", wait)


def test_the_driver_s_own_threads_are_no_callbacks() -> None:
    """False: every healthy process has a "blocked callback"."""
    (stack,) = stacks(CALLBACK[CALLBACK.index("Thread 37") :])

    assert read_stack(stack).callback is None


@pytest.mark.parametrize(
    ("state", "frames", "holder"),
    [
        ("active+gil", "ioctl (libc.so.6)\ncuMemFreeHost (libcuda.so.1)\nf (x.py:1)", "cuMemFreeHost"),
        ("active+gil", "gather (rows.py:1)\nf (x.py:1)", None),
        ("active+gil", "gc_collect_main (python3.12)\nf (x.py:1)", None),
        ("active+gil", "sched_yield (libc.so.6)\n0x7f (libcuda.so.1)\ncuLaunchKernel (libcuda.so.1)\nf (x.py:1)", None),
        ("active", "ioctl (libc.so.6)\nf (x.py:1)", None),
    ],
)  # fmt: skip
def test_who_keeps_the_interpreter_lock(state: str, frames: str, holder: str | None) -> None:
    """False: a thread that computes is accused, or the native call that freezes all other threads is not seen."""
    assert reading(frames + "\n" + VLLM_STEP, VLLM, state).holder == holder


def test_a_launch_that_keeps_the_lock_from_others_is_a_holder() -> None:
    """False: an interpreter frozen by a full launch queue looks like ordinary waiting."""
    frames = "sched_yield (libc.so.6)\n0x7f (libcuda.so.1)\ncuLaunchKernel (libcuda.so.1)\nf (x.py:1)\n" + VLLM_STEP
    waiter = thread_of(9, "idle", "t", "pthread_cond_timedwait (libc.so.6)\ntake_gil (python3.12)\ng (y.py:1)")

    assert reading(frames, VLLM, "active+gil", waiter).holder == "cuLaunchKernel"


@pytest.mark.parametrize(
    ("title", "frames", "role"),
    [
        ("python3 -m sglang.launch_server --tp 2", "run_batch (a.py:1)\n" + SGLANG_LOOP, "rank"),
        ("python3 -m sglang.launch_server --tp 2", "run (uvicorn/server.py:75)", "frontend"),
        ("sglang::tokenizer_worker:31", "epoll_wait (libc.so.6)", "frontend"),
        ("VLLM::DPCoordinator", "poll (zmq/sugar/poll.py:1)", "frontend"),
        ("VLLM::EngineCore_DP3", "f (x.py:1)", "core"),
        ("python3 train.py", "f (x.py:1)", "other"),
    ],
)
def test_roles_by_frames_then_by_title(title: str, frames: str, role: str) -> None:
    """False: an HTTP process is counted among the ranks, or a scheduler with an old title is not."""
    assert reading(frames, title).role == role


@pytest.mark.parametrize(
    ("state", "frames", "busy"),
    [
        ("active+gil", "sub (regex/regex.py:288)\n_process (s.py:5)\n_run (asyncio/events.py:88)", True),
        ("idle", "sleep (app.py:3)\n_run (asyncio/events.py:88)\nrun (uvicorn/server.py:7)", True),
        ("idle", "select (selectors.py:468)\n_run_once (asyncio/base_events.py:1)\nrun (uvicorn/server.py:7)", False),
        ("idle", "run (asyncio/runners.py:118)\nrun (uvicorn/server.py:7)\nlaunch_server (http_server.py:3)", False),
        ("idle", "f (x.py:1)", None),
    ],
)  # fmt: skip
def test_an_event_loop_is_busy_when_the_program_stands_on_it(state: str, frames: str, busy: bool | None) -> None:
    """False: a healthy front end is restarted, or a blocked one is called fine."""
    (stack,) = stacks(dump("python3 -m sglang.launch_server", frames, state=state))

    assert frontend_busy(stack) is busy


@pytest.mark.parametrize(
    ("printed", "name"),
    [
        ("context_decorator.<locals>.decorate_context", "decorate_context"),
        ("(anonymous namespace)::shm_cc_ops::shm_cc_loop<c10::BFloat16, (anonymous namespace)::f>", "shm_cc_loop"),
        ("void at::native::gemm<float>(char, char)", "gemm"),
        ("tensorrt_llm::runtime::Token::synchronize() const", "synchronize"),
        ("<listcomp>", "<listcomp>"),
    ],
)
def test_names_are_compared_without_their_scopes(printed: str, name: str) -> None:
    """False: the same function of another tool or version is not recognised."""
    assert plain(printed) == name
