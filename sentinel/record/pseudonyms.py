"""Pseudonyms: the same name always becomes the same token, and nobody without the key can tell which name it was.

Tokens are keyed hashes (HMAC-SHA256). The key stays beside the agent's state and never enters a bundle, so bundles of
one site can be compared and nobody else can try names out. Shapes survive, because parsers read them: a numbered host
keeps its number, an address stays an address (in 240.0.0.0/4, which is nobody's), a container's hexadecimal name stays
hexadecimal.
"""

import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Iterable
from pathlib import Path

KEY_BYTES = 32
_LETTERS = str.maketrans("0123456789abcdef", "bcdfghjklmnpqrst")
_NUMBERED = re.compile(r"^(?P<stem>.*?)(?P<number>\d+)$")
_CONTAINER = re.compile(r"^[0-9a-f]{12}$")
_ADDRESS = re.compile(r"^\d{1,3}(?:\.\d{1,3}){3}$")
_OPEN_HOSTS = frozenset(("localhost", "localhost.localdomain", "ip6-localhost"))
_OPEN_USERS = frozenset(("root", "nobody", "daemon", "messagebus", "syslog", "nvidia-persistenced"))
_OPEN_GROUPS = frozenset(("fe80", "ffff", "ff02"))
_OPEN_ADDRESSES = ("127.", "0.", "255.", "224.", "169.254.")


class KeyFileError(Exception):
    """The key file cannot be used; the message says what to do."""


def load_key(path: Path) -> bytes:
    """The site's key; made at the first call, readable by its owner only. Raises KeyFileError."""
    try:
        if path.exists():
            key = path.read_bytes()
        else:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
            key = secrets.token_bytes(KEY_BYTES)
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "wb") as file:
                file.write(key)
    except FileExistsError:
        key = path.read_bytes()
    except OSError as error:
        raise KeyFileError(f"cannot use the pseudonym key {path}: {error.strerror}; name another with --key") from error
    if len(key) != KEY_BYTES:
        raise KeyFileError(f"the pseudonym key {path} does not hold {KEY_BYTES} bytes; remove it to start a new one")
    return key


class Pseudonyms:
    """Makes and remembers tokens. `hosts` and `users` are names known to be such."""

    def __init__(self, key: bytes, hosts: Iterable[str] = (), users: Iterable[str] = ()) -> None:
        self._key = key
        self._known: dict[tuple[str, str], str] = {}
        self.hosts = frozenset(name for name in hosts if name and name.lower() not in _OPEN_HOSTS)
        self.users = frozenset(name for name in users if name and name not in _OPEN_USERS)
        self.pattern = _alternatives(self.hosts | self.users)

    def hexadecimal(self, kind: str, text: str, length: int) -> str:
        """`length` hexadecimal digits that stand for `text`."""
        known = self._known.get((kind, text))
        if known is None:
            known = hmac.new(self._key, f"{kind}\0{text}".encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()
            if len(self._known) < 500_000:
                self._known[kind, text] = known
        return known[:length]

    def letters(self, kind: str, text: str, length: int = 6) -> str:
        """The same in letters without vowels: no token spells a word or ends in a number."""
        return self.hexadecimal(kind, text, length).translate(_LETTERS)

    def name(self, name: str) -> str:
        """A known host or user."""
        return self.user(name) if name in self.users and name not in self.hosts else self.host(name)

    def host(self, name: str) -> str:
        """A host; its domain goes, its number stays."""
        if name.lower() in _OPEN_HOSTS:
            return name
        if _ADDRESS.match(name):
            return self.address(name)
        if _CONTAINER.match(name):
            return f"c{self.hexadecimal('host', name, 10)}0"
        short = name.split(".", 1)[0]
        numbered = _NUMBERED.match(short)
        if numbered is None:
            return f"host-{self.letters('host', short.lower())}"
        return f"host-{self.letters('host', numbered['stem'].lower())}-{numbered['number']}"

    def user(self, name: str) -> str:
        """A user's login name."""
        return name if name in _OPEN_USERS or name.isdecimal() else f"user-{self.letters('user', name)}"

    def word(self, word: str) -> str:
        """A word that is in no vocabulary; upper case stays upper case."""
        token = "x" + self.letters("word", word)
        return token.upper() if word.isupper() else token

    def address(self, text: str) -> str:
        """An IPv4 address; addresses that mean the same everywhere stay."""
        parts = text.split(".")
        if text.startswith(_OPEN_ADDRESSES) or any(int(part) > 255 for part in parts):
            return text
        digits = self.hexadecimal("ip", text, 7)
        return f"{240 + int(digits[0], 16) % 15}.{int(digits[1:3], 16)}.{int(digits[3:5], 16)}.{int(digits[5:7], 16)}"

    def groups(self, text: str) -> str:
        """An IPv6 address, GID, MAC or GUID: each group of hexadecimal digits becomes another one of its length."""
        bare = text.lower()
        if not bare.replace(":", "").strip("0") or bare in ("::1", "::"):
            return text
        digits = iter(self.hexadecimal("id", bare, 64))
        return ":".join(
            group if group in _OPEN_GROUPS else "".join(one if one == "0" else next(digits) for one in group)
            for group in bare.split(":")
        )


def _alternatives(names: Iterable[str]) -> str | None:
    """A pattern that finds any of the names as a whole word, with the domain behind a host; None without names."""
    ordered = sorted((re.escape(name) for name in names), key=lambda name: (-len(name), name))
    if not ordered:
        return None
    domain = r"(?:\.[a-z][a-z0-9-]{0,62}(?:\.[a-z0-9-]{1,63}){0,8}(?=[:/\s,;)\]]|$))?"
    return rf"(?<![A-Za-z0-9])(?P<name>{'|'.join(ordered)}){domain}(?![A-Za-z0-9])"
