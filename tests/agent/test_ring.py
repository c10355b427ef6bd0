"""The ring always holds the last minutes, in bounded space, and a full disk is counted, not raised."""

from pathlib import Path

from sentinel.agent.ring import NAMES_MAX, Ring


def ring(tmp_path: Path, **limits: float) -> Ring:
    return Ring(tmp_path / "ring", segment_s=limits.get("segment_s", 300.0), segment_bytes=int(limits.get("size", 100)))


def held(ring: Ring) -> bytes:
    return b"".join(path.read_bytes() for path in ring.files())


def test_what_was_written_can_be_read_at_once(tmp_path: Path) -> None:
    """If false, an agent killed in the same moment would leave an empty ring."""
    kept = ring(tmp_path)
    kept.write("log.txt", b"a line\n", now_s=0.0)

    assert held(kept) == b"a line\n"


def test_the_newest_segment_before_the_present_one_is_kept(tmp_path: Path) -> None:
    """If false, the minutes before an incident could be gone in the moment in which they are wanted."""
    kept = ring(tmp_path, size=20)
    for number in range(6):
        kept.write("log.txt", b"line %04d\n" % number, now_s=float(number))

    assert held(kept) == b"line 0002\nline 0003\nline 0004\nline 0005\n"


def test_space_is_bounded_however_much_is_written(tmp_path: Path) -> None:
    """If false, a chatty engine would fill the disk of its host."""
    kept = ring(tmp_path, size=1000)
    for number in range(5000):
        kept.write("log.txt", b"x" * 99 + b"\n", now_s=float(number) / 100)

    assert len(held(kept)) <= 2000


def test_old_segments_end_by_age_too(tmp_path: Path) -> None:
    """If false, a quiet signal of last week would be presented as evidence of today."""
    kept = ring(tmp_path, segment_s=10.0)
    for at_s in (0.0, 11.0, 22.0):
        kept.write("log.txt", b"at %d\n" % at_s, now_s=at_s)

    assert held(kept) == b"at 11\nat 22\n"


def test_each_segment_begins_with_its_header(tmp_path: Path) -> None:
    """If false, a segment could not be recognised once the first one is gone."""
    kept = ring(tmp_path, size=30)
    for number in range(4):
        kept.write("notes.jsonl", b"note %d....\n" % number, float(number), header=b"header\n")

    assert all(path.read_bytes().startswith(b"header\n") for path in kept.files())


def test_signals_are_bounded_in_number(tmp_path: Path) -> None:
    """If false, a source that invents names would use up descriptors and inodes."""
    kept = ring(tmp_path)
    for number in range(NAMES_MAX + 10):
        kept.write(f"signal-{number}", b"x", now_s=0.0)

    assert len(kept.files()) == NAMES_MAX and kept.lost == 10


def test_a_folder_that_cannot_be_written_is_counted(tmp_path: Path) -> None:
    """If false, a full disk would end the agent, or nobody would learn that the ring is empty."""
    (tmp_path / "ring").write_bytes(b"a file where the folder should be")
    kept = ring(tmp_path)

    kept.write("log.txt", b"lost\n", now_s=0.0)

    assert kept.lost == 1 and "ring" in kept.why


def test_a_restarted_agent_keeps_what_the_last_one_wrote(tmp_path: Path) -> None:
    """If false, a crash of the agent would erase the evidence of the engine's."""
    first = ring(tmp_path)
    first.write("log.txt", b"before\n", now_s=0.0)
    first.close()

    second = ring(tmp_path)
    second.write("log.txt", b"after\n", now_s=1.0)

    assert held(second) == b"before\nafter\n"
