"""What differs between two bundles: verdict, versions and settings, where processes stood, and which sources there are.

Hosts and words are pseudonyms of one key in both, so that equal means equal; with two keys that is said first.
"""

from collections.abc import Iterator, Mapping

from sentinel.record.manifest import Manifest, Stand

_SHOWN_RANKS = 12


def differences(before: Manifest, after: Manifest) -> Iterator[str]:
    """Lines to print; none when nothing that matters differs."""
    if before.key != after.key:
        yield "keys: the bundles use different pseudonyms, so names in them cannot be compared"
    yield from _verdict(before, after)
    yield from _mapping("version", before.versions, after.versions)
    yield from _mapping("setting", before.settings, after.settings)
    yield from _stands(before, after)
    yield from _sources(before, after)


def _verdict(before: Manifest, after: Manifest) -> Iterator[str]:
    rows = (
        ("class", before.verdict.kind, after.verdict.kind),
        ("confidence", before.verdict.confidence, after.verdict.confidence),
        ("stalled", str(before.verdict.stalled), str(after.verdict.stalled)),
        ("culprit ranks", _ranks(before.verdict.culprits.ranks), _ranks(after.verdict.culprits.ranks)),
        ("culprit hosts", ", ".join(before.verdict.culprits.hosts), ", ".join(after.verdict.culprits.hosts)),
        ("rule", before.verdict.rule or "none", after.verdict.rule or "none"),
        ("engine", before.engine, after.engine),
        ("tool", before.tool, after.tool),
    )
    for name, old, new in rows:
        if old != new:
            yield f"{name}: {old or 'none'} -> {new or 'none'}"
    same = before.signature == after.signature
    yield f"signature: {'the same' if same else 'different'} ({before.signature}, {after.signature})"


def _mapping(kind: str, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old != new:
            yield f"{kind} {name}: {old if old is not None else 'not set'} -> {new if new is not None else 'not set'}"


def _stands(before: Manifest, after: Manifest) -> Iterator[str]:
    old, new = _by_place(before), _by_place(after)
    for place in sorted(old.keys() | new.keys()):
        role, frames = place
        one, other = old.get(place), new.get(place)
        if (one and one.count) == (other and other.count) and (one and one.ranks) == (other and other.ranks):
            continue
        yield f"stack {role}: {_who(one)} -> {_who(other)} in"
        yield from (f"    {frame}" for frame in frames)


def _by_place(manifest: Manifest) -> dict[tuple[str, tuple[str, ...]], Stand]:
    return {(stand.role, stand.frames): stand for stand in manifest.stands}


def _who(stand: Stand | None) -> str:
    if stand is None:
        return "0"
    return f"{stand.count}" + (f" (ranks {_ranks(stand.ranks)})" if stand.ranks else "")


def _sources(before: Manifest, after: Manifest) -> Iterator[str]:
    old, new = _readers(before), _readers(after)
    for source in sorted(old.keys() | new.keys()):
        if old.get(source, 0) != new.get(source, 0):
            yield f"source {source}: {old.get(source, 0)} files -> {new.get(source, 0)} files"
    reasons_before = {(one.what, one.why) for one in before.absent}
    reasons_after = {(one.what, one.why) for one in after.absent}
    yield from (f"absent only before: {what}: {why}" for what, why in sorted(reasons_before - reasons_after))
    yield from (f"absent only after: {what}: {why}" for what, why in sorted(reasons_after - reasons_before))


def _readers(manifest: Manifest) -> dict[str, int]:
    counts: dict[str, int] = {}
    for member in manifest.files:
        for source in member.source or ("not recognised",):
            counts[source] = counts.get(source, 0) + 1
    return counts


def _ranks(ranks: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, ranks[:_SHOWN_RANKS]))
    return shown + (f", and {len(ranks) - _SHOWN_RANKS} more" if len(ranks) > _SHOWN_RANKS else "")
