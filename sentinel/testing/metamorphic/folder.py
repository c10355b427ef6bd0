"""A case folder in memory, unpacked, so that a transform can rewrite every text file of it."""

import gzip
import io
import re
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import zstandard

from sentinel.scoring.cases import Case
from sentinel.scoring.expected import Expected

Files = Mapping[str, bytes]
MAX_UNPACKED = 64 << 20
_ENGINE_LOG = re.compile(
    rb"(?m)^(?:\x1b\[[0-9;]*m)*(?:\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[^\]\n]*\] |"
    rb"(?:\(\w+ (?:pid|rank)=\d+[^)\n]*\) )?(?:INFO|WARNING|ERROR) \d\d-\d\d )"
)


@dataclass(frozen=True, slots=True)
class Variant:
    """Evidence with the label that belongs to it."""

    files: Files
    expected: Expected

    def rewritten(self, change: Callable[[str, bytes], bytes]) -> "Variant":
        """The same names with other contents."""
        return replace(self, files={name: change(name, data) for name, data in self.files.items()})

    def renamed(self, change: Callable[[str], str]) -> "Variant | None":
        """The same contents under other names; None when two names would become one."""
        files = {change(name): data for name, data in self.files.items()}
        return replace(self, files=files) if len(files) == len(self.files) else None


def read_case(case: Case) -> Variant:
    """The files of a case; compressed files and archives stand unpacked."""
    files: dict[str, bytes] = {}
    for path in sorted(case.evidence.rglob("*")):
        if path.is_file():
            files.update(_plain(path.relative_to(case.evidence).as_posix(), path.read_bytes()))
    return Variant(files, case.expected)


def write_files(files: Files, target: Path) -> None:
    """Write a folder of evidence."""
    for name, data in files.items():
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def is_text(data: bytes) -> bool:
    """Whether a file can be rewritten line by line."""
    return b"\0" not in data[:4096] and not data.startswith(b"\x7fELF")


def is_engine_log(data: bytes) -> bool:
    """Whether a file is a plain engine log (SGLang or vLLM prefix), not yet in a container's frame."""
    return is_text(data) and not data.startswith(b"{") and len(_ENGINE_LOG.findall(data[:65536])) >= 2


def _plain(name: str, data: bytes) -> dict[str, bytes]:
    if name.endswith((".tar.gz", ".tgz", ".tar")):
        stem = name.rsplit("/", 1)[0] + "/" if "/" in name else ""
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            members = [(entry, tar.extractfile(entry)) for entry in tar if entry.isfile() and entry.size < MAX_UNPACKED]
            return {stem + entry.name: member.read() for entry, member in members if member is not None}
    if name.endswith(".gz"):
        return {name.removesuffix(".gz"): gzip.decompress(data)}
    if name.endswith(".zst"):
        plain = zstandard.ZstdDecompressor().decompress(data, max_output_size=MAX_UNPACKED)
        return {name.removesuffix(".zst"): plain}
    return {name: data}
