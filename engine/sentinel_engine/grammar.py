"""Output bound to a JSON schema: an automaton over bytes that says which may come next.

The subset: `type` (object, array, string, integer, number, boolean, null), `enum`, `const`,
`anyOf`, `properties`, `items`, `minItems`/`maxItems`, `minLength`/`maxLength`. Objects have all
their properties, in the order given, and no others. Output is compact ASCII and always ends:
strings, arrays and digits are bounded. Any other keyword that would restrict the output is refused.
"""

import json
from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .modelfile import EOS, VOCAB

STRING_MAX, ARRAY_MAX, DIGITS_MAX, DECIMALS_MAX, STATES_MAX = 48, 8, 12, 4, 50_000
_IGNORED = {"title", "description", "default", "examples", "$schema", "additionalProperties",
            "required", "strict"}  # fmt: skip
_BY_TYPE = {
    "object": {"properties"}, "array": {"items", "minItems", "maxItems"},
    "string": {"minLength", "maxLength"}, "integer": set(), "number": set(), "boolean": set(),
    "null": set(),
}  # fmt: skip

State = frozenset[int]


class SchemaError(ValueError):
    """The schema is outside the subset; the text names the keyword."""


class Grammar:
    """The automaton of one schema. Fragments are built from an entry state to an exit state."""

    def __init__(self, schema: Any) -> None:
        self._edges: list[list[tuple[frozenset[int], int]]] = []
        self._silent: list[list[int]] = []
        entry = self._state()
        self._final = self._value(entry, schema)
        self.start = self._closure({entry})
        self.step = cache(self._step)
        self.allowed = cache(self._allowed)

    def _allowed(self, state: State) -> NDArray[np.bool_]:
        """Which tokens may follow; the end of the text when the value is complete."""
        may = np.zeros(VOCAB, dtype=np.bool_)
        for one in state:
            for symbols, _ in self._edges[one]:
                may[list(symbols)] = True
        may[EOS] = self._final in state
        return may

    def _step(self, state: State, token: int) -> State:
        """The state after a token; empty when the token was not allowed."""
        return self._closure(
            target for one in state for symbols, target in self._edges[one] if token in symbols
        )

    def complete(self, state: State) -> bool:
        """Whether nothing but the end may follow."""
        return self._final in state and not self.allowed(state)[:EOS].any()

    def _closure(self, states: Iterable[int]) -> State:
        found, todo = set(), list(states)
        while todo:
            if (one := todo.pop()) not in found:
                found.add(one)
                todo += self._silent[one]
        return frozenset(found)

    def _state(self) -> int:
        if len(self._edges) >= STATES_MAX:
            raise SchemaError(f"the schema needs more than {STATES_MAX} states; make it smaller")
        self._edges.append([])
        self._silent.append([])
        return len(self._edges) - 1

    def _one_of(self, entry: int, symbols: bytes) -> int:
        after = self._state()
        self._edges[entry].append((frozenset(symbols), after))
        return after

    def _text(self, entry: int, text: str) -> int:
        for byte in text.encode("ascii", "backslashreplace"):
            entry = self._one_of(entry, bytes([byte]))
        return entry

    def _join(self, exits: list[int]) -> int:
        after = self._state()
        for one in exits:
            self._silent[one].append(after)
        return after

    def _value(self, entry: int, schema: Any) -> int:
        if not isinstance(schema, dict):
            raise SchemaError(f"a schema is an object, not {schema!r}")
        if "const" in schema or "enum" in schema:
            values = schema.get("enum", [schema.get("const")])
            texts = [json.dumps(one, separators=(",", ":")) for one in values]
            return self._join([self._text(entry, text) for text in texts])
        if "anyOf" in schema:
            return self._join([self._value(entry, one) for one in schema["anyOf"]])
        kind = schema.get("type")
        if kind not in _BY_TYPE:
            raise SchemaError(f"type {kind!r} is not one of {', '.join(_BY_TYPE)}")
        if unknown := schema.keys() - _IGNORED - _BY_TYPE[kind] - {"type"}:
            raise SchemaError(f"{kind}: {', '.join(sorted(unknown))} is not supported")
        exit_state: int = getattr(self, f"_{kind}")(entry, schema)
        return exit_state

    def _object(self, entry: int, schema: dict[str, Any]) -> int:
        at = self._text(entry, "{")
        for number, (name, inner) in enumerate(schema.get("properties", {}).items()):
            at = self._text(at, ("," if number else "") + json.dumps(name) + ":")
            at = self._value(at, inner)
        return self._text(at, "}")

    def _array(self, entry: int, schema: dict[str, Any]) -> int:
        least, most = schema.get("minItems", 0), schema.get("maxItems", ARRAY_MAX)
        at = self._text(entry, "[")
        exits = [at] if least == 0 else []
        for number in range(most):
            at = self._text(at, "," if number else "")
            at = self._value(at, schema.get("items", {"type": "string"}))
            if number + 1 >= least:
                exits.append(at)
        return self._text(self._join(exits), "]")

    def _string(self, entry: int, schema: dict[str, Any]) -> int:
        least, most = schema.get("minLength", 0), schema.get("maxLength", STRING_MAX)
        plain = bytes(byte for byte in range(32, 127) if byte not in b'"\\')
        at = self._text(entry, '"')
        exits = [at] if least == 0 else []
        for number in range(most):
            escaped = self._one_of(self._text(at, "\\"), b'"\\/bfnrt')
            at = self._join([self._one_of(at, plain), escaped])
            if number + 1 >= least:
                exits.append(at)
        return self._text(self._join(exits), '"')

    def _integer(self, entry: int, schema: dict[str, Any]) -> int:
        del schema
        signed = self._join([entry, self._text(entry, "-")])
        exits = [self._text(signed, "0")]
        at = self._one_of(signed, b"123456789")
        exits.append(at)
        for _ in range(DIGITS_MAX - 1):
            at = self._one_of(at, b"0123456789")
            exits.append(at)
        return self._join(exits)

    def _number(self, entry: int, schema: dict[str, Any]) -> int:
        whole = self._integer(entry, schema)
        exits, at = [whole], self._text(whole, ".")
        for _ in range(DECIMALS_MAX):
            at = self._one_of(at, b"0123456789")
            exits.append(at)
        return self._join(exits)

    def _boolean(self, entry: int, schema: dict[str, Any]) -> int:
        del schema
        return self._join([self._text(entry, "true"), self._text(entry, "false")])

    def _null(self, entry: int, schema: dict[str, Any]) -> int:
        del schema
        return self._text(entry, "null")
