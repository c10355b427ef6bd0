"""The page `docs/taxonomy.md`: written from classes, rules and the catalogue of facts, so that it cannot lie."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from sentinel.core.fact import FactSpec
from sentinel.core.rules import HIGH_POINTS, MEDIUM_POINTS, POINTS, Rule
from sentinel.model.taxonomy import MEANINGS
from sentinel.report.rule_page import accused, advice, tree, weighed
from sentinel.report.words import DEEDS, title_of

HEAD = """# Taxonomy

<!-- Written by `make docs` from the rules and the catalogue of facts. A change made by hand is lost. -->

One vocabulary for the analyser, the agent, the rules and the reports. A verdict has exactly one class. `unknown` is a
legal verdict, and "cannot see" is never "healthy". How rules are written and evaluated: [rules.md](rules.md).
"""

STALLED: Mapping[bool | None, str] = {True: "yes", False: "no", None: "cannot tell"}

FIELDS: Mapping[str, str] = {
    "schema": "always `sentinel.verdict/1`",
    "class": "one of the classes below",
    "stalled": "work is outstanding, nothing progresses and it will not recover by itself; null when nothing shows it",
    "confidence": "high, medium or low",
    "culprits": "`ranks`, `hosts`, `pids` and `requests` that cause it; empty when nobody can be named",
    "victims": "`ranks` that only wait for a culprit",
    "t0": "the last progress of anything, on the wall clock of the evidence; null when no progress was seen",
    "clock_error_s": "how far the clocks of the sources may differ; every comparison of two times allows for it",
    "summary": "one sentence for a person on call",
    "evidence": "facts for (`supports: true`) and against, with wording, place (`file:line`) and weight",
    "ruled_out": "classes that were considered, and the observation that excludes each",
    "missing": "sources whose absence left rules undecided, most wanted first",
    "decides": "the single observation that would decide; null for a sure verdict",
    "alternatives": "classes that the evidence does not exclude",
    "actions": "what to do, in this order, each with its reason",
    "do_not": "what would be wrong, each with its reason",
    "skipped": "files that could not be used, and why",
    "graph_coverage": "how much of the collective work ran in CUDA graphs and is in no log; null where the verdict does"
    " not rest on logged calls",
    "rule": "the rule that decided",
}
"""Field of the JSON verdict -> meaning."""


def render(rules: Sequence[Rule], catalogue: Sequence[FactSpec]) -> str:
    """The whole page as Markdown."""
    asked = [rule for rule in rules if rule.status != "retired"]
    units = {spec.name: spec for spec in catalogue}
    parts = (
        [HEAD],
        _verdict(),
        _overview(asked),
        ["## Each class", ""],
        *(_class(kind, [rule for rule in asked if rule.kind == kind], units) for kind in MEANINGS),
        _actions(),
        _facts(catalogue, asked),
    )
    return "\n".join(line for part in parts for line in part).rstrip("\n") + "\n"


def file_of(rule_id: str) -> str:
    """Where a shipped rule lives, relative to the page.

    >>> file_of("hang.kv_pool"), file_of("none")
    ('../rules/hang/kv_pool.yaml', '../rules/none.yaml')
    """
    return f"../rules/{rule_id.replace('.', '/')}.yaml"


def _verdict() -> Iterator[str]:
    yield from ("## The verdict", "", "`sentinel analyze --json` prints one object:", "")
    yield from _table(("field", "meaning"), ((f"`{name}`", meaning) for name, meaning in FIELDS.items()))
    weights = ", ".join(f"{weight} {points}" for weight, points in POINTS.items())
    yield from (
        "",
        "Exit status: 0 nothing stalled, 1 stalled, 2 usage error, 3 could not see enough to say.",
        "",
        f"Confidence follows from points: a rule starts with its own, each support adds its weight ({weights}),",
        f"each contradiction takes it away. {HIGH_POINTS} or more is high, {MEDIUM_POINTS} or more is medium.",
        "",
    )


def _overview(rules: Sequence[Rule]) -> Iterator[str]:
    yield from (
        "## The ladder",
        "",
        "Rules are asked from the top; the first that fires and has support is the verdict.",
        "",
    )
    rows = (
        (str(rule.order), f"[`{rule.id}`]({file_of(rule.id)})", f"[{rule.kind}](#{anchor(rule.kind)})",
         STALLED[rule.stalled], rule.title)
        for rule in rules
    )  # fmt: skip
    yield from _table(("order", "rule", "class", "stalled", "fires when"), rows)
    yield ""


def anchor(kind: str) -> str:
    """The link target that Markdown renderers give to a class's heading.

    >>> anchor("hang.kv_pool")
    'hangkv_pool'
    """
    return kind.replace(".", "")


def _class(kind: str, rules: Iterable[Rule], units: Mapping[str, FactSpec]) -> Iterator[str]:
    yield from (f"### {kind}", "", f"**{title_of(kind)}.** {MEANINGS[kind]}", "")
    for rule in rules:
        yield from (f"Rule [`{rule.id}`]({file_of(rule.id)}) fires when", "")
        yield from ("```", *tree(rule.when), "```", "")
        yield from _bullets("Speaks for it", map(weighed, rule.supports))
        yield from _bullets("Speaks against it", map(weighed, rule.contradicts))
        yield from _bullets("Accuses", accused(rule))
        yield from _bullets("First action", map(advice, rule.suggest[:1]))
        yield from _bullets("Then", map(advice, rule.suggest[1:]))
        yield from _bullets("Forbidden", map(advice, rule.forbid))
        yield from _bullets("May be mistaken for it", rule.false_positives)
        yield from _bullets("Would decide", [rule.needs])
        needed = dict.fromkeys(name for test in rule.when.tests() for name in test.names())
        yield from _bullets("Asks for", [", ".join(f"`{name}`" for name in needed if name in units)])
        yield ""


def _bullets(label: str, lines: Iterable[str]) -> Iterator[str]:
    """One bullet for one line, a bullet with a list below it for several, nothing for none."""
    given = list(lines)
    if len(given) == 1:
        yield f"- {label}: {given[0]}"
    elif given:
        yield f"- {label}:"
        yield from (f"  - {line}" for line in given)


def _actions() -> Iterator[str]:
    yield from ("## Actions", "")
    yield from _table(("word", "means"), ((f"`{word}`", meaning) for word, meaning in DEEDS.items()))
    yield ""


def _facts(catalogue: Sequence[FactSpec], rules: Sequence[Rule]) -> Iterator[str]:
    readers = {spec.name: 0 for spec in catalogue}
    for rule in rules:
        for name in set(rule.fact_names()):
            readers[name] += 1
    yield from (
        "## Facts",
        "",
        "A fact is true, false, a number, a word or a set, or unknown when no source could decide it. An empty set",
        "means that somebody looked and found none. The last column counts the rules that read the fact; a fact that",
        "no shipped rule reads is there for reports and for rules of your own.",
        "",
    )
    rows = ((f"`{spec.name}`", spec.unit, spec.about, str(readers[spec.name])) for spec in catalogue)
    yield from _table(("fact", "unit", "about", "rules"), rows)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + " --- |" * len(head)
    yield from ("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)
