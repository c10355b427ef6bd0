"""Kernel logs: dmesg, dmesg -T, journalctl -k, kmsg, journald JSON; with the harmless lines that every host has."""

# ruff: noqa: E501 - printed lines stay whole, so that they can be searched for

import json
from typing import Literal

from sentinel.testing.generator import clock
from sentinel.testing.generator.fleet import Host
from sentinel.testing.generator.story import Story

Form = Literal["dmesg", "dmesg_T", "journal", "kmsg", "json"]
FORMS: tuple[Form, ...] = ("dmesg", "dmesg_T", "journal", "kmsg", "json")
LOCAL_FORMS: tuple[Form, ...] = ("dmesg_T", "journal")
"""Forms in local time: where that is not UTC, a log in UTC beside logs without a zone could not be placed by anybody."""

BENIGN = (
    "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build",
    "nvidia-uvm: Loaded the UVM driver, major device number 511.",
    "systemd-journald[612]: Received client request to flush runtime journal.",
    "mlx5_core 0000:9a:00.0: mlx5_cmd_out_err:840:(pid 7311): ACCESS_REG(0x805) op_mod(0x1) failed, status bad resource(0x5), syndrome (0x4a1b22), err(-22)",
    "pcieport 0000:00:1c.0: AER: Corrected error received: 0000:00:1c.0",
    "audit: type=1400 audit(1785000000.101:88): apparmor=\"STATUS\" operation=\"profile_load\"",
    "perf: interrupt took too long (2511 > 2500), lowering kernel.perf_event_max_sample_rate to 79500",
    "docker0: port 1(veth1c0e2a1) entered forwarding state",
)  # fmt: skip


def log_of(story: Story, host: Host, form: Form) -> str:
    """A host's kernel log with the story's lines among harmless older ones."""
    rng = story.rng
    lines = [(host.boot_s + 11.2, BENIGN[0]), (host.boot_s + 12.9, BENIGN[1])]
    span = story.fleet.start_s - host.boot_s
    lines += [(host.boot_s + span * rng.uniform(0.2, 0.98), text) for text in rng.sample(BENIGN[2:], 3)]
    lines += story.kernel.get(host.name, [])
    lines.sort(key=lambda line: line[0])
    return (
        "\n".join(
            row for number, (at_s, text) in enumerate(lines) for row in _rows(story, host, at_s, text, form, number)
        )
        + "\n"
    )


def _rows(story: Story, host: Host, at_s: float, text: str, form: Form, number: int) -> list[str]:
    since = at_s - host.boot_s
    rows = []
    for part in text.split("\n"):
        if form == "dmesg":
            rows.append(f"[{since:12.6f}] {part}")
        elif form == "dmesg_T":
            rows.append(f"[{clock.dmesg(at_s)}] {part}")
        elif form == "journal":
            rows.append(f"{clock.syslog(at_s)} {host.name} kernel: {part}")
        elif form == "kmsg":
            rows.append(f"4,{1900 + number},{int(since * 1e6)},-;{part}")
        else:
            rows.append(json.dumps({
                "__CURSOR": f"s=5d1c;i={number:x}", "__REALTIME_TIMESTAMP": str(int((at_s - story.fleet.utc_offset_s) * 1e6)), "__MONOTONIC_TIMESTAMP": str(int(since * 1e6)),
                "_BOOT_ID": "6f0e2b7c9d4a4f0c8a51e3d2b1c09f77", "_HOSTNAME": host.name, "PRIORITY": "4", "MESSAGE": part,
                "_TRANSPORT": "kernel", "SYSLOG_IDENTIFIER": "kernel", "_SOURCE_MONOTONIC_TIMESTAMP": str(int(since * 1e6)),
            }, separators=(",", ":")))  # fmt: skip
    return rows


def hung_task(story: Story, host: Host, at_s: float, comm: str, pid: int, frame: str) -> None:
    """The kernel's report of a task in uninterruptible sleep for 122 s."""
    story.printk(
        at_s,
        f"INFO: task {comm[:15]}:{pid} blocked for more than 122 seconds.\n      Not tainted 6.8.0-51-generic #52-Ubuntu\n"
        '"echo 0 > /proc/sys/kernel/hung_task_timeout_secs" disables this message.\n'
        f"task:{comm[:15]:<15} state:D stack:0     pid:{pid}  tgid:{pid}  ppid:1      flags:0x00004002\nCall Trace:\n <TASK>\n"
        f" __schedule+0x2cd/0x890\n schedule+0x33/0x110\n {frame}+0x14c/0x338",
        host,
    )
