"""Metamorphic tests of the analyser: changes of a case that must not change what is said about it.

A transform rewrites the evidence as another operator, machine or version would have left it and maps the label. None
means that it does not apply to the case. `python -m sentinel.testing.metamorphic CORPUS...` runs all of them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from sentinel.model.verdict import Verdict
from sentinel.scoring.ablate import OutcomeName, judge_outcome
from sentinel.scoring.cases import Case
from sentinel.scoring.marks import Mark, mark
from sentinel.scoring.run import analyse, survive
from sentinel.testing.metamorphic import grow, shape, words
from sentinel.testing.metamorphic.folder import Variant, read_case, write_files

Transform = Callable[[Variant], Variant | None]

TRANSFORMS: Mapping[str, Transform] = {
    "unpacked": lambda variant: variant,
    "meaningless names": shape.meaningless_names,
    "no extensions": shape.no_extensions,
    "no stamps in names": shape.no_stamps_in_names,
    "nested": shape.nested,
    "flattened": shape.flattened,
    "tarred": shape.tarred,
    "compressed": shape.compressed,
    "crlf": shape.crlf,
    "coloured": shape.coloured,
    "colourless": shape.colourless,
    "docker": shape.docker_framed,
    "docker with spaces": shape.spaced_docker_framed,
    "cri": shape.cri_framed,
    "journal": shape.journal_framed,
    "last line cut": shape.last_line_cut,
    "heads cut": shape.heads_cut,
    "nccl logs merged": shape.nccl_logs_merged,
    "engine log split": shape.engine_log_split,
    "ranks swapped": words.ranks_swapped,
    "hosts renamed": words.hosts_renamed,
    "pids shifted": words.pids_shifted,
    "40 days later": words.days_later(40),
    "onto new year": words.onto_new_year,
    "hexadecimal capitals": words.hexadecimal_capitals,
    "no milliseconds": words.milliseconds_dropped,
    "0.3 of the watts": words.watts_scaled(0.3),
    "1.6 of the watts": words.watts_scaled(1.6),
    "a tenth of the rate": words.throughput_scaled(0.1),
    "sglang milliseconds": words.sglang_milliseconds,
    "old decode lines": words.sglang_old_decode_lines,
    "nccl stamped": words.nccl_stamped,
    "vllm plain prefixes": words.vllm_plain_prefixes,
    "py-spy json": words.py_spy_as_json,
    "four ranks": grow.grown(4),
    "eight ranks": grow.grown(8),
}

LOSSY = frozenset(("no stamps in names", "last line cut", "heads cut", "py-spy json", "meaningless names", "flattened"))
"""Transforms that take something away: a verdict may soften then, as in an ablation, but must not turn."""


@dataclass(frozen=True, slots=True)
class Transformed:
    """What is said of a case after a transform, and whether that is right, softened or wrong."""

    case: str
    transform: str
    verdict: Verdict
    mark: Mark
    outcome: OutcomeName

    def __str__(self) -> str:
        ranks = ",".join(map(str, self.verdict.culprits.ranks)) or "-"
        hosts = ",".join(self.verdict.culprits.hosts) or "-"
        said = f"{self.verdict.kind} ({self.verdict.confidence}) ranks {ranks} hosts {hosts}"
        return f"{self.outcome}: {self.case}, {self.transform}: {said}; not as labelled: {', '.join(self.mark.misses)}"


def judge_transformed(case: Case, original: Variant, name: str, whole: Verdict) -> Transformed | None:
    """Judge a case after one transform; None when that does not apply. `whole`: what all of its evidence says."""
    variant = TRANSFORMS[name](original)
    if variant is None:
        return None
    with TemporaryDirectory(prefix="evidence-") as temporary:
        target = Path(temporary) / "evidence"
        write_files(variant.files, target)
        verdict = survive(analyse, target).verdict
    found = mark(verdict, variant.expected)
    outcome: OutcomeName = "right" if found.right else "wrong"
    if name in LOSSY and not found.right:
        outcome = judge_outcome(verdict, whole, variant.expected)
    return Transformed(case.name, name, verdict, found, outcome)


__all__ = ["TRANSFORMS", "Transformed", "Variant", "judge_transformed", "read_case"]
