"""The label of one case: what a right verdict says. Read from `expected.yaml`.

Two forms exist and share their fields. A *public* case has the key `culprit_hosts` (it may be null): there a list of
culprits must be named, an empty list means that naming one is wrong, and null is not scored. A *recorded* case lacks
that key: there an empty list of ranks means that ranks are not scored.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import cast

import msgspec
import yaml

from sentinel.model.verdict import Confidence


class LabelError(ValueError):
    """An `expected.yaml` that cannot be understood; the text says what is wrong with it."""


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """A label. `stalled` holds the accepted values. `ranks` and `hosts`: None = not scored, () = must stay unnamed.

    Each entry of `must_recommend` is a tuple of actions of which one is enough.
    """

    classes: tuple[str, ...]
    stalled: tuple[bool | None, ...]
    ranks: tuple[int, ...] | None = None
    hosts: tuple[str, ...] | None = None
    must_recommend: tuple[tuple[str, ...], ...] = ()
    must_not_recommend: tuple[str, ...] = ()
    max_confidence: Confidence | None = None
    situation: str = ""


class _Raw(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    classes: tuple[str, ...]
    stalled: bool | tuple[bool | None, ...] | None
    culprit_ranks: tuple[int, ...] | None = None
    culprit_hosts: tuple[str, ...] | None = None
    must_recommend: tuple[str, ...] = ()
    must_not_recommend: tuple[str, ...] = ()
    max_confidence: Confidence | None = None
    situation: str = ""
    what_was_done: str = ""
    source: str = ""
    machine: str = ""
    scenario: str = ""


def read_expected(path: Path) -> Expected:
    """Read a label file. Raises LabelError when it is not one."""
    try:
        document: object = yaml.safe_load(path.read_text(encoding="utf-8"))
        raw = msgspec.convert(document, _Raw)
    except (OSError, yaml.YAMLError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise LabelError(f"{path}: {error}") from error
    return expected_of(raw, public="culprit_hosts" in cast(Mapping[str, object], document))


def expected_of(raw: _Raw, *, public: bool) -> Expected:
    """Normalise the two forms into one meaning of "not scored"."""
    if not raw.classes:
        raise LabelError("classes: at least one accepted class is needed")
    if isinstance(raw.stalled, tuple):
        stalled: tuple[bool | None, ...] = raw.stalled
    else:
        stalled = (True, False, None) if raw.stalled is None else (raw.stalled,)
    ranks = raw.culprit_ranks if public else (raw.culprit_ranks or None)
    return Expected(
        classes=raw.classes,
        stalled=stalled,
        ranks=ranks,
        hosts=raw.culprit_hosts if public else None,
        must_recommend=tuple(tuple(entry.split("|")) for entry in raw.must_recommend),
        must_not_recommend=raw.must_not_recommend,
        max_confidence=raw.max_confidence,
        situation=raw.situation or raw.what_was_done,
    )
