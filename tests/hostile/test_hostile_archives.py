"""Archives of strangers: nothing is unpacked to a path, fills memory or disk, or hides what was readable."""

import gzip
import tarfile
from pathlib import Path

import pytest
import zstandard

from sentinel.evidence.limits import Limits
from sentinel.evidence.load import load
from sentinel.model.observation import Decode
from tests.hostile.evidence_cases import ENGINE, MIB, decode, good, load_limited, member, tar_with, why


@pytest.mark.parametrize("form", ["gzip", "zstd", "tar.gz", "tar.zst"])
def test_decompression_bombs_are_stopped_early(folder: Path, form: str) -> None:
    """Else a few hundred kilobytes would fill the memory or the disk of the machine that analyses."""
    info = tarfile.TarInfo("bomb")
    info.size = 3 << 30
    head, zeros = (info.tobuf() if "tar" in form else b""), b"\0" * (64 * MIB)
    pack = zstandard.ZstdCompressor().compress if "z" in form and "g" not in form else gzip.compress
    (folder / "bomb").write_bytes(pack(head + zeros) + pack(zeros) * 47)
    grown_kib, observations, skipped = load_limited(folder)
    assert observations >= 6 and grown_kib < 300 << 10
    assert "decompression bomb" in skipped["bomb"]


def test_a_bomb_of_repeated_log_lines_gives_its_start(folder: Path) -> None:
    """Else everything in a suspicious archive would be lost, or its lines would fill memory."""
    text = decode(1).encode() + b"y" * (400 * MIB)
    (folder / "bomb.zst").write_bytes(zstandard.ZstdCompressor().compress(text))
    grown_kib, observations, skipped = load_limited(folder)
    assert observations == 7 and grown_kib < 200 << 10 and "decompression bomb" in skipped["bomb.zst"]


def test_absolute_size_is_limited_however_good_the_ratio(folder: Path) -> None:
    """Else a large honest archive would fill the disk."""
    (folder / "big.gz").write_bytes(gzip.compress("".join(decode(n) for n in range(30_000)).encode()))
    loaded = load(folder, limits=Limits(expanded_bytes=MIB))
    assert good(loaded) and "expands to more than 1 MiB" in why(loaded, "big.gz")
    assert sum(seen.origin.file == "big.gz" for seen in loaded.observations) > 1000


@pytest.mark.parametrize("form", ["gz", "zst", "tar.gz", "tar"])
def test_truncated_archives_give_what_was_readable(folder: Path, form: str) -> None:
    """Else a copy that broke off would hide all of the evidence in it."""
    text = "".join(decode(n * 7919 % 100_000) for n in range(5000)).encode()
    raw = tar_with(member("log"), data=text) if "tar" in form else text
    if form.endswith("gz"):
        raw = gzip.compress(raw)
    elif form == "zst":
        raw = zstandard.ZstdCompressor(write_content_size=False).compress(raw)
    (folder / "cut").write_bytes(raw[: len(raw) * 2 // 3])
    loaded = load(folder)
    reasons = "; ".join(skip.why for skip in loaded.skipped if skip.file.startswith("cut"))
    assert good(loaded) and ("truncated" in reasons or "ends inside" in reasons)
    assert sum(isinstance(seen, Decode) for seen in loaded.observations) > 1000


@pytest.mark.parametrize("damage", ["flip", "garbage after magic"])
@pytest.mark.parametrize("form", ["gz", "zst", "tar"])
def test_damaged_archives_are_named(folder: Path, form: str, damage: str) -> None:
    """Else one bad block would end the analysis with a traceback."""
    text = "".join(decode(n * 7919 % 100_000) for n in range(5000)).encode()
    packed = {"gz": gzip.compress(text), "zst": zstandard.ZstdCompressor().compress(text)}
    raw = bytearray(packed.get(form) or tar_with(member("a"), member("b"), data=text))
    if damage == "flip":
        at = len(raw) // 2 if form != "tar" else 512 + len(text) + (-len(text)) % 512 + 100
        for n in range(40):
            raw[at + n] ^= 0xA5
    else:
        keep = 265 if form == "tar" else 4
        raw[keep:] = bytes(n * 37 % 256 for n in range(2000))
    (folder / "damaged").write_bytes(bytes(raw))
    loaded = load(folder)
    assert good(loaded) and any(skip.file.startswith("damaged") for skip in loaded.skipped)


def test_members_that_lead_out_links_and_devices_are_refused(folder: Path) -> None:
    """Else unpacking a bundle could read or write outside of it."""
    archive = tar_with(
        member("../../etc/escape.log"), member("/abs.log"), member("a/../../b.log"), member("C:\\abs.log"),
        member("sym", tarfile.SYMTYPE, "/etc/passwd"), member("hard", tarfile.LNKTYPE, "../x"),
        member("chr", tarfile.CHRTYPE), member("blk", tarfile.BLKTYPE), member("fifo", tarfile.FIFOTYPE),
        member("fine/..log"), data=ENGINE.encode(),
    )  # fmt: skip
    (folder / "t.tar").write_bytes(archive)
    loaded = load(folder)
    files = {seen.origin.file for seen in loaded.observations}
    assert files == {"engine.log", "t.tar!fine/..log"} and len(loaded.skipped) == 9
    for name, reason in {
        "../../etc/escape.log": "leads out", "/abs.log": "absolute", "a/../../b.log": "leads out",
        "C:\\abs.log": "absolute", "sym": "link", "hard": "link", "chr": "device", "blk": "device",
        "fifo": "device or pipe",
    }.items():  # fmt: skip
        assert reason in why(loaded, f"t.tar!{name}")


def test_archives_inside_each_other_are_opened_two_deep(folder: Path) -> None:
    """Else an archive that contains itself would be unpacked for ever."""
    inner = tar_with(member("log"), data=ENGINE.encode())
    two = tar_with(member("two.tar"), data=inner)
    three = tar_with(member("three.tar"), data=two)
    (folder / "two.tar").write_bytes(two)
    (folder / "three.tar").write_bytes(three)
    (folder / "twice.gz").write_bytes(gzip.compress(gzip.compress(ENGINE.encode())))
    (folder / "thrice.gz").write_bytes(gzip.compress(gzip.compress(gzip.compress(ENGINE.encode()))))
    loaded = load(folder)
    files = {seen.origin.file for seen in loaded.observations}
    assert files == {"engine.log", "two.tar!two.tar!log", "twice.gz"}
    assert "more than 2 deep" in why(loaded, "three.tar!three.tar!two.tar") and "2 deep" in why(loaded, "thrice.gz")


def test_a_header_that_claims_gigabytes_does_not_fill_memory(folder: Path) -> None:
    """Else one long-name or extended header could allocate all memory."""
    for kind in (tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.XGLTYPE):
        info = tarfile.TarInfo("big")
        info.type, info.size = kind, 2 << 30
        with (folder / f"header-{kind.decode()}.tar").open("wb") as file:
            file.write(info.tobuf(format=tarfile.GNU_FORMAT))
            file.truncate((2 << 30) + 4096)
    grown_kib, observations, skipped = load_limited(folder, 500 * MIB)
    assert observations >= 6 and grown_kib < 100 << 10
    assert sum("archive" in reason for reason in skipped.values()) == 3


def test_an_archive_of_very_many_members_ends_at_the_limit(folder: Path) -> None:
    """Else a small archive of empty members would keep the analysis busy."""
    (folder / "many.tar").write_bytes(tar_with(*(member(f"m{n}") for n in range(200)), data=b"a line of text\n"))
    loaded = load(folder, limits=Limits(files=50))
    assert good(loaded) and "more than 50 archive members" in why(loaded, "many.tar")


def test_other_archives_and_binaries_are_named_for_what_they_are(folder: Path) -> None:
    """Else a person would not know that unpacking a file would help."""
    kinds = {
        "core.1": (b"\x7fELF\x02\x01\x01" + bytes(range(256)) * 20, "ELF"),
        "a.xz": (b"\xfd7zXZ\x00" + bytes(600), "xz archive: unpack it first"),
        "a.bz2": (b"BZh91AY&SY" + bytes(600), "bzip2"),
        "a.zip": (b"PK\x03\x04" + bytes(600), "zip"),
        "noise": (bytes(n * n * 31 % 251 for n in range(5000)), "binary"),
        "zeros": (bytes(5000), "only NUL bytes"),
    }
    for name, (raw, _) in kinds.items():
        (folder / name).write_bytes(raw)
    loaded = load(folder)
    assert good(loaded)
    assert all(reason in why(loaded, name) for name, (_, reason) in kinds.items())
