"""Sums results up and prints them: result lines, confusion matrix, rates."""

from collections import Counter
from collections.abc import Iterable

import msgspec

from sentinel.scoring.run import CRASHED, Result


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Rates over a set of results. `confusion` maps best expected class -> verdict class -> number of cases.

    A verdict whose class is accepted though not first counts on the diagonal, since the label accepts it.
    `*_scored` are the denominators of the culprit rate.
    """

    cases: int
    right: int
    class_right: int
    first_class: int
    culprits_right: int
    culprits_scored: int
    forbidden: int
    unknown: int
    seconds: float
    slowest_s: float
    peak_mib: float | None
    confusion: dict[str, dict[str, int]]


def summarise(results: Iterable[Result]) -> Summary:
    """Rates over `results`."""
    rows = list(results)
    culprits = [row.mark.culprits for row in rows if row.mark.culprits is not None]
    confusion: dict[str, Counter[str]] = {}
    for row in rows:
        best = row.expected.classes[0]
        confusion.setdefault(best, Counter())[best if row.mark.kind else row.verdict.kind] += 1
    peaks = [row.peak_mib for row in rows if row.peak_mib is not None]
    return Summary(
        cases=len(rows),
        right=sum(row.mark.right for row in rows),
        class_right=sum(row.mark.kind for row in rows),
        first_class=sum(row.mark.first for row in rows),
        culprits_right=sum(culprits),
        culprits_scored=len(culprits),
        forbidden=sum(len(row.mark.forbidden) for row in rows),
        unknown=sum(row.verdict.kind == "unknown" for row in rows),
        seconds=sum(row.seconds for row in rows),
        slowest_s=max((row.seconds for row in rows), default=0.0),
        peak_mib=max(peaks, default=None),
        confusion={best: dict(sorted(found.items())) for best, found in sorted(confusion.items())},
    )


def line(result: Result) -> str:
    """One line on one case."""
    verdict = result.verdict
    who = [f"ranks {','.join(map(str, verdict.culprits.ranks))}"] if verdict.culprits.ranks else []
    who += [f"hosts {','.join(verdict.culprits.hosts)}"] if verdict.culprits.hosts else []
    memory = "" if result.peak_mib is None else f" {result.peak_mib:6.0f} MiB"
    judged = f"{verdict.kind} ({verdict.confidence}{', ' + ' '.join(who) if who else ''})"
    outcome = "right" if result.mark.right else "WRONG"
    text = f"{outcome}  {result.name:<34} {judged:<58} {result.seconds:6.2f} s{memory}"
    if result.mark.right:
        return text
    if verdict.kind == CRASHED:
        return f"{text}\n       {verdict.summary}"
    wanted = "|".join(result.expected.classes)
    ranks = "" if result.expected.ranks is None else f", ranks {list(result.expected.ranks)}"
    hosts = "" if result.expected.hosts is None else f", hosts {list(result.expected.hosts)}"
    actions = " ".join(entry.action for entry in verdict.actions) or "-"
    return f"{text}\n       missed: {', '.join(result.mark.misses)}; wanted {wanted}{ranks}{hosts}; actions {actions}"


def percent(part: int, whole: int) -> str:
    """`part` of `whole` with its percentage; a dash when nothing was scored."""
    return f"{part} of {whole} ({100.0 * part / whole:.1f} %)" if whole else "-"


def totals(summary: Summary) -> list[str]:
    """The rates as lines of text."""
    peak = "not measured" if summary.peak_mib is None else f"{summary.peak_mib:.0f} MiB"
    return [
        f"right in everything   {percent(summary.right, summary.cases)}",
        f"class accepted        {percent(summary.class_right, summary.cases)}",
        f"best class (top 1)    {percent(summary.first_class, summary.cases)}",
        f"culprits              {percent(summary.culprits_right, summary.culprits_scored)}",
        f"forbidden actions     {summary.forbidden}",
        f"unknown               {percent(summary.unknown, summary.cases)}",
        f"time                  {summary.seconds:.1f} s, slowest case {summary.slowest_s:.2f} s",
        f"peak memory           {peak}",
    ]


def confusion_lines(summary: Summary) -> list[str]:
    """The confusion matrix in sparse form: one line an expected class, what it was judged as."""
    lines = []
    for best, found in summary.confusion.items():
        others = ", ".join(f"{kind} {count}" for kind, count in found.items() if kind != best)
        lines.append(f"{best:<24} right {found.get(best, 0):>4} of {sum(found.values()):<4} {others}".rstrip())
    return lines
