"""One place word for a process, from the frames of its deciding thread, whatever engine and version printed them."""

import pytest

from sentinel.core.places import plain
from sentinel.core.stack_reading import Reading, frontend_busy, read_stack
from tests.unit.place_cases import STEP, VLLM_STEP, cases
from tests.unit.stack_texts import CORE_LOOP, SGLANG_LOOP, VLLM_LOOP, dump, stacks, thread_of

SGLANG = "sglang::scheduler_TP1"
VLLM = "VLLM::Worker_TP1"


def reading(frames: str, title: str = SGLANG, state: str = "active", more: str = "") -> Reading:
    (stack,) = stacks(dump(title, frames, state=state) + more)
    return read_stack(stack)


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
