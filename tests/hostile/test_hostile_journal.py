"""A journal from a stranger: records that are whole by their checksum and meant to do harm."""

import resource
import subprocess
import sys
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sentinel.model.event import Tick
from sentinel.model.stamp import Stamp
from sentinel.record.journal import Entry, Journal, entries, segments


def whole(body: bytes) -> bytes:
    """A record with the right checksum."""
    return b"%08x %s\n" % (crc32(body), body)


GOOD = b'{"n":7,"e":{"event":"tick","at":{"mono_ns":1,"wall_ns":2,"boot_id":"b"}}}'


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 500_000, b'{"n":' * 200_000, b'{"n":1,"e":' + b"[" * 100_000, b"\xff\xfe\x00", b"", b"{}",
        b'{"n":"x"}', b'{"n":1e400}',
        b'{"n":1,"e":{"event":"__import__"}}', b'{"n":1,"e":{"event":"observed","engine":null,"seen":{"kind":"x"}}}',
    ],
    ids=lambda body: body[:24].decode(errors="replace"),
)  # fmt: skip
def test_a_bomb_between_records_is_left_out(tmp_path: Path, body: bytes) -> None:
    """If false, one crafted record in a bundle ends the replay, or the tool, of whoever looks at it."""
    path = tmp_path / "journal-00000000.log"
    path.write_bytes(whole(body) + whole(GOOD) + whole(body))

    assert [entry.n for entry in entries(path)] == [7]


def test_a_line_without_end_is_not_held_in_memory(tmp_path: Path) -> None:
    """If false, a file of one line takes all the memory of the host that reads it."""
    path = tmp_path / "journal-00000000.log"
    with path.open("wb") as file:
        file.truncate(600 << 20)
        file.seek(0, 2)
        file.write(b"\n" + whole(GOOD))
    code = "import sys, pathlib, sentinel.record.journal as j; print(len(list(j.entries(pathlib.Path(sys.argv[1])))))"

    def little_memory() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (300 << 20, 300 << 20))

    ran = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False, preexec_fn=little_memory
    )

    assert (ran.returncode, ran.stdout) == (0, "1\n"), ran.stderr


@given(st.lists(st.one_of(st.binary(max_size=200), st.binary(max_size=60).map(whole)), max_size=8))
@settings(max_examples=40, deadline=None)
def test_no_bytes_keep_a_journal_from_being_read_or_continued(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes]
) -> None:
    """If false, damage in the middle keeps the agent from starting after it."""
    folder = tmp_path_factory.mktemp("journal")
    (folder / "journal-00000000.log").write_bytes(whole(GOOD) + b"".join(parts))
    before = [entry.n for entry in entries(folder)]
    journal = Journal(folder).open()
    journal.event(Tick(at=Stamp(mono_ns=1, wall_ns=2, boot_id="b")))
    journal.close()
    after = list(entries(folder))

    assert before[0] == 7 and isinstance(after[-1], Entry) and after[-1].n == 8
    assert len(after) == len(before) + 1 and len(segments(folder)) == 1
