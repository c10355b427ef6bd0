"""NCCL debug lines of all versions, alone and among an engine's lines, whole, cut and still growing."""

from collections.abc import Iterator

import pytest

from sentinel.collector import Context, Line, Sample
from sentinel.collectors import _nccl_stream, nccl_log
from sentinel.collectors.nccl_log import NcclReader
from sentinel.model.observation import Enqueues, NcclComm, NcclNote, Observation
from tests.unit.nccl_world import World, read

PREFIX = "box1:4411:4411 [0] NCCL INFO "
CALL = (
    "AllReduce: opCount {} sendbuff 0x7f21aa000000 recvbuff (nil) count 8192 datatype 9 op 0 root 0 "
    "comm 0x55d0c8e3b2a0 [nranks=16] stream 0x55d0c7a1f3c0"
)
DOCUMENT, LINES = nccl_log.PARSERS


def calls(found: list[Observation]) -> list[Enqueues]:
    """The enqueue counts among what was read."""
    return [seen for seen in found if isinstance(seen, Enqueues)]


def only_note(text: str) -> NcclNote:
    """The one note that a line makes."""
    (seen,) = read(text + "\n")
    assert isinstance(seen, NcclNote)
    return seen


@pytest.mark.parametrize(
    "prefix",
    [
        "box1:4411:4411 [0] NCCL INFO ",
        "box1:4411:4533 [-1] NCCL INFO ",
        "box1:4411:4411 NCCL INFO ",
        "[2026-11-29 10:00:00] box1:4411:4411 [0] NCCL INFO ",
        "[2026-11-29 10:00:00.123456789] box1:4411:4411 [0] NCCL INFO ",
        "Loading:  40%|####      | 12/30box1:4411:4411 [0] NCCL INFO ",
        "(EngineCore pid=77) box1:4411:4411 [0] NCCL INFO ",
        "3: box1:4411:4411 [0] NCCL INFO ",
    ],
)
def test_a_call_is_counted_behind_every_form_of_prefix(prefix: str) -> None:
    """False in production: ranks with another prefix would count as ranks that enqueued nothing."""
    (seen,) = calls(read("".join(f"{prefix}{CALL.format(n)}\n" for n in range(5))))
    assert seen.pid == 4411
    assert seen.total == 5
    assert seen.by_op == {"AllReduce": 5}


def test_op_counts_are_hexadecimal() -> None:
    """False in production: opCount 10 after f would look like a jump, and letters would end the count."""
    (seen,) = calls(read("".join(f"{PREFIX}{CALL.format(f'{n:x}')}\n" for n in range(9, 20))))
    assert (seen.first_op_count, seen.last_op_count, seen.unlogged_ops) == (9, 19, 0)


def test_the_tail_of_amd_lines_does_not_hide_the_call() -> None:
    """False in production: logs of RCCL would be empty."""
    (seen,) = calls(read(f"{PREFIX}{CALL.format(3)} task 0 globalrank 5\n"))
    assert seen.total == 1


def test_a_stamped_call_carries_its_time_and_a_plain_one_none() -> None:
    """False in production: calls would be placed at the wrong time, or at none although it was printed."""
    (stamped,) = calls(read(f"[1970-01-02 00:00:01.5] {PREFIX}{CALL.format(0)}\n"))
    (plain,) = calls(read(f"{PREFIX}{CALL.format(0)}\n"))
    assert stamped.tail[-1].at_s == 86401.5
    assert plain.tail[-1].at_s is None


def test_the_tail_keeps_the_last_calls_with_their_lines_and_their_order_in_the_process() -> None:
    """False in production: the line shown to a person would not be the one that decides."""
    world = World(2)
    world.open("control", range(2))
    for _ in range(100):
        world.all(op="AllGather")
        world.all("control", op="Broadcast", count=1)
    lines = world.text(0).splitlines()
    for seen in calls(world.observations([0])):
        assert len(seen.tail) == 64
        for op in seen.tail:
            assert op.line is not None
            assert op.op in lines[op.line - 1]
            assert op.comm in lines[op.line - 1]
        assert [op.order for op in seen.tail] == sorted(op.order for op in seen.tail)
        assert {b.order - a.order for a, b in zip(seen.tail, seen.tail[1:], strict=False)} == {2}


def test_digests_agree_exactly_as_far_as_the_calls_do() -> None:
    """False in production: two ranks could not be compared anywhere but at their ends."""
    world = World(2)
    for at in range(500):
        world.call(0, count=64 * (1 + at % 7))
        world.call(1, count=64 * (1 + at % 7) if at != 300 else 12)
    one, other = calls(world.observations())
    agree = [a == b for a, b in zip(one.digests, other.digests, strict=True)]
    assert agree == [True] * (300 // one.digest_every) + [False] * (len(agree) - 300 // one.digest_every)
    assert one.digest != other.digest


def test_digests_of_a_very_long_log_stay_few_and_comparable() -> None:
    """False in production: months of log would fill the memory."""
    line = f"{PREFIX}{CALL.format(0)}\n"
    (seen,) = calls(read(line * (_nccl_stream.MAX_DIGESTS * _nccl_stream.DIGEST_EVERY + 1000)))
    assert len(seen.digests) < _nccl_stream.MAX_DIGESTS
    (short,) = calls(read(line * seen.digest_every))
    assert seen.digests[0] == short.digest


def test_life_cycle_lines_join_pointers_to_hashes_and_splits_to_parents() -> None:
    """False in production: communicators could not be matched across ranks."""
    found = read(
        f"{PREFIX}comm 0x55d0c8e3b2a0 rank 3 nranks 16 cudaDev 3 nvmlDev 3 busId 4c000 commId 0xd8b1 - Init START\n"
        f"{PREFIX}[Rank 1] ncclCommSplit comm 0x77 rank 1 nranks 4 cudaDev 0 nvmlDev 0 busId 19000 parent "
        "0x55d0c8e3b2a0 childCount 1 color -5 key 1- Init COMPLETE\n"
        f"{PREFIX}comm 0x77 rank 1 nranks 4 cudaDev 0 busId 19000 - Destroy COMPLETE\n"
    )
    first, split, gone = found
    assert isinstance(first, NcclComm)
    assert isinstance(split, NcclComm)
    assert isinstance(gone, NcclComm)
    assert (first.comm_id, first.comm_rank, first.nranks, first.event) == ("0xd8b1", 3, 16, "init_start")
    assert (split.parent, split.color, split.event, split.comm_id) == ("0x55d0c8e3b2a0", -5, "init_complete", None)
    assert gone.event == "destroy"


def test_a_pointer_that_is_used_again_begins_a_new_count() -> None:
    """False in production: two communicators at one address would be added up."""
    init = "comm 0x55d0c8e3b2a0 rank 0 nranks 16 cudaDev 0 nvmlDev 0 busId 1b000 commId {} - Init {}"
    text = ""
    for commid, times in (("0xa1", 5), ("0xb2", 3)):
        text += f"{PREFIX}{init.format(commid, 'START')}\n{PREFIX}{init.format(commid, 'COMPLETE')}\n"
        text += f"{PREFIX}{CALL.format(0)}\n" * times
    assert [seen.total for seen in calls(read(text))] == [5, 3]


@pytest.mark.parametrize(
    ("text", "status", "device"),
    [
        (
            "NET/IB : Got completion from peer 10.0.0.8<4> with error 12, opcode 0, len 0, vendor err 129 (Send)",
            "12",
            "",
        ),
        (
            (
                "NET/IB: Got completion from peer 10.0.0.8<4> with status=IBV_WC_RNR_RETRY_EXC_ERR(13) "
                "opcode=IBV_WC_SEND(0) vendor_err=135  localGid ::ffff:10.1.0.7 remoteGids::ffff:10.1.0.8 "
                "hca rocep1s0f0"
            ),
            "13",
            "rocep1s0f0",
        ),
        (
            "NET/IB: Got completion from peer 10.0.0.8<4> with status=5 opcode=1 len=0 vendor err 2 (Recv) hca mlx5_3",
            "5",
            "mlx5_3",
        ),
    ],
)
def test_completion_errors_of_all_versions_name_status_and_device(text: str, status: str, device: str) -> None:
    """False in production: a lost link would be one warning among others."""
    note = only_note(f"\nbox1:4411:4533 [0] net_ib.cc:1295 (f) NCCL WARN {text}")
    assert (note.topic, note.level, note.pid) == ("ib_completion", "warn", 4411)
    assert note.fields["status"] == status
    assert note.fields["device"] == device
    assert note.fields["peer"] == "10.0.0.8<4>"


@pytest.mark.parametrize(
    ("text", "topic"),
    [
        ("NCCL WARN NET/IB : mlx5_0:1 Got non-fatal async event: port error(10)", "ib_async"),
        ("NCCL WARN socketProgress: Connection closed by remote peer box2<41>", "peer_closed"),
        ("NCCL WARN Call to recv from 10.0.0.8<4> failed : Connection reset by peer", "peer_closed"),
        ("NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out", "call_failed"),
        ("NCCL WARN Cuda failure 'unspecified launch failure'", "cuda_failure"),
        ("NCCL WARN Mismatched NCCL version detected : rank 1", "mismatch"),
        ("NCCL WARN something that no version printed so far", "other"),
        ("NCCL INFO [Service thread] Connection closed by localRank 1", "peer_closed"),
        ("NCCL INFO transport/net.cc:1340 (netRecv) -> 6 [Progress Thread]", "result"),
        ("NCCL INFO NCCL version 2.28.9+cuda13.0", "version"),
        ("NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>", "bootstrap"),
        ("NCCL INFO Using network IB", "network"),
        ("NCCL INFO Connected all rings", "connected"),
        ("NCCL INFO Channel 00/0 : 3[3] -> 4[0] [send] via NET/IB/0/GDRDMA", "channel"),
    ],
)
def test_lines_that_matter_are_told_apart_by_topic(text: str, topic: str) -> None:
    """False in production: a cause would be filed where no fact looks."""
    assert only_note(f"box1:4411:4533 [0] {text}").topic == topic


def test_start_up_chatter_makes_no_observation() -> None:
    """False in production: thousands of topology lines a rank would push out what counts."""
    assert read(f"{PREFIX}Trees [0] 1/-1/-1->0->-1\n{PREFIX}P2P Chunksize set to 524288\n") == []


def test_an_engine_log_gives_its_calls_with_their_line_numbers() -> None:
    """False in production: NCCL on stdout, the usual set-up in containers, would be ignored."""
    feed = LINES.start(Context(name="pod.log", year=2026))
    lines = [Line(number=1, text="INFO 11-29 10:00:10 [loggers.py:87] Engine 000: Running: 3 reqs", at_s=5.0)]
    lines += [Line(number=2 + n, text=f"{PREFIX}{CALL.format(n)}", at_s=6.0) for n in range(10)]
    lines.append(
        Line(number=12, text="box1:4411:9 [0] x.cc:1 NCCL WARN NET/IB : Got async event : port error", at_s=9.0)
    )
    found = [seen for batch in (lines[:4], lines[4:], []) for seen in feed(batch)]
    (seen,) = calls(found)
    assert (seen.total, seen.last_line) == (10, 11)
    note = next(one for one in found if isinstance(one, NcclNote))
    assert (note.at_s, note.origin.line) == (9.0, 12)


def test_a_stream_that_still_grows_can_be_asked_again_and_again() -> None:
    """False in production: the live watch would see the counts of a rank only after its death."""
    reader = NcclReader(Context(name="live", year=2026))
    data = "".join(f"{PREFIX}{CALL.format(0)}\n" for _ in range(10)).encode()
    totals = []
    for at in range(0, len(data), 100):
        list(reader.feed(data[at : at + 100]))
        totals += [seen.total for seen in calls(list(reader.flush()))]
    assert totals == list(range(1, 11))
    assert list(reader.flush()) == []


def test_a_file_cut_in_its_last_call_says_that_its_tail_is_missing() -> None:
    """False in production: a half-written line would be a call that a rank did not make."""
    whole = "".join(f"{PREFIX}{CALL.format(0)}\n" for _ in range(10))
    (seen,) = calls(read(whole[:-120]))
    assert seen.total == 9
    assert "tail" in seen.missing
    (unended,) = calls(read(whole[:-1]))
    assert unended.total == 10
    assert "tail" not in unended.missing


def test_wherever_a_call_is_cut_it_is_taken_for_lost_and_not_for_one_that_was_not_made() -> None:
    """False in production: a log that ends in half a time stamp would accuse its rank of one call too few."""
    line = f"[2026-11-29 10:00:00] {PREFIX}{CALL.format(0)}"
    for end in range(1, len(line)):
        (seen,) = calls(read(f"{line}\n" * 9 + line[:end]))
        assert seen.total == 10 or (seen.total, "tail" in seen.missing) == (9, True), line[:end]


def test_a_last_note_without_its_line_end_takes_nothing_from_the_calls() -> None:
    """False in production: counts that are whole would weigh nothing."""
    for note in ("Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM", "comm 0x55d0c8e3b2a0 rank 0 - Abort COMPLETE"):
        (seen,) = calls(read(f"{PREFIX}{CALL.format(0)}\n" * 9 + PREFIX + note))
        assert "tail" not in seen.missing


def test_two_writers_glued_into_one_line_make_the_count_unreliable() -> None:
    """False in production: ranks that share one file would diverge whenever their writes collide."""
    good = f"{PREFIX}{CALL.format(0)}\n"
    glued = f"{PREFIX}{CALL.format(0)[:40]}{PREFIX}{CALL.format(0)}\n"
    (seen,) = calls(read(good * 5 + glued + good * 5))
    assert "middle" in seen.missing


def test_a_pure_file_is_a_document_and_a_mixed_one_is_left_to_the_log_parsers() -> None:
    """False in production: the engine's own lines in a container log would be swallowed."""
    nccl = f"{PREFIX}Bootstrap : Using eth0:10.0.0.1<0>\n" * 20
    mixed = nccl + "(Worker_TP6 pid=413) ERROR 10-15 10:48:33 [multiproc_executor.py:671] RuntimeError\n"
    assert DOCUMENT.recognise(Sample(nccl))
    assert not DOCUMENT.recognise(Sample(mixed))
    assert LINES.recognise(Sample(mixed))
    assert not DOCUMENT.recognise(Sample(""))
    assert not DOCUMENT.recognise(Sample("NCCL is a library\n"))


class Framed:
    """A document whose bytes are container records and whose lines are not."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines

    def chunks(self) -> Iterator[bytes]:
        """Docker records."""
        for line in self._lines:
            yield f'{{"log":"{line}\\n","stream":"stdout","time":"2026-11-29T10:00:10Z"}}\n'.encode()

    def lines(self) -> Iterator[Line]:
        """The text inside them."""
        for number, line in enumerate(self._lines, 1):
            yield Line(number=number, text=line, at_s=77.0)

    def text(self, limit: int = 8 << 20) -> str:
        """All of it."""
        return "\n".join(self._lines)[:limit]


def test_a_pure_log_inside_a_container_frame_is_read_through_the_frame() -> None:
    """False in production: Docker's json-file logs of a rank would hold no call."""
    blob = Framed([f"{PREFIX}{CALL.format(n)}" for n in range(7)])
    (seen,) = calls(list(DOCUMENT.parse(blob, Context(name="c.json", year=2026))))
    assert (seen.total, seen.last_line) == (7, 7)
