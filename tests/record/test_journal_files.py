"""The journal keeps every whole record through crashes, and never grows without bound."""

import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from sentinel.model.effect import Suspected
from sentinel.model.event import Tick
from sentinel.model.stamp import Stamp
from sentinel.record.journal import SEGMENT_BYTES, SEGMENTS_MAX, Journal, entries


def tick(number: int) -> Tick:
    return Tick(at=Stamp(mono_ns=number, wall_ns=number))


def filled(folder: Path, count: int, segment_bytes: int = SEGMENT_BYTES, segments_max: int = SEGMENTS_MAX) -> Path:
    journal = Journal(folder, segment_bytes, segments_max).open()
    for number in range(count):
        journal.event(tick(number))
    journal.close()
    return folder


def test_what_was_written_is_read_back_in_order(tmp_path: Path) -> None:
    """If false, a replay would judge another history than the one that happened."""
    journal = Journal(tmp_path).open()
    journal.event(tick(1))
    position = journal.effect(Suspected(engine="e", incident="i", silence_s=9.0, limit_s=8.0, why="silence"))
    journal.outcome(position, "done")
    journal.close()

    read = list(entries(tmp_path))

    assert [entry.n for entry in read] == [0, 1, 2]
    assert read[0].e == tick(1)
    assert isinstance(read[1].f, Suspected)
    assert read[2].done == "1 done"


@given(cut=st.integers(min_value=0, max_value=2000))
def test_a_crash_at_any_byte_loses_only_the_torn_record(tmp_path_factory: object, cut: int) -> None:
    """If false, a power cut could make the whole journal unreadable or invent a record."""
    folder = filled(tmp_path_factory.mktemp("journal"), 20)  # type: ignore[attr-defined]
    segment = next(folder.glob("journal-*.log"))
    whole = segment.read_bytes()
    os.truncate(segment, min(cut, len(whole)))

    survived = list(entries(folder))
    reopened = Journal(folder).open()
    reopened.event(tick(99))
    reopened.close()

    assert [entry.e for entry in survived] == [tick(number) for number in range(len(survived))]
    assert len(survived) == whole[:cut].count(b"\n")
    assert [entry.e for entry in entries(folder)] == [*(entry.e for entry in survived), tick(99)]


def test_a_damaged_record_is_left_out_and_the_rest_is_kept(tmp_path: Path) -> None:
    """If false, one bad sector would hide everything after it."""
    segment = next(filled(tmp_path, 3).glob("journal-*.log"))
    lines = segment.read_bytes().splitlines(keepends=True)
    segment.write_bytes(lines[0] + lines[1].replace(b"mono_ns", b"mono_xx") + lines[2])

    assert [entry.n for entry in entries(tmp_path)] == [0, 2]


def test_the_folder_never_exceeds_its_bound(tmp_path: Path) -> None:
    """If false, a chatty engine would fill the disk of the GPU host."""
    filled(tmp_path, 500, segment_bytes=1000, segments_max=3)

    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 4 * 1000
    assert max(entry.n for entry in entries(tmp_path)) == 499
