"""Opens a bundle that may come from anybody: nothing in it is trusted, nothing is extracted by a tar library.

The archive is read through the limits of `sentinel.evidence`: no links, no devices, no names that lead out, bounded
sizes, counts and ratios. What is wrong is collected in words; only a file that is no bundle at all raises.
"""

import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from sentinel.evidence.archive import Found
from sentinel.evidence.limits import Limits, Skips, printable
from sentinel.evidence.stream import Refused, reason_of
from sentinel.evidence.tree import Tree
from sentinel.model.verdict import Skipped
from sentinel.record import manifest as form
from sentinel.record.manifest import Manifest, Member
from sentinel.record.redact import RULES

MANIFEST_BYTES_MAX = 32 << 20
LIMITS = Limits(
    files=form.FILES_MAX + 100,
    file_bytes=form.BYTES_MAX,
    total_bytes=2 * form.BYTES_MAX,
    expanded_bytes=2 * form.BYTES_MAX,
    spool_bytes=2 * form.BYTES_MAX,
    archive_depth=1,
)


class UnusableBundle(Exception):
    """The file is no bundle, or too damaged to say what it is; the message says which and what to do."""


class Bundle:
    """An opened bundle. `manifest` is what it says of itself; `troubles` is what contradicts that."""

    def __init__(self, path: Path, limits: Limits = LIMITS) -> None:
        """Raises UnusableBundle."""
        self.path = path
        self._skips = Skips()
        try:
            self._tree = Tree(path, limits, self._skips)
        except OSError as error:
            raise UnusableBundle(f"{path}: {error.strerror or error}") from error
        self._members: dict[str, Found] = {}
        self.duplicates: list[str] = []
        try:
            self._list()
            self.manifest = self._read_manifest()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Bundle":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give back the file and its temporary copy."""
        self._tree.__exit__(None, None, None)

    @property
    def names(self) -> tuple[str, ...]:
        """Names inside, sorted; each of them is safe to join to a folder."""
        return tuple(sorted(self._members))

    @property
    def skipped(self) -> tuple[Skipped, ...]:
        """What was refused or damaged while reading, so far."""
        return self._skips.result()

    def chunks(self, name: str) -> Iterator[bytes]:
        """A member's bytes. Raises KeyError for a name that is not inside."""
        yield from self._members[name].source.chunks(lambda why: self._skips.add(name, why))

    def _list(self) -> None:
        for found in self._tree.documents():
            name = found.name.partition("!")[2] or found.name
            if name in self._members:
                self.duplicates.append(name)
            else:
                self._members[name] = found

    def _read_manifest(self) -> Manifest:
        if form.NAME not in self._members:
            why = "; ".join(f"{skip.file}: {skip.why}" for skip in self.skipped[:3])
            raise UnusableBundle(f"{self.path} is no bundle: it holds no {form.NAME}" + (f" ({why})" if why else ""))
        data = bytearray()
        for chunk in self.chunks(form.NAME):
            data += chunk
            if len(data) > MANIFEST_BYTES_MAX:
                raise UnusableBundle(f"{self.path}: {form.NAME} is larger than {MANIFEST_BYTES_MAX >> 20} MiB")
        try:
            return form.decode(bytes(data))
        except ValueError as error:
            raise UnusableBundle(f"{self.path}: {form.NAME} cannot be read: {error}") from error

    # --- checking --------------------------------------------------------------------------------------------------

    def problems(self) -> Iterator[str]:
        """Everything that does not hold: nothing for a sound bundle."""
        listed = {member.path: member for member in self.manifest.files}
        yield from (f"{name}: stands in the archive more than once" for name in self.duplicates)
        if len(listed) != len(self.manifest.files):
            yield "the manifest lists a file more than once"
        yield from (f"{name}: listed, but not in the archive" for name in sorted(listed.keys() - self._members.keys()))
        extra = self._members.keys() - listed.keys() - {form.NAME, form.SUMS}
        yield from (f"{name}: in the archive, but not listed" for name in sorted(extra))
        for name in sorted(listed.keys() & self._members.keys()):
            yield from self._member_problems(listed[name])
        yield from self._sums_problems()
        if self.manifest.digest != form.digest_of(self.manifest.files):
            yield "the digest of the table of files is not that of its files"
        yield from self._rule_problems()
        yield from (f"{skip.file}: {skip.why}" for skip in self.skipped)

    def _member_problems(self, member: Member) -> Iterator[str]:
        digest, size = hashlib.sha256(), 0
        for chunk in self.chunks(member.path):
            digest.update(chunk)
            size += len(chunk)
        if size != member.size:
            yield f"{member.path}: {size} bytes, the manifest says {member.size}"
        elif digest.hexdigest() != member.sha256:
            yield f"{member.path}: its checksum is not that of the manifest"

    def _sums_problems(self) -> Iterator[str]:
        if form.SUMS not in self._members:
            yield f"{form.SUMS}: not in the archive"
            return
        manifest = b"".join(self.chunks(form.NAME))
        if b"".join(self.chunks(form.SUMS)) != form.sums_of(manifest, self.manifest.files):
            yield f"{form.SUMS}: does not agree with the manifest; one of them was changed"

    def _rule_problems(self) -> Iterator[str]:
        if self.manifest.raw:
            return
        for member in self.manifest.files:
            lacking = [rule for rule in RULES if rule not in member.redactions]
            if lacking:
                yield f"{member.path}: these redaction rules did not run: {', '.join(lacking)}"

    # --- taking out ------------------------------------------------------------------------------------------------

    def export(self, target: Path) -> int:
        """Write all members into a new folder; returns their number. Raises OSError; never follows or overwrites."""
        target.mkdir(parents=False, exist_ok=False, mode=0o750)
        for name in self.names:
            parts = [part for part in name.split("/") if part not in ("", ".")]
            folder = target.joinpath(*parts[:-1])
            folder.mkdir(parents=True, exist_ok=True, mode=0o750)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(folder / parts[-1], flags, 0o640)
            with os.fdopen(fd, "wb") as file:
                for chunk in self.chunks(name):
                    file.write(chunk)
        return len(self._members)

    def lines(self, name: str, longest: int = 1 << 16) -> Iterator[str]:
        """Text lines of a member; what is longer than `longest` bytes is cut."""
        rest = b""
        with suppress(Refused):
            for chunk in self.chunks(name):
                *whole, rest = (rest + chunk).split(b"\n")
                yield from (line[:longest].decode("utf-8", "replace") for line in whole)
                rest = rest[:longest]
        if rest:
            yield rest.decode("utf-8", "replace")


def failure(error: Exception) -> str:
    """One line that a person understands, safe for a terminal."""
    return printable(reason_of(error) if isinstance(error, OSError) else str(error))
