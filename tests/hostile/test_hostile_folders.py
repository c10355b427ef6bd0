"""Folders of strangers and of machines in trouble: nothing hangs, nothing escapes, what remains is read."""

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from sentinel.collector import Blob, Context, DocumentParser
from sentinel.evidence.limits import LISTED_PER_REASON, Limits, Skips, printable
from sentinel.evidence.load import load
from sentinel.evidence.tree import Tree
from sentinel.model.observation import Notice, Observation, Origin
from tests.hostile.evidence_cases import ENGINE, MIB, good, load_limited, why


def test_fifos_sockets_and_devices_are_named_and_never_opened(folder: Path) -> None:
    """Else an analysis would wait for ever on a pipe that nobody writes to."""
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "socket"))
        devices = []
        try:
            os.mknod(folder / "zero", stat.S_IFCHR | 0o666, os.makedev(1, 5))
            devices = ["zero"]
        except PermissionError:
            pass  # only root may make a device
        loaded = load(folder)
    assert good(loaded)
    assert "FIFO" in why(loaded, "pipe") and "socket" in why(loaded, "socket")
    assert all("device" in why(loaded, name) for name in devices)


def test_a_fifo_that_takes_the_place_of_a_file_does_not_hang(folder: Path) -> None:
    """Else a file swapped between listing and opening would stop the analysis for ever."""
    skips = Skips()
    (folder / "swapped").write_text(ENGINE)
    with Tree(folder, Limits(), skips) as tree:
        documents = tree.documents()
        next(documents)
        (folder / "swapped").unlink()
        os.mkfifo(folder / "swapped")
        assert list(documents) == []
    assert [skip.file for skip in skips.result()] == ["swapped"]


def test_links_are_not_followed_in_or_out_of_the_folder(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Else evidence from a stranger could make the report quote any file of this machine."""
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret.log").write_text(ENGINE)
    (folder / "file").symlink_to(outside / "secret.log")
    (folder / "folder").symlink_to(outside)
    (folder / "self").symlink_to(folder)
    (folder / "dangling").symlink_to("/nowhere/at/all")
    loaded = load(folder)
    assert good(loaded) and loaded.read_files == 1
    assert all("link" in why(loaded, name) for name in ("file", "folder", "self", "dangling"))


def test_a_folder_replaced_by_a_link_while_it_is_read_leads_nowhere(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Else a race would let a stranger's folder lead out of itself."""
    outside = tmp_path_factory.mktemp("outside")
    (outside / "a.log").write_text(ENGINE)
    (folder / "sub").mkdir()
    (folder / "sub" / "a.log").write_text(ENGINE)
    skips = Skips()
    with Tree(folder, Limits(), skips) as tree:
        found = {document.name: document for document in tree.documents()}
        (folder / "sub").rename(folder / "gone")
        (folder / "sub").symlink_to(outside)
        with pytest.raises(Exception, match=r"director|link"):
            list(found["sub/a.log"].source.chunks(lambda reason: None))


def test_more_than_the_allowed_number_of_files_ends_with_one_message(folder: Path) -> None:
    """Else a folder with millions of files would keep the person on call waiting."""
    for n in range(30):
        (folder / f"z{n:02d}").write_text("")
    loaded = load(folder, limits=Limits(files=10))
    assert good(loaded)
    assert "more than 10 files" in why(loaded, ".")


def test_100_000_tiny_files_are_summed_up(folder: Path) -> None:
    """Else the list of skipped files would bury the verdict, and memory would grow with their number."""
    for n in range(100_000):
        os.close(os.open(folder / f"f{n:06d}", os.O_CREAT | os.O_WRONLY))
    for n in range(0, 100_000, 50):
        (folder / f"f{n:06d}").write_text("x\n")
    grown_kib, observations, skipped = load_limited(folder)
    assert observations >= 6 and grown_kib < 150 << 10
    assert len(skipped) <= 3 * LISTED_PER_REASON
    assert any(file.endswith("more files") and reason == "empty" for file, reason in skipped.items())
    assert any("more than 100,000 files" in reason for reason in skipped.values())


def test_folders_inside_each_other_without_end_are_left(folder: Path) -> None:
    """Else a very deep tree would exhaust the stack or the file descriptors."""
    deep = folder
    for _ in range(60):
        deep = deep / "d"
        deep.mkdir()
    (deep / "x.log").write_text(ENGINE)
    loaded = load(folder)
    assert good(loaded) and any("nested more than" in skip.why for skip in loaded.skipped)


@contextmanager
def unprivileged(folder: Path) -> Iterator[None]:
    """Runs as nobody when started by root, whom no permission stops."""
    if os.geteuid() != 0:
        yield
        return
    folder.chmod(0o755)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_unreadable_files_and_folders_are_named() -> None:
    """Else a permission problem would look like missing evidence."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "engine.log").write_text(ENGINE)
        (folder / "locked.log").write_text(ENGINE)
        (folder / "locked.log").chmod(0)
        (folder / "locked").mkdir(mode=0)
        with unprivileged(folder):
            loaded = load(folder)
    assert good(loaded)
    assert "permission denied" in why(loaded, "locked.log") and "permission denied" in why(loaded, "locked")


def test_a_file_that_vanishes_after_the_first_look_is_named(folder: Path) -> None:
    """Else log rotation during the analysis would end it."""

    def remove(blob: Blob, context: Context) -> Iterator[Observation]:
        (folder / "victim").unlink()
        yield from ()

    def read(blob: Blob, context: Context) -> Iterator[Observation]:
        yield Notice(origin=Origin(context.name, 1), engine="x", notice="other", text=blob.text())

    parsers = (
        DocumentParser(name="remover", recognise=lambda sample: sample.head.startswith("remover"), parse=remove),
        DocumentParser(name="reader", recognise=lambda sample: sample.head.startswith("victim"), parse=read),
    )
    (folder / "a").write_text("remover of another file\n")
    (folder / "victim").write_text("victim of another file\n")
    loaded = load(folder, parsers=parsers)
    assert "no such file" in why(loaded, "victim")


def test_a_file_that_shrinks_or_grows_while_it_is_read(folder: Path) -> None:
    """Else truncation by a rotating logger would give an exception, and a growing file would never end."""
    line = "victim line of text\n"
    size = 4 * MIB

    def cut(blob: Blob, context: Context) -> Iterator[Observation]:
        count = 0
        for number, _ in enumerate(blob.lines()):
            count += 1
            if number == 0:
                with (folder / "shrinks").open("r+b") as file:
                    file.truncate(1000)
        yield Notice(origin=Origin(context.name, 1), engine="x", notice="other", text=str(count))

    def grow(blob: Blob, context: Context) -> Iterator[Observation]:
        count = 0
        with (folder / "grows").open("ab") as file:
            for _ in blob.lines():
                count += 1
                file.write(b"x" * 100)
        yield Notice(origin=Origin(context.name, 1), engine="x", notice="other", text=str(count))

    parsers = (
        DocumentParser(name="cutter", recognise=lambda sample: sample.head.startswith("victim"), parse=cut),
        DocumentParser(name="grower", recognise=lambda sample: sample.head.startswith("growing"), parse=grow),
    )
    (folder / "shrinks").write_text(line * (size // len(line)))
    (folder / "grows").write_text("growing line\n" * 10_000)
    loaded = load(folder, parsers=parsers)
    counts = {seen.origin.file: int(seen.text) for seen in loaded.observations if isinstance(seen, Notice)}
    assert counts["grows"] == 10_000 and 0 < counts["shrinks"] < size // len(line)
    assert "shrank while it was read" in why(loaded, "shrinks")


def test_names_with_escapes_or_broken_encoding_are_shown_escaped(folder: Path) -> None:
    """Else a file name could draw on the terminal of the person who reads the report."""
    name = b"bad\x1b]0;owned\x07\xff\n.log"
    (folder / os.fsdecode(name)).write_text(ENGINE)
    (folder / "e\x1b[31m").write_text("")
    loaded = load(folder)
    names = {seen.origin.file for seen in loaded.observations} | {skip.file for skip in loaded.skipped}
    assert names == {"engine.log", "bad\\x1b]0;owned\\x07\\xff\\x0a.log", "e\\x1b[31m"}
    assert all(one.isprintable() for one in names) and printable("plain name.log") == "plain name.log"
