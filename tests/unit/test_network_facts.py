"""What transport errors, counters and RAS answers prove, and what they do not."""

from collections.abc import Mapping
from time import gmtime, strftime

import pytest

from sentinel.model.observation import (
    DeviceCounters,
    Environment,
    FlightEntry,
    FlightGroup,
    FlightTrace,
    GpuKernels,
    KernelEvent,
    KernelLog,
    NicGids,
    Notice,
    Observation,
    Origin,
    Ras,
    RasComm,
    RasRank,
)  # fmt: skip
from tests.unit.nccl_world import BEGIN_S, World, fact, picture_of, read, stopped

T0 = BEGIN_S + 29.0
BOOT = "box{}:{}:7 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.{}<0>\n"


def stamp(offset_s: float) -> str:
    """The time of a line, this long after the last decode."""
    return strftime("[%Y-%m-%d %H:%M:%S] ", gmtime(T0 + offset_s))


def completion(host: int, peer: int, after_s: float, status: int = 12) -> str:
    """A completion error as version 2.27 prints it."""
    return (
        f"\n{stamp(after_s)}box{host}:{host}00:9 [0] transport/net_ib.cc:2458 NCCL WARN NET/IB: Got completion from "
        f"peer 10.0.0.{peer}<4> with status={status} opcode=0 len=0 vendor err 129 (Send) localGid ::ffff:10.1.0.1 "
        f"remoteGids::ffff:10.1.0.2 hca mlx5_3\n"
    )


def both_ends(after_s: float, status: int = 12) -> list[Observation]:
    """Bootstrap lines of two hosts and an error at each end."""
    return [
        *read(BOOT.format(1, 100, 1) + completion(1, 2, after_s, status), "n1"),
        *read(BOOT.format(2, 200, 2) + completion(2, 1, after_s + 1, status), "n2"),
    ]


def death(after_s: float, text: str, kind: str = "exception") -> Notice:
    """A process that raises."""
    return Notice(origin=Origin("engine.log", 90), at_s=T0 + after_s, engine="sglang", notice=kind, text=text)  # type: ignore[arg-type]


def test_both_ends_of_a_lost_path_are_named() -> None:
    """False in production: the cable would be looked for at one end only."""
    picture = picture_of(stopped(), both_ends(31.0))
    assert fact(picture, "network.completion_errors") is True
    assert fact(picture, "network.hosts") == ("box1", "box2")
    assert fact(picture, "network.devices") == ("box1:mlx5_3", "box2:mlx5_3")
    assert fact(picture, "network.first_cause") is True


def test_an_error_after_a_death_is_its_consequence() -> None:
    """False in production: every crash on several nodes would be called a network fault."""
    killed = death(2.0, "Subprocess scheduler died with exit code -9", "subprocess_exit")
    picture = picture_of(stopped(), [killed], both_ends(33.0))
    assert fact(picture, "network.completion_errors") is False
    assert fact(picture, "network.first_cause") is False


def test_the_exception_that_the_transport_error_causes_is_no_death_of_its_own() -> None:
    """False in production: the engine's own report of the failure would acquit the network."""
    raised = death(30.0, "RuntimeError: NCCL error: unhandled system error")
    picture = picture_of(stopped(), [raised], both_ends(31.0))
    assert fact(picture, "network.completion_errors") is True


def test_flushed_queues_alone_prove_nothing() -> None:
    """False in production: a normal teardown would read as a transport failure."""
    assert fact(picture_of(stopped(), both_ends(5.0, status=5)), "network.completion_errors") is False


def test_a_peer_that_posts_no_receives_is_itself_stuck() -> None:
    """False in production: the network would be blamed for a stuck process."""
    picture = picture_of(stopped(), both_ends(5.0, status=13))
    assert fact(picture, "network.completion_errors") is False
    assert fact(picture, "network.receiver_not_ready_hosts") == ("box1", "box2")


def sample(host: str, at_s: float, values: Mapping[str, float], device: str = "mlx5_3") -> DeviceCounters:
    """One sample of an RDMA device."""
    return DeviceCounters(
        origin=Origin(f"{host}/rdma.txt", int(at_s)), at_s=BEGIN_S + at_s, host=host, device=device, family="rdma",
        values=values,
    )  # fmt: skip


def test_ack_timeouts_count_only_when_they_rise() -> None:
    """False in production: a counter that has been high for weeks would be today's fault."""
    flat = [sample("box1", at, {"local_ack_timeout_err": 900.0}) for at in (1.0, 11.0)]
    rising = [sample("box2", at, {"local_ack_timeout_err": 2.0 + at}) for at in (1.0, 11.0)]
    assert fact(picture_of(flat, rising), "network.ack_timeouts_rising") == ("box2",)
    assert fact(picture_of(flat[:1], rising[:1]), "network.ack_timeouts_rising") is None


@pytest.mark.parametrize(("words", "moving"), [(32.0, False), (12_306_600.0, True)])
def test_keep_alive_traffic_is_not_moving_data(words: float, moving: bool) -> None:
    """False in production: a frozen transfer would look alive, or a slow one dead."""
    samples = [sample("box1", at, {"port_rcv_data": 1e9 + (words if at > 5 else 0)}) for at in (1.0, 31.0)]
    assert fact(picture_of(samples), "network.bytes_moving") is moving


def test_only_the_newest_interval_counts_for_moving_bytes() -> None:
    """False in production: traffic from before the stall would hide it."""
    samples = [sample("box1", at, {"port_rcv_data": value}) for at, value in ((1.0, 0.0), (31.0, 1e9), (61.0, 1e9))]
    assert fact(picture_of(samples), "network.bytes_moving") is False


def gids(host: str, *indices: int) -> NicGids:
    """A GID table of one host."""
    return NicGids(origin=Origin(f"{host}/gids"), host=host, gids={"mlx5_0": indices, "eth_rdma9": (0,)})


def test_a_host_without_the_configured_gid_is_named() -> None:
    """False in production: the commonest RoCE misconfiguration would stay a riddle."""
    setting = Environment(origin=Origin("env"), values={"NCCL_IB_GID_INDEX": "3", "NCCL_IB_HCA": "mlx5"})
    picture = picture_of([setting, gids("box1", 0, 1, 2, 3), gids("box2", 0, 1)])
    assert fact(picture, "network.gid_mismatch_hosts") == ("box2",)
    assert fact(picture_of([gids("box2", 0, 1)]), "network.gid_mismatch_hosts") is None


def link(after_s: float) -> KernelEvent:
    """A line of the kernel about a link that fell."""
    return KernelEvent(
        origin=Origin("dmesg", 3), at_s=T0 + after_s, host="box2", event="link_down", text="Link down", device="ens9"
    )


@pytest.mark.parametrize(("after_s", "expected"), [(-3.0, ("box2",)), (5.0, ("box2",)), (-900.0, ()), (60.0, ())])
def test_a_link_counts_when_it_fell_near_the_stall_and_before_the_death(
    after_s: float, expected: tuple[str, ...]
) -> None:
    """False in production: a flap that decode survived, or one after the crash, would condemn the card."""
    killed = death(20.0, "Subprocess scheduler died with exit code -9", "subprocess_exit")
    log = KernelLog(origin=Origin("dmesg", 1), host="box2", lines=9)
    picture = picture_of(stopped(), [killed, log, link(after_s)])
    assert fact(picture, "nic.link_down_hosts") == expected
    assert fact(picture, "nic.fault_hosts") == expected


def test_a_port_that_is_down_but_never_used_means_nothing() -> None:
    """False in production: every spare port without a cable would be a fault."""
    spare = DeviceCounters(
        origin=Origin("sysfs"), host="box1", device="mlx5_7", family="rdma", values={}, states={"state": "DOWN"}
    )
    log = KernelLog(origin=Origin("dmesg", 1), host="box1", lines=9)
    assert fact(picture_of([log, spare]), "nic.link_down_hosts") == ()
    used = read("box1:1:1 [0] NCCL INFO NET/IB : Using [0]mlx5_7:1/RoCE [RO]; OOB eth0:10.0.0.1<0>\n")
    assert fact(picture_of([log, spare], used), "nic.link_down_hosts") == ("box1",)


def ras(mismatch: Mapping[str, Mapping[str, int]], size: int = 8, name: str = "ras") -> Ras:
    """An answer with one communicator."""
    comm = RasComm(
        comm_id="0x1", size=size, status="RUNNING", errors=("MISMATCH",) if mismatch else (), mismatch=mismatch
    )
    return Ras(origin=Origin(name), comms=(comm,), nccl_version="2.28.9")


def test_ras_outliers_are_the_ranks_that_differ_from_the_majority() -> None:
    """False in production: RAS's own finding would not reach the verdict."""
    picture = picture_of(stopped(), [ras({"AllGather": {"others": 40, "5": 34}})])
    assert fact(picture, "ras.mismatch_ranks") == (5,)
    assert fact(picture, "ras.behind_ranks") == (5,)
    assert fact(picture, "collective.divergent_ranks") == (5,)
    assert fact(picture, "ras.running_ok") is False


def test_two_ranks_that_differ_are_a_mismatch_without_a_name() -> None:
    """False in production: one of two ranks would be condemned by a coin."""
    picture = picture_of(stopped(), [ras({"AllGather": {"0": 750, "1": 751}}, size=2)])
    assert fact(picture, "ras.mismatch") is True
    assert fact(picture, "ras.mismatch_ranks") is None
    assert fact(picture, "ras.behind_ranks") == (0,)


def test_a_difference_that_a_later_answer_no_longer_shows_was_in_flight() -> None:
    """False in production: an answer taken in the middle of a step would prove a divergence."""
    picture = picture_of(stopped(), [ras({"AllGather": {"others": 40, "5": 39}}, name="a"), ras({}, name="b")])
    assert fact(picture, "ras.mismatch") is False
    assert fact(picture, "ras.mismatch_ranks") == ()


def test_a_timeout_of_ras_is_silence_and_a_refusal_is_not() -> None:
    """False in production: an engine without RAS would look frozen."""
    late = Ras(origin=Origin("ras"), error="TimeoutError('timed out')")
    refused = Ras(origin=Origin("ras"), error="ConnectionRefusedError(111, 'Connection refused')")
    assert fact(picture_of([late]), "ras.silent") is True
    assert fact(picture_of([refused]), "ras.silent") is None
    assert fact(picture_of([ras({})]), "ras.silent") is False


def test_ranks_that_ras_misses_are_named_by_process() -> None:
    """False in production: the rank that died would be unknown although RAS knows its process."""
    world = World(2)
    lost = RasComm(
        comm_id="0x1", size=2, status="RUNNING", errors=("INCOMPLETE",),
        missing=(RasRank(rank=1, host="10.0.0.1", pid=501),),
    )  # fmt: skip
    picture = picture_of(world.observations(), [Ras(origin=Origin("ras"), comms=(lost,), nccl_version="2.28.9")])
    assert fact(picture, "ras.missing_ranks") == (1,)


def trace(rank: int, enqueued: int, completed: int, size: int = 8) -> FlightTrace:
    """A dump of one rank with its last operation."""
    return FlightTrace(
        origin=Origin(f"fr_{rank}"), rank=rank, version="2.10",
        groups=(FlightGroup(
            name="0", desc="default_pg", ranks=(0, 1, 2), last_enqueued=enqueued, last_started=-1,
            last_completed=completed,
        ),),
        entries=(FlightEntry(
            group="0", seq=12, op="nccl:all_reduce", in_sizes=((size,),), out_sizes=((size,),),
            dtypes=("BFloat16",), state="scheduled", created_ns=1,
        ),),
    )  # fmt: skip


def test_the_flight_recorder_shows_who_is_behind_what_is_open_and_who_differs() -> None:
    """False in production: eager engines without NCCL logs would have no collective evidence."""
    picture = picture_of([trace(0, 12, 10), trace(1, 12, 10), trace(2, 11, 10)])
    assert fact(picture, "collective.behind_ranks") == (2,)
    assert fact(picture, "collective.pending") is True
    assert fact(picture, "collective.mismatch") is False
    assert fact(picture_of([trace(0, 12, 10), trace(1, 12, 10, size=9)]), "collective.mismatch") is True
    assert fact(picture_of([trace(0, 12, 12)]), "collective.pending") is None


def test_torch_time_out_lines_show_who_never_enqueued() -> None:
    """False in production: without dumps the numbers that torch prints in the log would be unused."""
    lines = [
        Notice(
            origin=Origin("engine.log", rank), engine="torch", notice="collective_timeout", rank=rank,
            text="[PG ID 0 PG GUID 0(default_pg) Rank 0] Last enqueued NCCL work", fields={"enq": enq, "done": "840"},
        )
        for rank, enq in enumerate(("845", "845", "841", "845"))
    ]  # fmt: skip
    picture = picture_of(lines)
    assert fact(picture, "collective.behind_ranks") == (2,)
    assert fact(picture, "collective.pending") is True


def test_a_resident_kernel_tells_whether_nccl_has_work() -> None:
    """False in production: a stuck custom kernel would be called a stuck collective."""
    spin = GpuKernels(origin=Origin("gdb"), kernels=("all_reduce_one_shot<bf16>",))
    nccl = GpuKernels(origin=Origin("gdb"), kernels=("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(…)",))
    assert fact(picture_of([spin]), "collective.pending") is False
    assert fact(picture_of([spin, nccl]), "collective.pending") is True


def test_an_init_that_does_not_end_is_open_and_names_those_that_came() -> None:
    """False in production: a boot that hangs in the communicator would be called a slow boot."""
    world = World(4, init=False)
    world.init = True
    world.open("late", [0, 1, 2, 3], complete=False)
    picture = picture_of(world.observations([0, 1]))
    assert fact(picture, "comm.init_open") is True
    assert fact(picture, "comm.init_started_ranks") == (0, 1)
    assert fact(picture, "comm.init_absent_ranks") is None
    assert fact(picture_of(world.observations()), "comm.init_absent_ranks") == ()


def test_ranks_that_report_a_closed_peer_are_victims() -> None:
    """False in production: the loudest survivor would be taken for the one that failed."""
    world = World(2)
    world.ranks[0].say("[Service thread] Connection closed by localRank 1")
    assert fact(picture_of(world.observations()), "network.peer_closed_ranks") == (0,)
