"""What users sent and engines answered, in text: values of content keys, long quotes, token ids, base64, JSON."""

import json
import re
from collections.abc import Callable
from itertools import pairwise

Counted = Callable[[str, str], str]

CONTENT_KEYS = frozenset(
    (
        "prompt", "prompts", "prompt_token_ids", "prompt_tokens_ids", "prompt_embeds", "text", "texts", "content",
        "contents", "messages", "message_history", "input", "inputs", "input_ids", "input_text", "input_embeds",
        "origin_input_ids", "origin_input_text", "origin_input_ids_unpadded", "output_ids", "output_text", "outputs",
        "output_token_ids", "token_ids", "new_token_ids", "all_token_ids", "fill_ids", "completion", "completions",
        "response", "generated_text", "delta", "choices", "tool_calls", "tools", "functions", "arguments", "body",
        "request_body", "response_body", "query", "question", "answer", "instructions", "system_prompt", "image_data",
        "image_url", "audio_data", "video_data", "documents", "suffix", "stop", "stop_strs", "regex", "ebnf",
        "json_schema", "structural_tag", "guided_json", "guided_regex", "guided_grammar", "grammar", "custom_params",
        "decoded_text", "surr_ids", "prefix_text", "chat_template_kwargs", "payload", "user", "locals", "args",
        "mm_inputs", "multimodal_inputs", "mm_features", "mm_kwargs", "pixel_values", "logprobs", "embedding",
    )
)  # fmt: skip
"""Names beside which stands what users wrote or models answered; their values go, whatever they look like."""

_KEYS = "|".join(sorted(CONTENT_KEYS, key=lambda key: (-len(key), key)))
_KEYED = re.compile(rf"(?<![A-Za-z0-9_.])(?P<lead>[\"']?(?:{_KEYS})[\"']?\s{{0,2}}[=:]\s{{0,2}})(?=\S)")
_BARE_VALUE = re.compile(r"[^,;)\]}\n]*")
_OPENERS = {"[": "]", "(": ")", "{": "}"}
_CALL = re.compile(r"[A-Za-z_][\w.]{0,80}(?=[(\[])")
_NUMBER_VALUE = re.compile(
    r"-?\d{1,12}(?:\.\d+)?(?:ms|s|%)?(?=[\s,;)\]}]|$)|0x[0-9a-f]{1,16}(?!\w)|None(?=[\s,;)\]}]|$)|True|False|null"
)
_QUOTED = re.compile(r"(?<![A-Za-z0-9])(?:\"(?:[^\"\\\n]|\\.){33,}\"|'(?:[^'\\\n]|\\.){33,}'(?![A-Za-z0-9]))")
_ACCESS = re.compile(r"\"([A-Z]{3,7} /[^\s?\"]{0,400})(\?[^\s\"]{0,4000})?( HTTP/[\d.]{1,4})\"")
_CODE_FILE = re.compile(r"[\"'][\w./+@~-]{1,600}[\"']")
_CODE_ENDS = (".py", ".pyx", ".so", ".cpp", ".cc", ".cu", ".cuh", ".h", ".hpp")
_OPEN_QUOTE = re.compile(r"(?<![A-Za-z0-9\"'])[\"'](?=\S)[^\"']{33,}$")
_NUMBERS = re.compile(r"[\[(]\s*-?\d+(?:\s*,\s*-?\d+){8,}(?:\s*,?\s*\.\.\.[^\])]{0,40})?\s*,?\s*[\])]?")
_INTEGER = re.compile(r"-?\d+")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{41,}={0,2}")
_JSON_START = re.compile(r"[{\[]\s*\{?\s*\"")
_COLON = re.compile(r"\"\s{0,4}:")
_READING = re.compile(r"[\d .:/TZ+-]{0,40}")
_RANKS_MAX = 4096
SCAN_MAX = 1 << 20


class Content:
    """Replaces content in lines. `is_open`: the last line ended within a value, so that the next one continues it."""

    def __init__(self, say: Counted) -> None:
        self._say = say
        self.is_open = False

    def line(self, text: str, *, bodies: bool = True) -> str:
        """The line without content. `bodies`: JSON objects within it are bodies of requests."""
        if bodies and "{" in text and '"' in text:
            text = self._bodies(text)
        if "=" in text or ":" in text:
            text = self._keyed(text)
        if '"' in text or "'" in text:
            text = _QUOTED.sub(self._quoted, text)
            text = _OPEN_QUOTE.sub(lambda found: self._say("long_quote", found[0]), text)
        if "," in text:
            text = _NUMBERS.sub(self._numbers, text)
        if len(text) > 40:
            text = _BASE64.sub(self._base64, text)
        return text

    def frame(self, text: str) -> str:
        """A frame of a stack without content: long symbols are no base64, and nothing goes on in the next line."""
        text = _QUOTED.sub(self._quoted, self._keyed(text))
        self.is_open = False
        return text

    def _bodies(self, text: str) -> str:
        parts: list[str] = []
        at = 0
        while (start := _JSON_START.search(text, at)) is not None:
            end = balanced(text, start.start())
            if not _COLON.search(text, start.start(), end) or is_telemetry(text[start.start() : end]):
                parts.append(text[at:end])
                at = end
                continue
            parts.append(text[at : start.start()] + self._say("json_body", text[start.start() : end]))
            at = end
        return "".join(parts) + text[at:]

    def _keyed(self, text: str) -> str:
        parts: list[str] = []
        at = 0
        for found in _KEYED.finditer(text):
            if found.start() < at or _NUMBER_VALUE.match(text, found.end()):
                continue
            end = value_end(text, found.end())
            if end > found.end() and not text.startswith("\ue000", found.end()):
                value = text[found.end() : end]
                parts.append(text[at : found.end()] + self._say("content", value))
                self.is_open = end == len(text) and value[:1] in "\"'" and (len(value) < 2 or value[-1] != value[0])
                at = end
        return "".join(parts) + text[at:]

    def _quoted(self, found: re.Match[str]) -> str:
        if found[0][:-1].endswith(_CODE_ENDS) and _CODE_FILE.fullmatch(found[0]):
            return found[0]
        access = _ACCESS.fullmatch(found[0])
        if access is None:
            return self._say("long_quote", found[0])
        asked = "" if access[2] is None else "?" + self._say("content", access[2])
        return f'"{access[1]}{asked}{access[3]}"'

    def _numbers(self, found: re.Match[str]) -> str:
        values = [int(one[:20]) for one in _INTEGER.findall(found[0])]
        rising = all(one < after for one, after in pairwise(values))
        if rising and values[0] >= 0 and values[-1] < _RANKS_MAX and values[-1] < 8 * len(values) + values[0]:
            return found[0]  # ranks or devices: token ids do not count upwards
        return self._say("number_list", found[0])

    def _base64(self, found: re.Match[str]) -> str:
        text = found[0]
        kinds = sum((any(c.islower() for c in text), any(c.isupper() for c in text), any(c.isdigit() for c in text)))
        longest = max(len(part) for part in re.split(r"[/_-]", text))
        return self._say("base64", text) if kinds == 3 and longest > 20 else text


def is_telemetry(text: str) -> bool:
    """Whether a JSON object holds only numbers, switches and times: an engine's counters, not a request."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and all(
        (isinstance(one, str) and _READING.fullmatch(one)) or one is None or isinstance(one, bool | int | float)
        for one in value.values()
    )


def value_end(text: str, start: int) -> int:
    """Where the value that starts here ends: behind its quote or bracket, or where the next field begins."""
    call = _CALL.match(text, start)
    at = call.end() if call is not None else start
    if at >= len(text):
        return at
    if text[at] in "\"'":
        return _quote_end(text, at)
    if text[at] in _OPENERS:
        return balanced(text, at)
    # Unquoted: a person's words may hold commas, so that a field must follow for it to end before the line does.
    bare = re.compile(r"(?:,\s*|;\s*|\s)[A-Za-z_][\w.]{0,40}(?:=|: ?[\d'\"\[{])").search(text, at)
    closing = _BARE_VALUE.match(text, at)
    if closing is not None and closing.end() < len(text) and text[closing.end()] in ")]}" and bare is None:
        return closing.end() if " " not in closing[0] else len(text)
    return bare.start() if bare is not None else len(text)


def _quote_end(text: str, at: int) -> int:
    quote, escaped = text[at], False
    for position in range(at + 1, min(len(text), at + SCAN_MAX)):
        if escaped:
            escaped = False
        elif text[position] == "\\":
            escaped = True
        elif text[position] == quote:
            return position + 1
    return len(text)


def balanced(text: str, at: int) -> int:
    """Behind the bracket that closes the one at `at`; the end of the text when none does."""
    depth: list[str] = []
    position = at
    end = min(len(text), at + SCAN_MAX)
    while position < end:
        char = text[position]
        if char in _OPENERS:
            depth.append(_OPENERS[char])
        elif char in "\"'" and (char == '"' or not text[position - 1 : position].isalnum()):
            position = _quote_end(text, position)
            continue
        elif depth and char == depth[-1]:
            depth.pop()
            if not depth:
                return position + 1
        position += 1
    return len(text)
