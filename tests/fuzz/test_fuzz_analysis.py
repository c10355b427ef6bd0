"""Damaged evidence from the folder to the verdict: there is always a verdict, and it can be written down."""

import tempfile
from pathlib import Path

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.judge import judge
from sentinel.evidence.load import load
from sentinel.model.verdict import Verdict
from sentinel.scoring.run import shipped_rules
from tests.fuzz.fuzzing import bounded, damaged, examples
from tests.fuzz.seeds import files

RULES = shipped_rules()


@given(st.lists(damaged(files()), min_size=1, max_size=4))
@examples(60)
def test_damaged_evidence_still_gives_a_verdict(documents: list[bytes]) -> None:
    """False: one odd number of one file leaves the person on call without a verdict on all the others."""
    with tempfile.TemporaryDirectory() as name, bounded(20.0):
        for number, data in enumerate(documents):
            (Path(name) / f"{number}.log").write_bytes(data)
        loaded = load(Path(name))
        verdict = judge(loaded.observations, RULES, clock_error_s=loaded.clock_error_s, skipped=loaded.skipped).verdict

    assert [skip.why for skip in loaded.skipped if "please report" in skip.why] == []
    assert msgspec.json.decode(msgspec.json.encode(verdict), type=Verdict) == verdict
