"""Makes evidence safe to show: a log line is hostile input, and a terminal obeys what it is sent."""

import re

# C0 and C1 controls, DEL, lone surrogates (undecodable file names), line separators, and the characters that reorder
# or hide text (bidirectional controls, zero-width, byte-order mark).
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff\ufeff\ufff9-\ufffb]"
)


def printable(text: str) -> str:
    """The text with every control, reordering or invisible character spelled out, on one line.

    >>> printable("a\\x1b[2Jb")
    'a\\\\x1b[2Jb'
    """
    return _UNSAFE.sub(_spell, text)


def printable_lines(text: str) -> str:
    """A whole document made printable, its own line ends kept."""
    return "\n".join(map(printable, text.split("\n")))


def clip(text: str, limit: int) -> str:
    """The text cut to `limit` characters, the cut marked by an ellipsis; run `printable` first, it lengthens text."""
    return text if len(text) <= limit else text[: max(limit - 1, 0)] + "…"


def _spell(found: re.Match[str]) -> str:
    char = found[0]
    if char == "\t":
        return " "
    if char == "\n":
        return "\\n"
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
