"""Secrets in text: by the shape that providers give them, by the name beside them, by URL and by block.

A value beside a telling name is replaced whatever it looks like. Values known to be secret (from the environment) are
replaced everywhere, literally.
"""

import re
from collections.abc import Callable, Iterable

Counted = Callable[[str, str], str]
"""Takes a rule's name and what it found; gives the replacement and counts it."""

NAMES = (
    r"(?:[A-Za-z0-9_-]{0,40}(?:api[-_]?keys?|tokens?(?![-_]?(?:ids?|id_list|count|usage|num|len|s\b))|secrets?|passw(?:or)?d|passwd|passphrase|"
    r"authorization|credentials?|cookies?|private[-_]?key|access[-_]?key|license[-_]?key|auth|bearer|session[-_]?id|dsn))"
)
_NAMED = re.compile(
    r"(?i)(?<![A-Za-z0-9])(?P<lead>[\"']?(?:--|x-)?"
    + NAMES
    + r"[\"']?\s{0,3}(?:=>|[=:])\s{0,3}|--"
    + NAMES
    + r"\s{1,3})"
    r"(?P<value>\"(?:[^\"\\\n]|\\.){1,4096}\"?|'(?:[^'\\\n]|\\.){1,4096}'?|(?:Bearer|Basic|Token|Digest)\s+[^\s\"',;}\])]+"
    r"|[^\s\"',;}\])]+)"
)
_NAMED_NEAR = (
    "key",
    "token",
    "secret",
    "passw",
    "passphrase",
    "auth",
    "credential",
    "cookie",
    "bearer",
    "session",
    "dsn",
)
_PLAIN_VALUES = frozenset(("none", "null", "true", "false", "''", '""', "nan"))
_NUMBER = re.compile(r"^[\"']?-?\d{1,9}(?:\.\d+)?(?:ms|s|%|[kKMG]i?B?)?[\"']?$")

_SHAPES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("jwt", re.compile(r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)?")),
    ("bearer", re.compile(r"(?i)\b(?:bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}")),
    (
        "provider_key",
        re.compile(
            r"(?<![A-Za-z0-9])(?:sk|pk|rk)[-_][A-Za-z0-9_-]{6,}|(?<![A-Za-z0-9])(?:hf|ghp|gho|ghs|ghu|nvapi|glpat|"
            r"github_pat|xox[abeoprs]|dckr_pat|gsk|pypi|npm|wandb)[-_][A-Za-z0-9_-]{8,}|"
            r"(?<![A-Za-z0-9])(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{12,}|(?<![A-Za-z0-9])AIza[A-Za-z0-9_-]{20,}|"
            r"(?<![A-Za-z0-9])ya29\.[A-Za-z0-9_-]{10,}"
        ),
    ),
)
_SHAPE_MARKS = ("eyJ", "earer", "asic ", "sk", "pk", "rk", "hf", "gh", "nvapi", "glpat", "xox", "dckr", "gsk", "pypi",
                "npm", "wandb", "KIA", "SIA", "BIA", "CCA", "AIza", "ya29")  # fmt: skip
_USERINFO = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{1,20}://)(?P<info>[^\s/@\"'<>]{1,512})@")
_PEM_BEGIN = "-----BEGIN "
_PEM_END = "-----END "
_SECRET_NAME = re.compile(
    r"(?i)key|token|secret|passw|passphrase|credential|cookie|(?:^|_)auth|authorization|bearer|_dsn$|_pat$|signature"
)
_LEAST_LITERAL = 6


def is_secret_name(name: str) -> bool:
    """Whether a variable or a JSON key is named like a secret; counts such as `max_tokens` are none."""
    low = name.lower()
    if "token" in low and re.search(
        r"tokens?_(?:id|ids|usage|count|num|len)|_tokens$|^tokens$|num_|max_|_tokens?_|pad_|eos_|bos_", low
    ):
        return False
    return _SECRET_NAME.search(name) is not None and not low.endswith(("keys_total", "_tokens_total"))


_VARIABLE = re.compile(r"(?m)^\s*(?:export |declare -x |ENV |- ?)?\"?([A-Za-z_]\w{0,127})(?:=|: )([^\n]{0,4096})")


def variables(text: str) -> list[tuple[str, str]]:
    """Assignments, one a line, in any of the usual forms."""
    return [(found[1], found[2]) for found in _VARIABLE.finditer(text)]


def secret_values(environment: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Values of variables that are named like secrets, longest first, for literal replacement everywhere."""
    found = {value for name, value in environment if is_secret_name(name) and len(value) >= _LEAST_LITERAL}
    return tuple(sorted(found, key=lambda value: (-len(value), value)))


class Secrets:
    """Replaces secrets in lines of one document; `is_open`: within a PEM block."""

    def __init__(self, literals: Iterable[str], say: Counted) -> None:
        self._literals = tuple(literals)
        self._say = say
        self.is_open = False

    def known_in(self, text: str) -> bool:
        """Whether a value that is known to be secret stands in the text."""
        return any(literal in text for literal in self._literals)

    def line(self, text: str) -> str:
        """The line without its secrets."""
        for literal in self._literals:
            if literal in text:
                text = text.replace(literal, self._say("known_secret", literal))
        if self.is_open or _PEM_BEGIN in text:
            return self._pem(text)
        if "://" in text and "@" in text:
            text = _USERINFO.sub(lambda found: found["scheme"] + self._say("url_userinfo", found["info"]) + "@", text)
        if any(mark in text for mark in _SHAPE_MARKS):
            for rule, pattern in _SHAPES:
                text = pattern.sub(lambda found, rule=rule: self._say(rule, found[0]), text)  # type: ignore[misc]
        low = text.lower()
        if any(mark in low for mark in _NAMED_NEAR):
            text = _NAMED.sub(self._named, text)
        return text

    def _named(self, found: re.Match[str]) -> str:
        lead, value = found["lead"], found["value"]
        if value.lower() in _PLAIN_VALUES or "\ue000" in value or _NUMBER.match(value) or not is_secret_name(lead):
            return found[0]
        return lead + self._say("named_secret", value)

    def _pem(self, text: str) -> str:
        before, begin, _ = text.partition(_PEM_BEGIN)
        inside = self.is_open
        ends = _PEM_END in text
        self.is_open = not ends
        if inside:
            return self._say("pem", text) + (text.rpartition("-----")[2][:0] if ends else "")
        return before + self._say("pem", begin + text)
