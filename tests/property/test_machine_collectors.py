"""The machine's parsers are total, do not depend on how lines arrive, and take long lines without choking."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sentinel.collector import Context, Line, LogParser, Sample
from sentinel.collectors import (
    host_counters,
    kernel_log,
    lspci,
    nvidia_dmon,
    nvidia_smi_csv,
    nvidia_smi_query,
    nvidia_smi_table,
    pressure,
    process_io,
    process_table,
    prometheus_text,
    sockets,
    thread_table,
    uptime,
)  # fmt: skip
from sentinel.core.facts.gpu import FACTS as GPU
from sentinel.core.facts.kernel import FACTS as KERNEL
from sentinel.core.facts.memory import FACTS as MEMORY
from sentinel.core.facts.process import FACTS as PROCESS
from sentinel.core.picture import Picture
from sentinel.model.observation import Observation

PARSERS: tuple[LogParser, ...] = tuple(
    module.PARSER for module in (
        host_counters, kernel_log, lspci, nvidia_dmon, nvidia_smi_csv, nvidia_smi_query, nvidia_smi_table, pressure,
        process_io, process_table, prometheus_text, sockets, thread_table, uptime,
    )
)  # fmt: skip

SEEDS = (
    "timestamp, index, utilization.gpu [%], utilization.memory [%], power.draw [W]",
    "2026/08/02 11:00:03.250, 4, 97 %, 12 %, 310.25 W",
    "gpu_uuid, remapped_rows.pending, remapped_rows.failure, pid",
    "| NVIDIA-SMI 580.95.05              Driver Version: 580.95.05      CUDA Version: 13.0     |",
    "|   0  NVIDIA B200                    On  |   00000000:0A:00.0 Off |                    0 |",
    "| N/A   51C    P0            230W / 1000W |  150220MiB /  183359MiB |    100%      Default |",
    "|    0   N/A  N/A           55120      C   VLLM::Worker_TP0                     150200MiB |",
    "# gpu    pwr  gtemp  mtemp     sm    mem   mclk   pclk", "    0    165     44     53    100      0   3201   1980",
    "GPU 00000000:4C:00.0", "    Remapped Rows", "        Pending                           : Yes",
    "Unable to determine the device handle for GPU5: 0000:E1:00.0: Unknown Error",
    "[  812.001233] NVRM: Xid (PCI:0000:3b:00): 79, pid=9001, name=python3, GPU has fallen off the bus.",
    "Aug  2 11:00:07 gpu7 kernel: [  812.001233] INFO: task python3:881 blocked for more than 122 seconds.",
    " __schedule+0x2cd/0x890", "4,1931,812001233,-;mlx5_core 0000:01:00.0 enp1s0f0np0: Link down",
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=a,mems_allowed=0,oom_memcg=/a,task_memcg=/b,task=c,pid=1",
    "Memory cgroup out of memory: Killed process 71 (python3) total-vm:9kB, anon-rss:8kB, file-rss:0kB",
    "  PID  PPID STAT WCHAN                %CPU ELAPSED COMMAND         COMMAND",
    "  267     2 S    irq_thread            0.0     183 irq/42-nvidia   [irq/42-nvidia]",
    "Name:\tpython3", "State:\tT (stopped)", "Pid:\t31", "31 (a ) b) R 1 1 1 0 -1 4 9 0 3 0 500 60 0 0 20 0",
    "5009 ; comm=python3 ; wchan=futex_do_wait ; syscall=202 0x1a4 0x80 0x2 ; stat=5009 (a) S 1 ; stack=[<0>] f+0x1",
    "# tid comm state wchan", "700 VLLM::Worker_TP D shrink_lruvec", "== 8801", "8840 NCCL Service  0 S do_sys_poll",
    "==> /proc/90/task/94/stack <==", "[<0>] rpc_wait_bit+0x1/0x2", "$ cat /proc/412/io", "read_bytes: 4096",
    "31 utime=700 stime=41", 'vllm:num_requests_running{model_name="m",engine="0"} 3.0', "# 11:00:10",
    "==> /proc/pressure/io <==", "some avg10=9.00 avg60=8.00 avg300=7.00 total=5", "full avg10=9.00 avg60=8.00 total=5",
    "MemTotal:       1000 kB", "allocstall_normal 7", " 259       0 nvme0n1 100 0 8000 50 7 0 16 3 0 40 53",
    "$ cat memory.events", "oom_kill 1", "Mem:    503Gi   480Gi   2.0Gi   1.0Gi   21Gi   4.0Gi",
    "State  Recv-Q Send-Q Local Address:Port  Peer Address:Port Process",
    'LISTEN 12     2048   0.0.0.0:8000        0.0.0.0:*         users:(("vllm",pid=77,fd=4))',
    " 11:00:13 up 3 days,  4:05,  1 user,  load average: 1.0, 1.0, 1.0", "btime 1785600000",
    "0000:21:00.0 3D controller: NVIDIA Corporation GH100 [H100 PCIe] (rev a1)", "\t\tACSCtl:\tReqRedir+",
    "top -H -b -p 77", "Threads: 4 total", "    PID USER      PR  NI    VIRT    RES  S  %CPU   TIME+ COMMAND", "",
)  # fmt: skip


@st.composite
def mangled(draw: st.DrawFn) -> str:
    """A line of a known format, whole or cut, or with a piece replaced by anything."""
    line = draw(st.sampled_from(SEEDS))
    how = draw(st.integers(0, 3))
    if how == 0 or not line:
        return line
    start = draw(st.integers(0, len(line)))
    if how == 1:
        return line[:start]
    end = draw(st.integers(start, len(line)))
    piece = draw(st.text(max_size=12)) if how == 2 else draw(st.sampled_from(("9" * 30, "-1", "\x00", "0x", "�", " ")))
    return line[:start] + piece.replace("\n", " ") + line[end:]


TEXTS = st.lists(
    st.one_of(mangled(), mangled(), st.text(max_size=80).map(lambda text: text.replace("\n", " "))), max_size=40
)


def run(parser: LogParser, lines: list[str], batch: int = 1_000_000) -> list[Observation]:
    feed = parser.start(Context(name="any.txt", year=2026))
    numbered = [Line(number, text) for number, text in enumerate(lines, 1)]
    parts = [numbered[at : at + batch] for at in range(0, len(numbered), batch)]
    return [seen for part in [*parts, []] for seen in feed(part)]


@given(TEXTS)
@settings(max_examples=150, deadline=None)
def test_any_text_gives_observations_or_nothing(lines: list[str]) -> None:
    """False: one odd line of one file would end the analysis of a whole incident."""
    text = "\n".join(lines)
    for parser in PARSERS:
        assert parser.recognise(Sample(text, text)) in (True, False)
        assert all(isinstance(seen, Observation) for seen in run(parser, lines))


@given(TEXTS, st.integers(1, 5))
@settings(max_examples=80, deadline=None)
def test_the_size_of_batches_does_not_matter(lines: list[str], batch: int) -> None:
    """False: the live agent would see another machine than the analysis of the same files."""
    for parser in PARSERS:
        if parser.name != "kernel_log":
            assert run(parser, lines, batch) == run(parser, lines)
    assert {str(seen) for seen in run(kernel_log.PARSER, lines, batch)} == {
        str(seen) for seen in run(kernel_log.PARSER, lines)
    }


@given(TEXTS)
@settings(max_examples=80, deadline=None)
def test_facts_stand_on_whatever_was_observed(lines: list[str]) -> None:
    """False: strange evidence would crash the judgement instead of leaving it open."""
    picture = Picture()
    for parser in PARSERS:
        for seen in run(parser, lines):
            picture.note(seen)

    values = {spec.name: spec.compute(picture).value for spec in (*GPU, *KERNEL, *MEMORY, *PROCESS)}

    assert all(value is None or isinstance(value, bool | str | tuple) for value in values.values())


def long_lines() -> Iterator[str]:
    """Lines of a megabyte, built to make a careless pattern backtrack."""
    for seed in SEEDS:
        if seed:
            yield seed + seed[-1] * (1 << 20)
            yield (seed + " ") * ((1 << 20) // (len(seed) + 1))
    yield " " * (1 << 20)
    yield "a, " * (1 << 18)
    yield "NVRM: " + "GPU " * (1 << 18)
    yield "[" * (1 << 20)


@pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.name)
def test_long_lines_are_taken_in_linear_time(parser: LogParser) -> None:
    """False: one line of a log with a request body in it would stop the analysis for hours."""
    for line in long_lines():
        sample = line[: 64 << 10]

        assert parser.recognise(Sample(sample, sample)) in (True, False)
        assert isinstance(run(parser, [line, line[: 1 << 19]]), list)
