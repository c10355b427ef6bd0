"""One document through redaction: takes transport frames off and puts them back, reads JSON and pickles as a whole.

Output has one line per input line, so that a verdict's citations of raw and redacted evidence point at the same place.
"""

import json
import re
from collections.abc import Iterable, Iterator

from sentinel.collectors.flight_recorder import Refused, load_plain_pickle
from sentinel.evidence.frames import ExportReader, Record
from sentinel.evidence.framing import Frame, strip_escapes
from sentinel.record.redact import Lines, split_lines
from sentinel.record.redact_json import dumped, redact_line, redact_values, redacted

WHOLE_BYTES_MAX = 64 << 20
_JOURNAL_FIELDS = (
    "__REALTIME_TIMESTAMP", "__MONOTONIC_TIMESTAMP", "_SOURCE_MONOTONIC_TIMESTAMP", "_BOOT_ID", "_HOSTNAME", "_PID",
    "_TRANSPORT", "_LINE_BREAK", "CONTAINER_ID", "CONTAINER_PARTIAL_MESSAGE", "CONTAINER_PARTIAL_LAST", "PRIORITY",
)  # fmt: skip
_LEAD = {
    "cri": re.compile(r"^\S{1,64} (?:stdout|stderr) [FP](?::\S{1,8})? "),
    "stamped": re.compile(r"^\d{4}-\d\d-\d\dT\S{1,32} "),
    "srun": re.compile(r"^ *\d{1,6}: "),
}


class Unredactable(Exception):
    """A document that cannot be redacted, so it stays out; the message is the reason."""


def redact_document(chunks: Iterable[bytes], frame: Frame, lines: Lines, *, binary: bool = False) -> Iterator[bytes]:
    """The document without content, secrets and names. Raises Unredactable."""
    if binary:
        yield from _pickle(chunks, lines)
        return
    source = split_lines(chunks)
    first = next(source, b"")
    if lines.table and frame == "plain" and first.lstrip()[:1] in (b"{", b"[") and not _is_object(first):
        yield _json(first, source, lines)
        return
    for number, raw in enumerate(_again(first, source), 1):
        if b"\0" in raw and lines.environment:
            yield b"\0".join(_plain(part, number, lines) for part in raw.split(b"\0"))
        elif frame == "docker":
            yield _docker(raw, number, lines)
        elif frame == "journal_json":
            yield _journal(raw, number, lines)
        elif frame == "journal_export":
            yield from _export(_again(raw, source), lines)
        else:
            yield _framed(raw, number, frame, lines)


def _is_object(line: bytes) -> bool:
    """Whether a line is one JSON object: then the document has one a line."""
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _again(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


def _decoded(raw: bytes) -> tuple[str, str]:
    """Text without controls, and its line end."""
    end = "\n" if raw.endswith(b"\n") else ""
    text = raw.replace(b"\0", b"").decode("utf-8", "replace").rstrip("\n").removesuffix("\r")
    return strip_escapes(text), end


def _plain(raw: bytes, number: int, lines: Lines) -> bytes:
    text, end = _decoded(raw)
    if text.startswith("{") and text.rstrip().endswith("}") and (shown := redact_line(text, lines)) is not None:
        return (shown + end).encode()
    return (lines.text(text, number) + end).encode()


def _framed(raw: bytes, number: int, frame: Frame, lines: Lines) -> bytes:
    lead = _LEAD.get(frame)
    if lead is None:
        return _plain(raw, number, lines)
    text, end = _decoded(raw)
    found = lead.match(text)
    start = "" if found is None else found[0]
    return start.encode() + _plain((text[len(start) :] + end).encode(), number, lines)


def _docker(raw: bytes, number: int, lines: Lines) -> bytes:
    try:
        record = json.loads(raw)
        log = record["log"]
    except (ValueError, RecursionError, KeyError, TypeError):
        return _plain(raw, number, lines) if raw.strip() else raw
    text = "\n".join(_plain(part.encode("utf-8", "replace"), number, lines).decode() for part in str(log).split("\n"))
    kept = {"log": text} | {key: record[key] for key in ("stream", "time") if isinstance(record.get(key), str)}
    return json.dumps(kept).encode() + b"\n"


def _journal(raw: bytes, number: int, lines: Lines) -> bytes:
    try:
        fields = json.loads(raw)
    except (ValueError, RecursionError):
        return _plain(raw, number, lines)
    if not isinstance(fields, dict):
        return b"\n"
    kept = {name: fields[name] for name in _JOURNAL_FIELDS if isinstance(fields.get(name), str)}
    if "_HOSTNAME" in kept:
        kept["_HOSTNAME"] = lines.redactor.names.host(kept["_HOSTNAME"])
    message = fields.get("MESSAGE")
    if isinstance(message, list) and all(isinstance(one, int) and 0 <= one < 256 for one in message):
        message = bytes(message).decode("utf-8", "replace")
    if isinstance(message, str):
        kept["MESSAGE"] = "\n".join(lines.text(strip_escapes(part), number) for part in message.split("\n"))
    return json.dumps(kept).encode() + b"\n"


def _export(source: Iterator[bytes], lines: Lines) -> Iterator[bytes]:
    """Entries of the export format, as JSON entries: its binary fields cannot be redacted in place."""
    reader, rest = ExportReader(), b""
    for raw in source:
        rest, records = reader.feed(rest + raw)
        yield from (_entry(record, lines) for record in records)
    yield from (_entry(record, lines) for record in reader.finish(rest))


def _entry(record: Record, lines: Lines) -> bytes:
    at = 0 if record.at_s is None else int(record.at_s * 1e6)
    fields = {"__REALTIME_TIMESTAMP": str(at), "MESSAGE": lines.text(strip_escapes(record.text), record.number)}
    if record.host:
        fields["_HOSTNAME"] = lines.redactor.names.host(record.host)
    if record.pid is not None:
        fields["_PID"] = str(record.pid)
    return json.dumps(fields).encode() + b"\n"


def _json(first: bytes, rest: Iterator[bytes], lines: Lines) -> bytes:
    data = bytearray(first)
    for piece in rest:
        data += piece
        if len(data) > WHOLE_BYTES_MAX:
            raise Unredactable(f"a JSON document larger than {WHOLE_BYTES_MAX >> 20} MiB cannot be redacted")
    text = bytes(data).decode("utf-8", "replace")
    shown = redact_values(text, lines)
    if shown is None:  # a value that was cut: its lines still show which threads it held
        shown = "\n".join(lines.text(line, number) for number, line in enumerate(text.split("\n"), 1))
    return shown.encode()


def _pickle(chunks: Iterable[bytes], lines: Lines) -> Iterator[bytes]:
    """A flight recorder's dump becomes JSON, which torch writes too; other binary documents stay out."""
    data = bytearray()
    for chunk in chunks:
        data += chunk
        if len(data) > WHOLE_BYTES_MAX:
            raise Unredactable(f"a binary document larger than {WHOLE_BYTES_MAX >> 20} MiB cannot be redacted")
    try:
        value = load_plain_pickle(bytes(data))
    except Refused:
        raise Unredactable("binary: what is in it cannot be told") from None
    yield dumped(redacted(value, lines)).encode()
