"""Is this a model that can work? Arithmetic, output by JSON schema, a tool call and its answer."""

import json
from typing import Any

from .client import BenchError, Client

Outcome = tuple[bool, str]

_SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "population": {"type": "integer"}},
    "required": ["city", "population"],
    "additionalProperties": False,
}
_TOOL = {
    "type": "function",
    "function": {
        "name": "read_meter",
        "description": "Reads a meter by its number.",
        "parameters": {
            "type": "object",
            "properties": {"meter": {"type": "integer"}},
            "required": ["meter"],
        },
    },
}


async def _chat(client: Client, messages: list[dict[str, Any]], **extra: Any) -> dict[str, Any]:
    body = {"model": client.model, "messages": messages, "max_tokens": 256, "temperature": 0}
    answer = await client.call("POST", "/v1/chat/completions", body | extra)
    message: dict[str, Any] = answer["choices"][0]["message"]
    return message


def _user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


async def arithmetic(client: Client) -> Outcome:
    """17 x 24 is somewhere in the answer."""
    message = await _chat(client, [_user("What is 17 * 24? Answer with the number only.")])
    text = message.get("content") or ""
    return "408" in text, f"answered {text[:80]!r}, wanted 408"


async def json_schema(client: Client) -> Outcome:
    """The answer is an object with exactly the fields and types of the schema."""
    asked = {"type": "json_schema", "json_schema": {"name": "city", "schema": _SCHEMA}}
    message = await _chat(client, [_user("Name a city as JSON.")], response_format=asked)
    text = message.get("content") or ""
    try:
        value = json.loads(text)
    except ValueError:
        return False, f"not JSON: {text[:80]!r}"
    well = (
        isinstance(value, dict)
        and value.keys() == {"city", "population"}
        and isinstance(value["city"], str)
        and type(value["population"]) is int
    )
    return well, f"answered {text[:80]!r}"


async def tool_round_trip(client: Client) -> Outcome:
    """The model calls the tool with the right argument and uses what it returned."""
    messages = [_user("What does meter 7 show? Use the tool.")]
    message = await _chat(client, messages, tools=[_TOOL])
    calls = message.get("tool_calls") or []
    if not calls:
        return False, f"no tool call but {(message.get('content') or '')[:80]!r}"
    function = calls[0]["function"]
    try:
        given = json.loads(function["arguments"])
    except ValueError:
        given = None
    if function["name"] != "read_meter" or given != {"meter": 7}:
        return False, f"called {function['name']}({function['arguments']})"
    reading = {"role": "tool", "tool_call_id": calls[0]["id"], "content": '{"kwh": 31415}'}
    message = await _chat(client, [*messages, message, reading], tools=[_TOOL])
    text = message.get("content") or ""
    return "31415" in text.replace(",", ""), f"answered {text[:80]!r}, wanted 31415"


TESTS = {"arithmetic": arithmetic, "json-schema": json_schema, "tool": tool_round_trip}


async def smoke(client: Client, names: list[str]) -> dict[str, Outcome]:
    """Run the named tests; one that the server refuses has failed with the refusal as reason."""
    outcomes = {}
    for name in names:
        try:
            outcomes[name] = await TESTS[name](client)
        except (BenchError, KeyError, IndexError, TypeError) as error:
            outcomes[name] = False, f"{type(error).__name__}: {error}"
    return outcomes
