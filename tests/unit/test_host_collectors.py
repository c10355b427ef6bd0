"""Scrapes, pressure, host counters, sockets and boot times."""

import pytest

from sentinel.collectors import host_counters, pressure, prometheus_text, sockets, uptime
from sentinel.model.observation import BootTime, DeviceCounters, Pressure, Scrape, Sockets
from tests.unit.machine_texts import of, read

METRICS = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{model_name="m",engine="0"} 3.0
vllm:request_time_seconds_bucket{le="0.1"} 7
process_cpu_seconds_total 12.5
"""


def test_a_scrape_keeps_engine_series_with_sorted_labels() -> None:
    """False: the same series of two scrapes would not be found equal, or memory would fill with histograms."""
    scrape = of(Scrape, read(prometheus_text.PARSER, METRICS))[0]

    assert scrape.samples == {'vllm:num_requests_running{engine="0",model_name="m"}': 3.0}


def test_the_file_name_dates_a_scrape_that_prints_no_time() -> None:
    """False: flat counters over ten minutes could not be told from two scrapes of one second."""
    dated = of(Scrape, read(prometheus_text.PARSER, METRICS, name="m-20260802T110011Z.prom"))[0]
    clocked = of(Scrape, read(prometheus_text.PARSER, METRICS, name="m_110011.txt"))[0]

    assert (dated.at_s, dated.clock_s) == (1785668411.0, None)
    assert (clocked.at_s, clocked.clock_s) == (None, 39_611.0)


def test_several_scrapes_in_one_file_are_told_apart() -> None:
    """False: the second scrape would overwrite the first, and no counter would ever move."""
    text = f"# 11:00:10\n{METRICS}# 11:00:40\n{METRICS.replace('3.0', '4.0')}"

    scrapes = of(Scrape, read(prometheus_text.PARSER, text))

    assert [(scrape.clock_s, list(scrape.samples.values())) for scrape in scrapes] == [
        (39_610.0, [3.0]),
        (39_640.0, [4.0]),
    ]


def test_printed_sample_times_win() -> None:
    """False: a federated scrape would be dated by its file."""
    scrape = of(Scrape, read(prometheus_text.PARSER, "sglang:num_running_reqs 2 1785668412500\n"))[0]

    assert scrape.at_s == 1785668412.5


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("==> /proc/pressure/io <==\nsome avg10=9.00 avg60=8.00 avg300=7.00 total=5\n", "host.txt"),
        ("/proc/pressure/io:some avg10=9.00 avg60=8.00 avg300=7.00 total=5\n", "host.txt"),
        ("some avg10=9.00 avg60=8.00 avg300=7.00 total=5\n", "pressure_io.txt"),
        ("io:\nsome avg10=9.00 avg60=8.00 avg300=7.00 total=5\n", "host.txt"),
    ],
)
def test_pressure_finds_its_resource(text: str, name: str) -> None:
    """False: pressure on storage would be taken for pressure on memory."""
    seen = of(Pressure, read(pressure.PARSER, text, name=name))[0]

    assert (seen.resource, seen.some_avg10, seen.some_avg60, seen.some_total_us) == ("io", 9.0, 8.0, 5.0)


def test_some_and_full_are_one_reading() -> None:
    """False: the two lines of a pressure file would count as two moments."""
    text = (
        "$ cat /proc/pressure/memory\nsome avg10=60.10 avg60=1.00 avg300=1.00 total=5\n"
        "full avg10=40.20 avg60=1.00 avg300=1.00 total=5\n"
    )

    (seen,) = of(Pressure, read(pressure.PARSER, text))

    assert (seen.resource, seen.some_avg10, seen.full_avg10) == ("memory", 60.1, 40.2)


def test_a_mixed_dump_gives_each_kind_of_counter() -> None:
    """False: one file with several sections would lose all but the first."""
    text = (
        "# 2026-08-02 11:00:12\n==> /proc/meminfo <==\nMemTotal:       1000 kB\nMemAvailable:   10 kB\n"
        "==> /proc/vmstat <==\nallocstall_normal 7\npswpin 9\n==> /proc/diskstats <==\n"
        " 259       0 nvme0n1 100 0 8000 50 7 0 16 3 0 40 53\n"
    )

    found = {seen.device: seen for seen in of(DeviceCounters, read(host_counters.PARSER, text))}

    assert found["meminfo"].values == {"MemTotal": 1000.0, "MemAvailable": 10.0}
    assert found["vmstat"].values == {"allocstall_normal": 7.0, "pswpin": 9.0}
    assert (found["nvme0n1"].values["sectors_read"], found["nvme0n1"].values["io_ms"]) == (8000.0, 40.0)
    assert {seen.at_s for seen in found.values()} == {1785668412.0}


def test_two_samples_in_one_file_stay_two() -> None:
    """False: growth of a counter would be invisible."""
    text = "# 11:00:10\npgmajfault 5\n# 11:00:40\npgmajfault 9\n"

    samples = of(DeviceCounters, read(host_counters.PARSER, text))

    assert [(seen.clock_s, seen.values["pgmajfault"]) for seen in samples] == [(39_610.0, 5.0), (39_640.0, 9.0)]


def test_cgroup_files_are_read_with_their_names() -> None:
    """False: OOM kills counted by a cgroup would be numbers without a name, or no limit one that JSON cannot hold."""
    text = "$ cat memory.max\nmax\n$ cat memory.events\noom 2\noom_kill 1\n$ cat cgroup.freeze\n1\n"

    seen = of(DeviceCounters, read(host_counters.PARSER, text))[0]

    assert seen.values["memory.events.oom_kill"] == 1.0
    assert seen.values["cgroup.freeze"] == 1.0
    assert "memory.max" not in seen.values


def test_free_is_read_as_memory() -> None:
    """False: the most common memory report would be ignored."""
    text = (
        "               total        used        free      shared  buff/cache   available\n"
        "Mem:           503Gi       480Gi       2.0Gi       1.0Gi        21Gi       4.0Gi\n"
        "Swap:          8.0Gi       8.0Gi          0B\n"
    )

    values = of(DeviceCounters, read(host_counters.PARSER, text))[0].values

    assert (values["MemTotal"], values["MemAvailable"]) == (503.0 * 2**20, 4.0 * 2**20)
    assert (values["SwapTotal"], values["SwapFree"]) == (8.0 * 2**20, 0.0)


@pytest.mark.parametrize(
    "text",
    [
        ('State  Recv-Q Send-Q Local Address:Port  Peer Address:Port Process\n'
        'LISTEN 12     2048   0.0.0.0:8000        0.0.0.0:*         users:(("vllm",pid=77,fd=4))\n'
        'ESTAB  900    0      10.1.0.1:8000       10.1.0.9:35721    users:(("vllm",pid=77,fd=6))\n'
        'ESTAB  0      0      10.1.0.1:8000       10.1.0.9:35722    users:(("vllm",pid=77,fd=7))\n'),
        ("tcp       12      0 0.0.0.0:8000      0.0.0.0:*         LISTEN      77/vllm\n"
        "tcp      900      0 10.1.0.1:8000     10.1.0.9:35721    ESTABLISHED 77/vllm\n"
        "tcp        0      0 10.1.0.1:8000     10.1.0.9:35722    ESTABLISHED 77/vllm\n"),
    ],
)  # fmt: skip
def test_sockets_show_what_nobody_reads(text: str) -> None:
    """False: a front end that stopped reading would look idle."""
    (table,) = of(Sockets, read(sockets.PARSER, text))

    assert (dict(table.unread_by_pid), dict(table.backlog_by_pid), table.established) == ({"77": 1}, {"77": 12}, 2)


@pytest.mark.parametrize(
    ("line", "boot_s"),
    [
        (" 11:00:13 up 27 min,  2 users,  load average: 9.10, 8.77, 6.02", 39_613.0 - 27 * 60 - 30),
        (" 11:00:13 up  4:05,  1 user,  load average: 1.0, 1.0, 1.0", 39_613.0 - 4 * 3600 - 5 * 60 - 30),
        (" 11:00:13 up 3 days,  4:05,  1 user,  load average: 1.0, 1.0, 1.0", 39_613.0 - 76 * 3600 - 5 * 60 - 30),
    ],
)
def test_uptime_tells_the_boot_time_of_day(line: str, boot_s: float) -> None:
    """False: raw kernel times would be set against the wrong wall clock."""
    boot = of(BootTime, read(uptime.PARSER, line + "\n"))[0]

    assert (boot.boot_s, boot.dated, boot.error_s) == (boot_s, False, 30.0)


def test_btime_is_a_dated_boot_time() -> None:
    """False: the most exact statement of the boot time would be passed over."""
    boot = of(BootTime, read(uptime.PARSER, "btime 1785600000\n"))[0]

    assert (boot.boot_s, boot.dated) == (1785600000.0, True)
