"""The last and widest rule: names become pseudonyms, and every word that is not known to be technical becomes a token.

Numbers, pointers and identifiers of requests (hexadecimal) stay. Text that is mostly unknown words is somebody's prose
and goes as a whole.
"""

import re
from dataclasses import dataclass, field

from sentinel.record.pseudonyms import Pseudonyms
from sentinel.record.vocabulary import vocabulary

OPEN, CLOSE = "\ue000", "\ue001"
"""Characters for private use around what is elided while a line is worked on; lines lose their own before that."""
INNER = re.compile(f"{OPEN}(\\d+);([0-9a-f]{{4}}){CLOSE}")

_SCAN = (
    rf"(?P<mark>{OPEN}\d{{1,12}};[0-9a-f]{{4}}{CLOSE})"
    r"|(?P<mail>(?<![\w.])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,6}(?![\w]))"
    r"|(?P<uuid>(?:GPU|MIG)-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})"
    r"|(?P<groups>(?<![\w:.])(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}(?![\w:])|(?<![\w:.])(?:[0-9a-fA-F]{4}:){3,7}[0-9a-fA-F]{4}(?![\w:])"
    r"|(?<![\w:.])[0-9a-f]{1,4}(?::[0-9a-f]{1,4}){0,6}::(?:[0-9a-f]{1,4}:){0,6}[0-9a-f]{1,4}(?![\w:])"
    r"|(?<![\w:.])(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}(?![\w:]))"
    r"|(?P<ip>(?<![\d.\w])\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}(?![\w]|\.\d))"
    r"|(?P<home>/(?:home|Users|users)/(?P<user>[^/\s:,;'\"()\[\]]{1,64}))"
    r"|(?P<host>(?<![\w.-])(?=[a-z0-9-]{1,63}\.)[A-Za-z0-9][A-Za-z0-9-]{0,62}(?:\.[A-Za-z0-9-]{1,63}){0,6}"
    r"\.(?:com|net|org|io|ai|dev|cloud|internal|local|lan|corp|intra|svc|test|example|de|eu|uk|cn|edu|gov|tech|app)(?![\w.-]))"
    r"|(?P<pointer>0[xX][0-9a-fA-F]{1,32}(?![A-Za-z0-9]))"
    r"|(?P<word>[^\W_]+)"
)  # fmt: skip
_PARTS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_HEX = re.compile(r"^[0-9a-fA-F]{4,40}$")
_SHORT = 2
_PARTS_MAX = 8
_DIGITS_MAX = 20
_KNOWN_MAX = 200_000


def public(text: str) -> str:
    """The text with its elisions as the bundle shows them."""
    return INNER.sub(r"<elided len=\1 h=\2>", text)


@dataclass(slots=True)
class Words:
    """Applies the rule; `unknown` and `known` count the words of the last text."""

    names: Pseudonyms
    unknown: int = 0
    known: int = 0
    named: int = 0
    _seen: dict[str, str] = field(default_factory=dict)
    _words: frozenset[str] = field(default_factory=vocabulary)
    _scan: re.Pattern[str] = field(init=False)
    _names: re.Pattern[str] | None = field(init=False)

    def __post_init__(self) -> None:
        self._names = None if self.names.pattern is None else re.compile(self.names.pattern)
        # One pass for everything, so that no token of ours is taken for a word and replaced again.
        self._scan = re.compile(_SCAN if self.names.pattern is None else f"(?P<known>{self.names.pattern})|{_SCAN}")

    def leading_name(self, text: str) -> str:
        """The known name that the text starts with, or nothing."""
        found = None if self._names is None else self._names.match(text)
        return "" if found is None else found[0]

    def names_in(self, text: str) -> bool:
        """Whether the name of a known host or person stands in the text."""
        return self._names is not None and self._names.search(text) is not None

    def line(self, text: str) -> str:
        """The text with names and unknown words replaced."""
        self.unknown = self.known = self.named = 0
        return self._scan.sub(self._one, text)

    def identities(self, text: str) -> str:
        """Only what identifies machines and people; for code, whose identifiers stay."""
        self.unknown = self.known = self.named = 0
        return self._scan.sub(self._identity, text)

    def _identity(self, found: re.Match[str]) -> str:
        return found[0] if found.lastgroup in ("word", "pointer", "host") else self._one(found)

    def _one(self, found: re.Match[str]) -> str:
        text, group = found[0], found.lastgroup
        if group == "word":
            return self._word(text)
        if group == "mark":
            return public(text)
        if group == "pointer":
            return text
        self.named += 1
        if group == "known":
            return self.names.name(found["name"])
        if group in ("home", "user"):
            return text[: -len(found["user"])] + self.names.user(found["user"])
        if group == "ip":
            return self.names.address(text)
        if group == "host":
            return self.names.host(text)
        if group == "uuid":
            return text[:4] + re.sub(
                r"[0-9a-f]+", lambda run: self.names.hexadecimal("gpu", text + str(run.start()), len(run[0])), text[4:]
            )
        if group == "mail":
            return f"{self.names.user(text.partition('@')[0])}@{self.names.host(text.partition('@')[2])}"
        return self.names.groups(text)

    def _word(self, word: str) -> str:
        kept = self._seen.get(word)
        if kept is None:
            kept = word if self._keeps(word) else self.names.word(word)
            if len(self._seen) < _KNOWN_MAX:
                self._seen[word] = kept
        if kept is word or kept == word:
            self.known += 1
        else:
            self.unknown += 1
        return kept

    def _keeps(self, word: str) -> bool:
        if word.isascii() is False:
            return False
        if word.isdigit():
            return len(word) <= _DIGITS_MAX
        if len(word) <= _SHORT or word.lower() in self._words:
            return True
        if _HEX.match(word) and any(char.isdigit() for char in word):
            return True
        parts = _PARTS.findall(word)
        letters = [part.lower() for part in parts if not part.isdigit()]
        if len(parts) > _PARTS_MAX or len(letters) > max(2, len(word) // 3):
            return False
        return all(part in self._words or (len(part) == 1 and len(parts) <= 4) for part in letters)
