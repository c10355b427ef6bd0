"""Bundles from strangers: every trick of an archive ends in words, never in a file outside or a crash."""

import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from sentinel.record.bundle import Order, create
from sentinel.record.manifest import decode, encode, sums_of
from sentinel.record.reader import Bundle, UnusableBundle
from tests.record.bundle_making import KEY, incident

Change = Callable[[dict[str, bytes]], list[tuple[tarfile.TarInfo, bytes]]]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound bundle."""
    root = tmp_path_factory.mktemp("sound")
    create(incident(root), root / "sound.tar.zst", Order(key=KEY))
    return root / "sound.tar.zst"


def members(bundle: Path) -> dict[str, bytes]:
    with (
        bundle.open("rb") as raw,
        zstandard.ZstdDecompressor().stream_reader(raw) as stream,
        tarfile.open(fileobj=stream, mode="r|") as tar,
    ):
        return {member.name: file.read() for member in tar if (file := tar.extractfile(member)) is not None}


def plain(name: str, data: bytes) -> tuple[tarfile.TarInfo, bytes]:
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    return entry, data


def link(name: str, target: str, kind: bytes) -> tuple[tarfile.TarInfo, bytes]:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, target
    return entry, b""


def packed(target: Path, entries: list[tuple[tarfile.TarInfo, bytes]]) -> Path:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for entry, data in entries:
            tar.addfile(entry, io.BytesIO(data))
    target.write_bytes(zstandard.ZstdCompressor().compress(buffer.getvalue()))
    return target


def problems(path: Path) -> str:
    with Bundle(path) as bundle:
        return "\n".join(bundle.problems())


def test_a_sound_bundle_has_no_problems(sound: Path, tmp_path: Path) -> None:
    """False: every bundle fails, and nobody looks at the reasons any more."""
    again = packed(tmp_path / "again.tar.zst", [plain(*member) for member in members(sound).items()])

    assert problems(sound) == "" and problems(again) == ""


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (plain("../../outside.txt", b"x"), "leads out of it"),
        (plain("/tmp/outside.txt", b"x"), "absolute name"),
        (link("evidence/link", "/etc/passwd", tarfile.SYMTYPE), "link inside an archive"),
        (link("evidence/hard", "../../etc/passwd", tarfile.LNKTYPE), "link inside an archive"),
        (link("evidence/fifo", "", tarfile.FIFOTYPE), "device or pipe"),
        (plain("evidence/extra.log", b"not listed\n"), "not listed"),
        (plain("evidence/engine.log", b"[2026-11-29 10:00:00 TP0] another\n"), "more than once"),
    ],
    ids=["traversal", "absolute", "symlink", "hardlink", "fifo", "extra", "duplicate"],
)
def test_a_member_that_does_not_belong_is_named(
    sound: Path, tmp_path: Path, entry: tuple[tarfile.TarInfo, bytes], words: str
) -> None:
    """False: opening a bundle writes or reads a file of this machine, or shows another file than was signed for."""
    hostile = packed(tmp_path / "hostile.tar.zst", [*(plain(*member) for member in members(sound).items()), entry])

    assert words in problems(hostile)
    with Bundle(hostile) as bundle:
        bundle.export(tmp_path / "out")
    written = [path for path in tmp_path.rglob("*") if path.name in ("outside.txt", "link", "hard", "fifo")]
    assert written == [] and not Path("/tmp/outside.txt").exists()


def test_changed_bytes_fail_their_checksum(sound: Path, tmp_path: Path) -> None:
    """False: evidence is edited on its way and the edit becomes the truth."""
    content = members(sound)
    content["evidence/engine.log"] = content["evidence/engine.log"].replace(b"4 ", b"9 ", 1)
    forged = packed(tmp_path / "forged.tar.zst", [plain(*member) for member in content.items()])

    assert "evidence/engine.log: its checksum" in problems(forged)


def test_a_forged_manifest_disagrees_with_the_checksums(sound: Path, tmp_path: Path) -> None:
    """False: the verdict in the manifest is rewritten and everything still verifies."""
    content = members(sound)
    content["manifest.json"] = content["manifest.json"].replace(b'"unknown"', b'"none"', 1)
    forged = packed(tmp_path / "forged.tar.zst", [plain(*member) for member in content.items()])

    assert "SHA256SUMS: does not agree" in problems(forged)


def test_a_missing_file_and_a_missing_rule_are_named(sound: Path, tmp_path: Path) -> None:
    """False: a bundle without its evidence, or one that skipped a rule of redaction, passes for whole."""
    content = members(sound)
    found = decode(content["manifest.json"])
    data = encode(found).replace(b'"pem": 0', b'"pen": 0')
    content |= {"manifest.json": data, "SHA256SUMS": sums_of(data, found.files)}
    del content["evidence/engine.log"]
    said = problems(packed(tmp_path / "short.tar.zst", [plain(*member) for member in content.items()]))

    assert "evidence/engine.log: listed, but not in the archive" in said
    assert "these redaction rules did not run: pem" in said


def test_a_cut_bundle_is_named_as_such(sound: Path, tmp_path: Path) -> None:
    """False: half a download looks like an incident with little evidence."""
    content = members(sound)
    first = {"manifest.json": content.pop("manifest.json"), **content}
    whole = packed(tmp_path / "whole.tar.zst", [plain(*member) for member in first.items()])
    data = zstandard.ZstdDecompressor().decompressobj().decompress(whole.read_bytes())
    cut = tmp_path / "cut.tar.zst"
    cut.write_bytes(zstandard.ZstdCompressor().compress(data[: data.rindex(b"decode lines are overdue")]))
    half = tmp_path / "half.tar.zst"
    half.write_bytes(sound.read_bytes()[: sound.stat().st_size // 2])

    assert "not in the archive" in problems(cut) and "archive" in problems(cut)
    with pytest.raises(UnusableBundle, match=r"cut|truncated"):
        Bundle(half)


def test_a_bomb_is_not_expanded(sound: Path, tmp_path: Path) -> None:
    """False: looking at a bundle of 100 KiB fills the disk."""
    bomb = tmp_path / "bomb.tar.zst"
    entry = tarfile.TarInfo("evidence/zeros")
    entry.size = 700 << 20
    with (
        bomb.open("wb") as file,
        zstandard.ZstdCompressor().stream_writer(file) as out,
        tarfile.open(fileobj=out, mode="w|") as tar,
        Path("/dev/zero").open("rb") as zeros,
    ):
        for name, data in members(sound).items():
            tar.addfile(plain(name, data)[0], io.BytesIO(data))
        tar.addfile(entry, zeros)

    assert "bomb" in problems(bomb)


@pytest.mark.parametrize(
    "data",
    [b"", b"plain text\n", zstandard.ZstdCompressor().compress(b"no archive\n"), b"\x28\xb5\x2f\xfd broken"],
    ids=["empty", "text", "no archive", "broken"],
)
def test_what_is_no_bundle_is_refused_in_words(tmp_path: Path, data: bytes) -> None:
    """False: the tool crashes on the wrong file, or calls it sound."""
    path = tmp_path / "some.tar.zst"
    path.write_bytes(data)

    with pytest.raises(UnusableBundle, match="no bundle"):
        Bundle(path)


@pytest.mark.parametrize("manifest", [b"{}", b"[" * 100_000, b'{"schema": "sentinel.bundle/9"}', b"\xff\xfe"])
def test_a_manifest_of_another_form_is_refused_in_words(sound: Path, tmp_path: Path, manifest: bytes) -> None:
    """False: a later version's bundle, or a hostile one, is half understood."""
    content = members(sound) | {"manifest.json": manifest}
    with pytest.raises(UnusableBundle, match=r"manifest\.json cannot be read|holds no"):
        Bundle(packed(tmp_path / "odd.tar.zst", [plain(*member) for member in content.items()]))


def test_export_never_writes_into_something_that_exists(sound: Path, tmp_path: Path) -> None:
    """False: exporting a bundle overwrites the evidence of another incident."""
    (tmp_path / "there").mkdir()
    with Bundle(sound) as bundle, pytest.raises(FileExistsError):
        bundle.export(tmp_path / "there")
