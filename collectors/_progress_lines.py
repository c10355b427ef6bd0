"""SGLang-dialect progress lines (`Decode batch`, `Prefill batch`) at the speed of a large log.

The body is a key/value list whose keys vary by version and mode, so it is split by key, never by position. A program
prints one key sequence over and over: each sequence seen is compiled once into a pattern that checks the keys and
yields the values, and a line of another sequence is split afresh. Sources: SGLang 0.3.6 to 0.5.23.
"""

import re
from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from sentinel.collectors._engine_lines import TEXT_MAX
from sentinel.model.observation import Decode, Origin, Prefill, Tags

DECODE = re.compile(
    r"Decode batch(?:\. | \[(?P<iter>\d{1,18})\], |, )#running-req: (?P<running>\d{1,18}), "
    r"(?P<kv>.*?gen throughput \(token/s\): "
    r"(?P<tput>[\d.]{1,24}|nan|inf)(?:, largest-len: \d+)?, #queue-req: (?P<queue>\d{1,18}))(?P<tail>.*)$"
)
PREFILL = re.compile(
    r"Prefill batch(?:\. | \[(?P<iter>\d{1,18})\], |, )#new-seq: (?P<new_seq>\d{1,18}), #new-token: "
    r"(?P<new_token>\d{1,18}), "
    r"#cached-token: (?P<cached>\d{1,18}), (?P<kv>.*)$"
)
KEY_VALUE = re.compile(r"(?<![\w#])(?P<k>#?[A-Za-z][^,:]{0,63}): (?P<v>-?[\d.]{1,24}%?|nan%?|inf|True|False)(?=,|\s*$)")

Speaker = tuple[Origin, float | None, str | None, int | None, Tags | None, int | None]
"""A `Who`, or its fields alone: naming them costs as much as reading a line's header."""

SHAPES_MAX = 32
KEYS_MAX = 64
NUMBERS_MAX = 65_536
_HEAD = re.compile(r"(?:Decode|Prefill) batch(?:\. | \[(?P<iter>\d{1,18})\], |, )")
_RECORD = r"\[(.{19})([^\]]{0,60})\] Decode batch(?:, | \[(\d{1,18})\], |\. )"
"""How a record of a decode line begins. The caller checks time and rank tags: it meets few different ones."""
_TRUTH = {"True": 1.0, "False": 0.0}
_DECODE_KEYS = ("#running-req", "#queue-req", "#token", "gen throughput (token/s)")
_PREFILL_KEYS = ("#running-req", "#queue-req", "#new-token", "input throughput (token/s)", "#new-seq", "#cached-token")


class Usual(NamedTuple):
    """A key sequence of complete decode lines, with the header of the record: the pattern of a whole line.

    It captures time and rank tags, then the iteration and the values. The numbers are positions among all of these;
    `places` are those of running, queued, tokens, throughput and usage.
    """

    pattern: re.Pattern[str]
    places: tuple[int, int, int, int, int]
    extras: tuple[tuple[str, int], ...]
    truths: dict[str, float]


class Shape(NamedTuple):
    """One key sequence. The numbers are positions among the captured values; None where the sequence lacks that key."""

    pattern: re.Pattern[str]
    named: tuple[int | None, ...]
    usages: tuple[int, ...]
    extras: tuple[tuple[str, int], ...]
    truths: dict[str, float]
    usual: Usual


_NEVER = Usual(re.compile(r"(?!)"), (0, 0, 0, 0, 0), (), {})


class Numbers(dict[str, float]):
    """Remembers the numbers that texts like `0.25` stand for: usages and ratios repeat, reading them is the cost."""

    def __missing__(self, text: str) -> float:
        if len(self) >= NUMBERS_MAX:
            self.clear()
        number = self[text] = _finite(text) or 0.0
        return number


class Counts(dict[str, int]):
    """Remembers the whole numbers that texts stand for, for the few that requests are counted with."""

    def __missing__(self, text: str) -> int:
        if len(self) >= NUMBERS_MAX:
            self.clear()
        number = self[text] = int(text)
        return number


class ProgressLines:
    """Turns progress lines of one stream into observations; remembers the key sequences it has met.

    `usual` matches a whole line that is a complete decode line with the keys of the last one.
    """

    def __init__(self, engine: str) -> None:
        self.engine = engine
        self._usual, self.usual = _NEVER, _NEVER.pattern.match
        self._decodes: list[Shape] = []
        self._prefills: list[Shape] = []
        self._numbers, self._counts = Numbers(), Counts()

    def usual_decode(self, values: Sequence[str], who: Speaker) -> Decode | None:
        """The decode line of which `usual` captured the values; None when one is not the number it should be."""
        # Nearly all lines of a log come here: no helpers, no loops but the one over uncommon keys.
        usual, numbers, counts, iteration = self._usual, self._numbers, self._counts, values[2]
        running, queued, tokens, throughput, usage = usual.places
        extra = usual.truths.copy()
        for key, at in usual.extras:
            extra[key] = numbers[values[at]]
        origin, at_s, host, pid, tags, _ = who
        try:
            rate = float(values[throughput])
            return Decode(
                origin=origin, at_s=at_s, host=host, pid=pid, tags=tags, engine=self.engine,
                iteration=int(iteration) if iteration else None, running=counts[values[running]],
                queued=counts[values[queued]], tokens=int(values[tokens]), usage=numbers[values[usage]],
                throughput=rate if rate < inf else None, extra=extra,
            )  # fmt: skip
        except ValueError:
            return None

    def decode(self, text: str, start: int, who: Speaker) -> Decode:
        """The line `text`, whose message begins at `start` with `Decode batch`."""
        shape, values = _read(text, start, self._decodes, _DECODE_KEYS)
        self._usual, self.usual = shape.usual, shape.usual.pattern.match
        running, queued, tokens, throughput = (None if at is None else values[at] for at in shape.named)
        return Decode(
            origin=who[0], at_s=who[1], host=who[2], pid=who[3], tags=who[4], engine=self.engine,
            iteration=_count(values[0]), running=_count(running), queued=_count(queued), tokens=_count(tokens),
            usage=_fullest(values, shape.usages), throughput=_finite(throughput),
            extra={**shape.truths, **{key: self._numbers[values[at]] for key, at in shape.extras}},
        )  # fmt: skip

    def prefill(self, text: str, start: int, who: Speaker) -> Prefill:
        """The line `text`, whose message begins at `start` with `Prefill batch`."""
        shape, values = _read(text, start, self._prefills, _PREFILL_KEYS)
        running, queued, new_tokens, throughput, new_seqs, cached = (
            None if at is None else values[at] for at in shape.named
        )
        return Prefill(
            origin=who[0], at_s=who[1], host=who[2], pid=who[3], tags=who[4], engine=self.engine,
            new_seqs=_count(new_seqs) or 0, new_tokens=_count(new_tokens) or 0, cached_tokens=_count(cached) or 0,
            running=_count(running), queued=_count(queued), usage=_fullest(values, shape.usages),
            throughput=_finite(throughput),
            extra={**shape.truths, **{key: self._numbers[values[at]] for key, at in shape.extras}},
        )  # fmt: skip


def _read(text: str, start: int, shapes: list[Shape], keys: tuple[str, ...]) -> tuple[Shape, tuple[str, ...]]:
    """Key sequence and captured values of a line; value 0 is the iteration."""
    for index, shape in enumerate(shapes):
        found = shape.pattern.match(text, start)
        if found is not None:
            if index:
                shapes.insert(0, shapes.pop(index))
            return shape, found.groups()
    return _learn(text[start : start + TEXT_MAX], shapes, keys)


def _learn(message: str, shapes: list[Shape], keys: tuple[str, ...]) -> tuple[Shape, tuple[str, ...]]:
    head = _HEAD.match(message)
    pairs = dict(KEY_VALUE.findall(message, head.end() if head else 0)[:KEYS_MAX])
    shape = _shape(pairs, keys)
    if head is not None and pairs and shape.pattern.match(message) is not None:
        shapes.insert(0, shape)
        del shapes[SHAPES_MAX:]
    return shape, (head["iter"] if head else None, *(text for text in pairs.values() if text not in _TRUTH))


def _shape(pairs: dict[str, str], keys: tuple[str, ...]) -> Shape:
    """The pattern of a key sequence: numbers are captured, truth values belong to the sequence itself."""
    at = {key: index for index, key in enumerate((key for key in pairs if pairs[key] not in _TRUTH), start=1)}
    extras = tuple((key, index) for key, index in at.items() if key not in keys and key != "token usage")
    usages = tuple(index for key, index in at.items() if key.endswith("token usage") or key == "mamba usage")
    if "#token" not in at and "#full token" in at:
        at["#token"] = at["#full token"]
    body = ", ".join(f"{re.escape(key)}: {text if text in _TRUTH else '([^,]{1,24})'}" for key, text in pairs.items())
    body += r"(?:, ?)?$"
    named = tuple(at.get(key) for key in keys)
    plain = at.get("token usage")
    truths = {key: _TRUTH[text] for key, text in pairs.items() if text in _TRUTH}
    return Shape(
        pattern=re.compile(_HEAD.pattern.replace("?P<iter>", "") + body),
        named=named,
        usages=usages if plain is None else (plain,),
        extras=extras,
        truths=truths,
        usual=_usual(body, (*named[:4], plain), extras, truths),
    )


def _usual(
    body: str,
    places: tuple[int | None, ...],
    extras: tuple[tuple[str, int], ...],
    truths: dict[str, float],
) -> Usual:
    """The same sequence with the header of a record before it; a pattern that never matches if a value is missing."""
    running, queued, tokens, throughput, usage = (None if at is None else at + 2 for at in places)
    if running is None or queued is None or tokens is None or throughput is None or usage is None:
        return _NEVER
    moved = tuple((key, at + 2) for key, at in extras)
    whole = re.compile(_RECORD + body)
    return Usual(whole, (running, queued, tokens, throughput, usage), moved, truths)


def _count(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def _finite(text: str | None) -> float | None:
    """A number, a percentage as its number; None when absent, nan or infinite (a meter before its first sample)."""
    try:
        value = None if text is None else float(text.rstrip("%"))
    except ValueError:
        return None
    return None if value is None or value - value != 0.0 else value


def _fullest(values: tuple[str, ...], usages: tuple[int, ...]) -> float | None:
    """The fullest pool: hybrid models print one usage a pool and no plain `token usage`."""
    return max((usage for at in usages if (usage := _finite(values[at])) is not None), default=None)
