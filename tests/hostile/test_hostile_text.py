"""Text of strangers: no line is too long, too odd or too clever for the lines around it."""

import json
from collections.abc import Iterator
from pathlib import Path

from sentinel.collector import Blob, Context, DocumentParser, Line
from sentinel.evidence.limits import Limits
from sentinel.evidence.load import load
from sentinel.model.observation import Decode, NcclNote, Notice, Observation
from tests.hostile.evidence_cases import ENGINE, MIB, decode, good, load_limited, why


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
