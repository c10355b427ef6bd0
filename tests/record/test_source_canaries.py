"""Prompts and keys planted in a real document of every parser: none of them comes out again, whoever reads."""

import tempfile
from functools import cache
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from sentinel.cli import sentinel
from sentinel.collectors import ALL
from sentinel.evidence.load import load
from sentinel.record.reader import Bundle
from tests.fuzz.seeds import by_parser
from tests.record.bundle_making import judged

PROMPT = b"Zwetschgendatschi, whispered the lighthouse keeper of Ballyvaughan"
SECRET = b"sk-proj-Zq81mVb7TtYw2LkNc4RxPj0sHd6Fg3Ua"
CANARIES = (b"Zwetschgendatschi", b"Ballyvaughan", SECRET)
KEYED = b" prompt: '" + PROMPT + b"' api_key=" + SECRET
MIXED = {
    "nccl_lines": b"""\
[2026-11-29 10:00:00 TP0] Decode batch, #running-req: 3, #token: 9
box1:7:7 [0] NCCL WARN Call to ibv_poll_cq failed
""",
}
"""Documents in which a parser reads beside others, where alone another one would claim the whole."""


def planted(name: str) -> bytes:
    """A real document of a parser with the canaries between, behind and inside its lines."""
    real = MIXED.get(name) or by_parser()[name][0]
    if b"\0\0\0\0" in real:  # a page of memory: in what no field uses
        free = real.rindex(bytes(len(KEYED)))
        return real[:free] + KEYED + real[free + len(KEYED) :]
    lines: list[bytes] = []
    for number, line in enumerate(real.rstrip(b"\n").split(b"\n")):
        lines.append(line)
        if number % 20 == 3:
            lines += [PROMPT, line + KEYED, line.replace(b" ", b" " + PROMPT + b" ", 1)]
    return b"\n".join([*lines, PROMPT, KEYED.strip(), b""])


def ran(*words: str) -> bytes:
    """What a verb says."""
    result = CliRunner().invoke(sentinel, words)
    assert result.exit_code in (0, 1), result.output
    return result.output.encode()


@cache
def written() -> dict[str, bytes]:
    """Everything that a person or another program gets to see of the planted documents."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        evidence = root / "evidence"
        evidence.mkdir()
        for parser in ALL:
            (evidence / f"{parser.name}.log").write_bytes(planted(parser.name))
        loaded = load(evidence)
        readers = {file.removesuffix(".log"): found for file, found in loaded.read_by.items()}
        unread = {parser.name for parser in ALL if parser.name not in readers.get(parser.name, ())}
        ran("bundle", "create", str(evidence), "--state", str(root), "--out", str(root / "bundle.tar.zst"))
        with Bundle(root / "bundle.tar.zst") as bundle:
            inside = {f"bundle/{member}": b"".join(bundle.chunks(member)) for member in bundle.names}
            problems = list(bundle.problems())
        return {
            **inside,
            "verdict": msgspec.json.encode(judged(loaded)),
            "text": ran("analyze", str(evidence)),
            "json": ran("analyze", str(evidence), "--json"),
            "unread": repr(sorted(unread)).encode(),
            "problems": repr(problems).encode(),
        }


@pytest.mark.parametrize("parser", ALL, ids=lambda parser: parser.name)
def test_the_canaries_are_planted_in_a_document_of_every_parser(parser: object) -> None:
    """False: a new source has no canary, and nobody knows what of it leaves the host."""
    assert all(canary in planted(parser.name) for canary in CANARIES)  # type: ignore[attr-defined]


def test_every_parser_reads_the_document_in_which_the_canaries_are() -> None:
    """False: the canaries stand in a file that nobody reads, and prove nothing."""
    assert written()["unread"] == b"[]"


def test_no_canary_of_any_source_is_in_bundle_report_or_verdict() -> None:
    """False: what users asked, or a key, is mailed to a vendor inside a bundle or its report, or stands in a notice."""
    leaks = {(name, canary) for name, data in written().items() for canary in CANARIES if canary in data}

    assert leaks == set()
    assert written()["problems"] == b"[]" and {"bundle/report.html", "bundle/manifest.json"} <= written().keys()
