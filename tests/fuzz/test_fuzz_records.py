"""Damaged bundles and journals: what is sound in them is read, the rest is named, nothing is written outside."""

import io
import stat
import tarfile
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from zlib import crc32

import msgspec
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from sentinel.model.effect import Judged, StartCapture, Suspected
from sentinel.model.event import Observed, Tick
from sentinel.model.observation import Origin, Pressure
from sentinel.model.stamp import Stamp
from sentinel.record.bundle import Order, create
from sentinel.record.journal import Entry, Journal, entries
from sentinel.record.reader import Bundle, UnusableBundle
from tests.fuzz import messages
from tests.fuzz.fuzzing import PIECES, bounded, damaged, examples
from tests.record.bundle_making import KEY, incident

KINDS = (
    tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE,
    tarfile.DIRTYPE, tarfile.FIFOTYPE, tarfile.CONTTYPE, tarfile.GNUTYPE_SPARSE, b"Z",
)  # fmt: skip
NAMES = (
    "../../outside", "/tmp/outside", "evidence/../../outside", "C:\\outside", "evidence/engine.log", "manifest.json",
    "SHA256SUMS", "a/" * 60 + "deep", "x" * 300, "evidence", "evidence/engine.log/below", ".", "..", "\x1b[2Jname",
    "é\udcff",
    "nul\0name",
)  # fmt: skip


@cache
def sound() -> bytes:
    """A real bundle."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        create(incident(root), root / "sound.tar.zst", Order(key=KEY))
        return (root / "sound.tar.zst").read_bytes()


@cache
def opened() -> bytes:
    """The archive inside it."""
    return zstandard.ZstdDecompressor().decompressobj().decompress(sound())


def packed(archive: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=1).compress(archive)


def survives(data: bytes) -> None:
    """Open, check, list, read, and export a bundle of these bytes; look at what that left on the disk."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name) / "a" / "b"
        root.mkdir(parents=True)
        (root / "some.tar.zst").write_bytes(data)
        with bounded():
            try:
                with Bundle(root / "some.tar.zst") as bundle:
                    assert all(isinstance(problem, str) for problem in bundle.problems())
                    for member in bundle.names[:5]:
                        list(bundle.lines(member))
                    exported(bundle, root / "out")
            except UnusableBundle as why:
                assert str(why)
        found = [path for path in Path(name).rglob("*") if not path.is_relative_to(root / "out")]
        assert {path.name for path in found} <= {"a", "b", "some.tar.zst"}
        assert not Path("/tmp/outside").exists()
        assert all(stat.S_ISREG(path.lstat().st_mode) or stat.S_ISDIR(path.lstat().st_mode) for path in found_in(root))


def exported(bundle: Bundle, target: Path) -> None:
    """Export; names that cannot stand beside each other on a disk are an error of the system, in its words."""
    try:
        bundle.export(target)
    except OSError as error:
        assert error.strerror


def found_in(root: Path) -> Iterator[Path]:
    return (root / "out").rglob("*") if (root / "out").exists() else iter(())


@given(st.data())
@examples(60)
def test_a_bundle_damaged_in_its_packed_bytes_is_refused_or_named(data: st.DataObject) -> None:
    """False: half a download, or a flipped bit, is a traceback instead of a word on what is missing."""
    survives(data.draw(damaged((sound(),))))


@given(st.data())
@examples(60)
def test_a_bundle_damaged_in_its_archive_is_refused_or_named(data: st.DataObject) -> None:
    """False: a header with an absurd size or a name of bytes ends the tool of whoever opens the bundle."""
    survives(packed(data.draw(damaged((opened(),), most=6))))


HEADERS = st.builds(
    lambda name, kind, size, link: (name, kind, size, link),
    st.sampled_from(NAMES) | st.text(min_size=1, max_size=12),
    st.sampled_from(KINDS),
    st.sampled_from((0, 1, 512, 1 << 33, (1 << 63) - 1)),
    st.sampled_from(("", "/etc/passwd", "../../outside", "evidence/engine.log")),
)


def member(name: str, kind: bytes, size: int, link: str, body: bytes) -> bytes:
    """A member as it stands in an archive, whose header says of its size what it likes."""
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = kind, size, link
    head = info.tobuf(format=tarfile.GNU_FORMAT, errors="surrogateescape")
    return head + body + bytes(-len(body) % 512)


@given(st.lists(st.tuples(HEADERS, st.binary(max_size=600)), max_size=4), st.booleans())
@examples(100)
def test_members_of_any_kind_name_and_size_write_nothing_outside(
    added: list[tuple[tuple[str, bytes, int, str], bytes]], first: bool
) -> None:
    """False: opening a stranger's bundle makes a link, a device or a file somewhere on this host."""
    whole = opened().rstrip(b"\0")
    whole += bytes(-len(whole) % 512)
    extra = b"".join(member(*header, body) for header, body in added)
    survives(packed((extra + whole if first else whole + extra) + bytes(1024)))


@given(st.integers(1, 6), st.binary(min_size=1, max_size=64), st.booleans())
@examples(15)
def test_bombs_of_any_filling_are_not_expanded(layers: int, filling: bytes, nested: bool) -> None:
    """False: looking at a bundle of a few KiB takes the memory or the disk of the host."""
    body = filling * ((8 << 20) // len(filling)) if nested else filling
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        info = tarfile.TarInfo("evidence/bomb.tar.zst")
        for _ in range(layers if nested else 0):
            body = packed(body)
        info.size = len(body)
        tar.addfile(info, io.BytesIO(body))
    survives(packed(data.getvalue() + opened() + (bytes(64 << 20) if not nested else b"")))


# --- journal ----------------------------------------------------------------------------------------------------

EVENTS = (Tick(at=messages.AT), Observed(at=messages.AT, engine="e", seen=Pressure(origin=Origin("x"), resource="io")))
EFFECTS = (
    Suspected(engine="e", incident="i", silence_s=9.0, limit_s=8.0, why="silence"),
    StartCapture(engine="e", incident="i", budget_s=20.0, why="60 s of silence"),
    Judged(engine="e", incident="i", verdict=messages.VERDICT),
)


@cache
def segment() -> bytes:
    """A real segment of a journal."""
    with tempfile.TemporaryDirectory() as name:
        journal = Journal(Path(name)).open()
        for event in EVENTS:
            journal.event(event)
        for effect in EFFECTS:
            journal.outcome(journal.effect(effect), "done")
        journal.close()
        return next(Path(name).glob("journal-*.log")).read_bytes()


def bodies() -> tuple[bytes, ...]:
    return tuple(line[9:] for line in segment().splitlines())


def whole(body: bytes) -> bytes:
    """A record with the right checksum."""
    return b"%08x %s\n" % (crc32(body), body)


def goes_on(data: bytes) -> list[Entry]:
    """Read a journal of these bytes, and continue it."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "journal-00000000.log"
        path.write_bytes(data)
        with bounded():
            before = list(entries(path))
            journal = Journal(Path(name)).open()
            journal.event(Tick(at=Stamp(mono_ns=1, wall_ns=2, boot_id="last")))
            journal.close()
            after = list(entries(Path(name)))
    assert after[:-1] == before and isinstance(after[-1].e, Tick) and after[-1].e.at.boot_id == "last"
    return before


@given(st.data())
@examples(60)
def test_a_damaged_journal_gives_only_records_that_were_written(data: st.DataObject) -> None:
    """False: a replay judges a history that did not happen, or an agent cannot start after a crash."""
    written = set(bodies())
    read = goes_on(data.draw(damaged((segment(),), most=6)))

    assert all(msgspec.json.encode(entry) in written for entry in read)


@given(st.data())
@examples(60)
def test_records_that_are_forged_with_a_right_checksum_do_no_harm(data: st.DataObject) -> None:
    """False: a journal inside a stranger's bundle ends the replay with a traceback."""
    forged = data.draw(st.lists(damaged(bodies()), max_size=6))
    for entry in goes_on(b"".join(whole(body.replace(b"\n", b" ")) for body in forged)):
        assert msgspec.json.decode(msgspec.json.encode(entry), type=Entry) == entry


@pytest.mark.parametrize("piece", PIECES, ids=repr)
def test_a_position_that_is_none_leaves_the_next_record_a_place(piece: bytes) -> None:
    """False: after a record of an absurd number the journal of the host cannot be continued."""
    if b"\n" not in piece:
        goes_on(whole(b'{"n":%s,"e":{"event":"tick","at":{"mono_ns":1,"wall_ns":2}}}' % piece))
