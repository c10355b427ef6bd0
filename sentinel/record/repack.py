"""Makes a new bundle from one: with the report inside, or with a raw one redacted."""

import hashlib
import shutil
import tempfile
from calendar import timegm
from pathlib import Path
from time import strptime

import msgspec

from sentinel.record import manifest as form
from sentinel.record.bundle import BundleError, Order, create, written
from sentinel.record.manifest import Manifest, Member
from sentinel.record.reader import Bundle
from sentinel.record.redact import RULES

REPORT = "report.html"


def with_report(bundle: Bundle, page: bytes, target: Path) -> Manifest:
    """The same bundle with a report inside. The page must have been made from the bundle's own, redacted, evidence."""
    with tempfile.TemporaryDirectory(prefix="sentinel-bundle-") as private:
        folder = Path(private) / "members"
        bundle.export(folder)
        old = bundle.manifest
        redactions = {} if old.raw else dict.fromkeys(RULES, 0)
        digest = hashlib.sha256(page).hexdigest()
        page_member = Member(
            path=REPORT, sha256=digest, size=len(page), source=("sentinel report",), redactions=redactions
        )
        kept = [member for member in old.files if member.path != REPORT]
        files = tuple(sorted((*kept, page_member), key=lambda member: member.path))
        made = msgspec.structs.replace(old, files=files, digest=form.digest_of(files))
        encoded = form.encode(made)
        content: dict[str, Path | bytes] = {member.path: folder / member.path for member in kept}
        content |= {REPORT: page, form.NAME: encoded, form.SUMS: form.sums_of(encoded, files)}
        written(target, content, timegm(strptime(old.at, "%Y-%m-%dT%H:%M:%SZ")))
        return made


def redacted_copy(bundle: Bundle, target: Path, order: Order) -> Manifest:
    """A raw bundle redacted; one that is redacted already is copied as it is. Raises BundleError."""
    problems = list(bundle.problems())
    if problems:
        raise BundleError(f"{bundle.path} is damaged and stays as it is: {problems[0]}")
    if not bundle.manifest.raw:
        shutil.copyfile(bundle.path, target)
        return bundle.manifest
    with tempfile.TemporaryDirectory(prefix="sentinel-bundle-") as private:
        folder = Path(private) / bundle.manifest.incident.replace("/", "_")
        bundle.export(folder)
        (folder / form.NAME).unlink()
        (folder / form.SUMS).unlink()
        return create(folder, target, order, verdict=bundle.manifest.verdict)
