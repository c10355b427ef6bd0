"""JSON documents: structure, numbers and known words stay; what users wrote, secrets and unknown strings do not."""

import json
import re
from collections.abc import Iterator
from itertools import pairwise

from sentinel.record.redact import Lines
from sentinel.record.redact_content import CONTENT_KEYS
from sentinel.record.redact_secrets import is_secret_name

_CODE_KEYS = frozenset(("name", "filename", "short_filename", "module", "file", "func", "function"))
_LIST_MAX = 8
_RANKS_MAX = 4096
_DEPTH_MAX = 60
_CODE = re.compile(r"[\w<>.:~$@+*&\[\]{}()/, =#-]{1,1000}")
_PLAIN = re.compile(r"[\w.:+-]{1,64}")

Json = object


def redact_line(text: str, lines: Lines) -> str | None:
    """A line that is one JSON object, redacted, in compact form; None for any other line."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    return json.dumps(redacted(value, lines), separators=(",", ":"), default=str)


def redact_values(text: str, lines: Lines) -> str | None:
    """The JSON values of a text (one, or several behind each other) redacted; None when it does not start with JSON."""
    parts: list[str] = []
    decoder, at = json.JSONDecoder(), _skip_blank(text, 0)
    while at < len(text):
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            break
        if not isinstance(value, dict | list):
            break
        parts.append(dumped(redacted(value, lines)))
        at = _skip_blank(text, end)
    if not parts:
        return None
    rest = text[at:]
    return "\n".join([*parts, *_rest(rest, lines)]) + "\n"


def _rest(text: str, lines: Lines) -> Iterator[str]:
    """What follows the last whole value, as text; of a value that was cut only its mark."""
    if text.lstrip().startswith(("{", "[", '"')):
        yield lines.redactor.elided("json_body", text)
    elif text.strip():
        yield from (lines.text(line) for line in text.splitlines())


def _skip_blank(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n,":
        at += 1
    return at


def dumped(value: Json) -> str:
    """JSON text in one fixed form."""
    return json.dumps(value, indent=1, ensure_ascii=True, default=str)


def redacted(value: Json, lines: Lines, key: str = "", in_frame: bool = False, depth: int = 0) -> Json:
    """A JSON value without content, secrets, names and unknown words."""
    redactor = lines.redactor
    if depth > _DEPTH_MAX:
        return redactor.elided("json_body", str(type(value)))
    if key and not in_frame and value not in (None, "") and not isinstance(value, bool | int | float):
        if key.lower() in CONTENT_KEYS and key not in lines.open_keys:
            return redactor.elided("content", dumped(value))
        if is_secret_name(key):
            return redactor.elided("named_secret", dumped(value))
    if isinstance(value, dict):
        return _dict(value, lines, depth)
    if isinstance(value, list | tuple):
        if _looks_like_tokens(value):
            return redactor.elided("number_list", dumped(value))
        return [redacted(one, lines, key, in_frame, depth + 1) for one in value]
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, str):
        return _string(value, lines, in_frame)
    return value


def _dict(value: dict[object, object], lines: Lines, depth: int) -> dict[str, Json]:
    frame = "line" in value and ("filename" in value or "function" in value)
    shown: dict[str, Json] = {}
    for name, item in value.items():
        key = str(name)
        if frame and key == "locals":
            shown[key] = None if item is None else lines.redactor.elided("content", dumped(item))
            continue
        shown[lines.redactor.words.line(key)] = redacted(item, lines, key, frame and key in _CODE_KEYS, depth + 1)
    return shown


def _string(text: str, lines: Lines, in_frame: bool) -> str:
    if in_frame and _CODE.fullmatch(text):
        shown = lines.redactor.words.identities(text)
        lines.redactor.counts["name"] += lines.redactor.words.named
        return shown
    if "\n" in text:
        return "\n".join(lines.text(line) for line in text.split("\n"))
    if _PLAIN.fullmatch(text):  # one identifier: its parts are judged one by one
        shown = lines.redactor.words.line(lines.secrets.line(text))
        lines.redactor.counts["unknown_word"] += lines.redactor.words.unknown
        return shown
    return lines.text(text)


def _looks_like_tokens(value: list[object] | tuple[object, ...]) -> bool:
    if len(value) <= _LIST_MAX or not all(isinstance(one, int) and not isinstance(one, bool) for one in value):
        return False
    numbers = [one for one in value if isinstance(one, int)]
    rising = all(one < after for one, after in pairwise(numbers))
    return not (rising and numbers[0] >= 0 and numbers[-1] < _RANKS_MAX)
