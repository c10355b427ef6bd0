"""What reading may cost, and the record of what was left out and why.

Evidence comes from machines in trouble and from strangers: every size, count and depth has a limit, and reaching one
is reported, never fatal.
"""

from collections import Counter

import msgspec

from sentinel.model.verdict import Skipped

CHUNK_BYTES = 128 << 10
LISTED_PER_REASON = 50


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Budgets of one load. Bytes are counted after decompression unless said otherwise.

    `ratio` bounds what a compressed stream may expand to, once it has given `ratio_free_bytes`: real logs compress 10
    to 100 times, a bomb 1,000 times and more. `archive_depth` counts archives and compressed files inside each other.
    `kept_first` and `kept_last` bound the observations of one kind from one file.
    """

    files: int = 100_000
    directory_depth: int = 40
    file_bytes: int = 4 << 30
    total_bytes: int = 16 << 30
    expanded_bytes: int = 2 << 30
    ratio: int = 300
    ratio_free_bytes: int = 16 << 20
    archive_depth: int = 2
    spool_bytes: int = 4 << 30
    window_bytes: int = 128 << 20
    kept_first: int = 1_000
    kept_last: int = 50_000
    kept_total: int = 1_000_000


class Skips:
    """Collects what was skipped; alike entries beyond the first `LISTED_PER_REASON` become one line with a count."""

    def __init__(self) -> None:
        self._listed: dict[tuple[str, str], None] = {}
        self._seen: Counter[str] = Counter()

    def add(self, file: str, why: str) -> None:
        """Record one file, once for each reason; `why` is a clause that a person understands."""
        entry = (printable(file), why)
        if entry in self._listed:
            return
        self._seen[why] += 1
        if self._seen[why] <= LISTED_PER_REASON:
            self._listed[entry] = None

    def result(self) -> tuple[Skipped, ...]:
        """Everything recorded, in the order of reading, summaries last."""
        more = tuple(
            Skipped(file=f"{count - LISTED_PER_REASON} more files", why=why)
            for why, count in self._seen.items()
            if count > LISTED_PER_REASON
        )
        return (*(Skipped(file=file, why=why) for file, why in self._listed), *more)


def printable(name: str) -> str:
    """A file name that is safe to print: control characters and undecodable bytes become visible escapes.

    >>> printable("a\\x1b[31m.log")
    'a\\\\x1b[31m.log'
    """
    if name.isprintable():
        return name
    return "".join(char if char.isprintable() else _escape(char) for char in name)


def _escape(char: str) -> str:
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:  # an undecodable byte, as os.fsdecode keeps it
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
