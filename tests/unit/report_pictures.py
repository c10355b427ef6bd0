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
    """Two ranks of one host that decode until 34 s; then a callback thread of rank 1 waits for a lock."""
    log = "engine_rank0.log"
    seen: list[AnyObservation] = [
        Phase(origin=Origin(log, 1), at_s=START_S + 1, engine="sglang", phase="load", edge="begin", rank=0),
        Phase(origin=Origin(log, 2), at_s=START_S + 8, engine="sglang", phase="ready", edge="begin", rank=0),
    ]
    seen += [_decode(log, 10 + step, START_S + 10 + step, tags=Tags(tp=0)) for step in range(25)]
    seen += [_gpu(tick, index) for tick in range(180) for index in (0, 1)]
    for rank, pid in ((0, 782), (1, 783)):
        seen += _traced(f"nccl.{rank}.log", rank, pid, 2, {"AllGather": 747, "AllReduce": 150}, "AllGather")
        seen.append(_python_stack(rank, pid, "synchronize"))
        seen.append(_native_stack(rank, pid, blocked=rank == 1))
    return seen


def divergence_observations(nranks: int) -> list[AnyObservation]:
    """Ranks on hosts of eight: 5 enqueued one all-reduce fewer, 7 has no trace, 3 and 9 (where they exist) no stack."""
    seen: list[AnyObservation] = []
    for rank in range(nranks):
        host, pid, late = f"node{1 + rank // 8}", 4000 + rank, rank == 5
        log, trace = f"{host}/engine.log", f"{host}/nccl.{pid}.log"
        seen += [_decode(log, 100 * rank + step, START_S + 14 + step, host, pid, rank=rank) for step in range(20)]
        life, counts = _traced(
            trace, rank, pid, nranks, {"AllReduce": 61_440 - late}, "AllGather" if late else "AllReduce", host
        )
        seen += [life] if rank == 7 else [life, counts]
        if rank == 3:
            denied = "Permission denied: ptrace scope"
            seen.append(Stack(origin=Origin(f"{host}/pyspy_3.txt", 1), tool="py-spy", pid=pid, host=host, error=denied))
        elif rank != 9:
            seen.append(_python_stack(rank, pid, "sample_tokens" if late else "all_reduce", host))
    return [*seen, *_aftermath(nranks)]


def _aftermath(nranks: int) -> list[AnyObservation]:
    """What the world says of the divergence after T0."""
    lagging = {"AllReduce": {"5": 61_439, "others": 61_440}}
    answer = RasComm(
        comm_id="0xc0",
        size=nranks,
        status="MISMATCH",
        errors=(),
        missing=(RasRank(rank=7, host="node1"),),
        mismatch=lagging,
    )
    return [
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
        Ras(origin=Origin("ras.txt", 1), at_s=START_S + 70, comms=(answer,)),
        _flight(0, nranks, 748),
        _flight(5, nranks, 747),
    ]


def _decode(
    log: str,
    line: int,
    at_s: float,
    host: str | None = None,
    pid: int | None = None,
    *,
    rank: int | None = None,
    tags: Tags | None = None,
) -> Decode:
    return Decode(
        origin=Origin(log, line),
        at_s=at_s,
        host=host,
        pid=pid,
        engine="sglang",
        running=8,
        queued=2,
        rank=rank,
        tags=tags,
    )


def _gpu(tick: int, index: int) -> GpuSample:
    at_s = START_S + tick * 0.25
    busy, stuck = tick > 40, at_s > START_S + 34.5
    util, power = (85.0, 420.0) if busy else (0.0, 75.0)
    if stuck:
        util, power = (100.0, 118.0) if index == 0 else (0.0, 76.0)
    return GpuSample(
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


def _traced(
    log: str, rank: int, pid: int, nranks: int, by_op: dict[str, int], last: str, host: str | None = None
) -> tuple[NcclComm, Enqueues]:
    life = NcclComm(
        origin=Origin(log, 4),
        at_s=START_S + 5,
        host=host,
        pid=pid,
        comm="0xa",
        comm_id="0xc0",
        comm_rank=rank,
        nranks=nranks,
        event="init_complete",
    )
    counts = Enqueues(
        origin=Origin(log, 1434),
        at_s=START_S + 34,
        host=host,
        pid=pid,
        comm="0xa",
        nranks=nranks,
        total=sum(by_op.values()),
        by_op=by_op,
        first_op_count=0,
        last_op_count=0,
        tail=_tail(last, 16160),
        digest_every=64,
        digests=("same",) * (sum(by_op.values()) // 64),
        digest=last,
        last_line=1434,
    )
    return life, counts


def _flight(rank: int, nranks: int, enqueued: int) -> FlightTrace:
    group = _group("0", "default_pg", nranks, enqueued)
    return FlightTrace(origin=Origin(f"fr_{rank}.json"), rank=rank, version="2.10", entries=(), groups=(group,))


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
