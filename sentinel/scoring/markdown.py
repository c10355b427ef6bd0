"""The accuracy report (`docs/accuracy.md`): all corpora, generated cases and ablations as Markdown.

Explanations of misses live in a YAML file beside the report (case name -> text), so that writing the report anew keeps
them.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import yaml

from sentinel.scoring.ablate import Outcome, tally
from sentinel.scoring.cases import GENERATED
from sentinel.scoring.run import Result
from sentinel.scoring.summary import percent, summarise

Explanations = Mapping[str, str]

RIGHT = """\
A case is *right* when class, stalled, culprits, required and forbidden actions and the confidence limit all agree with
its label. Labels that accept several classes name the best one first; the matrices count any accepted class as right.
""".splitlines()
SOFTENED = """\
Every case once more with one kind of file, or one rank's files, taken away. *Softened*: unknown, or less sure, or
without naming a culprit. *Wrong*: another class as sure as before, another rank or host accused, or a forbidden action
recommended.
""".splitlines()
HEADER = (
    "| corpus | right | class accepted | best class | culprits | forbidden actions | unknown | time | peak memory |"
)


def read_explanations(path: Path) -> Explanations:
    """Explanations of misses; an absent file explains nothing. Raises ValueError when it is not a mapping of texts."""
    if not path.exists():
        return {}
    document: object = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    if not isinstance(document, dict):
        raise ValueError(f"{path}: case name -> explanation expected")
    return {str(name): str(text).strip() for name, text in document.items()}


def report(results: Sequence[Result], outcomes: Sequence[Outcome], explanations: Explanations, command: str) -> str:
    """The whole report."""
    corpora: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        corpora[result.corpus].append(result)
    lines = [
        "# Accuracy",
        "",
        f"Written by `{command}`; explanations of misses come from the YAML file beside this one.",
        *RIGHT,
        "",
        *_overview(corpora, outcomes),
    ]
    for name, rows in corpora.items():
        lines += ["", f"## {name.capitalize()}", "", *_matrix(rows)]
        lines += _by_scenario(rows) if name == GENERATED else _by_case(rows)
        lines += _misses(rows, explanations)
    lines += _ablations(outcomes)
    return "\n".join(lines).rstrip() + "\n"


def _overview(corpora: Mapping[str, Sequence[Result]], outcomes: Sequence[Outcome]) -> list[str]:
    lines = [
        HEADER,
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, rows in corpora.items():
        found = summarise(rows)
        times = [row.seconds for row in rows]
        peak = "-" if found.peak_mib is None else f"{found.peak_mib:.0f} MiB"
        lines.append(
            f"| {name} | {percent(found.right, found.cases)} | {percent(found.class_right, found.cases)} "
            f"| {percent(found.first_class, found.cases)} | {percent(found.culprits_right, found.culprits_scored)} "
            f"| {found.forbidden} | {percent(found.unknown, found.cases)} "
            f"| median {median(times):.2f} s, worst {max(times):.2f} s | {peak} |"
        )
    if outcomes:
        counts = tally(outcomes)
        lines += ["", f"Ablations: {', '.join(f'{counts[name]} {name}' for name in counts)}, of {len(outcomes)}."]
    return lines


def _matrix(rows: Sequence[Result]) -> list[str]:
    """Confusion in sparse form: only classes that occur, and only what they were taken for."""
    lines = ["| best class | cases | right | judged as something else |", "|---|---|---|---|"]
    for best, found in summarise(rows).confusion.items():
        others = ", ".join(f"{kind} {count}" for kind, count in found.items() if kind != best) or "-"
        lines.append(f"| {best} | {sum(found.values())} | {found.get(best, 0)} | {others} |")
    return lines


def _by_case(rows: Sequence[Result]) -> list[str]:
    lines = ["", "| case | verdict | confidence | culprits | |", "|---|---|---|---|---|"]
    for row in rows:
        named = [*map(str, row.verdict.culprits.ranks), *row.verdict.culprits.hosts]
        outcome = "right" if row.mark.right else "missed: " + ", ".join(row.mark.misses)
        lines.append(
            f"| {row.name} | {row.verdict.kind} | {row.verdict.confidence} | {', '.join(named) or '-'} | {outcome} |"
        )
    return lines


def _by_scenario(rows: Sequence[Result]) -> list[str]:
    """Generated cases by scenario, the number in front of their names taken off."""
    total: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for row in rows:
        scenario = row.name.partition("-")[2]
        total[scenario] += 1
        right[scenario] += row.mark.right
    lines = ["", "| scenario | cases | right |", "|---|---|---|"]
    return lines + [f"| {name} | {count} | {right[name]} |" for name, count in sorted(total.items())]


def _misses(rows: Sequence[Result], explanations: Explanations) -> list[str]:
    missed = [row for row in rows if not row.mark.right]
    if not missed:
        return ["", "No misses."]
    lines = ["", "Misses:", ""]
    for row in missed:
        parts = ", ".join(row.mark.misses)
        wanted = "|".join(row.expected.classes)
        text = explanations.get(row.name, "not explained yet." if row.corpus != GENERATED else "")
        lines.append(f"- **{row.name}** ({parts}; {row.verdict.kind} instead of {wanted}). {text}".rstrip())
    return lines


def _ablations(outcomes: Sequence[Outcome]) -> list[str]:
    if not outcomes:
        return []
    lines = [
        "", "## Ablations", "",
        *SOFTENED,
        "", "| corpus | taken away | right | softened | wrong |", "|---|---|---|---|---|",
    ]  # fmt: skip
    groups: dict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        groups[outcome.corpus, "one rank" if outcome.without.startswith("rank ") else "one source"].append(outcome)
    for (corpus, what), rows in sorted(groups.items()):
        counts = tally(rows)
        lines.append(f"| {corpus} | {what} | {counts['right']} | {counts['softened']} | {counts['wrong']} |")
    wrong = [outcome for outcome in outcomes if outcome.outcome == "wrong"]
    if wrong:
        lines += ["", "Wrong ones:", ""]
        lines += [f"- {outcome.case} without {outcome.without}: {outcome.says}" for outcome in wrong]
    return lines
