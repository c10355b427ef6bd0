"""Makes an incident bundle of an evidence folder: redacted, checked, within its budgets, the same bytes every time."""

import hashlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from sentinel import __version__
from sentinel.collector import DocumentParser
from sentinel.collectors import ALL
from sentinel.evidence.document import Budget, Document
from sentinel.evidence.limits import Limits, Skips, printable
from sentinel.evidence.load import Loaded, load
from sentinel.evidence.stream import Refused
from sentinel.evidence.tree import Tree
from sentinel.model.observation import Unavailable
from sentinel.model.verdict import Verdict
from sentinel.record import manifest as form
from sentinel.record.incident import Incident, read_incident
from sentinel.record.manifest import Absent, Manifest, Member
from sentinel.record.packing import fair_cap, keep_tail, write_archive
from sentinel.record.pseudonyms import Pseudonyms
from sentinel.record.redact import Lines, Redactor, fingerprint, known_lines
from sentinel.record.redact_documents import Unredactable, redact_document
from sentinel.record.redact_json import redacted
from sentinel.record.redact_secrets import secret_values, variables
from sentinel.record.signature import settings, signature, stands, versions
from sentinel.record.slice import NAME as JOURNAL

_TABLES = frozenset(parser.name for parser in ALL if isinstance(parser, DocumentParser))
_ROUNDS_MAX = 6
_ENVIRONMENT_BYTES_MAX = 8 << 20
_OPEN_KEYS = frozenset(("text", "args", "regex", "query"))


class BundleError(Exception):
    """No bundle can be made; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What to make. `key` None means raw: nothing is redacted. `secrets` are values to remove wherever they stand."""

    key: bytes | None
    secrets: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    extra: Mapping[str, bytes] = field(default_factory=dict)
    bytes_max: int = form.BYTES_MAX
    packed_bytes_max: int = form.PACKED_BYTES_MAX
    files_max: int = form.FILES_MAX


@dataclass(slots=True)
class Kept:
    """A file on its way into the bundle, in the private spool."""

    spool: Path
    size: int
    source: tuple[str, ...]
    redactions: Mapping[str, int]
    truncated_from: int | None = None


@dataclass(slots=True)
class Maker:
    """Makes one bundle; `loaded` and `verdict` are what the evidence gave."""

    folder: Path
    loaded: Loaded
    verdict: Verdict
    order: Order
    kept: dict[str, Kept] = field(default_factory=dict)
    absent: list[Absent] = field(default_factory=list)
    redactor: Redactor | None = None

    def write(self, target: Path) -> Manifest:
        """Write the bundle; raises BundleError or OSError, and then leaves no file."""
        incident = read_incident(self.folder, self.verdict)
        if self.order.key is not None:
            hosts = {*self.loaded.hosts, *self.order.hosts, *self._hosts_seen()}
            secrets = (*self.order.secrets, *self._secrets_in(incident.evidence))
            self.redactor = Redactor(Pseudonyms(self.order.key, hosts, self.order.users), secrets)
        with tempfile.TemporaryDirectory(prefix="sentinel-bundle-") as private:
            spool = Path(private)
            self._gather(incident, spool)
            for name, data in self.order.extra.items():
                self._keep(name, iter((data,)), spool, ())
            return self._pack(target, incident)

    def _hosts_seen(self) -> set[str]:
        return {seen.host for seen in self.loaded.observations if seen.host}

    def _secrets_in(self, evidence: Path) -> tuple[str, ...]:
        """Secret values that environments in the evidence tell: they may stand in any other file too."""
        found: list[tuple[str, str]] = []
        limits, skips = Limits(files=self.order.files_max * 2), Skips()
        with Tree(evidence, limits, skips) as tree:
            for one in tree.documents():
                document = Document(one, limits, skips, Budget(_ENVIRONMENT_BYTES_MAX))
                if "environment" in self.loaded.read_by.get(document.name, ()):
                    text = b"".join(document.chunks()).decode("utf-8", "replace").replace("\0", "\n")
                    found += [(name, value.strip("\"' ,")) for name, value in variables(text)]
        return secret_values(found)

    # --- gathering -------------------------------------------------------------------------------------------------

    def _gather(self, incident: Incident, spool: Path) -> None:
        lines = known_lines((seen.origin.file, seen.origin.line) for seen in self.loaded.observations)
        skips, limits = Skips(), Limits(files=self.order.files_max * 2)
        with Tree(incident.evidence, limits, skips) as tree:
            for found in tree.documents():
                if len(self.kept) >= self.order.files_max:
                    self._lack(found.name, f"more than {self.order.files_max:,} files")
                    continue
                document = Document(found, limits, skips, Budget(limits.total_bytes))
                if document.look() is None:
                    continue
                readers = self.loaded.read_by.get(document.name, ())
                self._document(document, readers, lines.get(document.name, frozenset()), spool)
        for name, raw in incident.records.items():
            self._keep(name, self._record(name, raw), spool, ("agent",))
        for skip in skips.result():
            self._lack(skip.file, skip.why)
        self._reasons(incident)

    def _document(self, document: Document, readers: tuple[str, ...], known: frozenset[int], spool: Path) -> None:
        name = document.name.replace("!", "/")
        if self.redactor is None:
            self._keep(f"evidence/{name}", document.chunks(), spool, readers)
            return
        lines = Lines(
            self.redactor,
            known,
            frozenset(readers),
            table=bool(_TABLES.intersection(readers)),
            environment="environment" in readers,
            open_keys=_OPEN_KEYS if "agent_notes" in readers else frozenset(),
        )
        given = redact_document(document.chunks(), document.frame, lines, binary=document.binary)
        self._keep(f"evidence/{self.redactor.path(name)}", given, spool, readers)

    def _record(self, name: str, raw: bytes) -> Iterator[bytes]:
        """A record of the agent's own; its texts pass redaction like everything else."""
        if self.redactor is None:
            yield raw
            return
        lines = Lines(self.redactor, table=True, open_keys=_OPEN_KEYS)
        for line in raw.splitlines():
            try:
                value = msgspec.json.decode(line)
            except msgspec.DecodeError:
                self._lack(name, "a damaged line was left out")
                continue
            yield msgspec.json.encode(redacted(value, lines)) + b"\n"

    def _keep(self, name: str, chunks: Iterator[bytes], spool: Path, source: tuple[str, ...]) -> None:
        name = self._free_name(name)
        path, size = spool / str(len(self.kept)), 0
        try:
            with path.open("wb") as file:
                for chunk in chunks:
                    size += file.write(chunk)
        except (Unredactable, Refused) as reason:
            self._lack(name, str(reason))
            size = 0
        counts = self.redactor.take_counts() if self.redactor is not None else {}
        if size:
            self.kept[name] = Kept(path, size, source, counts)

    def _free_name(self, name: str) -> str:
        """Two names may become one when they are redacted."""
        name = printable(name)[-200:] if len(name) > 200 else printable(name)
        free, count = name, 1
        while free in self.kept:
            count += 1
            free = f"{name}.{count}"
        return free

    def _lack(self, what: str, why: str) -> None:
        self.absent.append(Absent(what=self._clean(what), why=self._clean(why)))

    def _clean(self, text: str) -> str:
        return text if self.redactor is None else Lines(self.redactor, table=True).text(printable(text))

    def _reasons(self, incident: Incident) -> None:
        """Why the rest is absent: failed steps of the capture, unreadable sources, what the rules missed."""
        for what, why in incident.failed_steps:
            self._lack(what, why)
        for seen in self.loaded.observations:
            if isinstance(seen, Unavailable):
                self._lack(seen.source, seen.reason)
        for need in self.verdict.missing:
            self._lack(need, "the verdict names it as missing")
        if not incident.records:
            self._lack("incident.jsonl, verdict.json, capture.json", "the folder was not made by the agent")
        elif JOURNAL not in incident.records:
            self._lack(JOURNAL, "the agent's journal was not found, or does not reach back so far")
        self.absent = sorted(set(self.absent), key=lambda one: (one.what, one.why))

    # --- packing ---------------------------------------------------------------------------------------------------

    def _pack(self, target: Path, incident: Incident) -> Manifest:
        budget = self.order.bytes_max
        for _ in range(_ROUNDS_MAX):
            self._shrink(budget)
            made = self._manifest(incident)
            encoded = form.encode(made)
            files: dict[str, Path | bytes] = {name: kept.spool for name, kept in self.kept.items()}
            files |= {form.NAME: encoded, form.SUMS: form.sums_of(encoded, made.files)}
            if written(target, files, int(incident.at_s)) <= self.order.packed_bytes_max:
                return made
            target.unlink()
            budget = min(budget, sum(kept.size for kept in self.kept.values())) // 2
        raise BundleError(f"does not fit into {self.order.packed_bytes_max >> 20} MiB")

    def _shrink(self, budget: int) -> None:
        cap = fair_cap((kept.size for kept in self.kept.values()), budget)
        if cap is None:
            return
        for kept in self.kept.values():
            if kept.size > cap:
                kept.truncated_from = kept.truncated_from or kept.size
                kept.size = keep_tail(kept.spool, cap)

    def _manifest(self, incident: Incident) -> Manifest:
        files = tuple(
            Member(
                path=name,
                sha256=_sha256(kept.spool),
                size=kept.size,
                truncated_from=kept.truncated_from,
                source=kept.source,
                redactions=kept.redactions,
            )
            for name, kept in sorted(self.kept.items())
        )
        where = stands(self.loaded.observations)
        made = Manifest(
            bundle=_bundle_name(form.iso(incident.at_s), incident.name),
            raw=self.redactor is None,
            incident=incident.name,
            at=form.iso(incident.at_s),
            engine=incident.engine,
            hosts=tuple(self.loaded.hosts),
            versions=versions(self.loaded.observations),
            settings=settings(self.loaded.observations),
            verdict=self.verdict,
            signature=signature(self.verdict, where),
            stands=where,
            timeline=incident.timeline,
            files=(),
            absent=(),
            limits={
                "bytes": self.order.bytes_max,
                "packed": self.order.packed_bytes_max,
                "files": self.order.files_max,
            },
            key=fingerprint(self.order.key) if self.order.key is not None else "",
            tool=f"engine-sentinel {__version__}",
            digest=form.digest_of(files),
        )
        shown = made if self.redactor is None else self._redacted(made, self.redactor)
        self._check_rules(files)
        return msgspec.structs.replace(shown, files=files, absent=tuple(self.absent))

    def _redacted(self, made: Manifest, redactor: Redactor) -> Manifest:
        lines = Lines(redactor, table=True, open_keys=_OPEN_KEYS)
        plain: dict[str, Any] = msgspec.to_builtins(made)
        fixed = {name: plain[name] for name in ("schema", "at", "signature", "key", "tool", "digest", "limits")}
        shown = {name: redacted(value, lines) for name, value in plain.items() if name not in fixed}
        for stand, whole in zip(plain["stands"], made.stands, strict=True):
            frames = [lines.place(frame) for frame in whole.frames]
            stand |= {"frames": frames, "role": redactor.words.line(whole.role)}
        shown["stands"] = plain["stands"]
        shown["bundle"] = _bundle_name(made.at, str(shown["incident"]))
        redactor.take_counts()
        return msgspec.convert(shown | fixed, Manifest)

    def _check_rules(self, files: Sequence[Member]) -> None:
        if self.redactor is not None and any(not member.redactions for member in files):
            raise BundleError("a file has not passed redaction")


def create(
    folder: Path, target: Path, order: Order, verdict: Verdict | None = None, loaded: Loaded | None = None
) -> Manifest:
    """Make a bundle of an incident's folder or of any evidence. Raises BundleError and OSError.

    Without a `verdict` the one that the agent left beside the evidence is used.
    """
    incident = read_incident(folder, None)
    found = verdict or incident.verdict
    if found is None:
        raise BundleError(f"{folder} holds no verdict.json; judge the evidence first")
    return Maker(folder, loaded or load(incident.evidence), found, order).write(target)


def written(target: Path, files: Mapping[str, Path | bytes], mtime_s: int) -> int:
    """Write an archive that is whole or absent; returns its size."""
    with _replacing(target) as temporary:
        with temporary.open("xb") as file:
            temporary.chmod(0o640)
            write_archive(file, files, max(0, mtime_s))
        return temporary.stat().st_size


@contextmanager
def _replacing(target: Path) -> Iterator[Path]:
    """A path beside the target that becomes the target, or vanishes."""
    temporary = target.with_name(f".{target.name}.part")
    temporary.unlink(missing_ok=True)
    try:
        yield temporary
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _bundle_name(at: str, incident: str) -> str:
    return f"inc_{at.replace('-', '').replace(':', '')}_{incident}"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
