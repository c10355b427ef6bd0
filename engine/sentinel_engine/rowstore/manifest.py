"""The manifest beside an RWS1 file: what the bytes should be, and where they came from.

Canonical JSON (sorted keys, no blanks); its SHA-256 is in the file's header, and it is written
last, so a file without its manifest is a file whose staging did not finish.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from .errors import BadTable

CHUNK_BYTES = 64 << 20
SCHEMA = "rws1-manifest/1"


@dataclass(frozen=True, slots=True)
class Chunk:
    """One stretch of at most 64 MiB of the data region."""

    offset: int
    bytes: int
    sha256: str
    crc32c: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Everything needed to accept or refuse a file before serving it."""

    geometry: dict[str, Any]
    chunks: tuple[Chunk, ...]
    hash_parameters: dict[str, Any] = field(default_factory=dict)
    source: dict[str, Any] = field(default_factory=dict)
    verification: dict[str, Any] = field(default_factory=dict)
    tool_version: str = "0.1.0"
    schema: str = SCHEMA

    def canonical(self) -> bytes:
        """The bytes that are stored and hashed."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":")).encode()

    def digest(self) -> bytes:
        return hashlib.sha256(self.canonical()).digest()

    @classmethod
    def parse(cls, content: bytes, name: str) -> Self:
        """Read stored bytes back; `name` is used in errors."""
        try:
            fields = json.loads(content)
            if fields.get("schema") != SCHEMA:
                raise BadTable(f"{name}: schema {fields.get('schema')!r} is not {SCHEMA!r}")
            fields["chunks"] = tuple(Chunk(**chunk) for chunk in fields["chunks"])
            return cls(**fields)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise BadTable(f"{name} is not a manifest ({error}); stage the file again") from error

    def refuse_other_hash(self, parameters: dict[str, Any], name: str) -> None:
        """Raise BadTable when the model hashes its n-grams in another way than this table."""
        for key in sorted(set(self.hash_parameters) | set(parameters)):
            stored, given = self.hash_parameters.get(key), parameters.get(key)
            if stored != given:
                raise BadTable(
                    f"{name} was packed with hash parameter {key}={stored!r}, but the model has "
                    f"{given!r}; stage the table of this model"
                )


def manifest_path(table: Path) -> Path:
    """Where the manifest of a table lies."""
    return table.with_name(table.name + ".manifest.json")


def read_manifest(table: Path) -> Manifest:
    """The manifest of `table`; BadTable when it is missing or damaged."""
    path = manifest_path(table)
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise BadTable(
            f"{path} is missing: staging of {table.name} did not finish; run `rowstore pack` again"
        ) from error
    return Manifest.parse(content, str(path))
