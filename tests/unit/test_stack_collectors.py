"""What the stack tools print becomes stacks: processes, threads, frames innermost first, and errors as evidence."""

import pytest

from sentinel.model.observation import GpuKernels
from tests.unit.stack_texts import dump, read, stacks, thread_of

NATIVE = """\
Process 8801: sglang::scheduler_TP0_EP0
Python v3.12.3 (/usr/bin/python3.12)

Thread 8801 (active+gil): "MainThread"
    sched_yield (libc.so.6)
    0xe4f2a018c3d0 (libcuda.so.580.95.05)
    cuLaunchKernel (libcuda.so.580.95.05)
    (anonymous namespace)::launch<c10::BFloat16, f(int)> (ops.cpp:514)
    rms_norm (vllm/_custom_ops.py:311)
    _search (regex/_regex_core.py)
Thread 8870 (idle): "Thread-1 (_watchdog_thread)"
    _watchdog_thread (sglang/srt/utils/watchdog.py:97)
Thread 0x7F4D6BFFF700 (idle): "no os id"
    wait (threading.py:355)
"""
STOPPED = """\
Process 27140: VLLM::Worker_TP1
Python v3.11.7 (/usr/bin/python3.11)

Error: Failed to get stack traces

Caused by:
    0: Failed to suspend process
    1: unexpected waitpid result PtraceEvent(Pid(27140), SIGSTOP, 128) to 27140

Stack backtrace:
   0: <E as anyhow::context::ext::StdError>::ext_context
   1: py_spy::main
"""
PYSTACK = """\
Traceback for thread 1105 (python3) [] (most recent call last):
    (C) File "/usr/lib/libc.so.6", line 0, in ??? (/usr/lib/libc.so.6)
    (Python) File "/usr/lib/python3.12/threading.py", line 1010, in run
        self._target(*self._args, **self._kwargs)
    (C) File "???", line 0, in clock_nanosleep (/usr/lib/libc.so.6)

Traceback for thread 1010 (python3) [Has the GIL] (most recent call last):
    (C) File "???", line 0, in _start (/usr/bin/python3.12)
    (C) File "???", line 0, in Py_BytesMain (/usr/bin/python3.12)
    (Python) File "/srv/engine/engine.py", line 76, in <module>
        torch.cuda.synchronize()
    (C) File "lib/mutex.h", line 113, in std::mutex::lock() (inlined) (/run/librows.so)
    (C) File "???", line 0, in cuCtxSynchronize_v2 (/usr/lib/libcuda.so.580.1)
"""
GDB = """\
Attaching to process 900
[New LWP 2288]
Thread 38 (Thread 0x7f19ac9fe640 (LWP 2288) "cuda-EvtHandlr"):
#0  __futex_abstimed_wait_common64 (private=0, cancel=true,
    op=137, futex_word=0x9e4c68 <_PyRuntime+1128>) at ./nptl/futex-internal.c:57
#1  0x00000000005a1c12 in take_gil ()
#2  0x00007f1b2049c7a1 in ?? () from /lib/libcuda.so.1

Thread 1 (Thread 0x7f2c1d0f9000 (LWP 900) "tritonserver"):
#0  0x00007f2c1a000000 in sched_yield () from /lib/libc.so.6
#1  0x00007f2c1a0874f0 in tensorrt_llm::Token::synchronize() const from libtensorrt_llm.so
"""


def test_py_spy_text_with_native_frames_keeps_every_thread() -> None:
    """False: the thread or the lock holder that explains the hang is missing from the report."""
    (stack,) = stacks(NATIVE)

    assert (stack.pid, stack.tool, stack.native, stack.error) == (8801, "py-spy", True, None)
    assert stack.tags is not None and (stack.tags.tp, stack.tags.ep) == (0, 0)
    main, watchdog, anonymous = stack.threads
    assert (main.tid, main.state, main.owns_gil, len(main.frames)) == (8801, "active", True, 6)
    assert main.frames[0].function == "sched_yield" and main.frames[0].native
    assert main.frames[3].line == 514 and main.frames[3].file == "ops.cpp"
    assert [frame.native for frame in main.frames[4:]] == [False, False]
    assert watchdog.name == "Thread-1 (_watchdog_thread)" and watchdog.owns_gil is None
    assert anonymous.tid is None


def test_several_processes_in_one_file_stay_apart() -> None:
    """False: frames of one rank are shown as another's."""
    text = "\n".join(dump(f"sglang::scheduler_TP{k}", "run (a.py:1)", pid=10 + k) for k in range(3))

    assert [(stack.pid, stack.tags and stack.tags.tp) for stack in stacks(text)] == [(10, 0), (11, 1), (12, 2)]


def test_a_process_that_cannot_be_suspended_is_evidence() -> None:
    """False: a stopped rank looks like one that nobody tried to read."""
    (stack,) = stacks(STOPPED)

    assert stack.threads == () and stack.pid == 27140
    assert stack.error is not None and "Failed to suspend process" in stack.error and "SIGSTOP" in stack.error
    assert "anyhow" not in stack.error


def test_the_error_output_alone_names_its_process() -> None:
    """False: stderr kept in a file of its own tells nothing."""
    (stack,) = stacks(STOPPED.partition("\n\n")[2])

    assert stack.pid == 27140 and stack.threads == ()


@pytest.mark.parametrize(
    ("name", "rank"),
    [("stacks/worker3.txt", 3), ("rank12/err.txt", 12), ("pyspy_8801.txt", None), ("worker_88011.txt", None)],
)
def test_a_name_hints_at_the_rank_where_the_content_names_none(name: str, rank: int | None) -> None:
    """False: the failed attempt is attributed to nobody, or to a rank made of a process id."""
    (stack,) = stacks("Error: Failed to find python version from target process\n", name)

    assert (stack.pid, stack.rank) == (None, rank)


def test_json_shows_a_sleeping_holder_of_the_interpreter_lock() -> None:
    """False: a lock held in a native sleep is invisible, since the text form calls its thread idle."""
    text = """[{"pid": 5, "thread_name": "MainThread", "os_thread_id": 5, "active": false, "owns_gil": true,
      "frames": [{"name": "hold", "filename": "/srv/x.py", "short_filename": "x.py", "line": 7, "locals": null}]},
      {"pid": 5, "thread_name": "cut", "os_thread_id": 6, "active": tr"""
    (stack,) = stacks(text)

    (thread,) = stack.threads
    assert (thread.state, thread.owns_gil, thread.frames[0].function) == ("idle", True, "hold")


def test_dumps_inside_an_engine_log_carry_time_and_rank_of_their_header() -> None:
    """False: what the engine's own watchdog captured at the freeze, often the only stacks there are, is lost."""
    log = (
        "[2026-10-11 11:13:20 TP4] Decode batch, #running-req: 4\n"
        "[2026-10-11 11:13:20 TP4] Pyspy failed (py-spy dump --native --pid 5204). Error: Error: permission denied\n"
        "[2026-10-11 11:13:21 TP4] Pyspy dump for PID 5204 (py-spy dump --pid 5204):\n"
        + dump("sglang::scheduler_TP4", "all_reduce (torch/distributed/distributed_c10d.py:2921)", pid=5204)
        + "\n[2026-10-11 11:13:21 TP4] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)\n"
        "[2026-10-11 11:13:30] Pyspy dump for PID 5205 (py-spy dump --pid 5205):\n"
        + dump("python3", "run_batch (sglang/srt/managers/scheduler.py:2088)", pid=5205)
        + "[2026-10-11 11:13:31] All pyspy dump attempts failed for PID 5206.\n"
    )
    failed, first, second, given_up = stacks(log, "server.log")

    assert (failed.pid, failed.error, failed.threads) == (5204, "permission denied", ())
    assert first.at_s is not None and first.at_s % 60 == 21 and first.tags is not None and first.tags.tp == 4
    assert len(first.threads) == 1 and first.error is None
    assert (second.pid, second.title, second.tags) == (5205, "python3", None)
    assert given_up.pid == 5206 and given_up.error is not None


def test_pystack_is_turned_around_and_finds_the_main_thread() -> None:
    """False: the outermost frame is taken for the place where the process stands."""
    (stack,) = stacks(PYSTACK)

    assert (stack.pid, stack.tool, stack.native) == (1010, "pystack", True)
    helper, main = stack.threads
    assert [frame.function for frame in main.frames[:3]] == ["cuCtxSynchronize_v2", "std::mutex::lock()", "<module>"]
    assert main.owns_gil and not helper.owns_gil
    assert main.frames[0].file == "/usr/lib/libcuda.so.580.1" and not main.frames[2].native


def test_gdb_joins_wrapped_frames_and_knows_the_process() -> None:
    """False: half a frame is read as a function, or the stack belongs to no process."""
    (stack,) = stacks(GDB)

    assert stack.pid == 900
    callback, main = stack.threads
    assert (callback.name, callback.tid) == ("cuda-EvtHandlr", 2288)
    assert callback.frames[0].function == "__futex_abstimed_wait_common64" and callback.frames[0].line == 57
    assert callback.frames[2].function == "0x00007f1b2049c7a1" and callback.frames[2].file == "/lib/libcuda.so.1"
    assert main.frames[1].function == "tensorrt_llm::Token::synchronize() const"


def test_gdb_of_several_processes_in_one_file_stays_apart() -> None:
    """False: all ranks' threads become one process."""
    both = "".join(f'Thread 1 (Thread 0x7f00 (LWP {pid}) "python3"):\n#0  0x01 in poll ()\n\n' for pid in (7, 8))

    assert [stack.pid for stack in stacks(both)] == [7, 8]


def test_eu_stack_tells_driver_frames_by_their_neighbours() -> None:
    """False: a blocked host callback cannot be told from any other waiting thread, as no library is printed."""
    text = """\
PID 1010 - process
TID 1010:
#0  0x00007f0ba2614854
#1  0x00007f0ba24dd430 cuCtxSynchronize_v2
#2  0x00007f0bce244675 cudaDeviceSynchronize
#3  0x0000000000657a05 _start
TID 1103:
#0  0x00007f0bcf2a01e1 pthread_mutex_lock
#1  0x00007f0bce6714d5 lock_shard
#2  0x00007f0ba24ace15
#3  0x00007f0ba24bad73
#4  0x00007f0bcf29cb84
#5  0x00007f0bcf329ecc
TID 1042:
#0  0x00007f0bcf298e51
#1  0x00007f0b16655e93 blas_thread_server
#2  0x00007f0bcf29cb84
#3  0x00007f0bcf329ecc
"""
    (stack,) = stacks(text)

    main, callback, pool = stack.threads
    assert [frame.file for frame in main.frames] == ["libcuda.so", "libcuda.so", None, None]
    assert [frame.file for frame in callback.frames] == [None, None, "libcuda.so", "libcuda.so", None, None]
    assert {frame.file for frame in pool.frames} == {None}


def test_a_refused_eu_stack_is_an_error_of_that_process() -> None:
    """False: a rank that could not be read counts as one without evidence."""
    (stack,) = stacks("eu-stack: dwfl_linux_proc_attach pid 77: Operation not permitted\n")

    assert (stack.pid, stack.error, stack.threads) == (77, "Operation not permitted", ())


def test_cuda_gdb_lists_resident_kernels() -> None:
    """False: the kernel that never ends is not named."""
    text = """\
(cuda-gdb) info cuda kernels
  Kernel Parent Dev Grid Status   SMs Mask    GridDim  BlockDim Invocation
*      0      -   1 90412 Active 0x00000000f (4,1,1) (512,1,1) push_kernel<__nv_bfloat16, 2>(Data, void const*)
       1      -   1 90415 Active 0x0000000f0 (4,1,1) (512,1,1) ncclDevKernel_AllReduce(Args<4096ul>)
(cuda-gdb) bt
#0  poll_impl<...> (ptr=0x7f..., epoch=45206)
"""
    (seen,) = read(text, "node3/cuda-gdb_rank2.log", host="node3")

    assert isinstance(seen, GpuKernels)
    assert (seen.rank, seen.host) == (2, "node3")
    assert seen.kernels == ("push_kernel<__nv_bfloat16, 2>", "ncclDevKernel_AllReduce")


def test_a_debugger_that_saw_no_kernel_said_so() -> None:
    """False: an idle GPU cannot be told from one that nobody looked at."""
    (seen,) = read("(cuda-gdb) info cuda kernels\nNo CUDA kernels.\n")

    assert isinstance(seen, GpuKernels) and seen.kernels == ()


def test_faulthandler_dumps_of_a_watchdog_file_are_read() -> None:
    """False: the stack dumps that the engine's watchdog wrote to disk say nothing."""
    block = (
        ">>> Call stack dump #{} at Thu Nov  5 10:05:1{} 2026 due to feed timeout\n"
        "Thread 0x00007f12 [worker] (most recent call first):\n"
        '  File "/usr/lib/python3.12/queue.py", line 180 in get\n\n'
        "Current thread 0x00007f13 (most recent call first):\n"
        '  File "/opt/vllm/x.py", line 9 in execute_model\n' + "=" * 64 + "\n"
    )
    first, second = stacks(block.format(1, 1) + block.format(2, 2), "d/VLLM_STACK_DUMP_for_Worker_TP1_88.log")

    assert (first.pid, first.title, first.tags and first.tags.tp) == (88, "Worker_TP1", 1)
    assert [thread.name for thread in first.threads] == ["worker", None]
    assert first.threads[1].frames[0].function == "execute_model"
    assert first.at_s is not None and second.at_s == first.at_s + 1


def test_parents_of_a_dump_and_locals_are_no_frames() -> None:
    """False: users' prompts, printed as locals, end up in the report."""
    text = dump("python3", "run (a.py:1)") + '        Locals:\n            prompt: "secret (x.py:1)"\n'
    text += thread_of(101, "idle", "t", "wait (threading.py:355)")
    (stack,) = stacks(text)

    assert [len(thread.frames) for thread in stack.threads] == [1, 1]
