"""What the agent saw of real engines is judged again: vLLM and SGLang, frozen, killed and healthy."""

from pathlib import Path

import msgspec
import pytest
import zstandard

from sentinel.core.facts import NAMES
from sentinel.record.replay import verdict_lines
from sentinel.rulebook import load_rules
from tests.replay.keep import HERE, said

RULES = load_rules(NAMES)
SCENARIOS = sorted(path.parent for path in HERE.glob("*/journal.zst"))


def journal(scenario: Path, tmp_path: Path) -> Path:
    """The scenario's journal, ready to be read."""
    path = tmp_path / "journal-00000000.log"
    path.write_bytes(zstandard.ZstdDecompressor().decompress((scenario / "journal.zst").read_bytes()))
    return path


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda path: path.name)
def test_a_real_incident_is_judged_as_it_was(scenario: Path, tmp_path: Path) -> None:
    """If false, a change of a rule or fact has made the agent blind to a hang of an engine that nobody here wrote."""
    assert said(journal(scenario, tmp_path), RULES) == (scenario / "expected.txt").read_text()


@pytest.mark.parametrize("scenario", SCENARIOS[:4], ids=lambda path: path.name)
def test_a_replay_is_the_same_byte_for_byte(scenario: Path, tmp_path: Path) -> None:
    """If false, a journal would explain nothing: the same events would give another verdict the next time."""
    source = journal(scenario, tmp_path)
    first, second = ([msgspec.json.encode(pair) for pair in verdict_lines(source, RULES)] for _ in range(2))

    assert first == second and all(b'"effect"' in line for line in first)


def test_there_are_healthy_and_frozen_engines_of_both_kinds() -> None:
    """If false, replays would show that the agent speaks, and not that it keeps silent."""
    kinds = {(path.name.partition("-")[0], path.name.endswith("-healthy")) for path in SCENARIOS}

    assert {("sglang", True), ("sglang", False), ("vllm", False)} <= kinds
