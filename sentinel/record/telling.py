"""A manifest in words, on one screen."""

from collections import Counter
from collections.abc import Iterator

from sentinel.record.manifest import Manifest, Stand

_MOMENTS = 12
_ABSENT = 10
_STANDS = 4
_FRAMES = 3


def told(manifest: Manifest) -> Iterator[str]:
    """Lines, the most important first."""
    verdict = manifest.verdict
    kind = "RAW: NOT REDACTED, do not pass on" if manifest.raw else f"redacted (key {manifest.key})"
    yield f"{manifest.bundle}  {kind}"
    yield f"{verdict.kind}, {verdict.confidence} confidence: {verdict.summary}"
    yield f"at {manifest.at}, engine {manifest.engine or 'not named'}, hosts {', '.join(manifest.hosts) or 'not named'}"
    size = sum(member.size for member in manifest.files)
    yield f"{len(manifest.files)} files, {size:,} bytes; made by {manifest.tool}; signature {manifest.signature}"
    if manifest.versions:
        yield "versions: " + ", ".join(f"{name} {version}" for name, version in manifest.versions.items())
    yield from _timeline(manifest)
    yield from _stands(manifest)
    yield from _redactions(manifest)
    cut = [member for member in manifest.files if member.truncated_from is not None]
    yield from (f"cut: {one.path}: the last {one.size:,} of {one.truncated_from:,} bytes" for one in cut[:_ABSENT])
    yield from _absent(manifest)


def _timeline(manifest: Manifest) -> Iterator[str]:
    for moment in manifest.timeline[:_MOMENTS]:
        yield f"  {moment.wall[11:]}  +{moment.mono_s:.3f} s  {moment.what}  {moment.says}".rstrip()
    if len(manifest.timeline) > _MOMENTS:
        yield f"  and {len(manifest.timeline) - _MOMENTS} more moments"


def _stands(manifest: Manifest) -> Iterator[str]:
    for stand in manifest.stands[:_STANDS]:
        yield f"{stand.count} {stand.role}{_of(stand)}: " + " < ".join(stand.frames[:_FRAMES])
    if len(manifest.stands) > _STANDS:
        yield f"and {len(manifest.stands) - _STANDS} more places"


def _of(stand: Stand) -> str:
    return f" (ranks {', '.join(map(str, stand.ranks[:12]))})" if stand.ranks else ""


def _redactions(manifest: Manifest) -> Iterator[str]:
    totals: Counter[str] = Counter()
    for member in manifest.files:
        totals.update(member.redactions)
    if totals:
        yield "redacted: " + ", ".join(f"{rule} {count}" for rule, count in totals.most_common() if count)


def _absent(manifest: Manifest) -> Iterator[str]:
    for one in manifest.absent[:_ABSENT]:
        yield f"absent: {one.what}: {one.why}"
    if len(manifest.absent) > _ABSENT:
        yield f"and {len(manifest.absent) - _ABSENT} more reasons in the manifest"
