"""Facts of GPUs: waiting against computing on any model, and the ranks they belong to."""

from typing import Any

import pytest

from sentinel.core.facts.gpu import FACTS
from sentinel.core.facts.gpu_power import FACTS as POWER_FACTS
from sentinel.core.picture import Picture
from sentinel.model.observation import (
    GpuHealth,
    NcclComm,
    Notice,
    Observation,
    ProcessExit,
    ProcessRow,
    ProcessTable,
    Tags,
    ThreadTable,
)  # fmt: skip
from tests.unit.machine_texts import HERE, decode_until, fact, gpu, picture

T0 = 1_785_668_400.0


def two_ranks(host: str | None = None) -> list[Observation]:
    """Two processes that NCCL places, on a host with two GPUs."""
    return [
        NcclComm(
            origin=HERE, host=host, pid=100 + rank, comm="0x1", comm_id="0xa", comm_rank=rank, nranks=2,
            event="init_complete", cuda_dev=rank, bus_id=f"{rank + 1}b000",
        )
        for rank in range(2)
    ]  # fmt: skip


def stalled(*samples: Observation) -> Picture:
    """A picture in which progress ends at T0 and the evidence goes on for two minutes."""
    made = picture(*two_ranks(), *decode_until(T0), *samples)
    made.now_s = T0 + 120
    return made


def during(index: int, util: float, **more: Any) -> list[Observation]:
    return [gpu(index, T0 + 5 + step, util, **more) for step in range(5)]


def before(index: int, util: float, **more: Any) -> list[Observation]:
    return [gpu(index, T0 - 8 + step, util, **more) for step in range(5)]


def test_a_busy_gpu_that_reads_no_memory_waits() -> None:
    """False: victims of a hang would be told to wait for a computation."""
    made = stalled(*during(0, 100, mem_util_percent=0.0), *during(1, 0, mem_util_percent=0.0))

    assert fact(FACTS, "gpu.spinning_ranks", made).value == (0,)
    assert fact(FACTS, "gpu.idle_ranks", made).value == (1,)
    assert fact(FACTS, "gpu.mixed", made).value is True
    assert fact(FACTS, "gpu.all_spinning", made).value is False


@pytest.mark.parametrize(
    "signs",
    [{"mem_util_percent": 30.0}, {"mem_util_percent": 3.0, "throttle": 0x4},
     {"mem_util_percent": 3.0, "power_w": 400.0, "power_limit_w": 700.0}],
)  # fmt: skip
def test_a_busy_gpu_that_works_computes(signs: dict[str, object]) -> None:
    """False: a long prefill would be restarted as a hang."""
    made = stalled(*during(0, 99, **signs), *during(1, 99, **signs))

    assert fact(FACTS, "gpu.all_computing", made).value is True
    assert fact(FACTS, "gpu.spinning_ranks", made).value == ()


def unified(index: int, power: float, *, past: float | None = None) -> list[Observation]:
    """A unified-memory GPU: no memory information, memory utilisation stuck at 0, no limit."""
    values: dict[str, object] = {"mem_used_mib": None, "mem_util_percent": 0.0}
    history = [] if past is None else before(index, 96, power_w=past, **values)
    return [*history, *during(index, 96, power_w=power, **values)]


def test_unified_memory_without_history_is_undecided() -> None:
    """False: memory utilisation stuck at 0 would make every busy GB10 a hung one."""
    made = stalled(*unified(0, 18), *unified(1, 18))

    assert fact(FACTS, "gpu.spinning_ranks", made).value is None
    assert fact(FACTS, "gpu.all_spinning", made).value is None
    assert fact(FACTS, "gpu.all_busy", made).value is True
    assert fact(FACTS, "gpu.busy_ranks", made).value == (0, 1)


def test_unified_memory_is_judged_by_its_own_past() -> None:
    """False: such hosts could never be judged although their power tells."""
    made = stalled(*unified(0, 18, past=42), *unified(1, 41, past=42))

    assert fact(FACTS, "gpu.spinning_ranks", made).value == (0,)
    assert fact(FACTS, "gpu.computing_ranks", made).value == (1,)


def test_undecided_peers_are_judged_by_each_other() -> None:
    """False: one computing GPU among waiting ones would not stand out."""
    made = stalled(*unified(0, 18), *unified(1, 45))

    assert fact(FACTS, "gpu.spinning_ranks", made).value == (0,)
    assert fact(FACTS, "gpu.computing_ranks", made).value == (1,)


def test_samples_after_the_engine_ended_itself_do_not_count() -> None:
    """False: GPUs that are idle because everything was killed would prove an idle engine."""
    killed = Notice(origin=HERE, at_s=T0 + 60, engine="sglang", notice="sigquit", text="SIGQUIT")
    made = stalled(killed, *[gpu(index, T0 + 70 + step, 0) for index in (0, 1) for step in range(3)])

    assert fact(FACTS, "gpu.all_idle", made).value is None
    assert fact(FACTS, "gpu.idle_ranks", made).value is None


def test_samples_from_long_before_the_stall_do_not_count() -> None:
    """False: yesterday's utilisation would be today's verdict."""
    made = stalled(*[gpu(index, T0 - 3600, 100, mem_util_percent=0.0) for index in (0, 1)])

    assert fact(FACTS, "gpu.spinning_ranks", made).value is None


def test_pids_place_gpus_when_numbers_mislead() -> None:
    """False: the ranks of a host that uses its GPUs in another order would be swapped."""
    swapped = [*during(0, 100, mem_util_percent=0.0, pids=(101,)), *during(1, 0, mem_util_percent=0.0, pids=(100,))]

    assert fact(FACTS, "gpu.idle_ranks", stalled(*swapped)).value == (0,)


def test_unused_gpus_of_the_host_do_not_count() -> None:
    """False: four unused GPUs beside two waiting ones would hide that all of the engine's wait."""
    busy = [*during(4, 100, mem_util_percent=0.0, pids=(100,)), *during(5, 100, mem_util_percent=0.0, pids=(101,))]
    unused = [one for index in range(4) for one in during(index, 0, mem_used_mib=4.0)]

    assert fact(FACTS, "gpu.all_spinning", stalled(*busy, *unused)).value is True


def test_hosts_with_equal_blocks_get_their_ranks_from_one_known_rank_each() -> None:
    """False: on every other multi-node run no GPU would have a rank."""
    ranks = [
        ThreadTable(origin=HERE, host=host, rank=rank, threads=())
        for host, rank in (("a", 1), ("b", 2), ("b", 3), ("a", 0))
    ]
    samples = [
        gpu(index, T0 + 5, 0 if (host, index) == ("b", 1) else 100, host=host, mem_util_percent=0.0)
        for host in ("a", "b")
        for index in (0, 1)
    ]
    made = picture(*ranks, *samples)

    assert fact(FACTS, "gpu.idle_ranks", made).value == (3,)


def test_a_gpu_without_place_is_unknown_not_none() -> None:
    """False: "no rank spins" would be said of GPUs that spin but cannot be placed."""
    made = picture(*[gpu(index, T0, 100, mem_util_percent=0.0) for index in range(4)])

    assert fact(FACTS, "gpu.spinning_ranks", made).value is None
    assert fact(FACTS, "gpu.computing_ranks", made).value == ()
    assert fact(FACTS, "gpu.all_spinning", made).value is True


def test_a_hot_gpu_far_below_its_peers_is_throttled() -> None:
    """False: a slow rank would be searched for in software."""
    made = stalled(
        *during(0, 98, mem_util_percent=40.0, sm_mhz=1800.0),
        *during(1, 98, mem_util_percent=40.0, sm_mhz=500.0, throttle=0x20),
    )
    capped = stalled(
        *during(0, 98, mem_util_percent=40.0), *during(1, 98, mem_util_percent=40.0, sm_mhz=1700.0, throttle=0x20)
    )

    assert fact(FACTS, "gpu.throttled_ranks", made).value == (1,)
    assert fact(FACTS, "gpu.throttled_ranks", capped).value == ()


def test_a_throttled_gpu_is_seen_where_nothing_tells_whose_it_is() -> None:
    """False: an engine that one hot GPU slows down would be called healthy."""
    samples = [gpu(index, T0 + step, 99, mem_util_percent=40.0, sm_mhz=mhz, throttle=bits)
               for index, mhz, bits in ((0, 1980.0, 0), (1, 400.0, 0x20)) for step in range(3)]  # fmt: skip
    made = picture(*decode_until(T0 + 3), *samples)

    assert fact(FACTS, "gpu.throttled", made).value is True
    assert fact(FACTS, "gpu.throttled_ranks", made).value is None
    assert fact(FACTS, "gpu.throttled", picture(*samples[:3])).value is False
    assert fact(FACTS, "gpu.throttled", picture()).value is None


def test_a_lost_gpu_is_found_from_samples_and_from_failed_handles() -> None:
    """False: the drained host would keep its broken GPU."""
    failed = GpuHealth(origin=HERE, pci="0000:2b:00.0", lost=True, text="device handle")

    assert fact(FACTS, "gpu.lost_ranks", stalled(*during(0, 0), *during(1, 0, lost=True))).value == (1,)
    assert fact(FACTS, "gpu.lost_ranks", stalled(*during(0, 100), failed)).value == (1,)


def test_idle_clocks_are_told_from_idle_with_work_pending() -> None:
    """False: a scheduler stuck with live contexts would look like an engine at rest."""
    resting = stalled(*during(0, 0, sm_mhz=345.0, throttle=0x1), *during(1, 0, sm_mhz=345.0, throttle=0x1))
    pending = stalled(*during(0, 0), *during(1, 0))

    assert fact(FACTS, "gpu.idle_power", resting).value is True
    assert fact(FACTS, "gpu.idle_power", pending).value is False


def test_the_rank_that_never_waits_is_the_slow_one() -> None:
    """False: in a slow engine the busy-looking victims would be accused."""
    made = picture(*two_ranks(), *decode_until(T0), *before(0, 86), *before(1, 2))

    assert fact(FACTS, "gpu.unwaiting_ranks", made).value == (1,)


def test_titles_in_a_process_table_place_pids() -> None:
    """False: without NCCL logs the pids in nvidia-smi's table would mean nothing."""
    table = ProcessTable(
        origin=HERE,
        rows=tuple(ProcessRow(pid=200 + rank, command=f"VLLM::Worker_TP{rank}", state="R") for rank in range(2)),
    )
    made = picture(table, gpu(6, T0, 100, mem_util_percent=0.0, pids=(201,)), gpu(7, T0, 0, pids=(200,)))

    assert fact(FACTS, "gpu.spinning_ranks", made).value == (1,)
    assert made.identity.by_tags[None, 201] == Tags(tp=1)


def memory(index: int, *mib: float) -> list[Observation]:
    """Samples of memory in use, one a second, the last five from the silence."""
    return [gpu(index, T0 + 10 - len(mib) + at, 0, mem_used_mib=one) for at, one in enumerate(mib)]


KEPT = (900.0, 5_000.0, *(9_000.0,) * 12)
GIVEN_BACK = (900.0, 5_000.0, *(9_000.0,) * 7, 4_000.0, *(20.0,) * 4)
OTHERS_TOO = (9_000.0, 6_000.0, 8_000.0, 5_000.0, 7_500.0, 9_000.0, 6_500.0, 7_000.0, 6_000.0, *(5_200.0,) * 5)


def test_memory_given_back_in_one_step_shows_whose_process_ended() -> None:
    """False: a rank that died without a word would be nobody's."""
    made = stalled(*memory(0, *KEPT), *memory(1, *GIVEN_BACK))

    assert fact(POWER_FACTS, "gpu.released_ranks", made).value == (1,)


def test_memory_that_others_use_too_accuses_nobody() -> None:
    """False: whoever shares a GPU with another engine is called dead when that one ends."""
    made = stalled(*memory(0, *KEPT), *memory(1, *OTHERS_TOO))

    assert fact(POWER_FACTS, "gpu.released_ranks", made).value is None


def test_who_is_seen_alive_gave_no_memory_back() -> None:
    """False: a hung rank beside another engine that was stopped in the same minute is judged a crash."""
    rows = tuple(ProcessRow(pid=100 + rank, state="S", command="python") for rank in range(2))
    listed = ProcessTable(origin=HERE, at_s=T0 + 60, rows=rows)
    made = stalled(*memory(0, *KEPT), *memory(1, *GIVEN_BACK), listed)

    assert fact(POWER_FACTS, "gpu.released_ranks", made).value == ()


def test_who_was_seen_alive_and_then_seen_to_end_gave_its_memory_back() -> None:
    """False: the table of half a minute ago speaks for a rank whose end the agent has seen."""
    rows = tuple(ProcessRow(pid=100 + rank, state="S", command="python") for rank in range(2))
    listed = ProcessTable(origin=HERE, at_s=T0 - 10, rows=rows, complete=False)
    ended = ProcessExit(origin=HERE, at_s=T0 + 4, pid=101, rank=1, how="is gone while the engine lives")
    made = stalled(*memory(0, *KEPT), *memory(1, *GIVEN_BACK), listed, ended)

    assert fact(POWER_FACTS, "gpu.released_ranks", made).value == (1,)
