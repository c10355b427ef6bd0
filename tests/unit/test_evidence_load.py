"""A folder of evidence becomes observations in order of time, whatever form its files have."""

import gzip
import io
import json
import tarfile
from calendar import timegm
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
import zstandard

from sentinel.collector import Blob, Context, DocumentParser, Line, LogParser, Sample
from sentinel.evidence.limits import Limits
from sentinel.evidence.load import Loaded, load
from sentinel.model.observation import (
    Decode,
    GpuSample,
    KernelEvent,
    NcclComm,
    Notice,
    Observation,
    Origin,
    Scrape,
    Stack,
)

TEN = float(timegm((2026, 11, 29, 10, 0, 0)))


def decode(n: int, at_s: float | None = None) -> str:
    second = int((TEN + n if at_s is None else at_s) - TEN)
    return (
        f"[2026-11-29 {10 + second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d} TP0] Decode batch, "
        f"#running-req: 3, #token: {1000 + n}, token usage: 0.01, cuda graph: True, "
        "gen throughput (token/s): 143.90, #queue-req: 0\n"
    )


ENGINE = "".join(decode(n) for n in range(6))
GPU = (
    "timestamp, index, utilization.gpu [%], utilization.memory [%], power.draw [W]\n"
    "2026/11/29 10:00:02.000, 0, 100 %, 0 %, 135.80 W\n"
)
STACK = """Process 41: sglang::scheduler
Python v3.12.3 (/usr/bin/python3.12)

Thread 41 (idle): "MainThread"
    recv (a.py:1)
"""


def tar_of(members: dict[str, bytes], mode: str = "w") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as tar:  # type: ignore[call-overload]
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return out.getvalue()


def decodes(loaded: Loaded) -> list[int | None]:
    return [seen.tokens for seen in loaded.observations if isinstance(seen, Decode)]


def docker(text: str, shift_s: float = 0.0) -> bytes:
    lines = []
    for n, line in enumerate(text.splitlines(keepends=True)):
        second = int(n - shift_s) % 86_400
        clock = f"{(10 * 3600 + second) // 3600 % 24:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
        lines.append(json.dumps({"log": line, "stream": "stderr", "time": f"2026-11-29T{clock}.1Z"}))
    return ("\n".join(lines) + "\n").encode()


FORMS: dict[str, Callable[[bytes], bytes]] = {
    "plain": lambda raw: raw,
    "gzip": gzip.compress,
    "gzip in two members": lambda raw: gzip.compress(raw[:100]) + gzip.compress(raw[100:]),
    "zstd": lambda raw: zstandard.ZstdCompressor().compress(raw),
    "tar": lambda raw: tar_of({"logs/a": raw}),
    "tar.gz": lambda raw: gzip.compress(tar_of({"logs/a": raw})),
    "tar.zst": lambda raw: zstandard.ZstdCompressor().compress(tar_of({"logs/a": raw})),
    "gzip in a tar": lambda raw: tar_of({"a.gz": gzip.compress(raw)}),
    "tar.gz in a tar.gz": lambda raw: gzip.compress(tar_of({"n.tgz": gzip.compress(tar_of({"a": raw}))})),
    "docker": lambda raw: docker(raw.decode()),
    "coloured": lambda raw: b"\n".join(b"\x1b[36m" + line + b"\x1b[0m" for line in raw.splitlines()),
    "windows": lambda raw: raw.replace(b"\n", b"\r\n"),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_log_is_read_in_every_form_and_under_any_name(tmp_path: Path, form: str) -> None:
    """Else an operator would have to unpack, convert and rename before anything is seen."""
    (tmp_path / "no-clue").write_bytes(FORMS[form](ENGINE.encode()))
    loaded = load(tmp_path)
    assert decodes(loaded) == [1000, 1001, 1002, 1003, 1004, 1005] and loaded.skipped == ()
    first = next(seen for seen in loaded.observations if isinstance(seen, Decode))
    assert (first.at_s, first.origin.line) == (TEN, 1)


def test_one_file_or_one_archive_may_be_given_instead_of_a_folder(tmp_path: Path) -> None:
    """Else a bundle would have to be unpacked into a folder first."""
    (tmp_path / "engine.log").write_text(ENGINE)
    (tmp_path / "bundle.tgz").write_bytes(gzip.compress(tar_of({"node1/e": ENGINE.encode(), "node2/g": GPU.encode()})))
    assert len(decodes(load(tmp_path / "engine.log"))) == 6
    bundle = load(tmp_path / "bundle.tgz")
    assert bundle.hosts == ("node1", "node2")
    assert {seen.origin.file for seen in bundle.observations} == {"bundle.tgz!node1/e", "bundle.tgz!node2/g"}
    with pytest.raises(OSError):
        load(tmp_path / "absent")


def test_observations_of_all_files_come_in_order_of_time(tmp_path: Path) -> None:
    """Else a cause that is written in another file would seem to come after its effect."""
    (tmp_path / "a").write_text(ENGINE)
    (tmp_path / "b").write_text(GPU)
    kinds = [type(seen) for seen in load(tmp_path).observations]
    assert kinds == [Decode, Decode, Decode, GpuSample, Decode, Decode, Decode]


def test_a_second_source_deep_inside_a_log_is_found(tmp_path: Path) -> None:
    """Else a NCCL warning between thousands of decode lines would be lost, because the sample does not show it."""
    nccl = "gpu1:41:77 [0] NCCL INFO comm 0x55d0 rank 0 nranks 2 cudaDev 0 busId 1000 commId 0xab - Init COMPLETE\n"
    filler = "".join(decode(n) for n in range(3000))
    (tmp_path / "log").write_text(filler + nccl + filler)
    loaded = load(tmp_path)
    assert sum(isinstance(seen, NcclComm) for seen in loaded.observations) == 1
    assert set(loaded.read_by["log"]) >= {"sglang_log", "nccl_lines"}


def test_hosts_of_folders_reach_observations_that_name_none(tmp_path: Path) -> None:
    """Else two nodes with the same pids and GPU numbers would be one."""
    for host in ("gpu1", "gpu2"):
        (tmp_path / host).mkdir()
        (tmp_path / host / "nccl").write_text(f"{host}:41:77 [0] NCCL INFO NCCL version 2.28.9+cuda13.0\n" * 3)
        (tmp_path / host / "stack").write_text(STACK)
    stacks = [seen for seen in load(tmp_path).observations if isinstance(seen, Stack)]
    assert sorted(stack.host or "" for stack in stacks) == ["gpu1", "gpu2"]


def test_a_utc_container_log_lines_up_with_local_times(tmp_path: Path) -> None:
    """Else frames in UTC would put a log two hours away from the other logs of its host."""
    text = ENGINE + "NCCL version 2.28.9+cuda13.0\ngpu1:41:77 [0] NCCL WARN x\n"
    (tmp_path / "docker").write_bytes(docker(text, shift_s=7200))
    (tmp_path / "gpu").write_text(GPU)
    loaded = load(tmp_path)
    times = [seen.at_s for seen in loaded.observations if seen.at_s is not None]
    assert max(times) - min(times) < 10 and min(times) == TEN


def test_kernel_times_since_boot_use_a_stated_boot_time(tmp_path: Path) -> None:
    """Else a bus loss in dmesg could not be put before or after the silence."""
    (tmp_path / "dmesg").write_text("[  600.500000] NVRM: Xid (PCI:0000:1a:00): 79, GPU has fallen off the bus.\n")
    (tmp_path / "uptime").write_text(" 10:30:00 up 20 min,  2 users,  load average: 9.10, 8.77, 6.02\n")
    (tmp_path / "engine").write_text(ENGINE)
    loaded = load(tmp_path)
    (event,) = (seen for seen in loaded.observations if isinstance(seen, KernelEvent))
    assert event.at_s is not None and abs(event.at_s - (TEN + 600 + 600.5)) <= 60
    assert loaded.clock_error_s >= 30


def test_the_rank_in_a_file_name_is_used_only_when_the_content_is_silent(tmp_path: Path) -> None:
    """Else a stack without a tagged title could not be joined to a rank, or a wrong name would beat a right title."""
    (tmp_path / "pyspy_rank3.txt").write_text(STACK)
    (tmp_path / "pyspy_rank5.txt").write_text(STACK.replace("41", "42").replace("scheduler", "scheduler_TP1"))
    stacks = {seen.pid: seen for seen in load(tmp_path).observations if isinstance(seen, Stack)}
    assert stacks[41].rank == 3
    assert stacks[42].rank is None or stacks[42].tags is None


def test_a_scrape_is_dated_by_its_name_when_that_fits(tmp_path: Path) -> None:
    """Else two scrapes could not tell whether counters moved between them."""
    scrape = (
        "# HELP vllm:num_requests_running x\n# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 3.0\n"
    )
    (tmp_path / "engine").write_text(ENGINE)
    (tmp_path / "m-20261129T100005Z.prom").write_text(scrape)
    (found,) = (seen for seen in load(tmp_path).observations if isinstance(seen, Scrape))
    assert found.at_s == TEN + 5


def test_a_small_clock_step_is_reported_and_does_not_reorder_the_log(tmp_path: Path) -> None:
    """Else a corrected clock would make the last progress before a hang disappear among older lines."""
    lines = [decode(n, TEN + 600 + n) for n in range(10)] + [decode(10 + n, TEN + 550 + n) for n in range(10)]
    (tmp_path / "log").write_text("".join(lines))
    loaded = load(tmp_path)
    assert decodes(loaded) == list(range(1000, 1020))
    assert loaded.clock_error_s >= 59 and any("went back by 59 s at log:11" in note for note in loaded.clock_notes)


def test_an_older_log_appended_to_a_newer_one_is_no_clock_step(tmp_path: Path) -> None:
    """Else joining rotated logs in the wrong order would move hours of evidence."""
    (tmp_path / "log").write_text(decode(5000) + decode(5001) + decode(0) + decode(1))
    loaded = load(tmp_path)
    assert decodes(loaded) == [1000, 1001, 6000, 6001] and loaded.clock_error_s < 10 and loaded.clock_notes


def test_very_long_logs_keep_their_start_and_their_end(tmp_path: Path) -> None:
    """Else memory would grow with the age of the engine."""
    (tmp_path / "log").write_text("".join(decode(n) for n in range(1000)))
    loaded = load(tmp_path, limits=Limits(kept_first=10, kept_last=20))
    assert decodes(loaded) == [*range(1000, 1010), *range(1980, 2000)]
    assert loaded.dropped == 970 and "970 observations" in loaded.skipped[0].why


def test_a_parser_that_fails_loses_one_file_only(tmp_path: Path) -> None:
    """Else one bug in one parser would cost the whole verdict."""

    def fail(blob: Blob, context: Context) -> Iterator[Observation]:
        yield Notice(origin=Origin(context.name, 1), engine="x", notice="other", text=next(blob.lines()).text)
        raise IndexError("beyond")

    def start(context: Context) -> Callable[[Iterable[Line]], Iterator[Observation]]:
        def feed(lines: Iterable[Line]) -> Iterator[Observation]:
            for line in lines:
                yield Notice(origin=Origin(context.name, line.number), engine="x", notice="other", text=line.text)

        return feed

    bad = DocumentParser(name="bad", recognise=lambda sample: sample.head.startswith("bad"), parse=fail)
    good = LogParser(name="good", recognise=lambda sample: "good" in sample.head, start=start)
    (tmp_path / "a").write_text("bad file\n")
    (tmp_path / "b").write_text("good file\n")
    loaded = load(tmp_path, parsers=(bad, good))
    assert [seen.text for seen in loaded.observations if isinstance(seen, Notice)] == ["bad file", "good file"]
    assert [(skip.file, "IndexError" in skip.why) for skip in loaded.skipped] == [("a", True)]


def test_of_several_parsers_that_claim_a_file_the_first_that_finds_anything_owns_it(tmp_path: Path) -> None:
    """Else a file would be read twice, or by a parser that claimed it wrongly and found nothing."""

    def parser(name: str, texts: tuple[str, ...]) -> DocumentParser:
        def parse(blob: Blob, context: Context) -> Iterator[Observation]:
            for text in texts:
                yield Notice(origin=Origin(context.name, 1), engine=name, notice="other", text=text)

        return DocumentParser(name=name, recognise=lambda sample: True, parse=parse)

    (tmp_path / "file").write_text("some text\n")
    loaded = load(tmp_path, parsers=(parser("empty", ()), parser("first", ("a",)), parser("second", ("b",))))
    assert [seen.engine for seen in loaded.observations if isinstance(seen, Notice)] == ["first"]


def test_small_documents_have_no_tail_in_their_sample(tmp_path: Path) -> None:
    """Else recognisers that weigh both parts would count every line of a small file twice."""
    seen: list[Sample] = []

    def note(sample: Sample) -> bool:
        seen.append(sample)
        return False

    (tmp_path / "small").write_text("one line\n")
    (tmp_path / "large").write_text("start\n" + "x" * 99 + "\n" + ("y" * 99 + "\n") * 3000 + "end\n")
    load(tmp_path, parsers=(LogParser(name="n", recognise=note, start=lambda context: lambda lines: iter(())),))
    large, small = seen
    assert small == Sample("one line")
    assert large.head.startswith("start") and large.tail.endswith("end") and large.tail.startswith("yyy")
    assert len(large.head) <= 1 << 16 and len(large.tail) <= 1 << 16


def test_prose_beside_the_logs_gives_nothing_and_is_named(tmp_path: Path) -> None:
    """Else a person's notes would be read as evidence."""
    (tmp_path / "notes").write_text("It stopped around lunch. NCCL timeout, maybe?\nWe restarted everything twice.\n")
    loaded = load(tmp_path)
    assert loaded.observations == ()
    assert [(skip.file, skip.why) for skip in loaded.skipped] == [("notes", "nothing in it was recognised")]


def test_loading_twice_gives_the_same(tmp_path: Path) -> None:
    """Else a verdict could not be reproduced."""
    for name in ("z", "a", "m"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "e").write_text(ENGINE)
        (tmp_path / name / "s").write_text(STACK)
    assert load(tmp_path) == load(tmp_path)
