"""A log is followed through everything that happens to logs, and what is not read is counted."""

import os
from pathlib import Path

from sentinel.agent.tail import LINGER_READS, Tail


def read(tail: Tail) -> bytes:
    return b"".join(tail.read())


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def followed(path: Path, backlog_bytes: int = 1 << 20) -> Tail:
    """A tail that has read what the file holds now."""
    tail = Tail(path, backlog_bytes=backlog_bytes)
    read(tail)
    return tail


def test_only_what_was_appended_since_is_read(tmp_path: Path) -> None:
    """If false, every poll would count old progress as new, and a hang would never be seen."""
    log = tmp_path / "log"
    append(log, b"one\n")
    tail = Tail(log)

    assert read(tail) == b"one\n"
    assert read(tail) == b""
    append(log, b"two\nthr")
    assert read(tail) == b"two\nthr"
    append(log, b"ee\n")
    assert read(tail) == b"ee\n"


def test_a_file_that_does_not_exist_yet_is_read_from_its_first_byte(tmp_path: Path) -> None:
    """If false, an engine that starts after the agent would be followed without its start-up lines."""
    log = tmp_path / "log"
    tail = Tail(log)

    assert read(tail) == b""
    assert "No such file" in tail.why
    append(log, b"first\n")
    assert read(tail) == b"first\n"
    assert tail.why == ""


def test_a_long_history_begins_with_a_whole_line(tmp_path: Path) -> None:
    """If false, half a line of the past would be parsed as a line of its own."""
    log = tmp_path / "log"
    append(log, b"a line that is cut\nwhole\nlast\n")

    assert read(Tail(log, history_bytes=15)) == b"whole\nlast\n"
    assert read(Tail(log, history_bytes=11)) == b"whole\nlast\n"


def test_a_renamed_log_is_read_to_its_end_before_the_new_one(tmp_path: Path) -> None:
    """If false, rotation would lose the last lines before it, which are the ones before the hang."""
    log = tmp_path / "log"
    append(log, b"one\n")
    tail = followed(log)
    append(log, b"two\n")
    log.rename(tmp_path / "log.1")
    append(log, b"three\n")

    assert read(tail) == b"two\nthree\n"
    assert tail.rotations == 1


def test_a_writer_that_goes_on_in_the_renamed_file_is_still_read(tmp_path: Path) -> None:
    """If false, an engine that reopens its log late would look frozen from the rename on."""
    log = tmp_path / "log"
    append(log, b"one\n")
    tail = followed(log)
    log.rename(tmp_path / "log.1")
    append(log, b"new\n")
    read(tail)

    append(tmp_path / "log.1", b"late\n")

    assert read(tail) == b"late\n"


def test_a_renamed_file_is_let_go_after_a_while(tmp_path: Path) -> None:
    """If false, every rotation would keep a deleted file's blocks on the disk."""
    log = tmp_path / "log"
    append(log, b"one\n")
    tail = followed(log)
    log.unlink()
    append(log, b"new\n")
    before = open_files()

    for _ in range(LINGER_READS + 1):
        read(tail)

    assert open_files() == before


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_no_descriptor_is_kept_after_close(tmp_path: Path) -> None:
    """If false, an agent that outlives many engines would run out of descriptors."""
    log = tmp_path / "log"
    append(log, b"one\n")
    before = open_files()
    tail = followed(log)
    log.unlink()
    append(log, b"new\n")
    read(tail)

    tail.close()

    assert open_files() == before


def test_a_truncated_log_is_read_from_its_new_start(tmp_path: Path) -> None:
    """If false, `copytruncate` would blind the agent until the file has grown to its old size."""
    log = tmp_path / "log"
    append(log, b"one\ntwo\n")
    tail = followed(log)
    os.truncate(log, 0)
    append(log, b"new\n")

    assert read(tail) == b"new\n"
    assert tail.rotations == 1


def test_a_truncated_log_that_grew_beyond_its_old_size_is_read_from_its_start(tmp_path: Path) -> None:
    """If false, a fast writer would hide its truncation, and the lines up to the old size would be lost unseen."""
    log = tmp_path / "log"
    append(log, b"one\n")
    tail = followed(log)
    os.truncate(log, 0)
    append(log, b"two\nthree\nfour\n")

    assert read(tail) == b"two\nthree\nfour\n"


def test_the_hole_that_a_truncation_leaves_is_not_read(tmp_path: Path) -> None:
    """If false, a writer that keeps its offset would feed the parsers gigabytes of zeros."""
    log = tmp_path / "log"
    with log.open("wb", buffering=0) as writer:
        writer.write(b"x" * (16 << 20) + b"\n")
        tail = followed(log)
        os.truncate(log, 0)
        assert read(tail) == b""
        writer.write(b"after\n")

        assert read(tail) == b"after\n"
    assert tail.lost_bytes == 0


def test_a_line_that_a_rotation_cuts_is_not_glued_to_the_next_file(tmp_path: Path) -> None:
    """If false, two half lines would make one that nobody wrote."""
    log = tmp_path / "log"
    append(log, b"one\nhalf a li")
    tail = followed(log)
    log.rename(tmp_path / "log.1")
    append(log, b"new\n")

    assert read(tail) == b"\nnew\n"


def test_a_flood_is_skipped_to_the_next_whole_line_and_counted(tmp_path: Path) -> None:
    """If false, a log storm would either eat the agent's memory or vanish without a trace."""
    log = tmp_path / "log"
    append(log, b"start\n")
    tail = followed(log, backlog_bytes=1000)
    lines = [b"line %04d\n" % number for number in range(1000)]
    append(log, b"".join(lines))

    got = read(tail)

    assert got == b"".join(lines[-100:])
    assert tail.lost_bytes == 10 * 900


def test_an_unreadable_log_says_so_and_is_read_once_it_can_be(tmp_path: Path) -> None:
    """If false, a wrong permission would look like a silent engine."""
    folder = tmp_path / "closed"
    folder.write_bytes(b"a file where a folder should be")
    tail = Tail(folder / "log")

    assert read(tail) == b""
    assert "Not a directory" in tail.why
    folder.unlink()
    folder.mkdir()
    append(folder / "log", b"open\n")
    assert read(tail) == b"open\n"
