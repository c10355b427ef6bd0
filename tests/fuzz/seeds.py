"""Real bytes to damage: for every parser the starts of documents of the committed corpus that it reads."""

import gzip
import tarfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec
import zstandard

from sentinel.collector import Context, DocumentParser, Parser
from sentinel.collectors import ALL
from sentinel.collectors.agent_notes import HEADER
from sentinel.evidence.archive import Found
from sentinel.evidence.document import Budget, Document
from sentinel.evidence.limits import Limits, Skips
from sentinel.evidence.stream import Note
from sentinel.model.observation import Observation, Origin, Pressure, Unavailable

HERE = Path(__file__).resolve().parent
CORPUS = HERE.parent / "corpus"
ARCHIVES = ("casebook", "healthy", "recordings")
HEAD_BYTES = 8 << 10
SEEDS_MAX = 6
CONTEXT = Context(name="fuzz", year=2026)

ELSEWHERE: dict[str, bytes] = {
    "agent_notes": HEADER
    + b"\n".join(
        msgspec.json.encode(seen)
        for seen in (
            Unavailable(origin=Origin("notes"), source="nvml", reason="no driver"),
            Pressure(origin=Origin("notes", 2), at_s=7.5, resource="io", some_avg10=1.0, full_avg10=0.5),
        )
    ),
    "py-spy-embedded": b"""\
[2026-11-29 10:00:00 TP4] Pyspy dump for PID 5204 (py-spy dump --pid 5204):
Process 5204: sglang::scheduler_TP4
Python v3.12.3 (/usr/bin/python3)

Thread 5204 (active+gil): "MainThread"
    recv_requests (sglang/srt/managers/scheduler.py:1088)
    run (threading.py:953)
[2026-11-29 10:00:01 TP4] Pyspy failed (py-spy dump --pid 1). Error: Error: no such process
""",
    "faulthandler": b"""\
Fatal Python error: Aborted

Current thread 0x00007f0000000700 (most recent call first):
  File "/usr/lib/python3/threading.py", line 320 in wait
  File "run.py", line 3 in <module>

Thread 0x00007f0000000600 (most recent call first):
  File "queue.py", line 171 in get
""",
    "packaged_log": b"""\
[2026-11-29 09:59:59 TP0] sentinel-engine version=1.0 args=(tp_size=8, port=8000)
[2026-11-29 10:00:00 TP0] Decode batch, #running-req: 3, #token: 4096
[2026-11-29 10:00:01 TP0] Prefill batch, #new-seq: 1, #new-token: 512
""",
    "rowstore_page": gzip.decompress((HERE.parent / "unit" / "legacy_hang.page.gz").read_bytes()),
}
"""What the corpus has no document of."""


class Memory:
    """A document held in memory."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size = len(data)

    def chunks(self, note: Note, start: int = 0) -> Iterator[bytes]:
        """Small chunks, so that lines and characters are cut."""
        for at in range(start, self.size, 4093):
            yield self.data[at : at + 4093]


def document(data: bytes) -> Document:
    """The document as the product would open it."""
    return Document(Found("fuzz", Memory(data)), Limits(), Skips(), Budget(1 << 40))


def read(parser: Parser, data: bytes) -> list[Observation]:
    """Everything that a parser says about these bytes, recognised or not."""
    opened = document(data)
    look = opened.look()
    if look is not None:
        assert parser.recognise(look.sample) in (True, False)
    if isinstance(parser, DocumentParser):
        return list(parser.parse(opened, CONTEXT))
    feed = parser.start(CONTEXT)
    return [seen for batch in [*opened.batches(), []] for seen in feed(batch)]


@cache
def files() -> tuple[bytes, ...]:
    """The start of every file of the corpus."""
    found: dict[bytes, None] = {}
    for name in ARCHIVES:
        with (
            (CORPUS / f"{name}.tar.zst").open("rb") as raw,
            zstandard.ZstdDecompressor().stream_reader(raw) as plain,
            tarfile.open(fileobj=plain, mode="r|") as tar,
        ):
            for entry in tar:
                file = tar.extractfile(entry) if "/evidence/" in entry.name else None
                if file is not None and not entry.name.endswith((".gz", ".zst")):
                    found[file.read(HEAD_BYTES)] = None
    return tuple(found)


@cache
def by_parser() -> dict[str, tuple[bytes, ...]]:
    """Seeds of every parser: documents that it says something about, those of the most kinds first."""
    rated: dict[str, list[tuple[int, int, bytes]]] = {parser.name: [] for parser in ALL}
    for number, data in enumerate(files()):
        look = document(data).look()
        if look is None:
            continue
        for parser in ALL:
            if parser.recognise(look.sample):
                kinds = len({type(seen) for seen in read(parser, data)})
                if kinds:
                    rated[parser.name].append((-kinds, number, data))
    seeds: dict[str, tuple[bytes, ...]] = {}
    for name, found in rated.items():
        real = [data for _, _, data in sorted(found)[:: max(1, len(found) // SEEDS_MAX)]][:SEEDS_MAX]
        seeds[name] = (*real, *([ELSEWHERE[name]] if name in ELSEWHERE else ()))
    return seeds
