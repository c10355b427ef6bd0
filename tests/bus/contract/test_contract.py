"""What every adapter of the bus promises. An adapter is added in `adapters.py` and nowhere else."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sentinel.bus.bus import BLOB_BYTES_MAX, RECORD_BYTES_MAX, SLOT_BYTES_MAX, Bus, Conflict, TooLarge
from tests.bus.contract.adapters import ADAPTERS, Opener


@pytest.fixture(params=ADAPTERS)
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    return ADAPTERS[request.param](tmp_path)


@pytest.fixture
def bus(opener: Opener) -> Iterator[Bus]:
    client = opener()
    yield client
    client.close()


def test_a_slot_is_empty_until_it_is_written(bus: Bus) -> None:
    """False: the first coordinator cannot take the lease, or believes that somebody holds it."""
    assert bus.read("lease") is None

    revision = bus.write("lease", b"one", 0)

    slot = bus.read("lease")
    assert slot is not None and (slot.data, slot.revision) == (b"one", revision) and revision > 0


def test_a_write_with_an_old_revision_changes_nothing(bus: Bus, opener: Opener) -> None:
    """False: a coordinator that was asleep overwrites the lease or the command of its successor."""
    other = opener()
    first = bus.write("lease", b"one", 0)
    second = other.write("lease", b"two", first)

    for stale in (0, first):
        with pytest.raises(Conflict):
            bus.write("lease", b"three", stale)

    slot = bus.read("lease")
    assert slot is not None and slot.data == b"two" and second > first
    other.close()


def test_of_many_writers_exactly_one_wins_each_round(opener: Opener) -> None:
    """False: two coordinators lead at the same time and both believe that they may."""
    clients = [opener() for _ in range(4)]
    for number in range(10):
        slot = clients[0].read("lease")
        base = 0 if slot is None else slot.revision
        start = threading.Barrier(len(clients))
        won: list[int] = []

        def race(which: int, base: int = base, start: threading.Barrier = start, won: list[int] = won) -> None:
            start.wait(timeout=30)
            try:
                clients[which].write("lease", b"%d" % which, base)
            except Conflict:
                return
            won.append(which)

        threads = [threading.Thread(target=race, args=(which,)) for which in range(len(clients))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=30)
        after = clients[0].read("lease")
        assert len(won) == 1, f"round {number}"
        assert after is not None and after.data == b"%d" % won[0]
    for client in clients:
        client.close()


def test_revisions_do_not_return_when_slots_differ(bus: Bus) -> None:
    """False: a revision read from one incarnation of a slot fits a later one."""
    revisions = [bus.write("a", b"", 0), bus.write("b", b"", 0)]
    revisions.append(bus.write("a", b"", revisions[0]))

    assert sorted(set(revisions)) == revisions


def test_a_log_keeps_its_order_and_takes_a_key_once(bus: Bus, opener: Opener) -> None:
    """False: an event that was sent again after a lost answer counts twice."""
    other = opener()
    first = bus.append("evt", b"a", "host1:1")
    second = other.append("evt", b"b", "host2:1")
    again = bus.append("evt", b"other words", "host1:1")
    elsewhere = bus.append("ack", b"c", "host1:1")

    assert again == first < second and elsewhere != first
    assert [record.data for record in other.follow("evt", 0)] == [b"a", b"b"]
    assert [record.key for record in bus.follow("evt", first)] == ["host2:1"]
    assert [record.data for record in bus.follow("evt", 0, limit=1)] == [b"a"]
    other.close()


def test_presence_is_the_newest_word_and_changes_visibly(bus: Bus, opener: Opener) -> None:
    """False: a host that repeats itself looks silent, or a silent one looks alive."""
    other = opener()
    assert dict(bus.present()) == {}
    bus.announce("host1", b"x")
    before = other.present()["host1"]
    bus.announce("host1", b"x")
    after = other.present()["host1"]

    assert before.data == after.data == b"x" and before.count != after.count
    assert other.present()["host1"] == after
    other.close()


def test_a_blob_has_the_name_of_its_content(bus: Bus, opener: Opener) -> None:
    """False: evidence of one host can be replaced by that of another."""
    digest = bus.put(b"evidence" * 1000)
    other = opener()

    assert other.get(digest) == b"evidence" * 1000
    assert bus.put(b"evidence" * 1000) == digest
    assert bus.get("0" * 64) is None
    assert bus.get("../bus.db") is None
    other.close()


def test_what_was_written_outlives_the_client(opener: Opener) -> None:
    """False: a plan is forgotten when the coordinator is killed, and is begun again."""
    first = opener()
    revision = first.write("plan", b"stop", 0)
    number = first.append("evt", b"a", "k")
    digest = first.put(b"blob")
    first.close()
    later = opener()

    slot = later.read("plan")
    assert slot is not None and (slot.data, slot.revision) == (b"stop", revision)
    assert later.append("evt", b"a", "k") == number
    assert later.get(digest) == b"blob"
    later.close()


def test_nothing_beyond_its_bound_is_taken(bus: Bus) -> None:
    """False: one host fills the disk or the memory of all."""
    with pytest.raises(TooLarge):
        bus.write("lease", bytes(SLOT_BYTES_MAX + 1), 0)
    with pytest.raises(TooLarge):
        bus.append("evt", bytes(RECORD_BYTES_MAX + 1), "k")
    with pytest.raises(TooLarge):
        bus.announce("host1", bytes(RECORD_BYTES_MAX + 1))
    with pytest.raises(TooLarge):
        bus.put(bytes(BLOB_BYTES_MAX + 1))

    assert bus.read("lease") is None and bus.follow("evt", 0) == () and dict(bus.present()) == {}
