"""Who is who is settled by what statements say, never by the order in which files were read."""

from itertools import permutations

import pytest

from sentinel.core.identity import Identity
from sentinel.model.observation import Observation, Origin, Ras, RasComm, RasRank, Tags


def said(pid: int, *, tags: Tags | None = None, rank: int | None = None) -> Observation:
    """A statement on a process by a source of no matter which kind."""
    return Observation(origin=Origin("x"), pid=pid, tags=tags, rank=rank)


def ranks(*seen: Observation, pid: int) -> set[int | None]:
    """Rank of a process by every order of the evidence."""
    found: set[int | None] = set()
    for order in permutations(seen):
        identity = Identity()
        for one in order:
            identity.note(one)
        found.add(identity.rank_of(None, pid))
    return found


@pytest.mark.parametrize(
    ("seen", "rank"),
    [
        ((said(7, tags=Tags(tp=1)), said(7, tags=Tags(tp=2)), said(7, tags=Tags(tp=1))), None),
        ((said(7, rank=1), said(7, rank=2), said(7, rank=2)), None),
        ((said(7, tags=Tags(tp=1)), said(7, rank=5)), 1),
        ((said(7, tags=Tags(dp=1)), said(7, tags=Tags(tp=1)), said(8, tags=Tags(dp=0, tp=0))), 3),
    ],
    ids=["two tags", "two ranks", "a tag is stronger than a printed rank", "tags complete each other"],
)
def test_a_process_is_known_by_all_that_is_said_of_it(seen: tuple[Observation, ...], rank: int | None) -> None:
    """False: of two containers with equal process numbers, the one that was read first is blamed for the other."""
    assert ranks(*seen, pid=7) == {rank}


def test_a_seat_in_the_largest_communicator_is_the_rank() -> None:
    """False: a rank is taken for its seat in a sub-group that RAS happened to list first."""
    comms = [
        RasComm(comm_id=None, size=size, status="RUNNING", errors=(), ranks=(RasRank(rank=rank, pid=7),))
        for size, rank in ((2, 1), (8, 5), (4, 2))
    ]
    answers = [Ras(origin=Origin("x"), comms=(comm,)) for comm in comms]

    assert ranks(*answers, pid=7) == {5}


def test_the_word_of_who_sees_the_process_stands() -> None:
    """False: a tag in some log line unseats a process that discovery knows."""
    identity = Identity()
    identity.introduce(7, Tags(tp=3), 3)
    identity.note(said(7, tags=Tags(tp=1), rank=1))

    assert identity.rank_of(None, 7) == 3

    identity.introduce(7, Tags(tp=0), 0)

    assert identity.rank_of(None, 7) == 0
