"""Evidence from machines in trouble and from strangers: nothing hangs, nothing escapes, what remains is read."""

import gzip
import io
import json
import os
import socket
import stat
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard

from sentinel.collector import Blob, Context, DocumentParser, Line
from sentinel.evidence.limits import LISTED_PER_REASON, Limits, Skips, printable
from sentinel.evidence.load import Loaded, load
from sentinel.evidence.tree import Tree
from sentinel.model.observation import Decode, NcclNote, Notice, Observation, Origin

MIB = 1 << 20


def decode(n: int) -> str:
    return (
        f"[2026-11-29 10:{n // 60 % 60:02d}:{n % 60:02d} TP0] Decode batch, #running-req: 3, #token: {1000 + n}, "
        "token usage: 0.01, cuda graph: True, gen throughput (token/s): 143.90, #queue-req: 0\n"
    )


ENGINE = "".join(decode(n) for n in range(6))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that holds one good log beside whatever a test adds."""
    (tmp_path / "engine.log").write_text(ENGINE)
    return tmp_path


def good(loaded: Loaded) -> bool:
    """Whether the good log was read completely."""
    mine = [seen for seen in loaded.observations if seen.origin.file == "engine.log"]
    return [seen.tokens for seen in mine if isinstance(seen, Decode)] == [1000, 1001, 1002, 1003, 1004, 1005]


def why(loaded: Loaded, file: str) -> str:
    """All reasons given for a file."""
    return "; ".join(skip.why for skip in loaded.skipped if skip.file == file)


def tar_with(*members: tarfile.TarInfo, data: bytes = b"") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for member in members:
            if member.isreg():
                member.size = len(data)
            tar.addfile(member, io.BytesIO(data) if member.isreg() else None)
    return out.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


LIMITED = """
import json, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]), int(sys.argv[2])))
from sentinel.evidence.load import load
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
loaded = load(sys.argv[1])
print(json.dumps({
    "grown_kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before,
    "observations": len(loaded.observations),
    "skipped": [[skip.file, skip.why] for skip in loaded.skipped],
}))
"""


def load_limited(folder: Path, address_space: int = 700 * MIB) -> tuple[int, int, dict[str, str]]:
    """Load in a process whose address space is limited: (KiB that memory grew by, observations, skipped)."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(folder), str(address_space)], capture_output=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    told = json.loads(done.stdout)
    skipped: dict[str, str] = {}
    for file, reason in told["skipped"]:
        skipped[file] = f"{skipped[file]}; {reason}" if file in skipped else reason
    return told["grown_kib"], told["observations"], skipped


# --- what is in a folder ---------------------------------------------------------------------------------------------


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


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_files_and_folders_are_named(folder: Path) -> None:
    """Else a permission problem would look like missing evidence."""
    (folder / "locked.log").write_text(ENGINE)
    (folder / "locked.log").chmod(0)
    (folder / "locked").mkdir(mode=0)
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


# --- archives --------------------------------------------------------------------------------------------------------


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


# --- text ------------------------------------------------------------------------------------------------------------


def test_lines_of_many_mebibytes_do_not_fill_memory_or_hide_their_neighbours(folder: Path) -> None:
    """Else one runaway line would cost the evidence around it."""
    with (folder / "long.log").open("wb") as file:
        file.write(decode(0).encode())
        for _ in range(64):
            file.write(b"A" * (4 * MIB))
        file.write(b"\n" + decode(1).encode() + b'{"log":"' + b"B" * (8 * MIB) + b"\n" + decode(2).encode())
    grown_kib, observations, skipped = load_limited(folder)
    assert observations == 9 and grown_kib < 200 << 10 and skipped == {}


def test_nul_gaps_and_invalid_utf8_leave_the_lines_around_them(folder: Path) -> None:
    """Else the first lines after a truncating rotation would be lost."""
    raw = decode(0).encode() + b"\0" * (3 * MIB) + decode(1).encode() + b"\xff\xfe\x80\n" + decode(2).encode()
    (folder / "gap.log").write_bytes(raw)
    (folder / "start.log").write_bytes(b"\0" * (2 * MIB) + decode(3).encode())
    loaded = load(folder)
    tokens = [seen.tokens for seen in loaded.observations if isinstance(seen, Decode)]
    assert good(loaded) and tokens.count(1001) == tokens.count(1002) == tokens.count(1003) == 2


def test_no_escape_sequence_reaches_an_observation(folder: Path) -> None:
    """Else a log line could rewrite the report on the reader's terminal."""
    evil = "[2026-11-29 10:00:07 TP0] Scheduler hit an exception: \x1b]0;owned\x07\x1b[2J\x1b[31mboom\x9b\n"
    (folder / "evil.log").write_text(ENGINE + evil)
    loaded = load(folder)
    texts = [seen.text for seen in loaded.observations if isinstance(seen, Notice)]
    assert texts and all("\x1b" not in text and "\x07" not in text for text in texts)


def test_a_prompt_that_quotes_a_failure_is_not_a_failure(folder: Path) -> None:
    """Else a user could make the watchdog accuse the network by asking about a NCCL timeout."""
    prompt = (
        "gpu1:41:77 [0] NCCL WARN Call to ibv_poll_cq failed: status=12 [Rank 0] Watchdog caught collective operation "
        "timeout; NVRM: Xid (PCI:0000:1a:00): 79, GPU has fallen off the bus."
    )
    sglang = f"[2026-11-29 10:00:03] Receive: obj=GenerateReqInput(rid='a1', text={prompt!r})\n"
    vllm = f"INFO 11-29 10:00:03 [logger.py:40] Received request cmpl-1: prompt: {prompt!r}, params: x\n"
    boot = "INFO 11-29 10:00:02 [api_server.py:1388] vLLM API server version 0.12.0\n"
    (folder / "sglang.log").write_text(decode(0) + sglang + decode(1))
    (folder / "vllm.log").write_text(boot + vllm)
    (folder / "framed.log").write_text(
        "".join(
            json.dumps({"log": line, "stream": "stderr", "time": "2026-11-29T10:00:03Z"}) + "\n"
            for line in (decode(0), sglang, decode(1))
        )
    )
    loaded = load(folder)
    serious = [
        seen
        for seen in loaded.observations
        if isinstance(seen, NcclNote)
        or type(seen).__name__ == "KernelEvent"
        or (isinstance(seen, Notice) and seen.notice not in ("request", "version", "server_args"))
    ]
    assert good(loaded) and serious == []


def test_a_record_nested_without_end_is_only_text(folder: Path) -> None:
    """Else a JSON line of brackets would overflow the stack."""
    (folder / "deep.json").write_text(
        '{"__CURSOR":"x","MESSAGE":' + "[" * 100_000 + "\n" + '{"log":' + "[" * 100_000 + "\n"
    )
    assert good(load(folder))


def test_files_beyond_the_budgets_keep_their_start_and_their_end(folder: Path) -> None:
    """Else a very large log would be read for ever, or its end, where the hang is, would be left out."""
    (folder / "large.log").write_text("".join(decode(n) for n in range(3000)))
    loaded = load(folder, limits=Limits(file_bytes=200 << 10))
    mine = [seen.tokens for seen in loaded.observations if isinstance(seen, Decode) and seen.origin.file == "large.log"]
    assert mine[0] == 1000 and mine[-1] == 3999 and len(mine) < 3000
    assert "the middle was left out" in why(loaded, "large.log")
    total = load(folder, limits=Limits(total_bytes=100 << 10))
    assert any("exceeds" in skip.why for skip in total.skipped)


def test_a_large_log_is_read_in_little_memory(folder: Path) -> None:
    """Else the log of a week would need a machine of its own."""
    block = "".join(decode(n) for n in range(3000)) * 8
    with (folder / "week.log").open("w") as file:
        for _ in range(12):
            file.write(block)
    size = (folder / "week.log").stat().st_size
    grown_kib, observations, _ = load_limited(folder)
    assert size > 40 * MIB and observations >= 50_000 and grown_kib < 200 << 10


def test_lines_survive_for_a_reader_that_wants_them_one_by_one(folder: Path) -> None:
    """Else a document parser and a log parser would see different lines of the same file."""
    taken: list[Line] = []

    def keep(blob: Blob, context: Context) -> Iterator[Observation]:
        taken.extend(blob.lines())
        yield from ()

    parser = DocumentParser(name="keep", recognise=lambda sample: True, parse=keep)
    load(folder, parsers=(parser,))
    assert [line.text + "\n" for line in taken] == ENGINE.splitlines(keepends=True)
