"""Kernel facts: what could have caused the stall, and what only followed it."""

import pytest

from sentinel.core.facts.kernel import FACTS
from sentinel.core.picture import Picture
from sentinel.core.xid import XIDS, effect_of
from sentinel.model.observation import (
    BootTime,
    DeviceCounters,
    GpuSample,
    KernelEvent,
    KernelLog,
    NcclComm,
    Notice,
    Observation,
    ProcessRow,
    ProcessTable,
)  # fmt: skip
from tests.unit.machine_texts import HERE, decode_until, fact, picture

T0 = 1_785_668_400.0


def xid(code: int, at_s: float | None, *, pid: int | None = None, pci: str = "0000:3b:00", text: str = "x",
        **more: object) -> KernelEvent:  # fmt: skip
    return KernelEvent(origin=HERE, host="a", at_s=at_s, event="xid", code=code, pid=pid, pci=pci, text=text, **more)  # type: ignore[arg-type]


def event(kind: str, at_s: float | None, **more: object) -> KernelEvent:
    return KernelEvent(origin=HERE, host="a", at_s=at_s, event=kind, text=kind, **more)  # type: ignore[arg-type]


def stalled(*seen: Observation) -> Picture:
    """Two ranks on host a that NCCL places on the buses 2b and 3b; progress ends at T0."""
    comms = [
        NcclComm(
            origin=HERE, host="a", pid=100 + rank, comm="0x1", comm_id="0xa", comm_rank=rank, nranks=2,
            event="init_complete", bus_id=f"{rank + 2}b000",
        )
        for rank in range(2)
    ]  # fmt: skip
    made = picture(KernelLog(origin=HERE, host="a", lines=9), *comms, *decode_until(T0, "a"), *seen)
    made.now_s = T0 + 600
    return made


def killed(at_s: float) -> Notice:
    return Notice(origin=HERE, host="a", at_s=at_s, engine="sglang", notice="sigquit", text="SIGQUIT")


@pytest.mark.parametrize("code", [48, 62, 74, 79, 94, 95, 119, 145, 158])
def test_a_fault_just_before_the_stall_is_its_cause(code: int) -> None:
    """False: a broken GPU would stay in service."""
    made = stalled(xid(code, T0 - 1))

    assert fact(FACTS, "kernel.gpu_fault_ranks", made).value == (1,)
    assert fact(FACTS, "kernel.gpu_fault_hosts", made).value == ("a",)
    assert fact(FACTS, "kernel.gpu_fault", made).value is True


@pytest.mark.parametrize("code", [45, 63, 92, 108, 162, 38])
def test_announcements_and_echoes_are_never_causes(code: int) -> None:
    """False: a healthy host would be drained for a message that stops nobody."""
    made = stalled(xid(code, T0 - 1))

    assert fact(FACTS, "kernel.gpu_fault", made).value is False
    assert fact(FACTS, "kernel.app_xid_ranks", made).value == ()


def test_a_fault_that_progress_outlived_is_no_cause() -> None:
    """False: an error of the morning would explain the hang of the evening."""
    assert fact(FACTS, "kernel.gpu_fault", stalled(xid(94, T0 - 3600))).value is False


def test_a_fault_after_the_engine_ended_itself_is_late() -> None:
    """False: the mess that a kill leaves on a GPU would be taken for the reason of the kill."""
    made = stalled(killed(T0 + 60), xid(13, T0 + 120, pid=101), xid(43, T0 + 121, pid=101))

    assert fact(FACTS, "kernel.gpu_fault", made).value is False
    assert fact(FACTS, "kernel.app_xid_ranks", made).value == ()
    assert fact(FACTS, "kernel.app_xid_late", made).value is True
    assert fact(FACTS, "kernel.gpu_fault_late", made).value is True


def test_an_application_fault_at_its_death_names_the_rank() -> None:
    """False: the rank whose kernel faulted would hide behind its victims."""
    made = stalled(xid(13, T0, text="Graphics Exception"), xid(43, T0 + 1, pid=101))

    assert fact(FACTS, "kernel.app_xid_ranks", made).value == (1,)
    assert fact(FACTS, "kernel.gpu_fault", made).value is False


def test_an_application_fault_long_into_the_silence_is_an_echo() -> None:
    """False: the channel errors of an operator's kill would name a culprit."""
    made = stalled(xid(43, T0 + 400, pid=101))

    assert fact(FACTS, "kernel.app_xid_ranks", made).value == ()
    assert fact(FACTS, "kernel.app_xid_late", made).value is True


def test_raw_kernel_times_are_aligned_with_the_boot_time() -> None:
    """False: a raw `dmesg` could never be put in the order of causes."""
    booted = BootTime(origin=HERE, host="a", boot_s=T0 - 1000, error_s=1.0)

    before = stalled(booted, xid(94, None, mono_s=998.0))
    old = stalled(booted, xid(94, None, mono_s=100.0))

    assert fact(FACTS, "kernel.gpu_fault", before).value is True
    assert fact(FACTS, "kernel.gpu_fault", old).value is False


def test_a_boot_time_of_day_is_completed_with_the_day_of_the_evidence() -> None:
    """False: `uptime` prints no date, so its help would be lost."""
    clock_s = (T0 + 300) % 86_400
    booted = BootTime(origin=HERE, host="a", clock_s=clock_s, boot_s=clock_s - 1300, error_s=30.0, dated=False)

    assert fact(FACTS, "kernel.gpu_fault", stalled(booted, xid(94, None, mono_s=998.0))).value is True
    assert fact(FACTS, "kernel.gpu_fault", stalled(booted, xid(94, None, mono_s=100.0))).value is False


def test_a_recovery_action_is_a_fault_only_when_it_demands_something() -> None:
    """False: the return to normal would be reported as a fault."""
    reset, none = (
        "changed from 0x0 (None) to 0x1 (GPU Reset Required)",
        "changed from 0x1 (GPU Reset Required) to 0x0 (None)",
    )

    assert fact(FACTS, "kernel.gpu_fault", stalled(xid(154, T0 - 1, text=reset))).value is True
    assert fact(FACTS, "kernel.gpu_fault", stalled(xid(154, T0 - 1, text=none))).value is False


def test_a_slot_that_goes_down_counts_only_with_a_lost_gpu() -> None:
    """False: a pulled drive would be taken for a GPU."""
    slot = event("pcie_link_down", T0 - 1, pci="0000:e0:00.0")
    lost = event("gpu_lost", T0 - 1, pci="0000:3b:00.0")

    assert fact(FACTS, "kernel.gpu_fault", stalled(slot)).value is False
    assert fact(FACTS, "kernel.gpu_fault_ranks", stalled(slot, lost)).value == (1,)


def test_the_position_among_listed_gpus_places_an_address() -> None:
    """False: without NCCL's bus numbers no fault would have a rank."""
    rows = tuple(ProcessRow(pid=200 + number, state="R", command=f"VLLM::Worker_TP{number}") for number in range(2))
    listed = [
        GpuSample(origin=HERE, host="a", index=index, pci=f"0000:{bus}:00.0") for index, bus in enumerate(("1a", "5d"))
    ]
    made = picture(ProcessTable(origin=HERE, host="a", rows=rows), *listed, xid(79, None, pci="0000:5d:00"))

    assert fact(FACTS, "kernel.gpu_fault_ranks", made).value == (1,)


def test_an_oom_kill_of_a_rank_is_told_from_one_of_a_bystander() -> None:
    """False: the death of a cache server would be blamed on a rank, or a rank's death on nobody."""
    made = stalled(event("oom_kill", T0 - 1, pid=101, comm="python3"), event("oom_kill", T0 - 1, pid=7, comm="lmcache"))

    assert fact(FACTS, "kernel.oom_ranks", made).value == (1,)
    assert fact(FACTS, "kernel.oom_killed", made).value is True
    assert fact(FACTS, "kernel.oom_hosts", made).value == ("a",)
    assert fact(FACTS, "kernel.oom_other", made).value == ("lmcache",)


def test_a_cgroup_that_counts_kills_is_enough_for_the_host() -> None:
    """False: a container's own counters would be ignored where the kernel log is out of reach."""
    counted = DeviceCounters(
        origin=HERE, host="b", device="pod", family="cgroup", values={"memory.events.oom_kill": 2.0}
    )

    assert fact(FACTS, "kernel.oom_hosts", picture(counted)).value == ("b",)


def test_a_cgroup_counts_kills_where_nobody_read_the_kernel_log() -> None:
    """False: a container's memory limit would pass for a crash without a reason."""

    def counted(kills: float) -> Picture:
        return picture(
            DeviceCounters(origin=HERE, family="cgroup", device="c", values={"memory.events.oom_kill": kills})
        )

    assert fact(FACTS, "kernel.cgroup_oom", counted(1.0)).value is True
    assert fact(FACTS, "kernel.cgroup_oom", counted(0.0)).value is False
    assert fact(FACTS, "kernel.cgroup_oom", picture()).value is None


def test_storage_is_seen_in_drives_and_in_hung_tasks() -> None:
    """False: a failing disk would be taken for a failing engine."""
    hung = event("hung_task", T0 + 130, pid=101, comm="python3", device="nfs_wait_bit_killable")
    driver = event("hung_task", T0 + 130, pid=100, comm="python3", device="os_acquire_rwlock_read")

    assert fact(FACTS, "kernel.storage_hosts", stalled(event("nvme", T0 - 60))).value == ("a",)
    assert fact(FACTS, "kernel.storage_ranks", stalled(hung)).value == (1,)
    assert fact(FACTS, "kernel.storage_hosts", stalled(driver)).value == ()
    assert fact(FACTS, "kernel.hung_hosts", stalled(driver)).value == ("a",)


def test_a_link_counts_when_it_is_down_at_the_failure() -> None:
    """False: a flap of last hour, or the clean-up after a crash, would be the cause."""
    down, up = event("link_down", T0 - 300, device="eth4"), event("link_up", T0 - 290, device="eth4", severity="info")
    failed = Notice(origin=HERE, host="a", at_s=T0 + 30, engine="vllm", notice="exception", text="x")

    assert fact(FACTS, "kernel.nic_hosts", stalled(down, up)).value == ()
    assert fact(FACTS, "kernel.nic_hosts", stalled(event("link_down", T0 + 5, device="eth4"), failed)).value == ("a",)
    assert fact(FACTS, "kernel.nic_hosts", stalled(failed, event("link_down", T0 + 90, device="eth4"))).value == ()


def test_an_unread_host_leaves_the_answer_open() -> None:
    """False: the silence of one host's log would vouch for another host."""
    comms = [
        NcclComm(
            origin=HERE, host=host, pid=1, comm="0x1", comm_id="0xa", comm_rank=rank, nranks=2, event="init_complete"
        )
        for rank, host in enumerate("ab")
    ]  # fmt: skip
    made = picture(KernelLog(origin=HERE, host="a", lines=9), *comms)
    found = fact(FACTS, "kernel.gpu_fault", made)

    assert (found.value, found.missing) == (None, ("kernel log of b",))


def test_without_a_kernel_log_nothing_is_known() -> None:
    """False: blindness would count as health."""
    assert [spec.name for spec in FACTS if spec.compute(picture()).value is not None] == []


def test_every_number_has_one_effect_and_a_stated_cause_makes_an_echo() -> None:
    """False: one number would be a cause and an echo at once."""
    assert all(effect_of(code, "", cause=code + 1) == "secondary" for code in XIDS)
    assert effect_of(9999, "") == "info"
