"""Facts of processes, threads, memory and storage."""

import msgspec
import pytest

from sentinel.core.facts.memory import FACTS as MEMORY
from sentinel.core.facts.process import FACTS as PROCESS
from sentinel.core.placing import processes
from sentinel.model.observation import (
    DeviceCounters,
    KernelEvent,
    NcclComm,
    Notice,
    Observation,
    Pressure,
    ProcessCounters,
    ProcessRow,
    ProcessTable,
    Sockets,
    Stack,
    ThreadRow,
    ThreadTable,
)  # fmt: skip
from tests.unit.machine_texts import HERE, fact, picture

LAUNCHER = ProcessRow(pid=10, ppid=1, state="Ssl", command="python3 -m sglang.launch_server --tp-size 4")
INIT = ProcessRow(pid=1, ppid=0, state="Ss", command="/sbin/init")


def rank(number: int, state: str = "R", cpu: float = 99.0, **more: object) -> ProcessRow:
    return ProcessRow(
        pid=20 + number, ppid=10, state=state, cpu_percent=cpu, command=f"sglang::scheduler_TP{number}", **more,  # type: ignore[arg-type]
    )  # fmt: skip


def table(*rows: ProcessRow, host: str | None = None, complete: bool = True) -> ProcessTable:
    return ProcessTable(origin=HERE, host=host, rows=rows, complete=complete)


def threads(pid: int, *rows: ThreadRow, number: int | None = None) -> ThreadTable:
    return ThreadTable(origin=HERE, pid=pid, rank=number, threads=rows)


SPINNING = ThreadRow(tid=21, comm="python3", state="R", running=True)
MUTEX = ThreadRow(tid=30, comm="python3", state="S", syscall=202, args=(1, 0x80, 2))
IDLE = ThreadRow(tid=31, comm="python3", state="S", syscall=202, args=(1, 0x189, 0))
READING = ThreadRow(tid=32, comm="python3", state="D", syscall=17, args=(3,), wchan="folio_wait_bit_common")


@pytest.mark.parametrize("state", ["T", "Tl", "tl", "t"])
def test_a_stopped_process_is_seen_in_its_state(state: str) -> None:
    """False: an engine that only needs to be continued would be restarted."""
    made = picture(table(rank(0), rank(1), rank(2, state), rank(3)))

    assert fact(PROCESS, "process.stopped_ranks", made).value == (2,)
    assert fact(PROCESS, "process.quiet_ranks", made).value == (2,)
    assert fact(PROCESS, "process.spinning_ranks", made).value == (0, 1, 3)


def test_an_engine_of_which_nothing_is_left_is_told_from_one_that_lost_a_rank() -> None:
    """False: a finished run would be reported as the crash of whatever rank was listed."""
    corpse = ProcessRow(pid=29, ppid=10, state="Z", command="[python3] <defunct>")

    assert fact(PROCESS, "process.all_gone", picture(table(LAUNCHER, rank(0, "Z"), rank(1, "Z")))).value is True
    assert fact(PROCESS, "process.all_gone", picture(table(LAUNCHER, rank(0, "Z"), rank(1)))).value is False
    assert fact(PROCESS, "process.all_gone", picture(table(LAUNCHER, corpse, rank(1, "Z")))).value is True
    assert fact(PROCESS, "process.all_gone", picture(table(LAUNCHER, rank(0, "Z"), rank(2, "Z")))).value is True
    assert fact(PROCESS, "process.all_gone", picture()).value is None


def test_a_listing_that_ends_before_several_ranks_was_cut() -> None:
    """False: a table whose last rows were lost in copying would accuse every rank that stood in them."""
    known = [Notice(origin=HERE, pid=20 + n, rank=n, engine="sglang", notice="other", text="x") for n in range(4)]

    assert fact(PROCESS, "process.gone_ranks", picture(*known, table(LAUNCHER, rank(0), rank(1)))).value == ()
    assert fact(PROCESS, "process.gone_ranks", picture(*known, table(LAUNCHER, rank(0), rank(3)))).value == (1, 2)
    assert fact(PROCESS, "process.gone_ranks", picture(*known, table(LAUNCHER, rank(0), rank(1), rank(2)))).value == (
        3,
    )


def core(state: str) -> tuple[ProcessRow, ...]:
    api = ProcessRow(pid=10, ppid=1, state="Sl", command="python3 /usr/bin/vllm serve model --tensor-parallel-size 2")
    driver = ProcessRow(pid=11, ppid=10, state=state, command="VLLM::EngineCore")
    workers = [ProcessRow(pid=20 + n, ppid=11, state="Rl", command=f"VLLM::Worker_TP{n}") for n in (0, 1)]
    return (INIT, api, driver, *workers)


def test_a_stopped_process_that_drives_ranks_is_named_by_its_pid() -> None:
    """False: vLLM's core is stopped, every rank waits for it in perfect health, and nobody is to blame."""
    made = picture(table(*core("Tl")))

    assert fact(PROCESS, "process.stopped_cores", made).value == (11,)
    assert fact(PROCESS, "process.stopped_ranks", made).value == ()
    assert fact(PROCESS, "process.frontend_stopped", made).value is False
    assert fact(PROCESS, "process.stopped_cores", picture(table(*core("Sl")))).value == ()
    assert fact(PROCESS, "process.stopped_cores", picture(table(rank(0), rank(1)))).value == ()
    assert fact(PROCESS, "process.stopped_cores", picture()).value is None


@pytest.mark.parametrize("command", ["vllm serve model", "sglang::detokenizer", "python3 -m sglang.launch_server"])
def test_a_stopped_front_end_is_seen_in_its_state(command: str) -> None:
    """False: requests hang for ever at a stopped API server, and healthy ranks are restarted for it."""
    front = ProcessRow(pid=10, ppid=1, state="T", command=command)
    made = picture(table(INIT, front, rank(0), rank(1)))

    assert fact(PROCESS, "process.frontend_stopped", made).value is True
    assert fact(PROCESS, "process.stopped_ranks", made).value == ()
    assert fact(PROCESS, "process.frontend_stopped", picture(table(rank(0)))).value is None


def test_a_frozen_process_sleeps_in_the_freezer() -> None:
    """False: a paused container would look like a hang of its engine."""
    made = picture(table(rank(0), rank(1, "S", wchan="do_freezer_trap")))

    assert fact(PROCESS, "process.stopped_ranks", made).value == (1,)


def test_a_stack_tool_that_meets_a_stopped_process_says_so() -> None:
    """False: the failure of a tool would be thrown away although it is the answer."""
    error = "Failed to suspend process: unexpected waitpid result PtraceEvent(Pid(21), SIGSTOP, 128)"
    made = picture(Stack(origin=HERE, tool="py-spy", rank=1, error=error), Stack(origin=HERE, tool="py-spy", rank=0))

    assert fact(PROCESS, "process.stopped_ranks", made).value == (1,)


def test_a_tracer_is_named() -> None:
    """False: a forgotten profiler would stay attached."""
    found = fact(PROCESS, "process.traced_ranks", picture(table(rank(0), rank(1, "t", tracer_pid=900))))

    assert found.value == (1,)
    assert "900" in found.cites[0].says


def test_a_corpse_is_gone_even_without_its_title() -> None:
    """False: the rank that died would be the one rank that nobody names."""
    corpse = ProcessRow(pid=22, ppid=10, state="Z", command="[sglang::schedul] <defunct>")
    made = picture(table(LAUNCHER, rank(0), rank(1), corpse, rank(3)))

    assert fact(PROCESS, "process.gone_ranks", made).value == (2,)
    assert fact(PROCESS, "process.all_alive", made).value is False


def test_a_rank_missing_among_its_peers_is_gone_but_not_from_a_few_rows() -> None:
    """False: a partial listing would declare half the engine dead."""
    before = table(*[rank(number) for number in range(4)])

    whole = picture(before, table(LAUNCHER, rank(0), rank(1), rank(3)))
    partial = picture(before, table(LAUNCHER, rank(3)))

    assert fact(PROCESS, "process.gone_ranks", whole).value == (2,)
    assert fact(PROCESS, "process.gone_ranks", partial).value == ()


@pytest.mark.parametrize(
    ("state", "listed_s", "gone"), [("T", None, ()), ("Z", None, (2,)), ("S", 9.0, (2,)), ("S", 11.0, ())]
)
def test_a_rank_whose_threads_are_listed_is_not_gone_when_a_table_lacks_it(
    state: str, listed_s: float | None, gone: tuple[int, ...]
) -> None:
    """False: a stopped rank whose row was cut off is called dead, or threads of before its death keep a rank alive."""
    before = table(*[rank(number) for number in range(4)])
    cut = msgspec.structs.replace(table(LAUNCHER, rank(0), rank(1), rank(3)), at_s=10.0)
    listing = msgspec.structs.replace(threads(22, ThreadRow(tid=22, state=state), number=2), at_s=listed_s)
    assert fact(PROCESS, "process.gone_ranks", picture(before, cut, listing)).value == gone


@pytest.mark.parametrize(("there", "named"), [((), {("a", 21): 1}), ((31, 32), {})])
def test_the_rank_that_nothing_names_is_not_two_processes_of_two_hosts(
    there: tuple[int, ...], named: dict[tuple[str, int], int]
) -> None:
    """False: a process of one host is blamed for what a rank on another host does."""

    def of(host: str, *pids: int) -> ProcessTable:
        return table(*(ProcessRow(pid=pid, ppid=7, command="python3 engine.py") for pid in pids), host=host)

    def joined(host: str, pid: int, number: int) -> NcclComm:
        return NcclComm(
            origin=HERE, host=host, pid=pid, comm="0x1", comm_id="0xa", comm_rank=number, nranks=3, event="init_start"
        )

    made = picture(of("a", 20, 21), of("b", *(there or (31,))), joined("a", 20, 0), joined("b", 31, 2))
    placed = processes(made)

    assert {key: rank for key, rank in placed.items() if key not in {("a", 20), ("b", 31)}} == named


def test_a_host_without_any_engine_lost_all_its_ranks() -> None:
    """False: a container that vanished would leave no trace."""
    made = picture(
        table(rank(0), rank(1), host="a"),
        Stack(origin=HERE, tool="py-spy", host="b", rank=2),
        Stack(origin=HERE, tool="py-spy", host="b", rank=3),
        table(INIT, ProcessRow(pid=7, ppid=1, state="S", command="sshd"), host="b"),
    )

    assert fact(PROCESS, "process.gone_ranks", made).value == (2, 3)


def test_a_kill_is_told_by_exit_code_and_by_the_kernel() -> None:
    """False: a kill from outside would be searched for in the engine."""
    oom = KernelEvent(origin=HERE, event="oom_kill", pid=21, text="Killed process 21")
    ended = Notice(origin=HERE, engine="sglang", notice="subprocess_exit", text="x", rank=3, fields={"exit_code": "-9"})
    made = picture(table(rank(0), rank(1)), oom, ended)

    assert fact(PROCESS, "process.killed_ranks", made).value == (1, 3)


def test_uninterruptible_sleep_names_ranks_and_hosts() -> None:
    """False: a hung disk would be invisible in the process table that shows it."""
    made = picture(table(rank(0), rank(1, "Dl", wchan="folio_wait_bit"), host="a"))

    assert fact(PROCESS, "process.dstate_ranks", made).value == (1,)
    assert fact(PROCESS, "process.dstate_hosts", made).value == ("a",)


def test_compilers_belong_to_the_rank_that_started_them() -> None:
    """False: a rank that compiles would be taken for the hung one."""
    shell = ProcessRow(pid=50, ppid=21, state="S", command="sh -c nvcc -O3 k.cu")
    tool = ProcessRow(pid=51, ppid=50, state="R", command="/usr/local/cuda/bin/ptxas --gpu-name sm_90a k.ptx")

    made = picture(table(LAUNCHER, rank(0), rank(1, "S"), shell, tool))

    assert fact(PROCESS, "process.compiler_ranks", made).value == (1,)
    assert fact(PROCESS, "process.compiling", made).value is True


def test_an_idle_compile_pool_is_no_compilation() -> None:
    """False: every vLLM engine would look as if it compiled for ever."""
    worker = "/usr/bin/python3 -c from torch._inductor.compile_worker.__main__ import main; main() --parent=21"
    pool = ProcessRow(pid=60, ppid=21, state="S", command=worker)
    busy = ProcessRow(pid=60, ppid=21, state="R", command=worker)

    assert fact(PROCESS, "process.compiling", picture(table(INIT, rank(1), pool))).value is False
    assert fact(PROCESS, "process.compiler_ranks", picture(table(INIT, rank(1), busy))).value == (1,)


def test_a_filtered_listing_cannot_show_that_nothing_compiles() -> None:
    """False: `ps | grep engine` would rule a compilation out."""
    assert fact(PROCESS, "process.compiling", picture(table(rank(0), rank(1)))).value is None


def test_a_contended_mutex_beside_a_spinning_main_thread_is_a_blocked_callback() -> None:
    """False: the stall of a host callback would look like a stuck collective."""
    made = picture(
        table(rank(0), rank(1)), threads(21, SPINNING, MUTEX, IDLE), threads(20, ThreadRow(tid=20, running=True), IDLE)
    )

    assert fact(PROCESS, "process.mutex_ranks", made).value == (1,)
    assert fact(PROCESS, "process.callback_wait_ranks", made).value == (1,)
    assert fact(PROCESS, "process.main_mutex_ranks", made).value == ()


def test_a_mutex_that_the_main_thread_wants_is_no_callback() -> None:
    """False: a deadlock of the scheduler would be sent to the row store."""
    main = ThreadRow(tid=21, comm="python3", state="S", syscall=202, args=(1, 0x80, 2))
    made = picture(table(rank(1)), threads(21, main, READING))

    assert fact(PROCESS, "process.main_mutex_ranks", made).value == (1,)
    assert fact(PROCESS, "process.callback_wait_ranks", made).value == ()
    assert fact(PROCESS, "process.read_ranks", made).value == (1,)


def test_service_threads_carry_no_callbacks() -> None:
    """False: NCCL's own proxy threads would be accused."""
    service = ThreadRow(tid=33, comm="NCCL Progress 0", state="S", syscall=202, args=(1, 0x80, 2))

    assert (
        fact(PROCESS, "process.callback_wait_ranks", picture(table(rank(1)), threads(21, SPINNING, service))).value
        == ()
    )


def test_tables_without_system_calls_cannot_tell_waits() -> None:
    """False: "no mutex" would be said of threads that nobody looked into."""
    made = picture(table(rank(1)), threads(21, ThreadRow(tid=21, state="S", wchan="futex_do_wait")))

    assert fact(PROCESS, "process.mutex_ranks", made).value is None


def test_counters_that_advance_are_moving() -> None:
    """False: a load that goes on would be restarted from the beginning."""

    def read(at_s: float, value: float) -> ProcessCounters:
        return ProcessCounters(origin=HERE, at_s=at_s, pid=21, values={"read_bytes": value})

    made = picture(table(rank(1)), read(1.0, 0.0), read(31.0, 5e9))

    assert fact(PROCESS, "process.moving_ranks", made).value == (1,)
    assert fact(MEMORY, "io.bytes_moving", made).value is True
    assert fact(PROCESS, "process.moving_ranks", picture(table(rank(1)), read(1.0, 0.0))).value is None


def test_a_busy_front_end_with_unread_requests_is_seen() -> None:
    """False: an engine that nobody asks anything would be restarted instead of its front end."""
    made = picture(
        table(
            ProcessRow(pid=10, ppid=1, state="R", cpu_percent=100.0, command="python3"),
            rank(0, "S", 1.0),
            complete=False,
        ),
        Sockets(origin=HERE, unread_by_pid={"10": 40}, backlog_by_pid={"10": 90}, established=41),
    )

    assert fact(PROCESS, "process.frontend_busy", made).value is True
    assert fact(PROCESS, "process.backlog", made).value is True


def test_all_alive_needs_every_rank() -> None:
    """False: a rank of which nothing is known would be declared healthy."""
    other = Stack(origin=HERE, tool="py-spy", rank=2)

    assert fact(PROCESS, "process.all_alive", picture(table(rank(0), rank(1)))).value is True
    assert fact(PROCESS, "process.all_alive", picture(table(rank(0), rank(1)), other)).value is None


def memory_of(host: str, available: float, swap_free: float) -> DeviceCounters:
    values = {"MemTotal": 1000.0, "MemAvailable": available, "SwapTotal": 100.0, "SwapFree": swap_free}
    return DeviceCounters(origin=HERE, host=host, device="meminfo", family="memory", values=values)


def paging(host: str, at_s: float, **values: float) -> DeviceCounters:
    return DeviceCounters(origin=HERE, host=host, at_s=at_s, device="vmstat", family="vmstat", values=values)


@pytest.mark.parametrize(
    "signs",
    [
        [Pressure(origin=HERE, host="b", resource="memory", some_avg10=97.0, full_avg10=88.0)],
        [memory_of("b", 4.0, 0.0)],
        [paging("b", 0.0, allocstall_normal=0.0), paging("b", 10.0, allocstall_normal=9000.0)],
        [paging("b", 0.0, pswpin=0.0), paging("b", 10.0, pswpin=90_000.0)],
    ],
)
def test_each_sign_of_memory_shortage_names_the_host(signs: list[Observation]) -> None:
    """False: a host that reclaims memory would be taken for a hung one."""
    made = picture(memory_of("a", 500.0, 100.0), *signs)

    assert fact(MEMORY, "memory.pressure_hosts", made).value == ("b",)


def test_a_busy_page_cache_is_no_memory_pressure() -> None:
    """False: every load of weights would be blamed on memory."""
    made = picture(
        Pressure(origin=HERE, host="a", resource="memory", some_avg10=6.0, full_avg10=5.0),
        Pressure(origin=HERE, host="a", resource="io", some_avg10=65.0, full_avg10=57.0),
        paging("a", 0.0, allocstall_normal=0.0, pgmajfault=0.0),
        paging("a", 20.0, allocstall_normal=20.0, pgmajfault=9000.0),
    )  # fmt: skip

    assert fact(MEMORY, "memory.pressure_hosts", made).value == ()
    assert fact(MEMORY, "io.pressure_hosts", made).value == ("a",)
    assert fact(MEMORY, "io.bytes_moving", made).value is True


def test_pages_from_swap_are_no_progress() -> None:
    """False: a host that thrashes would look as if it still loaded."""
    made = picture(
        paging("a", 0.0, pswpin=0.0, pgmajfault=0.0), paging("a", 20.0, pswpin=90_000.0, pgmajfault=90_000.0)
    )

    assert fact(MEMORY, "io.bytes_moving", made).value is False


def test_a_rank_in_reclaim_is_named() -> None:
    """False: the rank that waits for memory would look like the culprit of a collective."""
    reclaiming = ThreadRow(tid=21, comm="python3", state="D", wchan="shrink_lruvec")

    assert fact(MEMORY, "memory.reclaim_ranks", picture(table(rank(1)), threads(21, reclaiming))).value == (1,)


def test_nothing_looked_at_is_unknown() -> None:
    """False: absent sources would count as health."""
    made = picture()

    assert [spec.name for spec in (*PROCESS, *MEMORY) if spec.compute(made).value is not None] == []
