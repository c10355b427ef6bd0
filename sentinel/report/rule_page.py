"""One rule as a page to read: when it fires, what speaks for and against, whom it accuses, what it says to do."""

import textwrap
from collections.abc import Iterable, Iterator

from sentinel.core.rules import HIGH_POINTS, MEDIUM_POINTS, POINTS, Advice, Rule, Selector, Weighed, When

WIDTH = 100
LABEL = 12
_OUTCOME = {True: "fires", False: "silent", "unknown": "unknown"}


def render(rule: Rule) -> str:
    """The page as plain text, at most `WIDTH` columns where words allow."""
    rows = [
        f"{rule.id}  {rule.title}",
        *_row("Class", rule.kind + ("" if rule.status == "stable" else f" ({rule.status})")),
        *_row("Says", rule.says),
        *_block("Fires when", tree(rule.when)),
        *_row("Confidence", confidence(rule)),
        *_block("For", map(weighed, rule.supports)),
        *_block("Against", map(weighed, rule.contradicts)),
        *_block("Accuses", accused(rule)),
        *_block("Victims", _first_of(rule.victims)),
        *_block("Do", map(advice, rule.suggest)),
        *_block("Do not", map(advice, rule.forbid)),
        *_block("Mistaken", rule.false_positives),
        *_row("To decide", rule.needs),
        *_block("Cases", (f"{_OUTCOME[case.fires]:<8} {case.name}" for case in rule.cases)),
    ]
    return "\n".join(rows) + "\n"


def tree(condition: When, depth: int = 0) -> Iterator[str]:
    """A condition as indented lines; what must hold first, what excludes last."""
    indent = "  " * depth
    if condition.fact is not None:
        yield indent + leaf(condition)
        return
    for heading, parts in (
        ("", condition.every),
        ("any of", condition.some),
        ("none of", condition.none),
        ("unless", condition.unless),
    ):
        if heading and parts:
            yield indent + heading
        for part in parts:
            together = bool(part.every) and len([*part.every, *part.some, *part.none, *part.unless]) > 1
            if together:
                yield indent + "  " * bool(heading) + "all of"
            yield from tree(part, depth + bool(heading) + together)


def leaf(test: When) -> str:
    """The test of one fact in words.

    >>> leaf(When(fact="process.gone_ranks", count_at_least=1))
    'process.gone_ranks names somebody'
    >>> leaf(When(fact="progress.slowdown", at_most=0.6))
    'progress.slowdown is at most 0.6'
    """
    if test.eq is not None:
        return f"{test.fact} is {str(test.eq).lower()}"
    if test.one_of is not None:
        return f"{test.fact} is one of {', '.join(test.one_of)}"
    if (other := test.within) is not None:
        return f"{test.fact} lies within {other}"
    if (other := test.meets) is not None:
        return f"{test.fact} and {other} have a member in common"
    if (other := test.apart_from) is not None:
        return f"{test.fact} and {other} have no member in common"
    if test.at_least is not None or test.at_most is not None:
        return f"{test.fact} is {_bounds(test.at_least, test.at_most)}"
    if (test.count_at_least, test.count_at_most) == (1, None):
        return f"{test.fact} names somebody"
    if (test.count_at_least, test.count_at_most) == (None, 0):
        return f"{test.fact} is empty"
    return f"{test.fact} has {_bounds(test.count_at_least, test.count_at_most)} members"


def sentence(condition: When) -> str:
    """A small condition on one line.

    >>> sentence(When(none=(When(fact="phase.booting", eq=True),)))
    'not (phase.booting is true)'
    """
    if condition.fact is not None:
        return leaf(condition)
    parts = [sentence(part) for part in condition.every]
    if condition.some:
        parts.append("(" + " or ".join(map(sentence, condition.some)) + ")")
    parts += [f"not ({sentence(part)})" for part in (*condition.none, *condition.unless)]
    return " and ".join(parts)


def weighed(part: Weighed) -> str:
    """A condition with its weight and its points."""
    return f"{sentence(part.when)} ({part.weight}, {POINTS[part.weight]})"


def confidence(rule: Rule) -> str:
    """How points become confidence for this rule."""
    cap = "" if rule.max_confidence == "high" else f"; never above {rule.max_confidence}"
    return f"starts with {rule.points} points; medium from {MEDIUM_POINTS}, high from {HIGH_POINTS}{cap}"


def accused(rule: Rule) -> Iterator[str]:
    """Whom the rule accuses: ranks, hosts, requests; the first choice that names somebody counts."""
    for noun, selectors in (
        ("ranks", rule.culprits),
        ("hosts", rule.culprit_hosts),
        ("pids", rule.culprit_pids),
        ("requests", rule.culprit_requests),
    ):
        yield from (f"{noun}: {line}" for line in _first_of(selectors))


def advice(piece: Advice) -> str:
    """An action with its target, its condition and its reason."""
    target = f" ({piece.to})" if piece.to else ""
    limit = f" [only if {sentence(piece.when)}]" if piece.when is not None else ""
    return f"{piece.action}{target}{limit}: {piece.why}"


def _first_of(selectors: Iterable[Selector]) -> Iterator[str]:
    for index, selector in enumerate(selectors):
        yield ("else " if index else "") + _selector(selector)


def _selector(selector: Selector) -> str:
    words = selector.fact
    words += "".join(f" also in {name}" for name in selector.also)
    words += "".join(f" without {name}" for name in selector.minus)
    words += f", if they include all of {selector.covering}" if selector.covering else ""
    words += f", if {selector.facing} names others" if selector.facing else ""
    return words + (", if they are at most half of the world" if selector.minority else "")


def _bounds(low: float | None, high: float | None) -> str:
    given = [f"{word} {bound:g}" for word, bound in (("at least", low), ("at most", high)) if bound is not None]
    return " and ".join(given)


def _block(label: str, lines: Iterable[str]) -> Iterator[str]:
    for index, line in enumerate(lines):
        yield from _row("" if index else label, line)


def _row(label: str, words: str) -> Iterator[str]:
    """One entry, wrapped; its continuation is indented deeper than its start."""
    start = words[: len(words) - len(words.lstrip())]
    yield from textwrap.wrap(
        words.lstrip(),
        WIDTH,
        initial_indent=f"{label:<{LABEL}}{start}",
        subsequent_indent=" " * LABEL + start + "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
