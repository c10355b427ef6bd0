"""NCCL RAS: text and JSON answers, computed from the calls that each rank enqueued."""

# ruff: noqa: E501 - printed lines stay whole, so that they can be searched for

import json
from collections import Counter

from sentinel.testing.generator import clock
from sentinel.testing.generator.nccl_writer import hash_of
from sentinel.testing.generator.story import Story

KINDS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")


def counts(story: Story, comm: int, rank: int) -> Counter[str]:
    """Eager operations that a rank launched on a communicator, by kind."""
    return Counter(call.op for call in story.calls.get(rank, ()) if call.comm == comm)


def text(story: Story) -> str:
    """Verbose status text."""
    fleet = story.fleet
    per_host = len(fleet.ranks) // len(fleet.hosts)
    mismatches = {comm: _mismatch(story, comm) for comm in range(story.comms)}
    lines = [
        "SERVER PROTOCOL 2", "OK", f"NCCL version {fleet.nccl} compiled with CUDA 13.0", "CUDA runtime version 13000, driver version 13000", "",
        "Job summary", "===========", "", "  Nodes  Processes         GPUs  Processes     GPUs", "(total)   per node  per process    (total)  (total)",
        f"{len(fleet.hosts):7d} {per_host:10d} {1:12d} {fleet.world:10d} {fleet.world:8d}", "", "Communicators... (0.00s)", "=============", "",
        "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors", "    #  in group  per comm  per node  per comm  in group",
    ]  # fmt: skip
    for comm in range(story.comms):
        errors = "MISMATCH" if mismatches[comm] else "OK"
        lines.append(
            f"{comm:5d} {1:9d} {len(fleet.hosts):9d} {per_host:9d} {fleet.world:9d} {fleet.world:9d}   RUNNING  {errors:>8}"
        )
    lines += ["", "Errors", "======", "", "Warnings", "========", ""]
    for found in mismatches.values():
        lines += found
    return "\n".join(lines) + "\n"


def _mismatch(story: Story, comm: int) -> list[str]:
    """Warning lines of a communicator whose counts differ. Outliers are listed only when they are few."""
    lines: list[str] = []
    for kind in KINDS:
        by_count: dict[int, list[int]] = {}
        for rank in story.fleet.ranks:
            by_count.setdefault(counts(story, comm, rank.rank)[kind], []).append(rank.rank)
        if len(by_count) < 2:
            continue
        lines += [
            f"#{comm}-0 ({hash_of(story.fleet.start_s, comm):016x}) MISMATCH",
            f"  Communicator ranks have different {kind} operation counts",
        ]
        largest = max(by_count.values(), key=len)
        for count, ranks in sorted(by_count.items(), key=lambda item: -len(item[1])):
            if ranks is largest and len(ranks) > 1:
                lines.append(f"  {len(ranks)} ranks have launched up to operation {count}")
                continue
            for number in ranks:
                rank = story.rank(number)
                lines.append(
                    f"  Rank {number} has launched up to operation {count} -- GPU {rank.local} managed by process {rank.pid} on node {rank.host.address}"
                )
        lines.append("")
    return lines


def as_json(story: Story) -> str:
    """JSON status (2.28.7 and later)."""
    fleet = story.fleet
    communicators = []
    for comm in range(story.comms):
        ranks = []
        for rank in fleet.ranks:
            found = counts(story, comm, rank.rank)
            ranks.append({
                "rank": rank.rank, "host": rank.host.address, "pid": rank.pid, "cuda_dev": rank.local, "nvml_dev": rank.local,
                "status": {"init_state": 0, "async_error": 0, "finalize_called": False, "destroy_flag": False, "abort_flag": False},
                "collective_counts": {kind: found[kind] for kind in KINDS},
            })  # fmt: skip
        communicators.append({
            "hash": f"0x{hash_of(fleet.start_s, comm):016x}", "secondary_hash": "0x11:0x2a", "size": fleet.world,
            "ranks_count": fleet.world, "missing_ranks_count": 0, "ranks": ranks, "missing_ranks": [],
        })  # fmt: skip
    return json.dumps({
        "nccl_version": fleet.nccl, "cuda_runtime_version": 13000, "cuda_driver_version": 13000, "timestamp": clock.full(story.end_s),
        "communicators_count": story.comms, "communicators": communicators, "ras": {"collection_time_sec": 0.004, "timeouts_count": 0},
    }, indent=1)  # fmt: skip
