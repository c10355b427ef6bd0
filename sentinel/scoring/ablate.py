"""Ablation: with part of the evidence taken away, a verdict may soften but must not turn against somebody else.

A *source* is a kind of file: names that differ only in numbers (ranks, pids, hosts, sample times) belong together. A
*rank's files* are those whose contents the analyser itself attributes to that rank alone.
"""

import re
import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from sentinel.core.picture import Picture
from sentinel.evidence.load import load
from sentinel.model.verdict import Verdict
from sentinel.scoring.cases import Case, neutral
from sentinel.scoring.expected import Expected
from sentinel.scoring.marks import LEVEL, mark
from sentinel.scoring.run import CRASHED, Analyse, survive

AblationKind = Literal["sources", "ranks", "all"]
OutcomeName = Literal["right", "softened", "wrong"]

_NUMBERS = re.compile(r"[0-9]+")
_HOST_FOLDER = re.compile(r"^[a-z]+#$")


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One ablated run."""

    case: str
    corpus: str
    without: str
    outcome: OutcomeName
    says: str


def source_of(relative: Path) -> str:
    """The kind of file that a name stands for: digits blanked, numbered folders (hosts, starts) left out.

    >>> source_of(Path("node1/nccl.node1.5200"))
    'nccl.node#.#'
    """
    *folders, name = (_NUMBERS.sub("#", part) for part in relative.parts)
    return "/".join([*(folder for folder in folders if not _HOST_FOLDER.match(folder)), name])


def by_source(evidence: Path) -> dict[str, tuple[Path, ...]]:
    """Relative paths of the files of each source."""
    grouped: dict[str, list[Path]] = defaultdict(list)
    for path in sorted(found.relative_to(evidence) for found in evidence.rglob("*") if found.is_file()):
        grouped[source_of(path)].append(path)
    return {name: tuple(paths) for name, paths in grouped.items()}


def by_rank(evidence: Path) -> dict[str, tuple[Path, ...]]:
    """Relative paths of the files that speak of one rank only, per rank; files of several ranks are in none."""
    loaded = load(evidence)
    picture = Picture(clock_error_s=loaded.clock_error_s)
    for seen in loaded.observations:
        picture.note(seen)
    ranks: dict[str, set[int]] = defaultdict(set)
    for kind in picture.kinds:
        for seen in picture.all(kind):
            if (rank := picture.rank_of(seen)) is not None:
                ranks[seen.origin.file.partition("!")[0]].add(rank)
    grouped: dict[str, list[Path]] = defaultdict(list)
    for file, found in sorted(ranks.items()):
        if len(found) == 1 and (evidence / file).is_file():
            grouped[f"rank {next(iter(found))}"].append(Path(file))
    return {name: tuple(paths) for name, paths in sorted(grouped.items())}


def ablate_case(case: Case, kind: AblationKind, analyser: Analyse) -> Iterator[Outcome]:
    """Run a case once for each part taken away. Parts that are all of the evidence are left out."""
    with neutral(case.evidence) as evidence:
        parts: dict[str, tuple[Path, ...]] = {}
        if kind in ("sources", "all"):
            parts.update(by_source(evidence))
        if kind in ("ranks", "all"):
            parts.update(by_rank(evidence))
        everything = sum(1 for found in evidence.rglob("*") if found.is_file())
        whole = survive(analyser, evidence).verdict
        for name, paths in parts.items():
            if len(paths) < everything:
                verdict = _without(evidence, paths, analyser)
                outcome = judge_outcome(verdict, whole, case.expected)
                yield Outcome(case=case.name, corpus=case.corpus, without=name, outcome=outcome, says=_says(verdict))


def judge_outcome(verdict: Verdict, whole: Verdict, expected: Expected) -> OutcomeName:
    """Right as labelled; softened: unknown, or less sure than with all evidence; else wrong.

    Accusing a rank or host that the label does not, or recommending a forbidden action, is wrong at any confidence.
    """
    found = mark(verdict, expected)
    if found.right:
        return "right"
    if verdict.kind == CRASHED or found.forbidden or _accuses_another(verdict, whole, expected):
        return "wrong"
    softer = verdict.kind == "unknown" or LEVEL[verdict.confidence] < LEVEL[whole.confidence]
    softer = softer or (verdict.confidence == "low")
    unnamed = found.kind and found.stalled and found.confident
    return "softened" if softer or unnamed else "wrong"


def tally(outcomes: Iterable[Outcome]) -> Mapping[str, int]:
    """Number of runs per outcome, all three names always present."""
    counts = Counter(outcome.outcome for outcome in outcomes)
    return {name: counts[name] for name in ("right", "softened", "wrong")}


def _accuses_another(verdict: Verdict, whole: Verdict, expected: Expected) -> bool:
    """Whether a rank or host is named that neither the label nor, where the label is silent, the full verdict names."""
    ranks = set(whole.culprits.ranks if expected.ranks is None else expected.ranks)
    hosts = set(whole.culprits.hosts if expected.hosts is None else expected.hosts)
    return not (set(verdict.culprits.ranks) <= ranks and set(verdict.culprits.hosts) <= hosts)


def _without(evidence: Path, paths: Iterable[Path], analyser: Analyse) -> Verdict:
    gone = set(paths)
    with tempfile.TemporaryDirectory(prefix="evidence-") as temporary:
        target = Path(temporary) / "evidence"
        for path in evidence.rglob("*"):
            relative = path.relative_to(evidence)
            if path.is_file() and relative not in gone:
                (target / relative).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target / relative)
        return survive(analyser, target).verdict


def _says(verdict: Verdict) -> str:
    ranks = ",".join(map(str, verdict.culprits.ranks)) or "-"
    hosts = ",".join(verdict.culprits.hosts) or "-"
    actions = " ".join(entry.action for entry in verdict.actions) or "-"
    return f"{verdict.kind} ({verdict.confidence}) ranks {ranks} hosts {hosts}; {actions}"
