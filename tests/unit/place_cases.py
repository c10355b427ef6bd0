"""Stacks of one process each, with the place they show: every engine, tool and kind of wait that the tables know."""

from tests.unit.stack_texts import CORE_LOOP, SGLANG_LOOP, SPAWNED, VLLM_LOOP

STEP = "    run_batch (sglang/srt/managers/scheduler.py:2088)\n" + SGLANG_LOOP
VLLM_STEP = "    execute_model (vllm/v1/worker/gpu_model_runner.py:3702)\n" + VLLM_LOOP
TRT_LOOP = """\
    _executor_loop_overlap (tensorrt_llm/_torch/pyexecutor/py_executor.py:1422)
    run (threading.py:1012)
"""
BOOT = "    __init__ (sglang/srt/managers/scheduler.py:402)\n    run_scheduler_process (scheduler.py:3312)\n" + SPAWNED
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

step of sglang::scheduler_TP1 above sglang step
    _parse_path (pathlib.py:404)
    __fspath__ (pathlib.py:448)
    open (pathlib.py:1015)
    note_step (progress.py:3)

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
