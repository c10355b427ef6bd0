"""What clients may ask: requests in OpenAI's form, checked and turned into tokens and options."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .config import EngineConfig
from .grammar import Grammar, SchemaError
from .modelfile import BOS

DEFAULT_MAX_TOKENS = 64
STOPS_MAX = 4
_FIXED = {"n": 1, "top_p": 1, "best_of": 1, "presence_penalty": 0, "frequency_penalty": 0,
          "logprobs": None, "echo": False, "suffix": None, "logit_bias": None,
          "top_logprobs": None, "parallel_tool_calls": True}  # fmt: skip
"""Fields that are understood and have one possible value here."""
_IGNORED = {"model", "user", "stream_options", "tools", "tool_choice"}

FAULT_KINDS = ("store_stall", "lock_holder", "delays", "extra_collective", "skip_collective",
         "gil_hold", "clear")  # fmt: skip


class Refused(Exception):
    """An answer that is an error; `retriable` says that the same request may succeed later."""

    def __init__(
        self, status: int, text: str, field: str | None = None, *, retriable: bool = False
    ) -> None:
        super().__init__(text)
        self.status, self.field, self.retriable = status, field, retriable

    def body(self) -> dict[str, Any]:
        """The error in OpenAI's form."""
        kind = "invalid_request_error" if self.status < 429 else "server_error"
        return {"error": {"message": str(self), "type": kind, "code": self.status,
                          "param": self.field, "retriable": self.retriable}}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A checked request. `tool` is the function that the answer must call."""

    tokens: list[int]
    max_tokens: int
    options: dict[str, Any] = field(default_factory=dict)
    stream: bool = False
    include_usage: bool = False
    chat: bool = False
    tool: str | None = None

    def whole(self, text: str) -> dict[str, Any]:
        """The answer's part of a choice."""
        if not self.chat:
            return {"text": text}
        return {"message": {"role": "assistant", **self._said(text)}}

    def part(self, text: str) -> dict[str, Any]:
        """A piece of the answer in a streamed choice."""
        return {"delta": self._said(text)} if self.chat else {"text": text}

    def finish(self, reason: str) -> str:
        """The reason as clients expect it."""
        return "tool_calls" if self.tool and reason == "stop" else reason

    def _said(self, text: str) -> dict[str, Any]:
        if self.tool is None:
            return {"content": text}
        call = {"index": 0, "id": "call_0", "type": "function",
                "function": {"name": self.tool, "arguments": text}}  # fmt: skip
        return {"content": None, "tool_calls": [call]}


def parse_completion(raw: dict[str, Any], config: EngineConfig) -> Asked:
    """A completion request; the prompt is text or a list of tokens."""
    prompt = raw.pop("prompt", None)
    if isinstance(prompt, str):
        tokens = [BOS, *prompt.encode()]
    elif isinstance(prompt, list) and prompt and all(
        type(one) is int and 0 <= one <= BOS for one in prompt
    ):  # fmt: skip
        tokens = prompt
    else:
        raise Refused(400, f"prompt must be text or a list of tokens 0 to {BOS}", "prompt")
    return _asked(raw, tokens, config, chat=False, tool=None)


def parse_chat(raw: dict[str, Any], config: EngineConfig) -> Asked:
    """A chat request; a forced tool binds the answer to its parameters."""
    messages = raw.pop("messages", None)
    if not isinstance(messages, list) or not messages:
        raise Refused(400, "messages must be a list with at least one message", "messages")
    text = "".join(_turn(one) for one in messages) + "assistant: "
    tool = _forced_tool(raw)
    if tool is not None:
        schema = {"name": tool["name"], "schema": tool.get("parameters", {"type": "object"})}
        raw["response_format"] = {"type": "json_schema", "json_schema": schema}
    name = None if tool is None else tool["name"]
    return _asked(raw, [BOS, *text.encode()], config, chat=True, tool=name)


def _turn(message: Any) -> str:
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(message, dict) and content is None and message.get("tool_calls"):
        content = json.dumps(message["tool_calls"])
    if not isinstance(content, str) or not isinstance(message.get("role"), str):
        raise Refused(400, "a message needs a role and a text as content", "messages")
    return f"{message['role']}: {content}\n"


def _forced_tool(raw: dict[str, Any]) -> dict[str, Any] | None:
    choice, tools = raw.get("tool_choice", "auto"), raw.get("tools", [])
    if choice in ("auto", "none") or not tools:
        return None
    try:
        functions = {one["function"]["name"]: one["function"] for one in tools}
        name = next(iter(functions)) if choice == "required" else choice["function"]["name"]
        found: dict[str, Any] = functions[name]
    except (TypeError, KeyError) as error:
        raise Refused(400, f"tool_choice names no tool that is given: {error}", "tools") from error
    return found


def _asked(
    raw: dict[str, Any], tokens: list[int], config: EngineConfig, *, chat: bool, tool: str | None
) -> Asked:
    if "max_completion_tokens" in raw:
        raw["max_tokens"] = raw.pop("max_completion_tokens")
    stop = raw.pop("stop", None) or []
    stop = [stop] if isinstance(stop, str) else stop
    if len(stop) > STOPS_MAX or not all(isinstance(one, str) and one for one in stop):
        raise Refused(400, f"stop must be at most {STOPS_MAX} texts", "stop")
    most = _take(raw, "max_tokens", DEFAULT_MAX_TOKENS, lambda v: type(v) is int and v > 0)
    options = {
        "temperature": _take(
            raw, "temperature", 1.0, lambda v: type(v) in (int, float) and 0 <= v <= 2
        ),
        "ignore_eos": _take(raw, "ignore_eos", False, lambda v: type(v) is bool),
        "stop": stop,
    }
    seed = _take(raw, "seed", None, lambda v: v is None or (type(v) is int and v >= 0))
    if seed is not None:
        options["seed"] = seed
    if (schema := _schema(raw.pop("response_format", None))) is not None:
        options["schema"] = schema
    stream = _take(raw, "stream", False, lambda v: type(v) is bool)
    usage = bool((raw.get("stream_options") or {}).get("include_usage"))
    _refuse_rest(raw)
    room = config.context_tokens - len(tokens)
    if most > room:
        raise Refused(400, f"{len(tokens)} prompt tokens and max_tokens {most} are over the "
                           f"context of {config.context_tokens}", "max_tokens")  # fmt: skip
    return Asked(tokens=tokens, max_tokens=most, options=options, stream=stream,
                 include_usage=usage, chat=chat, tool=tool)  # fmt: skip


def _take(raw: dict[str, Any], name: str, default: Any, good: Callable[[Any], bool]) -> Any:
    value = raw.pop(name, default)
    if not good(value):
        raise Refused(400, f"{name}={value!r} is not allowed", name)
    return value


def _schema(given: Any) -> Any:
    if given is None or given == {"type": "text"}:
        return None
    if not isinstance(given, dict) or given.get("type") != "json_schema":
        raise Refused(400, "response_format must be of type text or json_schema", "response_format")
    try:
        schema = given["json_schema"]["schema"]
        Grammar(schema)
    except (KeyError, TypeError, SchemaError) as error:
        raise Refused(400, f"json_schema cannot be used: {error}", "response_format") from error
    return schema


def _refuse_rest(raw: dict[str, Any]) -> None:
    for name, value in raw.items():
        if name not in _IGNORED and (name not in _FIXED or value != _FIXED[name]):
            raise Refused(400, f"{name}={value!r} is not supported", name)


def fault_problem(spec: dict[str, Any]) -> str:
    """What is wrong with a fault that a client asks for; empty when nothing is."""
    if spec.get("kind") not in FAULT_KINDS:
        return f"kind must be one of {', '.join(FAULT_KINDS)}"
    numbers = {name: spec.get(name, 0) for name in ("rank", "ms", "count")}
    if bad := [name for name, value in numbers.items() if type(value) is not int or value < 0]:
        return f"{', '.join(bad)} must be whole numbers, not negative"
    weights = spec.get("histogram", [[1, 1]])
    if not isinstance(weights, list) or not weights or not all(
        isinstance(one, list) and len(one) == 2 and all(type(n) in (int, float) for n in one)
        for one in weights
    ):  # fmt: skip
        return "histogram must be a list of [ms, weight]"
    return ""
