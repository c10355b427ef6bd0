"""The verdict as a message to a person on call: one screen, most important first, safe to print."""

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sentinel.core.fact import Fact, Value
from sentinel.model.verdict import Evidence, Verdict
from sentinel.report.clean import clip, printable
from sentinel.report.words import culprit_line, deed, many, moment, state_of, title_of

LINES = 24
LABEL = 10
WIDTH_MIN = 40
SOURCE_MIN = 24
SAYS_MIN = 12
WRAP_LOSS = 24
"""Letters that a line break may leave unused, a place being one long word."""
_WEIGHTS = {"strong": 0, "medium": 1, "weak": 2}
_COLOURS = {"red": "31", "green": "32", "yellow": "33", "bold": "1", "dim": "2"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """How many entries each section may show, and how many lines a reason and a piece of advice may take."""

    why: int
    against: int
    do: int
    avoid: int
    missing: int
    why_lines: int
    advice_lines: int


# Tried in order until the message fits one screen: reasons shrink before advice does.
ROOMS = (
    Room(why=5, against=2, do=3, avoid=3, missing=2, why_lines=2, advice_lines=2),
    Room(why=4, against=2, do=3, avoid=3, missing=2, why_lines=2, advice_lines=2),
    Room(why=4, against=1, do=3, avoid=3, missing=1, why_lines=1, advice_lines=2),
    Room(why=3, against=1, do=3, avoid=2, missing=1, why_lines=1, advice_lines=2),
    Room(why=3, against=1, do=3, avoid=2, missing=1, why_lines=1, advice_lines=1),
)
ALL = Room(why=1000, against=1000, do=1000, avoid=1000, missing=1000, why_lines=1000, advice_lines=1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Paper:
    """Where it is shown: columns, and whether colour escapes may be sent."""

    width: int = 100
    colour: bool = False

    def paint(self, text: str, *styles: str) -> str:
        """The text in these styles, or as it is where colour is off."""
        if not self.colour or not styles:
            return text
        return f"\x1b[{';'.join(_COLOURS[style] for style in styles)}m{text}\x1b[0m"


def render(verdict: Verdict, paper: Paper, facts: Mapping[str, Fact] | None = None) -> str:
    """The message, without trailing newline. With `facts` nothing is cut and every fact is listed."""
    if facts is not None:
        return "\n".join((*_message(verdict, paper, ALL), "", *_fact_lines(facts, paper)))
    for room in ROOMS:
        lines = list(_message(verdict, paper, room))
        if len(lines) <= LINES:
            break
    return "\n".join(lines)


def strongest(evidence: Iterable[Evidence], *, supports: bool) -> list[Evidence]:
    """Evidence for (or against) the class, strongest first, otherwise in the order of the rule."""
    return sorted((item for item in evidence if item.supports is supports), key=lambda item: _WEIGHTS[item.weight])


def say(value: Value) -> str:
    """A fact's value as a person reads it."""
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float | int):
        return f"{value:g}"
    if isinstance(value, str):
        return value
    return ", ".join(map(str, value)) or "none"


def _message(verdict: Verdict, paper: Paper, room: Room) -> Iterator[str]:
    yield from _headline(verdict, paper)
    yield ""
    yield from _who_and_when(verdict, paper, room)
    yield from _reasons(verdict, paper, room)
    yield from _advice(verdict, paper, room)
    yield from _limits(verdict, paper, room)


def _headline(verdict: Verdict, paper: Paper) -> Iterator[str]:
    hue = {None: "yellow", True: "red", False: "green"}[verdict.stalled]
    state, kind = paper.paint(state_of(verdict), "bold", hue), paper.paint(printable(verdict.kind), "bold")
    told = f"{title_of(verdict.kind)} ({verdict.confidence} confidence)"
    width = _width(paper)
    if len(f"{state_of(verdict)}  {verdict.kind}  {told}") <= width:
        yield f"{state}  {kind}  {told}"
    else:
        yield f"{state}  {kind}"
        yield from textwrap.wrap(told, width)
    yield from textwrap.wrap(printable(verdict.summary), width, max_lines=4, placeholder=" …")


def _who_and_when(verdict: Verdict, paper: Paper, room: Room) -> Iterator[str]:
    yield from _section("Culprit", [culprit_line(verdict)], paper, room.advice_lines, "bold")
    yield from _section("Victims", [many("rank", verdict.victims.ranks)], paper, room.advice_lines)
    if verdict.t0 is not None:
        error = verdict.clock_error_s
        doubt = "" if error is None else f", clocks of the sources agree to ±{error:.2g} s"
        yield from _section("Since", [f"{moment(verdict.t0)} (last progress{doubt})"], paper, room.advice_lines)


def _reasons(verdict: Verdict, paper: Paper, room: Room) -> Iterator[str]:
    letters = (_width(paper) - LABEL) * room.why_lines - WRAP_LOSS * (room.why_lines - 1)
    for label, supports, most in (("Because", True, room.why), ("But", False, room.against)):
        reasons = [_reason(says, places, letters) for says, places in _corroborated(verdict, supports=supports)]
        yield from _section(label, reasons[:most], paper, room.why_lines)
    if verdict.graph_coverage is not None:
        cover = verdict.graph_coverage
        yield from _section("Traces", [f"graph coverage {cover.coverage}: {cover.why}"], paper, room.advice_lines)


def _corroborated(verdict: Verdict, *, supports: bool) -> list[tuple[str, list[str]]]:
    """What is shown, and every place that shows it in the same words."""
    places: dict[str, list[str]] = {}
    for item in strongest(verdict.evidence, supports=supports):
        shown = places.setdefault(item.says, [])
        if item.source not in shown:
            shown.append(item.source)
    return list(places.items())


def _reason(says: str, places: list[str], letters: int) -> str:
    """A reason with its place, cut so that the place stays readable: it is what a person looks up."""
    shown, more = printable(places[0]), f", {len(places) - 1} more" if len(places) > 1 else ""
    room = max(letters // 2, SOURCE_MIN) - len(more)
    if len(shown) > room:
        shown = "…" + shown[len(shown) - room + 1 :]
    where = f"  [{shown}{more}]"
    return clip(printable(says), max(letters - len(where), SAYS_MIN)) + where


def _advice(verdict: Verdict, paper: Paper, room: Room) -> Iterator[str]:
    deeds = [
        f"{number}. {deed(item)}{f': {item.why}' if item.why else ''}"
        for number, item in enumerate(verdict.actions[: room.do], start=1)
    ]
    yield from _section("Do", deeds, paper, room.advice_lines, "green")
    sins = [f"× {deed(item)}{f': {item.why}' if item.why else ''}" for item in verdict.do_not[: room.avoid]]
    yield from _section("Do not", sins, paper, room.advice_lines, "red")


def _limits(verdict: Verdict, paper: Paper, room: Room) -> Iterator[str]:
    lines = room.advice_lines if room is ALL else 1
    yield from _section("Missing", list(verdict.missing[: room.missing]), paper, lines)
    yield from _section("To decide", [verdict.decides or ""], paper, room.advice_lines)
    others = ", ".join(f"{other.kind} ({other.confidence})" for other in verdict.alternatives)
    yield from _section("Or maybe", [others], paper, lines)
    if room is ALL:
        excluded = [f"{item.kind}: {item.because}" for item in verdict.ruled_out]
        yield from _section("Ruled out", excluded, paper, lines)
        yield from _section("Skipped", [f"{item.file}: {item.why}" for item in verdict.skipped], paper, lines)
    else:
        yield from _one_line("Ruled out", [item.kind for item in verdict.ruled_out], paper, " (why: --verbose)")
        yield from _one_line("Skipped", [f"{item.file} ({item.why})" for item in verdict.skipped], paper)


def _width(paper: Paper) -> int:
    return max(paper.width, WIDTH_MIN)


def _section(label: str, entries: Sequence[str], paper: Paper, lines: int, *styles: str) -> Iterator[str]:
    """Entries under one label, each wrapped with a hanging indent and cut to `lines` lines; nothing for no text."""
    room = _width(paper) - LABEL
    for index, entry in enumerate(entry for entry in entries if entry):
        wrapped = textwrap.wrap(printable(entry), room, subsequent_indent="  ", break_on_hyphens=False) or [""]
        if len(wrapped) > lines:
            wrapped = [*wrapped[: lines - 1], clip(" ".join(wrapped[lines - 1 :]).replace("   ", " "), room)]
        for row, text in enumerate(wrapped):
            head = label if index == row == 0 else ""
            yield paper.paint(f"{head:<{LABEL}}", "dim") + paper.paint(text, *styles)


def _one_line(label: str, entries: Sequence[str], paper: Paper, end: str = "") -> Iterator[str]:
    """As many entries as fit one line, the rest counted; `end` is put behind them."""
    room = _width(paper) - LABEL - len(end)
    shown = ""
    for index, entry in enumerate(map(printable, entries)):
        rest = len(entries) - index - 1
        more = f" … {rest} more" if rest else ""
        joined = f"{shown}, {entry}" if shown else clip(entry, room - len(more))
        if len(joined) + len(more) > room:
            shown += f" … {rest + 1} more"
            break
        shown = joined
    yield from _section(label, [shown + end if shown else ""], paper, 1)


def _fact_lines(facts: Mapping[str, Fact], paper: Paper) -> Iterator[str]:
    known = {name: fact for name, fact in sorted(facts.items()) if fact.value is not None}
    yield paper.paint(f"Facts: {len(known)} known, {len(facts) - len(known)} unknown", "bold")
    for name, fact in known.items():
        where = f"  [{fact.cites[0].origin}]" if fact.cites else ""
        told = printable(f"{name} = {say(fact.value)}{where}")
        yield from textwrap.wrap(told, paper.width, initial_indent="  ", subsequent_indent="      ")
