"""Process and thread tables of ps, top and procfs, and counters of processes."""

import pytest

from sentinel.collectors import process_io, process_table, thread_table
from sentinel.model.observation import ProcessCounters, ProcessTable, ThreadTable
from tests.unit.machine_texts import of, read

EO = """\
    PID    PPID STAT     ELAPSED %CPU   RSS WCHAN            COMMAND
    610       1 Ssl     01:20:11  2.2  1810220 do_epoll_wait    python3 -m sglang.launch_server --tp-size 2
    655     610 tl      01:19:58 71.0 28811204 ptrace_stop      sglang::scheduler_TP1
    650     610 Z       01:19:58  0.0        0 do_exit          [sglang::schedul] <defunct>
"""
AUX = """\
USER         PID %CPU %MEM    VSZ   RSS TTY      STAT START   TIME COMMAND
root           1  0.0  0.0 167000 11220 ?        Ss   Jul30   0:09 /sbin/init splash
ops         7120 99.0  4.1 9999999 812204 ?      Rl   10:58   8:01 VLLM::Worker_TP3
"""
EF = """\
UID          PID    PPID  C STIME TTY          TIME CMD
root        7120    7000 99 10:58 ?        00:08:01 VLLM::Worker_TP3
"""
FOREST = """\
    PID    PPID STAT COMMAND
    800       1 Ss   /usr/bin/bash run.sh
    810     800 Sl    \\_ vllm serve /models/x
    820     810 Rl        \\_ VLLM::Worker_TP0
"""
TOP = """\
top - 11:00:08 up 3 days,  4:05,  2 users,  load average: 9.10, 8.77, 6.02
Tasks: 310 total,   2 running, 308 sleeping,   0 stopped,   0 zombie

    PID USER      PR  NI    VIRT    RES    SHR S  %CPU  %MEM     TIME+ COMMAND
   4477 root      20   0   41.2g   3.1g   1.0g R 100.0   0.1  11:20.41 python3
"""
STATUS = """\
Name:\tVLLM::Worker_TP
Umask:\t0022
State:\tT (stopped)
Tgid:\t7120
Pid:\t7120
PPid:\t7000
TracerPid:\t0
VmRSS:\t28811204 kB
"""


def test_ps_columns_are_found_by_their_header() -> None:
    """False: a state would be read as a number, and a stopped process as a running one."""
    table = of(ProcessTable, read(process_table.PARSER, EO))[0]
    launcher, traced, corpse = table.rows

    assert (traced.pid, traced.ppid, traced.state, traced.wchan) == (655, 610, "tl", "ptrace_stop")
    assert (traced.elapsed_s, traced.cpu_percent, traced.rss_kib) == (4798.0, 71.0, 28811204)
    assert launcher.command == "python3 -m sglang.launch_server --tp-size 2"
    assert (corpse.state, table.complete) == ("Z", True)


@pytest.mark.parametrize(("text", "state"), [(AUX, "Rl"), (EF, "?")])
def test_other_column_orders_give_the_same_process(text: str, state: str) -> None:
    """False: only one way to call ps would work."""
    row = of(ProcessTable, read(process_table.PARSER, text))[0].rows[-1]

    assert (row.pid, row.command, row.state) == (7120, "VLLM::Worker_TP3", state)


def test_a_forest_keeps_plain_commands() -> None:
    """False: the drawing of the tree would hide the titles of the processes."""
    rows = of(ProcessTable, read(process_table.PARSER, FOREST))[0].rows

    assert [row.command for row in rows] == ["/usr/bin/bash run.sh", "vllm serve /models/x", "VLLM::Worker_TP0"]


def test_top_shows_only_some_processes() -> None:
    """False: a process below the fold of `top` would count as gone."""
    table = of(ProcessTable, read(process_table.PARSER, TOP))[0]

    assert (table.complete, table.rows[0].state, table.rows[0].cpu_percent) == (False, "R", 100.0)
    assert table.rows[0].rss_kib == int(3.1 * 2**20)


def test_a_table_that_ends_within_a_row_is_not_whole() -> None:
    """Else the processes below the cut would count as gone, and a healthy engine as crashed."""
    text = "  PID  PPID STAT %CPU COMMAND\n    1     0 Ss    0.0 /sbin/init\n  301     1 Rl   99.0 VLLM::Worker_TP0\n"
    (whole,) = of(ProcessTable, read(process_table.PARSER, text))
    for end in ("  3", "  302     1 Rl "):
        (cut,) = of(ProcessTable, read(process_table.PARSER, text + end))
        assert (whole.complete, cut.complete, len(cut.rows)) == (True, False, 2)


def test_a_status_file_is_one_process() -> None:
    """False: the state that /proc shows would be lost between its other lines."""
    row = of(ProcessTable, read(process_table.PARSER, STATUS))[0].rows[0]

    assert (row.pid, row.state, row.tracer_pid, row.rss_kib) == (7120, "T", None, 28811204)


def test_a_dump_of_thread_fields_keeps_call_and_arguments() -> None:
    """False: a contended mutex could not be told from an idle thread."""
    text = (
        "5001 ; comm=python3 ; wchan=0 ; syscall=running ; "
        "stat=5001 (python3) R 1 1 1 0 -1 4 1 0 2 0 900 100 0 0 ; stack=\n"
        "5009 ; comm=python3 ; wchan=futex_do_wait ; syscall=202 0x1a4 0x80 0x2 0x0 0x0 0x0 0x7f 0x7f ; "
        "stat=5009 (a ) b) S 1 1 1 0 -1 4 1 0 2 0 5 6 0 0 ; "
        "stack=[<0>] futex_do_wait+0x48/0x90 | [<0>] x64_sys_futex+0x1/0x2\n"
    )

    table = of(ThreadTable, read(thread_table.PARSER, text))[0]
    main, waiting = table.threads

    assert (table.pid, main.running, main.cpu_ticks, main.state) == (5001, True, 1000, "R")
    assert (waiting.syscall, waiting.args[1:3], waiting.state) == (202, (0x80, 2), "S")
    assert waiting.kernel_stack == ("futex_do_wait", "x64_sys_futex")


WRAPPED = (
    "405 ; comm=gloo ; wchan=0 ; syscall=202 0x1 ; stat=405 (gloo) S 9 9 9 0 -1 4 1 0 2 0 5 6 0 0 ; stack=\n"
    "26792 ; comm=python3 ; wchan=pipe_wait ; syscall=257 0x1 ; "
    "stat=26792 (python3) S 9 9 9 0 -1 4 1 0 2 0 5 6 0 0 ; stack=\n"
)


@pytest.mark.parametrize(
    ("name", "header", "pid"),
    [
        ("pass2-threads-26792.txt", "", 26792),
        ("made.txt", "# pid 26792, one line a thread: tid ; comm= ; wchan= ; syscall= ; stat= ; stack=\n", 26792),
        ("threads-20260301.txt", "", 405),
    ],
)
def test_a_main_thread_behind_its_threads_is_found(name: str, header: str, pid: int) -> None:
    """False: on a host whose process ids have wrapped around, a blocked rank is a stranger and blames nobody."""
    (table,) = of(ThreadTable, read(thread_table.PARSER, header + WRAPPED, name=name))

    assert (table.pid, len(table.threads)) == (pid, 2)


def test_names_with_spaces_do_not_shift_the_columns() -> None:
    """False: "NCCL Service 0" would give its thread the state "Service"."""
    text = "== 3300\n3300 sglang::schedul S do_sys_poll\n3311 NCCL Service  0 S ep_poll\n== 3400\n3400 python3 R 0\n"

    first, second = of(ThreadTable, read(thread_table.PARSER, text))

    assert [(row.comm, row.state, row.wchan) for row in first.threads] == [
        ("sglang::schedul", "S", "do_sys_poll"), ("NCCL Service  0", "S", "ep_poll"),
    ]  # fmt: skip
    assert (first.pid, second.pid) == (3300, 3400)


def test_a_table_with_pid_column_is_split_by_process() -> None:
    """False: threads of different ranks would be taken for one process."""
    text = "# pid tid state wchan comm\n41 41 S ep_poll sglang::schedul\n42 42 D folio_wait_bit sglang::schedul\n"

    tables = of(ThreadTable, read(thread_table.PARSER, text))

    assert [(table.pid, table.threads[0].state) for table in tables] == [(41, "S"), (42, "D")]


def test_top_of_threads_gives_two_samples() -> None:
    """False: a thread that burns CPU while nothing moves would not be seen."""
    text = (
        "# top -H -b -n 2 -p 510\n    PID USER      PR  NI    VIRT    RES  S  %CPU   TIME+ COMMAND\n"
        "    533 root      20   0  31.1g  9.8g  R  99.7 10:02.11 VLLM::EngineCor\n\n"
        "    533 root      20   0  31.1g  9.9g  R  99.9 10:42.02 VLLM::EngineCor\n"
    )

    first, second = of(ThreadTable, read(thread_table.PARSER, text))

    assert (first.pid, second.pid) == (510, 510)
    assert (first.threads[0].cpu_ticks, second.threads[0].cpu_ticks) == (60_211, 64_202)


def test_files_below_proc_are_put_together() -> None:
    """False: `head /proc/PID/task/*/…` would show nothing."""
    text = (
        "==> /proc/90/task/90/comm <==\npython3\n==> /proc/90/task/90/syscall <==\nrunning\n"
        "==> /proc/90/task/94/wchan <==\nnfs_wait\n==> /proc/90/task/94/stack <==\n[<0>] rpc_wait_bit+0x1/0x2\n"
    )

    table = of(ThreadTable, read(thread_table.PARSER, text))[0]

    assert table.pid == 90
    assert [(row.tid, row.comm, row.running, row.wchan) for row in table.threads] == [
        (90, "python3", True, ""), (94, "", False, "nfs_wait"),
    ]  # fmt: skip


def test_a_kernel_stack_belongs_to_the_process_of_its_file() -> None:
    """False: threads of bystanders would be blamed on a rank."""
    text = (
        "# tid comm state wchan\n700 VLLM::Worker_TP D shrink_lruvec\n999 updatedb D folio_wait_bit\n"
        "# /proc/700/stack\n[<0>] shrink_lruvec+0x1/0x2\n[<0>] el0_svc+0x1/0x2\n"
    )

    tables = {table.pid: table for table in of(ThreadTable, read(thread_table.PARSER, text))}

    assert tables[700].threads[0].kernel_stack == ("shrink_lruvec", "el0_svc")
    assert (tables[700].threads[0].state, tables[700].arch) == ("D", "aarch64")
    assert [row.tid for row in tables[None].threads] == [999]


def test_io_files_are_told_apart_by_their_headers() -> None:
    """False: two samples of two processes would become one."""
    text = "== 11:00:10 pid 31\nrchar: 10\nread_bytes: 4096\n== 11:00:10 pid 32\nrchar: 20\nread_bytes: 8192\n"

    first, second = of(ProcessCounters, read(process_io.PARSER, text))

    assert (first.pid, first.values["read_bytes"], first.clock_s) == (31, 4096.0, 39_610.0)
    assert (second.pid, second.values["rchar"]) == (32, 20.0)


def test_cpu_times_are_read_in_both_forms() -> None:
    """False: two samples of CPU time would not show that a process works."""
    text = "31 utime=700 stime=41\n32 (a b) R 1 1 1 0 -1 4 9 0 3 0 500 60 0 0 20 0\n"

    first, second = of(ProcessCounters, read(process_io.PARSER, text))

    assert first.values == {"utime": 700.0, "stime": 41.0}
    assert (second.pid, second.values) == (32, {"minflt": 9.0, "majflt": 3.0, "utime": 500.0, "stime": 60.0})
