"""`manifest.json` of a bundle: what is inside, where it came from, what was done to it, and why the rest is absent."""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from sentinel.model.verdict import Verdict

SCHEMA = "sentinel.bundle/1"
NAME = "manifest.json"
SUMS = "SHA256SUMS"
PACKED_BYTES_MAX = 64 << 20
BYTES_MAX = 256 << 20
FILES_MAX = 10_000


class Member(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One file. `truncated_from` is its size before its start was cut off, in bytes; `source` who reads it."""

    path: str
    sha256: str
    size: int
    truncated_from: int | None = None
    source: tuple[str, ...] = ()
    redactions: Mapping[str, int] = {}


class Absent(msgspec.Struct, frozen=True, kw_only=True):
    """Something that belongs into a bundle and is not there."""

    what: str
    why: str


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened, on both clocks: monotonic seconds of that boot, and UTC."""

    mono_s: float
    wall: str
    what: str
    says: str = ""


class Stand(msgspec.Struct, frozen=True, kw_only=True):
    """Where processes of one role stood: frames innermost first, without line numbers; how many, and which ranks."""

    role: str
    frames: tuple[str, ...]
    count: int
    ranks: tuple[int, ...] = ()


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The whole record. `key` names the pseudonym key; bundles with the same one use the same pseudonyms."""

    schema: str = SCHEMA
    bundle: str
    raw: bool
    incident: str
    at: str
    engine: str
    hosts: tuple[str, ...]
    versions: Mapping[str, str]
    settings: Mapping[str, str]
    verdict: Verdict
    signature: str
    stands: tuple[Stand, ...]
    timeline: tuple[Moment, ...]
    files: tuple[Member, ...]
    absent: tuple[Absent, ...]
    limits: Mapping[str, int]
    key: str
    tool: str
    digest: str


def digest_of(files: Sequence[Member]) -> str:
    """One hash over the sorted table of files: names a bundle's content whatever it is called."""
    table = "".join(f"{member.sha256}  {member.path}\n" for member in sorted(files, key=lambda one: one.path))
    return hashlib.sha256(table.encode("utf-8", "surrogateescape")).hexdigest()


def sums_of(manifest: bytes, files: Sequence[Member]) -> bytes:
    """`SHA256SUMS`, in the form that sha256sum(1) checks; the manifest is in it, the list itself is not."""
    rows = {member.path: member.sha256 for member in files} | {NAME: hashlib.sha256(manifest).hexdigest()}
    return "".join(f"{rows[path]}  {path}\n" for path in sorted(rows)).encode("utf-8", "surrogateescape")


def encode(manifest: Manifest) -> bytes:
    """The manifest as JSON that people can read; the same content gives the same bytes."""
    return msgspec.json.format(msgspec.json.encode(manifest, order="deterministic"), indent=1) + b"\n"


def decode(data: bytes) -> Manifest:
    """Raises ValueError (msgspec.MsgspecError) for anything that is no manifest of a known schema."""
    found = msgspec.json.decode(data, type=Manifest)
    if found.schema != SCHEMA:
        raise ValueError(f"schema {found.schema[:60]!r} is not {SCHEMA}; a newer version wrote it")
    return found


def iso(at_s: float) -> str:
    """UTC, whole seconds."""
    return datetime.fromtimestamp(at_s, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
