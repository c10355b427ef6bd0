"""Observations of small worlds, as collectors would give them."""

from sentinel.core.picture import Picture
from sentinel.model.observation import (
    AnyObservation,
    Decode,
    EngineStats,
    Enqueues,
    FlightEntry,
    FlightGroup,
    FlightTrace,
    Frame,
    GpuSample,
    KernelEvent,
    NcclComm,
    NcclNote,
    Notice,
    Op,
    Origin,
    Phase,
    Ras,
    RasComm,
    RasRank,
    Stack,
    Tags,
    Thread,
)

START_S = 1_795_973_400.0
"""2026-11-29T17:30:00 on the hosts' wall clocks."""


def picture_of(seen: list[AnyObservation]) -> Picture:
    picture = Picture()
    for item in seen:
        picture.note(item)
    return picture


def callback_observations() -> list[AnyObservation]:
    seen: list[AnyObservation] = [
        Phase(
            origin=Origin("engine_rank0.log", 1), at_s=START_S + 1, engine="sglang", phase="load", edge="begin", rank=0
        ),
        Phase(
            origin=Origin("engine_rank0.log", 2), at_s=START_S + 8, engine="sglang", phase="ready", edge="begin", rank=0
        ),
    ]
    seen += [
        Decode(
            origin=Origin("engine_rank0.log", 10 + step),
            at_s=START_S + 10 + step,
            engine="sglang",
            running=8,
            queued=2,
            tags=Tags(tp=0),
        )
        for step in range(25)
    ]
    for tick in range(180):
        at_s = START_S + tick * 0.25
        for index in (0, 1):
            stuck = at_s > START_S + 34.5
            util = (100.0 if index == 0 else 0.0) if stuck else (85.0 if tick > 40 else 0.0)
            power = (118.0 if index == 0 else 76.0) if stuck else (420.0 if tick > 40 else 75.0)
            seen.append(
                GpuSample(
                    origin=Origin("gpu.csv", 2 * tick + index),
                    at_s=at_s,
                    index=index,
                    util_percent=util,
                    mem_util_percent=0.0 if stuck else 30.0,
                    power_w=power,
                    power_limit_w=700.0,
                    sm_mhz=1980.0,
                    temp_c=34.0,
                    mem_used_mib=1157.0,
                    throttle=0,
                )
            )
    for rank, pid in ((0, 782), (1, 783)):
        seen.append(
            NcclComm(
                origin=Origin(f"nccl.{rank}.log", 4),
                at_s=START_S + 5,
                pid=pid,
                comm="0xa",
                comm_id="0x7e57",
                comm_rank=rank,
                nranks=2,
                event="init_complete",
            )
        )
        seen.append(
            Enqueues(
                origin=Origin(f"nccl.{rank}.log", 1434),
                at_s=START_S + 34,
                pid=pid,
                comm="0xa",
                nranks=2,
                total=897,
                by_op={"AllGather": 747, "AllReduce": 150},
                first_op_count=0,
                last_op_count=0,
                tail=_tail("AllGather", 16160),
                digest_every=64,
                digest="d",
            )
        )
        seen.append(_python_stack(rank, pid, "synchronize"))
        seen.append(_native_stack(rank, pid, blocked=rank == 1))
    return seen


def divergence_observations(nranks: int) -> list[AnyObservation]:
    seen: list[AnyObservation] = []
    for rank in range(nranks):
        host, pid = f"node{1 + rank // 8}", 4000 + rank
        seen.append(
            NcclComm(
                origin=Origin(f"{host}/nccl.{pid}.log", 4),
                at_s=START_S,
                pid=pid,
                host=host,
                comm="0xb",
                comm_id="0xfeed",
                comm_rank=rank,
                nranks=nranks,
                event="init_complete",
            )
        )
        seen += [
            Decode(
                origin=Origin(f"{host}/engine.log", 100 * rank + step),
                at_s=START_S + 14 + step,
                host=host,
                pid=pid,
                engine="sglang",
                running=8,
                queued=0,
                rank=rank,
            )
            for step in range(20)
        ]
        if rank != 7:
            late = rank == 5
            seen.append(
                Enqueues(
                    origin=Origin(f"{host}/nccl.{pid}.log", 9000),
                    at_s=START_S + 34,
                    pid=pid,
                    host=host,
                    comm="0xb",
                    nranks=nranks,
                    total=61_440 - late,
                    by_op={"AllReduce": 61_440 - late},
                    first_op_count=0,
                    last_op_count=61_439,
                    tail=_tail("AllGather" if late else "AllReduce", 4096),
                    digest_every=64,
                    digest=str(late),
                )
            )
        if rank == 3:
            seen.append(
                Stack(
                    origin=Origin(f"{host}/pyspy_{rank}.txt", 1),
                    tool="py-spy",
                    pid=pid,
                    host=host,
                    error="Permission denied: ptrace scope",
                )
            )
        elif rank != 9:
            seen.append(_python_stack(rank, pid, "sample_tokens" if rank == 5 else "all_reduce", host))
    seen += [
        NcclNote(
            origin=Origin("node2/nccl.4011.log", 77),
            at_s=START_S + 60,
            host="node2",
            pid=4011,
            level="warn",
            topic="peer_closed",
            text="socketProgress: Connection closed by remote peer node1<51234>",
        ),
        Notice(
            origin=Origin("node1/engine.log", 4000),
            at_s=START_S + 94,
            host="node1",
            engine="sglang",
            notice="watchdog_timeout",
            text="Scheduler watchdog timeout (self.watchdog_timeout=300)",
            rank=0,
        ),
        EngineStats(
            origin=Origin("node1/engine.log", 4100),
            at_s=START_S + 95,
            host="node1",
            engine_index=0,
            prompt_tps=0.0,
            generation_tps=0.0,
            running=8,
            waiting=3,
        ),
        Ras(
            origin=Origin("ras.txt", 1),
            at_s=START_S + 70,
            comms=(
                RasComm(
                    comm_id="0xfeed",
                    size=nranks,
                    status="MISMATCH",
                    errors=(),
                    missing=(RasRank(rank=7, host="node1"),),
                    mismatch={"AllReduce": {"5": 61_439, "others": 61_440}},
                ),
            ),
        ),
        FlightTrace(
            origin=Origin("fr_0.json"),
            rank=0,
            version="2.10",
            entries=(),
            groups=(_group("0", "default_pg", nranks, 748),),
        ),
        FlightTrace(
            origin=Origin("fr_5.json"),
            rank=5,
            version="2.10",
            entries=(),
            groups=(_group("0", "default_pg", nranks, 747),),
        ),
    ]
    return seen


def _group(name: str, desc: str, nranks: int, enqueued: int) -> FlightGroup:
    return FlightGroup(
        name=name, desc=desc, ranks=tuple(range(nranks)), last_enqueued=enqueued, last_started=-1, last_completed=743
    )


def _tail(op: str, count: int) -> tuple[Op, ...]:
    return tuple(Op(op=op, op_count=0, count=count, dtype=9, root=0, comm="0xa", order=order) for order in range(5))


def _python_stack(rank: int, pid: int, leaf: str, host: str | None = None) -> Stack:
    frames = (
        Frame(leaf, "/opt/venv/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py", 3068),
        Frame("forward", "/opt/engine/model_runner.py", 1204),
        *(Frame(f"layer_{depth}", "/opt/engine/model.py", depth) for depth in range(9)),
        Frame("event_loop_overlap", "/opt/engine/scheduler.py", 780),
        Frame("run_scheduler_process", "/opt/engine/scheduler.py", 2900),
    )
    watchdog = (Frame("watchdog_thread", "/opt/engine/watchdog.py", 52), Frame("run", "threading.py", 1010))
    return Stack(
        origin=Origin(f"{host + '/' if host else ''}pyspy_rank{rank}.txt", 4),
        at_s=START_S + 40,
        tool="py-spy",
        pid=pid,
        host=host,
        rank=rank,
        threads=(
            Thread(name="MainThread", tid=pid, state="active", frames=frames),
            Thread(name="watchdog", tid=pid + 9000, state="idle", frames=watchdog),
        ),
    )


def _native_stack(rank: int, pid: int, *, blocked: bool) -> Stack:
    main = (Frame("cuStreamSynchronize", "libcuda.so.1", native=True), Frame("main", "python3", native=True))
    pool = (Frame("pthread_cond_wait", "libc.so.6", native=True), Frame("start_thread", "libc.so.6", native=True))
    callback = (
        Frame("pthread_mutex_lock", "libc.so.6", native=True),
        Frame("store_gather", "librowstore.so", native=True),
        Frame("start_thread", "libc.so.6", native=True),
    )
    threads = [Thread(name=None, tid=pid, frames=main)]
    threads += [Thread(name=None, tid=pid + 100 + number, frames=pool) for number in range(6)]
    threads += [Thread(name=None, tid=pid + 200, frames=callback if blocked else pool)]
    return Stack(
        origin=Origin(f"eustack_rank{rank}.txt", 1),
        at_s=START_S + 41,
        tool="eu-stack",
        pid=pid,
        rank=rank,
        native=True,
        threads=tuple(threads),
    )


def hostile_observations(payload: str) -> list[AnyObservation]:
    """Every kind of observation that the report shows, its texts all `payload`."""
    origin = Origin(payload, 1)
    return [
        Decode(origin=origin, at_s=START_S, engine="sglang", running=1, rank=0),
        Notice(origin=origin, at_s=START_S + 1, engine="sglang", notice="exception", text=payload, rank=0),
        KernelEvent(origin=origin, at_s=START_S + 2, event="xid", text=payload, host=payload),
        GpuSample(origin=origin, at_s=START_S, index=0, util_percent=1.0, host=payload),
        Stack(
            origin=origin,
            tool="py-spy",
            rank=0,
            pid=1,
            threads=(Thread(name=payload, tid=1, frames=(Frame(payload, payload, 1),)),),
        ),
        Stack(origin=origin, tool="py-spy", rank=1, pid=2, error=payload),
        Enqueues(
            origin=origin,
            comm=payload,
            nranks=2,
            total=1,
            by_op={payload: 1},
            first_op_count=0,
            last_op_count=0,
            tail=(Op(op=payload, op_count=0, count=1, dtype=9, root=0, comm=payload, order=0),),
            digest_every=1,
        ),
        Ras(origin=origin, comms=(RasComm(comm_id=payload, size=2, status=payload, errors=(payload,)),)),
        FlightTrace(
            origin=origin,
            rank=0,
            version="2.10",
            groups=(_group(payload, payload, 2, 1),),
            entries=(
                FlightEntry(
                    group=payload,
                    seq=1,
                    op=payload,
                    in_sizes=(),
                    out_sizes=(),
                    dtypes=(),
                    state=payload,
                    created_ns=None,
                ),
            ),
        ),
    ]
