"""Runs the analyser over one case and measures its time and peak memory."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import msgspec

from sentinel.core.facts import CATALOGUE
from sentinel.core.judge import judge
from sentinel.core.rules import Rule
from sentinel.evidence.load import load
from sentinel.model.verdict import Verdict
from sentinel.rulebook import load_rules
from sentinel.scoring.cases import Case, neutral
from sentinel.scoring.expected import Expected
from sentinel.scoring.marks import Mark, mark

ISOLATED_LIMIT_S = 600.0
CRASHED = "crashed"


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict and what it cost: seconds of wall clock, peak resident MiB (None where the kernel does not say)."""

    verdict: Verdict
    seconds: float
    peak_mib: float | None


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One scored case."""

    name: str
    corpus: str
    expected: Expected
    verdict: Verdict
    mark: Mark
    seconds: float
    peak_mib: float | None


Analyse = Callable[[Path], Measured]


@cache
def shipped_rules() -> tuple[Rule, ...]:
    """The rules that come with the product, read once."""
    return load_rules(frozenset(spec.name for spec in CATALOGUE))


def analyse(evidence: Path) -> Measured:
    """Load and judge a folder in this process."""
    _reset_peak()
    started = time.perf_counter()
    loaded = load(evidence)
    rules = shipped_rules()
    verdict = judge(loaded.observations, rules, clock_error_s=loaded.clock_error_s, skipped=loaded.skipped).verdict
    return Measured(verdict=verdict, seconds=time.perf_counter() - started, peak_mib=_peak_mib())


def analyse_isolated(evidence: Path) -> Measured:
    """Load and judge a folder in a fresh process, so that memory of earlier cases cannot count. Raises RuntimeError."""
    done = subprocess.run(
        [sys.executable, "-m", "sentinel.scoring.run", os.fspath(evidence)],
        capture_output=True, check=False, timeout=ISOLATED_LIMIT_S,
    )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(f"analysis ended with {done.returncode}: {done.stderr.decode(errors='replace')[-2000:]}")
    return msgspec.json.decode(done.stdout, type=Measured)


def score_case(case: Case, analyser: Analyse = analyse) -> Result:
    """Score one case; its evidence is handed over under a neutral path."""
    with neutral(case.evidence) as evidence:
        measured = survive(analyser, evidence)
    return Result(
        name=case.name,
        corpus=case.corpus,
        expected=case.expected,
        verdict=measured.verdict,
        mark=mark(measured.verdict, case.expected),
        seconds=measured.seconds,
        peak_mib=measured.peak_mib,
    )


def survive(analyser: Analyse, evidence: Path) -> Measured:
    """What the analyser says; one that raises says `crashed`, which no label accepts, and the run goes on."""
    started = time.perf_counter()
    try:
        return analyser(evidence)
    except Exception as error:
        said = Verdict(kind=CRASHED, stalled=None, confidence="low", summary=f"{type(error).__name__}: {error}")
        return Measured(verdict=said, seconds=time.perf_counter() - started, peak_mib=_peak_mib())


def _reset_peak() -> None:
    """Make the kernel forget the peak of this process so far (Linux, proc(5) clear_refs value 5)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def _peak_mib() -> float | None:
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return None
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024.0
    return None


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(analyse(Path(sys.argv[1]))))
