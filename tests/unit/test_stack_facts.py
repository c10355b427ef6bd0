"""Facts over all ranks' stacks: who stands apart, who is parked, what is unknown for want of a stack."""

import pytest

from sentinel.core.fact import Fact, FactSpec, Value
from sentinel.core.facts import stack_groups, stack_threads, stacks, store
from sentinel.core.picture import Picture
from sentinel.model.observation import GpuKernels, NcclComm, Origin, ProcessRow, ProcessTable, Stack, Tags
from tests.unit.stack_texts import CORE_LOOP, SGLANG_LOOP, VLLM_LOOP, dump, note, picture_of, thread_of

FACTS: dict[str, FactSpec] = {spec.name: spec for each in (stacks, stack_groups, stack_threads) for spec in each.FACTS}

WAIT = "synchronize (torch/cuda/streams.py:231)\nprocess_batch_result_decode (mixin.py:318)\n" + SGLANG_LOOP
FORWARD = (
    "all_reduce (distributed/parallel_state.py:69)\nforward ({file}.py:9)\nrun_batch (scheduler.py:2)\n" + SGLANG_LOOP
)
CHECK = "all_reduce (torch/distributed/distributed_c10d.py:2)\nwriting_check (hiradix_cache.py:4)\n" + SGLANG_LOOP
BROADCAST = (
    "broadcast (torch/distributed/distributed_c10d.py:2)\nbroadcast_pyobj (common.py:1)\nrecv_requests (s.py:2)\n"
    + SGLANG_LOOP
)
PARKED = "poll (zmq/sugar/poll.py:106)\nmaybe_sleep (scheduler.py:402)\nrecv_requests (scheduler.py:13)\n" + SGLANG_LOOP
LOCKED = "wait (threading.py:355)\nreserve (pool.py:88)\nrun_batch (scheduler.py:2)\n" + SGLANG_LOOP
FREE = (
    "ioctl (libc.so.6)\ncuMemFreeHost (libcuda.so.1)\nresize (pool.py:3)\nexecute_model (gpu_model_runner.py:3)\n"
    + VLLM_LOOP
)
CORE_PARKED = "wait (threading.py:355)\nget (queue.py:171)\n_process_input_queue (core.py:11)\n" + CORE_LOOP
CORE_WAITS = "acquire_read (shm_broadcast.py:8)\nget_response (multiproc_executor.py:4)\nstep (core.py:6)\n" + CORE_LOOP
WORKER_PARKED = "acquire_read (shm_broadcast.py:8)\ndequeue (shm_broadcast.py:6)\n" + VLLM_LOOP


def rank(number: int, frames: str, title: str = "sglang::scheduler_TP", state: str = "active") -> str:
    return dump(f"{title}{number}", frames, pid=100 + number, state=state)


def fact(name: str, picture: Picture) -> Fact:
    spec = FACTS[name]
    return spec.compute(picture)


def value(name: str, *texts: str) -> Value:
    return fact(name, picture_of(*texts)).value


def comm(pid: int, number: int, nranks: int) -> NcclComm:
    return NcclComm(
        origin=Origin("nccl.log"), pid=pid, comm="0x1", comm_id="0xa", comm_rank=number, nranks=nranks,
        event="init_start",
    )  # fmt: skip


@pytest.mark.parametrize(("others", "known"), [((), (0, 1, 2)), ((104,), (0, 1))])
def test_the_process_that_no_log_names_is_the_missing_rank_if_it_is_the_only_one(
    others: tuple[int, ...], known: tuple[int, ...]
) -> None:
    """False: the rank that never joins and so has no NCCL log is nobody, or any process of its kind is blamed."""
    pids = (101, 102, 103, *others)
    rows = tuple(ProcessRow(pid=pid, ppid=7, command="python3 engine.py") for pid in pids)
    launcher = ProcessRow(pid=7, ppid=1, command="python3 launch.py")
    picture = picture_of(*(dump(f"engine-{pid}", WAIT, pid=pid) for pid in pids))
    note(picture, ProcessTable(origin=Origin("ps.txt"), rows=(launcher, *rows)), comm(101, 0, 3), comm(102, 1, 3))
    assert fact("stack.known_ranks", picture).value == known


def test_every_fact_is_unknown_without_stacks_and_says_what_would_decide() -> None:
    """False: "nobody looked" is taken for "nothing there"."""
    for name in FACTS:
        empty = fact(name, Picture())

        assert empty.value is None and empty.missing, name


def test_every_known_value_cites_a_place() -> None:
    """False: a verdict rests on something that nobody can look up."""
    picture = picture_of(rank(0, WAIT), rank(1, LOCKED), rank(2, WAIT), dump("VLLM::EngineCore", CORE_WAITS, pid=9))
    for name in FACTS:
        found = fact(name, picture)

        assert found.value is None or found.cites, name


@pytest.mark.parametrize(
    ("ranks", "odd"),
    [
        ((WAIT, WAIT, LOCKED, WAIT), (2,)),
        ((WAIT, LOCKED), (1,)),
        ((LOCKED, WAIT), (0,)),
        ((CHECK, CHECK, BROADCAST, CHECK, BROADCAST), (2, 4)),
        ((WAIT, WAIT, WAIT), ()),
        ((CHECK, BROADCAST), ()),
        ((LOCKED, LOCKED), ()),
        ((WAIT,), None),
    ],
)
def test_the_odd_ranks_are_those_that_do_not_stand_with_the_waiting(
    ranks: tuple[str, ...], odd: tuple[int, ...] | None
) -> None:
    """False: a victim is named as the culprit, or the one rank that stopped elsewhere is not."""
    assert value("stack.odd_ranks", *(rank(k, frames) for k, frames in enumerate(ranks))) == odd


def test_layers_of_one_forward_are_one_place() -> None:
    """False: ranks whose host ran ahead by another number of layers are called divergent."""
    texts = [rank(k, FORWARD.replace("{file}", name)) for k, name in enumerate(("linear", "embedding", "moe"))]

    assert value("stack.same_place", *texts) is True
    assert value("stack.split", *texts) is False


def test_two_control_collectives_at_once_are_a_split() -> None:
    """False: ranks that can never meet are said to wait for the network."""
    texts = [rank(k, frames) for k, frames in enumerate((CHECK, CHECK, BROADCAST, CHECK))]

    assert value("stack.split", *texts) is True
    assert value("stack.odd_collective_ranks", *texts) == (2,)
    assert value("stack.waiting_ranks", *texts) == (0, 1, 2, 3)


def test_half_of_a_large_world_elsewhere_names_nobody() -> None:
    """False: thirteen of thirty-two ranks are accused because nineteen were met somewhere else."""
    many = [rank(number, CHECK if number < 13 else BROADCAST) for number in range(32)]
    few = [rank(number, CHECK if number < 3 else BROADCAST) for number in range(32)]

    assert value("stack.split", *many) is True
    assert value("stack.odd_collective_ranks", *many) == ()
    assert value("stack.odd_collective_ranks", *few) == (0, 1, 2)


def test_the_last_process_of_the_same_program_is_the_missing_rank() -> None:
    """False: the one rank that never joined, and so never said its number, is not named."""
    made = picture_of(*(dump("python3 engine.py", frames, pid=50 + n) for n, frames in enumerate((WAIT, LOCKED, WAIT))))
    for number in (0, 2):
        note = NcclComm(
            origin=Origin("x"),
            pid=50 + number,
            comm="0x1",
            comm_id="0xa",
            comm_rank=number,
            nranks=3,
            event="init_start",
        )
        made.note(note)

    assert fact("stack.place_lock_ranks", made).value == (1,)


def test_a_parked_scheduler_leaves_the_others_in_its_broadcast() -> None:
    """False: every idle multi-rank engine is divergent."""
    texts = [rank(0, PARKED), rank(1, BROADCAST), rank(2, BROADCAST)]

    assert value("stack.engine_idle", *texts) is True
    assert value("stack.odd_ranks", *texts) == ()
    assert value("stack.split", *texts) is False


def test_a_broadcast_that_nobody_starts_is_not_idle() -> None:
    """False: ranks frozen in the request broadcast are called idle because they wait there when idle too."""
    assert value("stack.engine_idle", rank(1, BROADCAST), rank(2, BROADCAST)) is False


def test_a_core_that_waits_for_its_workers_is_neither_idle_nor_a_rank() -> None:
    """False: vLLM's control process is counted as a rank, or its step in flight as idleness."""
    worker = rank(0, WORKER_PARKED, "VLLM::Worker_TP")
    texts = (worker, dump("VLLM::EngineCore", CORE_WAITS, pid=77))

    assert value("stack.known_ranks", *texts) == (0,)
    assert value("stack.engine_idle", *texts) is False
    assert value("stack.core_place", *texts) == "step"
    assert value("stack.engine_idle", worker, dump("VLLM::EngineCore", CORE_PARKED, pid=77)) is True


def test_a_core_without_workers_is_the_rank() -> None:
    """False: data-parallel engines of one GPU each have no ranks at all."""
    texts = [dump(f"VLLM::EngineCore_DP{k}", CORE_PARKED, pid=70 + k) for k in range(2)]

    assert value("stack.known_ranks", *texts) == (0, 1)
    assert value("stack.place_idle_loop_ranks", dump("VLLM::EngineCore", CORE_PARKED)) == (0,)


def test_native_frames_complete_a_python_dump() -> None:
    """False: the rank that hangs in a file read is said to be in some step."""
    plain = "fetch (plugin.py:47)\nforward_batch_generation (tp_worker.py:6)\n" + SGLANG_LOOP
    texts = (rank(1, plain, state="idle"), rank(1, "open64 (libc.so.6)\n" + plain, state="idle"), rank(0, WAIT))

    assert value("stack.place_file_io_ranks", *texts) == (1,)
    assert value("stack.place_step_ranks", *texts) == ()
    assert value("stack.odd_ranks", *texts) == (1,)


def test_a_failed_attempt_beside_a_success_is_no_failure() -> None:
    """False: a rank whose second attempt gave a stack is reported as blind."""
    refused = "Process 101: sglang::scheduler_TP1\nPython v3.12\n\nError: Failed to suspend process\n"
    texts = (rank(0, WAIT), refused)

    assert value("stack.failed_ranks", *texts) == (1,)
    assert value("stack.coverage", *texts) == 0.5
    assert value("stack.failed_ranks", *texts, rank(1, WAIT)) == ()


def test_two_dumps_tell_frozen_from_moving() -> None:
    """False: a compile that advances is restarted, or a stuck rank waits for ever."""
    moved = "make_cubin (triton/backends/nvidia/compiler.py:{line})\nrun_batch (scheduler.py:2)\n" + SGLANG_LOOP
    texts = (
        rank(0, WAIT),
        rank(0, WAIT),
        rank(1, moved.replace("{line}", "7")),
        rank(1, moved.replace("{line}", "9")),
        rank(2, WAIT),
    )

    assert value("stack.frozen_ranks", *texts) == (0,)
    assert value("stack.moving_ranks", *texts) == (1,)
    assert value("stack.frozen_ranks", rank(2, WAIT)) is None


def test_the_holder_of_the_lock_unless_its_process_is_stopped() -> None:
    """False: a process stopped from outside is blamed for holding its own lock."""
    picture = picture_of(rank(0, FREE, "VLLM::Worker_TP", "active+gil"), rank(1, WORKER_PARKED, "VLLM::Worker_TP"))

    assert fact("stack.gil_holder_ranks", picture).value == (0,)
    stopped = ProcessTable(origin=Origin("ps.txt"), rows=(ProcessRow(pid=100, state="T"),))
    assert fact("stack.gil_holder_ranks", note(picture, stopped)).value == ()


def test_a_blocked_callback_is_looked_for_in_native_stacks_only() -> None:
    """False: "no callback is stuck" is concluded from a tool that cannot show callback threads."""
    native = """\
PID 101 - process
TID 101:
#0  0x00007f0ba2614854
#1  0x00007f0ba24dd430 cuCtxSynchronize_v2
#2  0x0000000000657a05 _start
TID 160:
#0  0x00007f0bcf2a01e1 {leaf}
#1  0x00007f0bce6714d5 gather_rows
#2  0x00007f0ba24ace15
#3  0x00007f0ba24bad73
#4  0x00007f0bcf29cb84
TID 161:
#0  0x00007f0bcf298e51 pthread_cond_wait
#1  0x00007f0b16655e93 blas_thread_server
#2  0x00007f0bcf29cb84
"""
    python = (rank(0, WAIT), rank(1, WAIT))

    assert value("stack.callback_blocked_ranks", *python) is None
    assert value("stack.callback_blocked_ranks", *python, native.replace("{leaf}", "pread64")) == (1,)
    assert value("stack.callback_blocked_ranks", *python, native.replace("{leaf}", "memcpy")) == ()


def test_a_row_store_is_known_by_its_name_in_a_blocked_callback() -> None:
    """False: an engine without a row store is advised to switch its mode."""
    native = """\
PID 101 - process
TID 160:
#0  0x00007f0bcf2a01e1 pread64
#1  0x00007f0bce6714d5 {name}
#2  0x00007f0ba24ace15 cuLaunchHostFunc
#3  0x00007f0bcf29cb84 start_thread
"""
    seen = next(spec for spec in store.FACTS if spec.name == "store.seen")

    assert seen.compute(picture_of(native.replace("{name}", "row_store::gather"))).value is True
    assert seen.compute(picture_of(native.replace("{name}", "log_tokens"))).value is False
    assert seen.compute(picture_of(rank(0, WAIT))).value is None


def test_kernels_belong_to_the_only_rank_of_their_host() -> None:
    """False: the GPU whose kernel never ends cannot be named although its host can."""
    picture = picture_of()
    for number, host in enumerate(("node1", "node2")):
        for seen in picture_of(rank(number, WAIT)).all(Stack):
            tagged = Stack(
                origin=seen.origin, host=host, pid=seen.pid, tags=Tags(tp=number), tool=seen.tool, threads=seen.threads
            )
            note(picture, tagged)
    spin = GpuKernels(origin=Origin("a.log"), host="node2", kernels=("attention_kernel<512>",))
    wait = GpuKernels(origin=Origin("b.log"), host="node1", kernels=("ncclDevKernel_AllReduce_Sum_bf16_RING_LL",))
    note(picture, spin, wait)

    assert fact("stack.kernel_spin_ranks", picture).value == (1,)
    assert fact("stack.kernel_spin_hosts", picture).value == ("node2",)
    assert fact("stack.nccl_kernel_ranks", picture).value == (0,)


def test_a_front_end_is_busy_only_when_every_dump_says_so() -> None:
    """False: a request being served at the instant of the dump restarts the front end."""
    busy = "sub (regex/regex.py:288)\n_process (serving.py:5)\n_run (asyncio/events.py:88)\nrun (uvicorn/server.py:7)"
    calm = "select (selectors.py:468)\n_run_once (asyncio/base_events.py:1)\nrun (uvicorn/server.py:7)"
    once, again = (dump("python3 -m sglang.launch_server", frames, pid=5) for frames in (busy, calm))

    assert value("stack.frontend_busy", once, once) is True
    assert value("stack.frontend_busy", once, again) is False
    assert value("stack.frontend_busy", rank(0, WAIT)) is None


def test_helpers_of_the_core_show_a_grammar_or_a_lookup_at_work() -> None:
    """False: the one request that waits for its schema or its cache is invisible behind a live loop."""
    helper = thread_of(140, "active", "pool", "compile_grammar (backend_xgrammar.py:112)\n_worker (thread.py:1)")
    core = dump("VLLM::EngineCore", CORE_PARKED, pid=77) + helper
    worker = rank(0, WORKER_PARKED, "VLLM::Worker_TP")

    assert value("stack.grammar_active", worker, core) is True
    assert value("stack.kv_transfer_active", worker, core) is False
    assert value("stack.place_grammar_ranks", core) == (0,)


def test_a_compiler_process_behind_a_compiling_rank() -> None:
    """False: a running nvcc is not seen as the reason of the wait."""
    forked = "_communicate (subprocess.py:2)\nbuild (deep_gemm/jit/compiler.py:1)\nforward (l.py:1)\n" + SGLANG_LOOP

    assert value("stack.forked_compiler", rank(0, forked), rank(1, WAIT)) is True
    assert value("stack.forked_compiler", rank(0, WAIT)) is False


def test_stacks_that_show_nothing_of_the_engine_are_at_no_place() -> None:
    """Else ranks of which nothing can be said would count as waiting together, and a scheduler be accused."""
    texts = [rank(number, "    spin (lib.so)\n") for number in (0, 1)]
    assert value("stack.same_place", *texts) is None
