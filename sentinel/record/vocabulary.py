"""Words that may leave this machine: those that our own parsers and facts look for, and a list of technical words.

Redaction denies by default: what is not known to be a technical word becomes a token. Taking the words from the source
of the parsers themselves makes sure that a redacted log is still read like the original.
"""

import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

_READERS = (
    "sentinel.collectors", "sentinel.core", "sentinel.engines", "sentinel.evidence", "sentinel.model",
    "sentinel.record", "sentinel.rules",
)  # fmt: skip
_OWN_LIST = "words.txt"
_CLASSES = re.compile(r"\\[a-zA-Z]")
_WORD = re.compile(r"[A-Za-z]{2,40}")
_CAMEL = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")


@cache
def vocabulary() -> frozenset[str]:
    """All known words in lower case; parts of compound names count as words of their own."""
    found: set[str] = set()
    for text in _sources():
        for word in _WORD.findall(_CLASSES.sub(" ", text)):
            found.add(word.lower())
            found.update(part.lower() for part in _CAMEL.findall(word) if len(part) > 1)
    return frozenset(found)


def _sources() -> Iterator[str]:
    yield files("sentinel.record").joinpath(_OWN_LIST).read_text(encoding="utf-8")
    for package in _READERS:
        yield from _python_below(files(package))


def _python_below(folder: Traversable) -> Iterator[str]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _python_below(entry)
        elif entry.name.endswith((".py", ".yaml")):
            yield entry.read_text(encoding="utf-8")
