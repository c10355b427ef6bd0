r"""Records of container and system logs: Docker json-file, CRI, timestamped `kubectl logs`, the systemd journal.

Shapes: Docker 20 to 29 json-file driver; Kubernetes CRI v1 log format; `journalctl -o json` and `-o export` of
systemd 240 to 257 (a JSON MESSAGE is a string, an array of integers if it is not clean text, an array of values if
the field repeats, null if it is over 4096 bytes without `--all`).
"""

import re
from calendar import timegm
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import msgspec

from sentinel.collector import Line

CRI = (
    r"^(?P<ts>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)) "
    r"(?P<stream>stdout|stderr) (?P<tag>[FP](?::[^ ]*)?) (?P<text>.*)$"
)
DOCKER = (
    r'^\{"log":"(?P<log>(?:[^"\\]|\\.)*)","stream":"(?P<stream>stdout|stderr)"'
    r'(?:,"attrs":\{.*?\})?,"time":"(?P<time>[^"]+)"\}$'
)
STAMPED = r"^(?P<ts>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{7,9}(?:Z|[+-]\d\d:\d\d))(?: (?P<text>.*))?$"
JOINED_CHARS = 1 << 20
_STREAMS = 64

_CRI = re.compile(CRI)
_STAMPED = re.compile(STAMPED)
_LOG = re.compile(r'\{ ?"log" ?: ?"')
_STAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(?:Z|([+-])(\d\d):?(\d\d))?")


class Record(msgspec.Struct, frozen=True, gc=False):
    """One record of a frame. `partial` means that the same `stream` continues the text in a later record."""

    number: int
    text: str
    at_s: float | None = None
    stream: str = ""
    partial: bool = False
    pid: int | None = None
    host: str | None = None


@lru_cache(maxsize=4096)
def _second(text: str) -> float | None:
    try:
        fields = [int(part) for part in re.split(r"[-T:]", text)]
        return float(timegm((fields[0], fields[1], fields[2], fields[3], fields[4], fields[5])))
    except ValueError:
        return None


def utc_seconds(stamp: str) -> float | None:
    """Seconds since the epoch of an RFC 3339 time; None when it is not one.

    >>> utc_seconds("1970-01-01T02:00:01.5+02:00")
    1.5
    """
    found = _STAMP.match(stamp)
    if found is None or (whole := _second(found[1])) is None:
        return None
    if found[2]:
        whole += float(found[2][:16])
    if found[3]:
        shift = int(found[4]) * 3600 + int(found[5]) * 60
        whole += -shift if found[3] == "+" else shift
    return whole


class Joiner:
    """Joins partial records, each stream on its own; bounded in length and in number of streams."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[Record, list[str], int]] = {}

    def add(self, record: Record) -> Iterator[Line]:
        """Lines that are complete now; a joined line has the number and the time of its first record."""
        held = self._open.pop(record.stream, None)
        if held is None and not record.partial:
            yield from _lines(record, record.text)
            return
        first, parts, size = held or (record, [], 0)
        if size < JOINED_CHARS:
            parts.append(record.text)
            size += len(record.text)
        if not record.partial:
            yield from _lines(first, "".join(parts))
            return
        self._open[record.stream] = (first, parts, size)
        if len(self._open) > _STREAMS:
            oldest = next(iter(self._open))
            first, parts, _ = self._open.pop(oldest)
            yield from _lines(first, "".join(parts))

    def flush(self) -> Iterator[Line]:
        """Lines whose last part never came."""
        held, self._open = list(self._open.values()), {}
        for first, parts, _ in held:
            yield from _lines(first, "".join(parts))


def _lines(record: Record, text: str) -> Iterator[Line]:
    if "\n" not in text:
        yield Line(record.number, text, record.at_s, record.pid, record.host)
        return
    for part in text.split("\n"):
        yield Line(record.number, part, record.at_s, record.pid, record.host)


class _Docker(msgspec.Struct, gc=False):
    log: str = ""
    stream: str = ""
    time: str = ""


_docker = msgspec.json.Decoder(_Docker)
_json = msgspec.json.Decoder()


def read_docker(number: int, text: str) -> Record | None:
    """One json-file record; a record that was cut gives what can still be read of its text."""
    if not text:
        return None
    try:
        found = _docker.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return Record(number, _salvage(text))
    whole = found.log.endswith("\n")
    log = found.log[:-1] if whole else found.log
    return Record(number, log.removesuffix("\r"), utc_seconds(found.time), found.stream, not whole)


def _salvage(text: str) -> str:
    """The readable part of the text of a cut record; the line itself when it is no such record."""
    lead = _LOG.match(text)
    if lead is None:
        return text
    body = text[lead.end() :]
    for end in range(len(body), max(-1, len(body) - 7), -1):  # a cut may fall inside an escape of six characters
        try:
            return str(_json.decode(f'"{body[:end]}"')).removesuffix("\n")
        except (msgspec.DecodeError, UnicodeEncodeError):
            continue
    return body


def read_cri(number: int, text: str) -> Record | None:
    """One CRI record; any other line is kept as it is."""
    found = _CRI.match(text)
    if found is None:
        return Record(number, text)
    stamp, stream, tag, rest = found.groups()
    return Record(number, rest, utc_seconds(stamp), stream, tag[0] == "P")


def read_stamped(number: int, text: str) -> Record | None:
    """One line of `kubectl logs --timestamps` or `docker logs --timestamps`."""
    found = _STAMPED.match(text)
    return Record(number, text) if found is None else Record(number, found[2] or "", utc_seconds(found[1]))


def read_journal_json(number: int, text: str) -> Record | None:
    """One entry of `journalctl -o json`; None for entries without a readable message."""
    if not text:
        return None
    try:
        fields = _json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    return _entry(number, fields) if isinstance(fields, dict) else None


def _entry(number: int, fields: dict[str, Any]) -> Record | None:
    message = _message(fields.get("MESSAGE"))
    if message is None:
        return None
    host, pid, at = _text(fields.get("_HOSTNAME")), _int(fields.get("_PID")), _int(fields.get("__REALTIME_TIMESTAMP"))
    if _text(fields.get("_TRANSPORT")) == "kernel":
        # The kernel's own prefix, as dmesg prints it, so that one parser reads both.
        mono = _int(fields.get("_SOURCE_MONOTONIC_TIMESTAMP")) or _int(fields.get("__MONOTONIC_TIMESTAMP"))
        message = message if mono is None else f"[{mono // 1_000_000:5d}.{mono % 1_000_000:06d}] {message}"
        pid = None
    stream = f"{host}/{pid}/{_text(fields.get('CONTAINER_ID')) or ''}"
    partial = _text(fields.get("_LINE_BREAK")) == "line-max"
    if _text(fields.get("CONTAINER_PARTIAL_MESSAGE")) == "true":
        partial = _text(fields.get("CONTAINER_PARTIAL_LAST")) != "true"
    return Record(number, message, None if at is None else at / 1e6, stream, partial, pid, host)


def _message(value: object) -> str | None:
    """The text of a MESSAGE field in any of its four shapes; None when the journal left it out."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not value:
        return None
    if all(isinstance(one, int) and 0 <= one < 256 for one in value):
        return bytes(value).decode("utf-8", "replace")
    return "\n".join(text for one in value if (text := _message(one)) is not None) or None


def _text(value: object) -> str | None:
    while isinstance(value, list) and value and not isinstance(value[0], int):
        value = value[0]
    return value if isinstance(value, str) else _message(value)


def _int(value: object) -> int | None:
    text = _text(value)
    return int(text) if text is not None and len(text) < 20 and text.isascii() and text.isdigit() else None


READERS: dict[str, Callable[[int, str], Record | None]] = {
    "docker": read_docker,
    "cri": read_cri,
    "stamped": read_stamped,
    "journal_json": read_journal_json,
}


def is_export(head: bytes) -> bool:
    """Whether bytes start with an entry of the journal's export format."""
    return bool(re.match(rb"(?:__CURSOR|__REALTIME_TIMESTAMP)=[^\n]*\n[A-Z_0-9]+[=\n]", head))


class ExportReader:
    """Entries of the journal's export format: `FIELD=value` lines, or a field, a length and raw bytes; blank line ends.

    https://systemd.io/JOURNAL_EXPORT_FORMATS/
    """

    def __init__(self) -> None:
        self._fields: dict[str, Any] = {}
        self._number = 1
        self._first = 1

    def feed(self, data: bytes) -> tuple[bytes, list[Record]]:
        """What could not be read yet, and the entries completed."""
        records: list[Record] = []
        at = 0
        while (end := data.find(b"\n", at)) >= 0:
            line = data[at:end]
            name, equals, value = line.partition(b"=")
            if line and not equals:
                size = int.from_bytes(data[end + 1 : end + 9], "little")
                stop = end + 9 + size
                if size > JOINED_CHARS:  # no such field is of interest; without its end, nothing after it is readable
                    return b"", records
                if stop >= len(data):
                    break
                value, end = data[end + 9 : stop], stop
            if line:
                self._note(name, value)
            else:
                records.extend(self._take())
            self._number += 1 + value.count(b"\n")
            at = end + 1
        return data[at:], records

    def finish(self, rest: bytes) -> list[Record]:
        """The entry that the end of the file left open."""
        name, equals, value = rest.partition(b"=")
        if equals:
            self._note(name, value)
        return self._take()

    def _note(self, name: bytes, value: bytes) -> None:
        if not self._fields:
            self._first = self._number
        if len(self._fields) < 500:
            self._fields.setdefault(name[:64].decode("ascii", "replace"), value.decode("utf-8", "replace"))

    def _take(self) -> list[Record]:
        fields, self._fields = self._fields, {}
        record = _entry(self._first, fields) if fields else None
        return [] if record is None else [record]
