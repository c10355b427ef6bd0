"""What nvidia-smi prints becomes samples and health records of GPUs, whatever was asked for and however it failed."""

import pytest

from sentinel.collectors import lspci, nvidia_dmon, nvidia_smi_csv, nvidia_smi_query, nvidia_smi_table
from sentinel.model.observation import DeviceCounters, GpuHealth, GpuSample, ProcessTable, Unavailable
from tests.unit.machine_texts import of, read

CSV = """\
timestamp, index, utilization.gpu [%], utilization.memory [%], power.draw [W], clocks.sm [MHz], memory.used [MiB]
2026/08/02 11:00:03.250, 4, 97 %, 12 %, 310.25 W, 1830 MHz, 70112 MiB
2026/08/02 11:00:03.262, 5, [Unknown Error], [Unknown Error], [GPU is lost], [GPU is lost], [GPU is lost]
2026/08/02 11:00:03.274, 6, 0 %, 0 %, 88.1
"""
TABLE = """\
Sun Aug  2 11:00:04 2026
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 580.95.05              Driver Version: 580.95.05      CUDA Version: 13.0     |
|-----------------------------------------+------------------------+----------------------+
|   0  NVIDIA B200                    On  |   00000000:0A:00.0 Off |                    0 |
| N/A   51C    P0            230W / 1000W |  150220MiB /  183359MiB |    100%      Default |
|                                         |                        |             Disabled |
+-----------------------------------------+------------------------+----------------------+
|   1  NVIDIA B200                    On  |   00000000:0B:00.0 Off |                  ERR! |
|ERR!  ERR! ERR!           ERR! / ERR!    |        ERR!            |     ERR!         ERR! |
+-----------------------------------------+------------------------+----------------------+
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|    0   N/A  N/A           55120      C   VLLM::Worker_TP0                     150200MiB |
+-----------------------------------------------------------------------------------------+
"""
QUERY = """\
==============NVSMI LOG==============
Timestamp                                 : Sun Aug  2 11:00:05 2026
Attached GPUs                             : 8
GPU 00000000:4C:00.0
    Minor Number                          : 3
    ECC Errors
        Volatile
            DRAM Uncorrectable            : 4
        Aggregate
            DRAM Uncorrectable            : 9
    Remapped Rows
        Pending                           : Yes
        Remapping Failure Occurred        : No
    Utilization
        Gpu                               : 0 %
        Memory                            : 0 %
    GPU Recovery Action                   : GPU Reset Required
    Processes
        GPU instance ID                   : N/A
            Process ID                    : 61200
"""


def test_csv_values_keep_their_column() -> None:
    """False: power would be read as utilisation, and every judgement on waiting GPUs would be wrong."""
    first = of(GpuSample, read(nvidia_smi_csv.PARSER, CSV))[0]

    assert (first.index, first.util_percent, first.mem_util_percent) == (4, 97.0, 12.0)
    assert (first.power_w, first.sm_mhz, first.mem_used_mib) == (310.25, 1830.0, 70112.0)
    assert first.at_s == 1785668403.25


def test_a_row_of_errors_is_a_lost_gpu_and_a_cut_row_is_none() -> None:
    """False: a lost GPU would look like one without readings, or half a row would become a sample."""
    samples = of(GpuSample, read(nvidia_smi_csv.PARSER, CSV))

    assert [(sample.index, sample.lost) for sample in samples] == [(4, False), (5, True)]


def test_columns_may_come_in_any_order_and_without_units() -> None:
    """False: an operator's own query would be misread or ignored."""
    text = (
        "gpu_bus_id, power.draw [W], clocks_event_reasons.sw_power_cap, index, utilization.gpu [%]\n"
        "00000000:1A:00.0, 411.00, Active, 2, 99\n"
    )

    sample = of(GpuSample, read(nvidia_smi_csv.PARSER, text))[0]

    assert (sample.index, sample.pci, sample.power_w, sample.util_percent, sample.throttle) == (
        2, "00000000:1a:00.0", 411.0, 99.0, 0x4,
    )  # fmt: skip


def test_rows_without_a_header_are_told_by_their_units() -> None:
    """False: samples taken with noheader would be lost."""
    sample = of(GpuSample, read(nvidia_smi_csv.PARSER, "2026/08/02 11:00:03.250, 1, 98 %, 3 %, 120.5 W, 900 MHz\n"))[0]

    assert (sample.util_percent, sample.mem_util_percent, sample.power_w, sample.sm_mhz) == (98.0, 3.0, 120.5, 900.0)


@pytest.mark.parametrize("cell", ["[N/A]", "[Not Supported]", "ERR!"])
def test_one_unavailable_value_is_unknown_not_zero(cell: str) -> None:
    """False: unified-memory devices would count as holding no memory, or as lost."""
    text = f"index, utilization.gpu [%], memory.used [MiB]\n0, 55 %, {cell}\n"

    sample = of(GpuSample, read(nvidia_smi_csv.PARSER, text))[0]

    assert (sample.mem_used_mib, sample.util_percent, sample.lost) == (None, 55.0, False)


def test_remapped_rows_become_health() -> None:
    """False: a GPU that waits for its reset would count as healthy."""
    text = (
        "gpu_uuid, remapped_rows.uncorrectable, remapped_rows.pending, remapped_rows.failure\n"
        "GPU-0badc0de-1111-2222-3333-444455556666, 2, 1, 0\n"
    )

    health = of(GpuHealth, read(nvidia_smi_csv.PARSER, text))[0]

    assert (health.remap_pending, health.remap_failed, health.uncorrectable) == (True, False, 2)


def test_the_table_gives_values_limits_and_pids() -> None:
    """False: pids would not place GPUs on ranks, and power could not be put against its limit."""
    seen = read(nvidia_smi_table.PARSER, TABLE)
    first, second = of(GpuSample, seen)

    assert (first.util_percent, first.power_w, first.power_limit_w, first.pids) == (100.0, 230.0, 1000.0, (55120,))
    assert (first.at_s, first.pci) == (1785668404.0, "00000000:0a:00.0")
    assert second.lost
    table = of(ProcessTable, seen)[0]
    assert (table.rows[0].pid, table.rows[0].command, table.complete) == (55120, "VLLM::Worker_TP0", False)


def test_dmon_rows_follow_their_header() -> None:
    """False: a dmon recording would be read in the wrong columns."""
    text = (
        "#Date       Time        gpu   pwr gtemp mtemp    sm   mem  mclk  pclk\n"
        "#YYYYMMDD   HH:MM:SS    Idx     W     C     C     %     %   MHz   MHz\n"
        " 20260802   11:00:06      1   171    44     -   100     0  3201  1980\n"
    )

    sample = of(GpuSample, read(nvidia_dmon.PARSER, text))[0]

    assert (sample.index, sample.util_percent, sample.mem_util_percent, sample.power_w) == (1, 100.0, 0.0, 171.0)
    assert (sample.at_s, sample.mem_temp_c, sample.sm_mhz) == (1785668406.0, None, 1980.0)


def test_query_output_tells_errors_and_the_recovery_action() -> None:
    """False: the driver's own demand for a reset would go unread."""
    seen = read(nvidia_smi_query.PARSER, QUERY)
    health, sample = of(GpuHealth, seen)[0], of(GpuSample, seen)[0]

    assert (health.recovery_action, health.remap_pending, health.uncorrectable) == ("GPU Reset Required", True, 4)
    assert (sample.index, sample.pci, sample.util_percent, sample.pids) == (3, "00000000:4c:00.0", 0.0, (61200,))


@pytest.mark.parametrize(
    ("line", "index", "pci"),
    [
        ("Unable to determine the device handle for GPU5: 0000:E1:00.0: Unknown Error", 5, "0000:e1:00.0"),
        ("Unable to determine the device handle for GPU 0000:E1:00.0: GPU is lost.  Reboot", None, "0000:e1:00.0"),
        ("Unable to determine the device handle for GPU0000:E1:00.0: Unknown Error", None, "0000:e1:00.0"),
    ],
)
def test_a_failed_handle_is_a_lost_gpu(line: str, index: int | None, pci: str) -> None:
    """False: the only sign of a GPU off the bus would be thrown away with the error stream."""
    health = of(GpuHealth, read(nvidia_smi_query.PARSER, line + "\n"))[0]

    assert (health.lost, health.index, health.pci) == (True, index, pci)


def test_a_driver_that_does_not_answer_is_blindness() -> None:
    """False: no output of nvidia-smi would look like no GPUs."""
    text = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"

    assert of(Unavailable, read(nvidia_smi_query.PARSER, text))[0].source == "nvidia-smi"


def test_lspci_numbers_gpus_in_bus_order_and_shows_redirection() -> None:
    """False: a kernel line that names a bus address could not be placed on a rank."""
    text = (
        "0000:00:01.1 PCI bridge: Some Vendor Host Bridge (prog-if 00 [Normal decode])\n"
        "\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+\n"
        "0000:21:00.0 3D controller: NVIDIA Corporation GH100 [H100 PCIe] (rev a1)\n"
        "0000:61:00.0 3D controller: NVIDIA Corporation GH100 [H100 PCIe] (rev a1)\n"
    )

    seen = read(lspci.PARSER, text)

    assert [(sample.index, sample.pci) for sample in of(GpuSample, seen)] == [(0, "0000:21:00.0"), (1, "0000:61:00.0")]
    assert of(DeviceCounters, seen)[0].values == {"acs_redirect": 1.0}
