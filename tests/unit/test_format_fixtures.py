"""The printed formats of the programs that Sentinel reads, as fixtures: each line with the fields a person sees in it.

`formats.jsonl` holds one format a line: its name and example lines with their named groups. Parsers export the
patterns they use in a dict FORMATS under the same names.
"""

import importlib
import json
import pkgutil
import re
from pathlib import Path

import pytest

import sentinel.collectors
import sentinel.evidence

FIXTURES = [json.loads(line) for line in Path(__file__).with_name("formats.jsonl").read_text().splitlines()]
EXAMPLES = [(each["name"], example) for each in FIXTURES for example in each["examples"]]


def _patterns() -> dict[str, re.Pattern[str] | re.Pattern[bytes]]:
    found: dict[str, re.Pattern[str] | re.Pattern[bytes]] = {}
    for package in (sentinel.collectors, sentinel.evidence):
        for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
            exported = getattr(importlib.import_module(module.name), "FORMATS", {})
            found |= {name: re.compile(pattern) for name, pattern in exported.items()}
    return found


PATTERNS = _patterns()


def _groups(pattern: re.Pattern[str] | re.Pattern[bytes], line: str) -> dict[str, str | None] | None:
    found = re.search(pattern, line.encode() if isinstance(pattern.pattern, bytes) else line)  # type: ignore[arg-type]
    return None if found is None else {name: _text(value) for name, value in found.groupdict().items()}


def _text(value: str | bytes | None) -> str | None:
    return value.decode() if isinstance(value, bytes) else value


@pytest.mark.parametrize("name", [each["name"] for each in FIXTURES])
def test_every_known_format_has_a_pattern_in_a_parser(name: str) -> None:
    """False would mean that lines of a known program are read by nobody."""
    assert name in PATTERNS


@pytest.mark.parametrize(("name", "example"), EXAMPLES, ids=[f"{name}-{n}" for n, (name, _) in enumerate(EXAMPLES)])
def test_a_parser_reads_each_example_line_as_a_person_does(name: str, example: dict[str, object]) -> None:
    """False would mean that a field of a real line is lost or taken for another one."""
    line, expected = str(example["line"]), dict(example["groups"])  # type: ignore[call-overload]

    groups = _groups(PATTERNS[name], line)

    assert groups is not None
    assert {key: groups.get(key) for key in expected} == expected
