"""NCCL's debug log (INFO; INIT, COLL, NET) of one process, in the forms of 2.21 to 2.30."""

# ruff: noqa: E501 - printed lines stay whole, so that they can be searched for

from sentinel.testing.generator import clock
from sentinel.testing.generator.fleet import Rank
from sentinel.testing.generator.story import Call, Story


def log_of(story: Story, rank: Rank, *, stamped: bool) -> list[str]:
    """Start-up and enqueue lines of one rank, in order; `stamped` = a time in front of every line."""
    lines = [*_start(story, rank)]
    opens = _inits(story, rank)
    lines += opens
    if not story.init_open and rank.rank not in story.init_missing:
        lines += _calls(story, rank)
    head = f"{rank.host.name}:{rank.pid}:{rank.pid} [{rank.local}] NCCL INFO "
    begin = story.fleet.start_s + 10
    end = story.t0_s
    step = (end - begin) / max(len(lines), 1)
    out = []
    for number, line in enumerate(lines):
        stamp = f"[{clock.full(begin + number * step)}] " if stamped else ""
        out.append(f"{stamp}{head}{line}")
    return out


def comm_id(story: Story, comm: int) -> str:
    """The hash that all ranks of a communicator print."""
    return f"0x{(hash_of(story.fleet.start_s, comm)):016x}"


def hash_of(start_s: float, comm: int) -> int:
    """A 64-bit number that depends on the run and the communicator."""
    value = (int(start_s) * 0x9E3779B97F4A7C15 + comm * 0xC2B2AE3D27D4EB4F) & (2**64 - 1)
    return (value ^ (value >> 29)) & (2**64 - 1)


def pointer(rank: Rank, comm: int) -> str:
    """The process-local address of a communicator."""
    return f"0x{0x55D0C8E00000 + rank.pid * 0x1000 + comm * 0x2A0:x}"


def _start(story: Story, rank: Rank) -> list[str]:
    net = len(story.fleet.hosts) > 1
    lines = [
        f"Bootstrap : Using eth0:{rank.host.address}<0>",
        "cudaDriverVersion 13000",
        f"NCCL version {story.fleet.nccl}+cuda13.0",
    ]
    if net:
        lines += [
            f"NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [2]mlx5_2:1/RoCE [3]mlx5_3:1/RoCE [RO]; OOB eth0:{rank.host.address}<0>",
            "Using network IB",
        ]
    else:
        lines += [
            "NET/IB : No device found.",
            f"NET/Socket : Using [0]eth0:{rank.host.address}<0>",
            "Using network Socket",
        ]
    return lines


def _inits(story: Story, rank: Rank) -> list[str]:
    fleet = story.fleet
    lines = []
    for comm in range(story.comms if not story.init_open else 1):
        function = "ncclCommInitRank" if comm == 0 else "ncclCommInitRankConfig"
        body = (
            f"{function} comm {pointer(rank, comm)} rank {rank.rank} nranks {fleet.world} cudaDev {rank.local} "
            f"nvmlDev {rank.local} busId {rank.bus:x}000 commId {comm_id(story, comm)}"
        )
        lines.append((f"[Rank {rank.rank}] " if fleet.nccl_at_least("2.29.0") else "") + body + " - Init START")
        if story.init_open:
            break
        lines += [
            f"comm {pointer(rank, comm)} rank {rank.rank} nRanks {fleet.world} nNodes {len(fleet.hosts)} localRanks {len(fleet.on(rank.host))} localRank {rank.local} MNNVL 0",
            f"Channel 00/0 : {rank.rank}[{rank.local}] -> {(rank.rank + 1) % fleet.world}[{(rank.local + 1) % 8}] via P2P/CUMEM",
            "Connected all rings, use ring PXN 0 GDR 1",
            body + " - Init COMPLETE",
        ]
    return lines


def _calls(story: Story, rank: Rank) -> list[str]:
    """Enqueue lines with opCount as the version prints it.

    On a network transport it counts what was executed, replays included, so that all calls of a step read the same
    (seen on 2.28.9); before 2.27.3 a single host counts each launch; later a single host prints 0 for ever.
    """
    network = len(story.fleet.hosts) > 1
    executed = [0] * story.comms
    pending = [0] * story.comms
    step = -1
    lines = []
    for call in story.calls.get(rank.rank, ()):
        if call.step != step:
            step = call.step
            executed = [done + waiting for done, waiting in zip(executed, pending, strict=True)]
            pending = [0] * story.comms
        if network:
            executed[call.comm] += call.replays
        shown = executed[call.comm] if network else executed[call.comm] + pending[call.comm]
        lines.append(_call(story, rank, call, shown if story.fleet.counts_ops else 0))
        pending[call.comm] += 1
    return lines


def _call(story: Story, rank: Rank, call: Call, op_count: int) -> str:
    send = f"0x7f{0x21AA000000 + call.comm * 0x100000:x}"
    receive = send if call.op in ("AllReduce", "Broadcast") else f"0x7f{0x31AA000000 + call.comm * 0x100000:x}"
    stream = f"0x{0x55D0C7A1F3C0 + rank.pid * 0x100:x}"
    return (
        f"{call.op}: opCount {op_count:x} sendbuff {send} recvbuff {receive} count {call.count} datatype {call.dtype} op 0 "
        f"root 0 comm {pointer(rank, call.comm)} [nranks={story.fleet.world}] stream {stream}"
    )


STATUS = {
    12: "IBV_WC_RETRY_EXC_ERR",
    13: "IBV_WC_RNR_RETRY_EXC_ERR",
    5: "IBV_WC_WR_FLUSH_ERR",
    10: "IBV_WC_REM_ACCESS_ERR",
}


def completion_error(story: Story, rank: Rank, peer: Rank, status: int, hca: str, at_s: float) -> str:
    """A completion error as this version prints it: an empty line, then the warning."""
    nccl = story.fleet
    head = f"{rank.host.name}:{rank.pid}:{rank.pid + 41} [{rank.local}] "
    port = f"{peer.host.address}<{41000 + peer.local}>"
    gids = f"localGid ::ffff:{rank.host.address} remoteGids"
    name = STATUS[status]
    stamp = f"[{clock.full(at_s)}] " if nccl.nccl_at_least("2.26.0") else ""
    if nccl.nccl_at_least("2.29.0"):
        text = f"{stamp}{head}transport/net_ib/p2p.cc:688 (ncclIbLogCompletionWithError) NCCL WARN NET/IB: Got completion from peer {port} with status={name}({status}) opcode=IBV_WC_SEND(0) vendor_err=129  {gids}::ffff:{peer.host.address} hca {hca}"
    elif nccl.nccl_at_least("2.28.7"):
        text = f"{stamp}{head}transport/net_ib.cc:2600 NCCL WARN NET/IB: Got completion from peer {port} with status={name}({status}) opcode=IBV_WC_SEND(0) reqSize=4096 vendor_err=129 req_type=Send {gids}::ffff:{peer.host.address} hca {hca}"
    else:
        text = f"{stamp}{head}transport/net_ib.cc:2458 NCCL WARN NET/IB: Got completion from peer {port} with status={status} opcode=0 len=0 vendor err 129 (Send) {gids}::ffff:{peer.host.address} hca {hca}"
    return "\n" + text
