"""The list of parsers is complete and every recogniser is sure of its own."""

import importlib
import pkgutil

from hypothesis import given
from hypothesis import strategies as st

import sentinel.collectors
from sentinel.collector import DocumentParser, LogParser, Sample
from sentinel.collectors import ALL
from sentinel.evidence.recognise import choose


def modules() -> list[str]:
    return [
        found.name for found in pkgutil.iter_modules(sentinel.collectors.__path__) if not found.name.startswith("_")
    ]


def test_every_collector_is_listed() -> None:
    """Else a finished parser would never see a file."""
    for name in modules():
        own = vars(importlib.import_module(f"sentinel.collectors.{name}"))
        parsers = [*own.get("PARSERS", ()), *([own["PARSER"]] if "PARSER" in own else [])]
        stray = [
            value for value in own.values() if isinstance(value, LogParser | DocumentParser) and value not in parsers
        ]
        assert all(parser in ALL for parser in parsers) and not stray, name


def test_parser_names_are_unique() -> None:
    """Else one parser would silently stand in for another in the same document."""
    assert len({parser.name for parser in ALL}) == len(ALL)


@given(st.text(max_size=400), st.text(max_size=400))
def test_recognisers_answer_on_any_text(head: str, tail: str) -> None:
    """Else one odd file would end the load."""
    choose(Sample(head, tail), ALL)
    choose(Sample(head), ALL, binary=True)
