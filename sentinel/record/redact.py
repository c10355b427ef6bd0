"""Redaction, default deny: what leaves this machine is what we know to be technical, everything else becomes a mark.

Per line, in this order: secrets, content of requests, names of machines and people, unknown words. A line that no
parser of ours knows and that is mostly unknown words keeps its time, level and logger only. Documents stream through
line by line; only JSON documents and pickles are held in memory, up to a limit.
"""

import hashlib
import hmac
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from sentinel.record.pseudonyms import Pseudonyms
from sentinel.record.redact_content import Content
from sentinel.record.redact_secrets import Secrets, is_secret_name
from sentinel.record.redact_words import CLOSE, INNER, OPEN, Words, public

RULES = (
    "known_secret", "named_secret", "provider_key", "jwt", "bearer", "url_userinfo", "pem", "environment_value",
    "content", "json_body", "long_quote", "number_list", "base64", "name", "unknown_word", "unknown_line",
)  # fmt: skip
"""Every rule that must have run over every redacted document; `verify` wants all of them in the manifest."""

_LOG_PREFIX = re.compile(
    r"^(?:(?:\[[\w .,:/+=-]{1,80}\]|\([\w .:=-]{1,60}\)|\d{2,4}[-/.]\d\d(?:[-/.]\d\d)?[T ]?|"
    r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?|(?:DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL|TRACE)\b|"
    r"[\w.-]{1,80}:\d{1,9}:\d{1,9}|NCCL)[ \t:|-]{0,8}){1,12}"
)
_SOURCE = r"\.(?:py|pyx|pyi|so(?:\.[\d.]+)?|c|cc|cpp|cxx|cu|cuh|h|hpp|S|rs|go)"
_FRAMES = (
    re.compile(
        r"^\s*(?:\((?:Python|C)\)\s+)?File \"[^\"\n]{1,400}\", line \d{1,9},? in [\w<>.?:~@$, &*()\[\]=-]{1,400}$"
    ),
    re.compile(
        r"^\s{2,}[A-Za-z_<?~][\w<>.:~$@+*&\[\]{}#-]{0,300}(?:\([^\"'\n]{0,300}\)|[<,][^\"'\n]{0,300})?(?: const)? "
        rf"\([^()\s\"']{{1,300}}(?:{_SOURCE}|python[\d.]*|libc|ld)?(?::\d{{1,9}})?\)$"
    ),
    re.compile(r"^#\d{1,4}\s+(?:0x[0-9a-f]{4,16}\s)?.{0,2000}$"),
    re.compile(r"^\s*(?:/[\w.+-]{1,100}){2,}(?::\d{1,9})?$"),
)
_WORDS_IN_A_ROW = re.compile(r"(?<![\w:<(*&.])[A-Za-z]{2,}(?:[,.]? [A-Za-z]{2,}(?![\w:<(*&.])){3,}")
_WORDS_OF_CODE = frozenset(
    (
        "at", "auto", "bool", "char", "class", "const", "double", "enum", "float", "for", "from", "in", "int", "lambda",
        "long", "operator", "short", "signed", "struct", "thunk", "to", "typeinfo", "unsigned", "void", "volatile",
        "vtable", "non", "virtual", "guard", "variable",
    )
)  # fmt: skip
_GDB_STRING = re.compile(r"\"(?:[^\"\\\n]|\\.)*\"?(?:\.\.\.)?")
_ASSIGNMENT = re.compile(
    r"^(?P<lead>\s*(?:export |declare -x |ENV |- ?)?\"?(?P<name>[A-Za-z_]\w{0,127})(?:=|: ))(?P<value>.*)$", re.DOTALL
)
_OPEN_FAMILIES = ("NCCL_", "GLOO_", "TORCH_", "CUDA_", "SGLANG_", "SGL_", "VLLM_", "UCX_", "FI_", "OMP_")
_DIGITS = str.maketrans("123456789", "000000000")
_POINTER = re.compile(r"(?<![A-Za-z0-9])0x[0-9a-f]{1,32}(?![A-Za-z0-9])")
_SHAPE_MAX = 2_000
_SHAPES_MAX = 20_000
_COMMAS_MAX = 8
_UNKNOWN_SHARE = 0.25
_SAFE_CHARS = 120
_STACK_READERS = frozenset(("py-spy", "py-spy-embedded", "pystack", "eu-stack", "gdb", "faulthandler", "cuda-gdb"))


@dataclass(slots=True)
class Redactor:
    """Redacts the documents of one bundle. `literals` are secret values to replace wherever they stand."""

    names: Pseudonyms
    literals: tuple[str, ...] = ()
    counts: Counter[str] = field(default_factory=Counter)
    words: Words = field(init=False)

    def __post_init__(self) -> None:
        self.words = Words(self.names)

    def mark(self, rule: str, text: str) -> str:
        """Stands for something elided while a line is worked on; no rule takes it for text. `Words` makes it public."""
        self.counts[rule] += 1
        length = len(text) if OPEN not in text else len(INNER.sub("", text))
        return f"{OPEN}{length};{self.names.hexadecimal('elided', text, 4)}{CLOSE}"

    def elided(self, rule: str, text: str) -> str:
        """What the bundle shows instead: the length and a keyed hash, so that equal things look equal."""
        return public(self.mark(rule, text))

    def take_counts(self) -> dict[str, int]:
        """How often each rule applied since the last call; all rules that ran are named, also those with none."""
        taken = {rule: self.counts.get(rule, 0) for rule in RULES}
        self.counts.clear()
        return taken

    def path(self, name: str) -> str:
        """A file name in the bundle."""
        return self.words.line(name.replace("!", "/"))


@dataclass(slots=True)
class Lines:
    """Redacts one document line by line.

    `known` are the numbers of lines from which a parser took something; `table` says that a parser owns the whole
    document, `environment` that it holds variables.
    """

    redactor: Redactor
    known: frozenset[int] = frozenset()
    readers: frozenset[str] = frozenset()
    table: bool = False
    environment: bool = False
    open_keys: frozenset[str] = frozenset()
    _suspect: bool = False
    _clean: dict[str, bool] = field(default_factory=dict)
    secrets: Secrets = field(init=False)
    _content: Content = field(init=False)

    def __post_init__(self) -> None:
        self.secrets = Secrets(self.redactor.literals, self.redactor.mark)
        self._content = Content(self.redactor.mark)

    def text(self, text: str, number: int = 0) -> str:
        """One line (which may hold segments between carriage returns), without its newline."""
        if not text or text.isspace():
            return text
        if "\r" in text:
            return "\r".join(self.text(part, number) for part in text.split("\r"))
        words, counts = self.redactor.words, self.redactor.counts
        host = words.leading_name(text)
        rest = text[len(host) :]
        shape = _POINTER.sub("0x", f"{bool(host)}{rest}").translate(_DIGITS)
        lead = words.line(host) if host else ""
        if self._passes(shape, rest):
            counts["name"] += bool(host)
            return lead + rest
        before = counts.total()
        shown = self._redacted(text.replace(OPEN, "").replace(CLOSE, ""), number)
        if shown == lead + rest and counts.total() - before == bool(host):
            self._learn(shape, text)
        return shown

    def _passes(self, shape: str, rest: str) -> bool:
        """Whether a line alike but for its digits needed nothing, and nothing that depends on digits is in this one."""
        led = self._clean.get(shape)
        if led is None or self.secrets.is_open or self.secrets.known_in(rest) or (self._content.is_open and not led):
            return False
        if self.redactor.words.names_in(rest):
            return False
        self._content.is_open = False
        self._suspect = self._suspect and not led
        return True

    def _learn(self, shape: str, text: str) -> None:
        if len(text) <= _SHAPE_MAX and text.count(",") < _COMMAS_MAX and len(self._clean) < _SHAPES_MAX:
            self._clean[shape] = not self.table and bool(self._prefix(text))

    def _redacted(self, text: str, number: int) -> str:
        text = self.secrets.line(text)
        if self.environment and (found := _ASSIGNMENT.match(text)) is not None:
            return self._variable(found)
        if self._is_frame(text):
            return self._frame(text)
        return self._message(text, number)

    def _message(self, text: str, number: int) -> str:
        prefix = "" if self.table else self._prefix(text)
        if self._content.is_open and not prefix and not self.table:
            return self.redactor.elided("content", text)  # a value that began on an earlier line goes on
        self._content.is_open = False
        rest = self._content.line(text[len(prefix) :], bodies=not self.table)
        if prefix:
            self._suspect = rest != text[len(prefix) :]
        words = self.redactor.words
        head = words.line(prefix) if prefix else ""
        named = words.named
        shown = words.line(rest)
        unknown, total = words.unknown, words.unknown + words.known
        self.redactor.counts["name"] += words.named + named
        if self.table or not unknown or number in self.known or " NCCL " in text[:300]:
            self.redactor.counts["unknown_word"] += unknown
            return head + shown
        if unknown > _UNKNOWN_SHARE * total or (self._suspect and not prefix):
            self._suspect = True
            return head + self.redactor.elided("unknown_line", text[len(prefix) :])
        self.redactor.counts["unknown_word"] += unknown
        return head + (shown if len(shown) <= _SAFE_CHARS else self._shortened(shown))

    def _shortened(self, shown: str) -> str:
        """The first safe characters of a line that nothing of ours knows, cut between words."""
        cut = shown.rfind(" ", 0, _SAFE_CHARS) + 1
        opened = shown.rfind("<elided", 0, cut)
        if opened >= 0 and ">" not in shown[opened:cut]:
            cut = opened
        return shown[:cut] + self.redactor.elided("unknown_line", shown[cut:])

    def _prefix(self, text: str) -> str:
        found = _LOG_PREFIX.match(text[:400])
        if found is None:
            return ""
        # Never ends within a word: the half in front would pass as something that it is not.
        cut = max(found[0].rfind(end) for end in (" ", "\t", "]", ")"))
        return found[0] if len(found[0]) == len(text) else text[: cut + 1]

    def _is_frame(self, text: str) -> bool:
        lead = text[:1]
        if lead not in " #/\tF(" or len(text) > 4096:
            return False
        if lead == "#" and not self.readers & _STACK_READERS:
            return False
        return any(pattern.match(text) for pattern in _FRAMES) and not _is_prose(text)

    def place(self, text: str) -> str:
        """A function and its file, as `record.signature` puts them together from a frame."""
        text = self.secrets.line(text.replace(OPEN, "").replace(CLOSE, ""))
        return self._message(text, 0) if _is_prose(text) else self._frame(text)

    def _frame(self, text: str) -> str:
        """A frame keeps its function and its file; values of arguments that a native debugger prints do not stay."""
        text = self._content.frame(text)
        if not text.lstrip().startswith(("File ", "(Python)", "(C)")) and '"' in text:
            text = _GDB_STRING.sub(lambda found: self.redactor.mark("content", found[0]), text)
        shown = self.redactor.words.identities(text)
        self.redactor.counts["name"] += self.redactor.words.named
        return shown

    def _variable(self, found: re.Match[str]) -> str:
        name, value = found["name"], found["value"]
        if not name.startswith(_OPEN_FAMILIES) or is_secret_name(name):
            lead = found["lead"] if name.startswith(_OPEN_FAMILIES) else self.redactor.words.line(found["lead"])
            return lead + self.redactor.elided("environment_value", value)
        shown = self.redactor.words.line(self._content.line(value))
        self.redactor.counts["unknown_word"] += self.redactor.words.unknown
        return found["lead"] + shown


def _is_prose(text: str) -> bool:
    """Whether a line has four words in a row that are not all words of a programming language."""
    return any(
        not _WORDS_OF_CODE.issuperset(found[0].replace(",", "").replace(".", "").split())
        for found in _WORDS_IN_A_ROW.finditer(text)
    )


def known_lines(observed: Iterable[tuple[str, int | None]]) -> Mapping[str, frozenset[int]]:
    """Document -> numbers of lines that an observation names as its origin."""
    found: dict[str, set[int]] = {}
    for name, line in observed:
        if line is not None:
            found.setdefault(name, set()).add(line)
    return {name: frozenset(lines) for name, lines in found.items()}


def split_lines(chunks: Iterable[bytes], longest: int = 1 << 20) -> Iterator[bytes]:
    """Lines of a byte stream with their ends; a line beyond `longest` bytes is given in pieces."""
    rest = b""
    for chunk in chunks:
        rest += chunk
        lines = rest.split(b"\n")
        rest = lines.pop()
        for line in lines:
            yield line + b"\n"
        if len(rest) > longest:
            yield rest
            rest = b""
    if rest:
        yield rest


def fingerprint(key: bytes) -> str:
    """Names a pseudonym key without telling it: bundles with the same fingerprint can be compared."""
    return hmac.new(key, b"sentinel bundle key", hashlib.sha256).hexdigest()[:12]
