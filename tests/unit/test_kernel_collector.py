"""Kernel logs in every print become events with time, host, pid and device."""

import pytest

from sentinel.collector import Context, Line, Sample
from sentinel.collectors import kernel_log
from sentinel.model.observation import BootTime, KernelEvent, KernelLog
from tests.unit.machine_texts import of, read

XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=9001, name=python3, GPU has fallen off the bus."


@pytest.mark.parametrize(
    ("line", "at_s", "mono_s", "host"),
    [
        (f"[  812.001233] {XID}", None, 812.001233, None),
        (f"[  812.001233][  T211] {XID}", None, 812.001233, None),
        (f"<3>[  812.001233] {XID}", None, 812.001233, None),
        (f"[Sun Aug  2 11:00:07 2026] {XID}", 1785668407.0, None, None),
        (f"kern  :err   : [Sun Aug  2 11:00:07 2026] {XID}", 1785668407.0, None, None),
        (f"Aug  2 11:00:07 gpu7 kernel: {XID}", 1785668407.0, None, "gpu7"),
        (f"Aug  2 11:00:07 gpu7 kernel: [  812.001233] {XID}", 1785668407.0, 812.001233, "gpu7"),
        (f"2026-08-02T11:00:07.500000+02:00 gpu7 kernel: {XID}", 1785668407.5, None, "gpu7"),
        (f"2026-08-02T11:00:07,500000+02:00 {XID}", 1785668407.5, None, None),
        (f"3,1931,812001233,-;{XID}", None, 812.001233, None),
        (XID, None, None, None),
    ],
)
def test_the_frame_gives_time_and_host(line: str, at_s: float | None, mono_s: float | None, host: str | None) -> None:
    """False: an event would stand at the wrong time, and a consequence would become a cause."""
    event = of(KernelEvent, read(kernel_log.PARSER, line + "\n"))[0]

    assert (event.at_s, event.mono_s, event.host) == (at_s, mono_s, host)
    assert (event.event, event.code, event.pid, event.pci) == ("xid", 79, 9001, "0000:3b:00")


@pytest.mark.parametrize(
    ("text", "kind", "severity", "device"),
    [
        ("mlx5_core 0000:9a:00.0 ens9f0np0: Link down", "link_down", "error", "ens9f0np0"),
        ("mlx5_core 0000:9a:00.0 ens9f0np0: Link up", "link_up", "info", "ens9f0np0"),
        ("mlx5_core 0000:9a:00.0: poll_health:812:(pid 0): device's health compromised - reached miss count",
         "nic_health", "fatal", "0000:9a:00.0"),
        ("mlx5_core 0000:9a:00.0: mlx5_cmd_out_err:840:(pid 7): ACCESS_REG(0x805) op_mod(0x1) failed, bad resource",
         "other", "info", "0000:9a:00.0"),
        ("mlx5_core 0000:9a:00.0: mlx5_pcie_event:301:(pid 2): Detected insufficient power on the PCIe slot (27W).",
         "mlx5", "info", "0000:9a:00.0"),
        ("bnxt_en 0000:3b:00.0 ens1f0np0: NIC Link is Down", "link_down", "error", "ens1f0np0"),
        ("nvme nvme2: I/O 23 QID 5 timeout, reset controller", "nvme", "error", "nvme2"),
        ("nvme nvme2: I/O 23 QID 5 timeout, completion polled", "nvme", "warning", "nvme2"),
        ("blk_update_request: I/O error, dev nvme2n1, sector 8", "io_error", "error", "nvme2n1"),
        ("nfs: server files7 not responding, still trying", "nfs", "error", "files7"),
        ("nfs: server files7 OK", "nfs", "info", "files7"),
        ("pcieport 0000:00:1c.0: AER: Corrected error received: 0000:01:00.0", "aer", "info", None),
        ("nvidia 0000:19:00.0: AER: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Transaction Layer",
         "aer", "fatal", None),
        ("pcieport 0000:e0:00.0: pciehp: Slot(5): Link Down", "pcie_link_down", "error", None),
        ("mce: [Hardware Error]: Machine check events logged", "mce", "error", None),
        ("EDAC MC0: 1 CE memory read error on CPU_SrcID#0", "mce", "info", None),
        ("pt_main_thread[881]: segfault at 18 ip 00007f sp 00007f error 4 in libnccl.so.2[7f]", "segfault", "error",
         None),
        ("watchdog: BUG: soft lockup - CPU#12 stuck for 26s! [python3:881]", "soft_lockup", "error", None),
        ("CPU0: Core temperature above threshold, cpu clock throttled", "throttle", "warning", None),
        ("nvidia-nvswitch1: SXid (PCI:0000:86:00.0): 12021, Non-fatal, Link 17 egress error", "sxid", "warning",
         "nvidia-nvswitch1"),
        ("NVRM: GPU 0000:19:00.0: RmInitAdapter failed! (0x26:0x56:1474)", "gpu_lost", "fatal", None),
    ],
)  # fmt: skip
def test_each_message_keeps_its_meaning(text: str, kind: str, severity: str, device: str | None) -> None:
    """False: noise would be taken for a fault, or a fault for noise."""
    event = of(KernelEvent, read(kernel_log.PARSER, f"[  100.000001] {text}\n"))[0]

    assert (event.event, event.severity, event.device) == (kind, severity, device)


def test_a_gpu_lost_in_three_lines_without_a_number_is_one_event_with_its_address() -> None:
    """False: the loss of a GPU that never got an Xid would stay unseen."""
    text = (
        "[  553.400000] NVRM: The NVIDIA GPU 0000:c1:00.0\n"
        "               NVRM: (PCI ID: 10de:2330) installed in this system has\n"
        "               NVRM: fallen off the bus and is not responding to commands.\n"
    )

    event = of(KernelEvent, read(kernel_log.PARSER, text))[0]

    assert (event.event, event.pci, event.mono_s) == ("gpu_lost", "0000:c1:00.0", 553.4)


def test_a_hung_task_says_what_it_waits_in() -> None:
    """False: a task hung in storage could not be told from one hung in the driver."""
    text = (
        "[  900.000000] INFO: task xfsaild/dm-3:77 blocked for more than 122 seconds.\n"
        "[  900.000001]       Not tainted 6.8.0\n"
        "[  900.000002] task:xfsaild/dm-3    state:D stack:0     pid:77\n"
        "[  900.000003] Call Trace:\n"
        "[  900.000004]  <TASK>\n"
        "[  900.000005]  __schedule+0x2cd/0x890\n"
        "[  900.000006]  schedule+0x36/0xb0\n"
        "[  900.000007]  xfs_log_force+0x1a/0x200\n"
        "[  901.000000] nvme nvme1: Device not ready; aborting reset, CSTS=0x1\n"
    )

    hung, nvme = of(KernelEvent, read(kernel_log.PARSER, text))

    assert (hung.event, hung.comm, hung.pid, hung.device) == ("hung_task", "xfsaild/dm-3", 77, "xfs_log_force")
    assert nvme.event == "nvme"


def test_an_oom_kill_names_process_and_cgroup() -> None:
    """False: a container that hit its limit would look like a host without memory."""
    text = (
        "[ 40.000000] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=a,mems_allowed=0,"
        "oom_memcg=/kube/pod7,task_memcg=/kube/pod7/c,task=python3,pid=71,uid=0\n"
        "[ 40.000100] Memory cgroup out of memory: Killed process 71 (python3) total-vm:9kB, anon-rss:8kB, "
        "file-rss:0kB\n"
    )

    event = of(KernelEvent, read(kernel_log.PARSER, text))[0]

    assert (event.event, event.pid, event.comm, event.device) == ("oom_kill", 71, "python3", "/kube/pod7")


def test_the_cause_that_a_driver_states_is_kept() -> None:
    """False: the clean-up of a channel would be taken for the fault itself."""
    line = "[ 4.000000] NVRM: Xid (PCI:0000:19:00 GPU-I:02): 45, pid=7, name=p, Ch 00000008 caused by previous Xid 31\n"

    event = of(KernelEvent, read(kernel_log.PARSER, line))[0]

    assert (event.code, event.cause_code) == (45, 31)


def test_a_quiet_kernel_log_says_that_it_was_read() -> None:
    """False: "nothing in the kernel log" and "no kernel log" would be the same."""
    text = "[Sun Aug  2 11:00:07 2026] usb 1-2: new device\n[Sun Aug  2 11:00:09 2026] usb 1-2: gone\n"

    log = of(KernelLog, read(kernel_log.PARSER, text))[0]

    assert (log.lines, log.first_at_s, log.last_at_s) == (2, 1785668407.0, 1785668409.0)


def test_a_line_with_both_clocks_tells_when_the_host_booted() -> None:
    """False: raw kernel times of that host could not be set against its other logs."""
    boot = of(BootTime, read(kernel_log.PARSER, f"Aug  2 11:00:07 gpu7 kernel: [  807.000000] {XID}\n"))[0]

    assert (boot.boot_s, boot.host) == (1785667600.0, "gpu7")


def test_a_journal_line_has_time_and_host_from_its_frame() -> None:
    """False: JSON journals would lose their events."""
    feed = kernel_log.PARSER.start(Context(name="k.json", year=2026))

    event = of(KernelEvent, [*feed([Line(1, XID, at_s=5.5, host="gpu7")]), *feed([])])[0]

    assert (event.at_s, event.host) == (5.5, "gpu7")


def test_engine_logs_are_left_to_others() -> None:
    """False: every engine log would count as a kernel log, and its silence as evidence."""
    text = "[2026-08-02 11:00:07 TP0] Decode batch, #running-req: 8\nINFO 08-02 11:00:07 [core.py:1] ready\n"

    assert not kernel_log.PARSER.recognise(Sample(text))
