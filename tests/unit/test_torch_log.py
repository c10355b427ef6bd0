"""PyTorch's distributed messages are found in anybody's log and name the rank that speaks."""

from sentinel.collectors import torch_log
from sentinel.model.observation import Notice
from tests.unit.log_reading import at, read

PARSER = torch_log.PARSER


def notices(text: str) -> list[Notice]:
    return [seen for seen in read(PARSER, text) if isinstance(seen, Notice)]


def test_a_collective_timeout_keeps_operation_sequence_and_size() -> None:
    """Otherwise the operation that did not complete could not be compared across ranks."""
    (seen,) = notices(
        "[rank3]:[E1129 10:10:04.330817002 ProcessGroupNCCL.cpp:689] [Rank 3] Watchdog caught collective "
        "operation timeout: "
        "WorkNCCL(SeqNum=8841, OpType=ALLREDUCE, NumelIn=73728, NumelOut=73728, Timeout(ms)=600000) ran for 600017 "
        "milliseconds before timing out."
    )
    assert (seen.notice, seen.rank, seen.at_s) == ("collective_timeout", 3, at("10:10:04") + 0.330817002)
    assert (seen.fields["seq"], seen.fields["op"], seen.fields["nin"]) == ("8841", "ALLREDUCE", "73728")


def test_a_message_glued_behind_a_bar_is_found_and_a_month_without_a_zero_is_read() -> None:
    """Otherwise the first message of a failure would vanish in another writer's line."""
    (seen,) = notices(
        "Loading:  40%|####      |[rank0]:[W607 09:30:11.220144873 ProcessGroupNCCL.cpp:1500] [Rank 0] taking "
        "the entire "
        "process down"
    )
    assert (seen.notice, seen.rank) == ("kill_tree", 0)
    assert seen.at_s is not None and seen.at_s < at("09:30:11")


def test_victims_are_told_from_first_failures() -> None:
    """Otherwise a rank that reports a closed peer would pass for the one that failed."""
    seen = notices(
        "[rank1]:[E1129 10:00:00.000000001 ProcessGroupNCCL.cpp:1] [Rank 1] remote error detected from rank: 5\n"
        "[rank2]:[W1129 10:00:00.000000002 TCPStore.cpp:1] recvValue failed on SocketImpl(fd=3): Connection "
        "reset by peer\n"
        "[../gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.7]:2345\n"
        "[rank5]:[E1129 10:00:00.000000003 ProcessGroupNCCL.cpp:2] [PG ID 0 PG GUID 0(default_pg) Rank 5] "
        "Process group watchdog "
        "thread terminated with exception: CUDA error: an illegal memory access was encountered\n"
        "terminate called after throwing an instance of 'c10::DistBackendError'\n"
    )
    assert [(one.notice, one.rank) for one in seen] == [
        ("remote_error", 1), ("peer_closed", 2), ("peer_closed", None), ("cuda_error", 5), ("exit", 5),
    ]  # fmt: skip


def test_the_rank_that_signalled_a_dump_is_kept_apart_from_the_one_that_reports_it() -> None:
    """Otherwise the first rank to time out could not be found."""
    (seen,) = notices(
        "[rank6]:[E1129 10:10:05.700318455 ProcessGroupNCCL.cpp:1987] [PG ID 0 PG GUID 0(default_pg) Rank 6] "
        "Received a dump signal "
        "due to a collective timeout from  rank 5 and we will try our best to dump the debug info. Last "
        "enqueued NCCL work: "
        "8846, last completed NCCL work: 8846.This is most likely caused by"
    )
    assert (seen.notice, seen.rank, seen.fields["src"]) == ("flight_dump", 6, "5")


def test_torchrun_tracebacks_belong_to_their_rank_even_when_two_interleave() -> None:
    """Otherwise one rank's exception would end in another rank's name."""
    seen = notices(
        "[rank0]: Traceback (most recent call last):\n[rank1]: Traceback (most recent call last):\n"
        '[rank0]:   File "a.py", line 1, in f\n[rank1]:   File "a.py", line 2, in g\n'
        "[rank1]: ValueError: one\n[rank0]: KeyError: zero\n"
    )
    assert sorted((one.rank, one.fields["type"]) for one in seen) == [(0, "KeyError"), (1, "ValueError")]
