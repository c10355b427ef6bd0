"""The verdict and all that stands behind it as one self-contained HTML file.

Nothing in it runs or loads: no script, no font, no picture from elsewhere, and a content security policy that forbids
them. Evidence is hostile input, so every value passes `printable` and the template engine's escaping.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Protocol

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from sentinel import __version__
from sentinel.core import timeline as core_timeline
from sentinel.core.fact import Fact
from sentinel.core.picture import Picture
from sentinel.model.verdict import Verdict
from sentinel.report import plots, ranks, stacktree, timeline, wavefront
from sentinel.report.axis import focus
from sentinel.report.clean import printable, printable_lines
from sentinel.report.text import say, strongest
from sentinel.report.words import clock, culprit_line, deed, lasting, many, moment, state_of, title_of

CITES_MAX = 12
FACT_MAX = 400


class Judged(Protocol):
    """What is rendered: `core.judge.Judgement`, or anything with the same three parts."""

    @property
    def verdict(self) -> Verdict: ...

    @property
    def picture(self) -> Picture: ...

    @property
    def facts(self) -> Mapping[str, Fact]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What was read: hosts, files with the parsers that read them, and how the clocks were aligned."""

    hosts: tuple[str, ...] = ()
    read_by: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    clock_notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FactRow:
    """One known or unknown fact, ready to show."""

    name: str
    value: str
    known: bool
    cites: tuple[tuple[str, str], ...]
    missing: str


def render(judged: Judged, title: str, sources: Sources | None = None) -> str:
    """The whole file. `title` names the evidence, usually the folder."""
    verdict, picture = judged.verdict, judged.picture
    moments, untimed = timeline.moments(picture)
    axis = focus(picture, [moment.at_s for moment in moments])
    accused = frozenset(verdict.culprits.ranks)
    fronts, fronts_cut = wavefront.fronts(picture, accused)
    page = (
        environment()
        .get_template("report.html.j2")
        .render(
            title=title,
            version=__version__,
            verdict=verdict,
            state=state_of(verdict),
            kind_title=title_of(verdict.kind),
            culprits=culprit_line(verdict),
            culprit_ranks=accused,
            ranks=ranks.table(verdict, picture, judged.facts),
            supports=strongest(verdict.evidence, supports=True),
            contradicts=strongest(verdict.evidence, supports=False),
            silence=_silence(picture) if verdict.stalled else None,
            chart=timeline.chart(moments, untimed, axis) if axis else None,
            panel=plots.panel(picture, axis),
            fronts=fronts,
            fronts_cut=fronts_cut,
            ras=wavefront.ras_rows(picture),
            sequences=wavefront.sequences(picture, accused),
            forests=stacktree.forests(picture),
            stands=stacktree.stands(picture),
            facts=_fact_rows(judged.facts),
            sources=sources or Sources(),
        )
    )
    # A second time over all of it: filters such as `join` return markup, which `_clean` lets pass.
    return printable_lines(page)


def _silence(picture: Picture) -> str | None:
    """From the last progress to the end of the evidence, in words; None where either is unknown."""
    t0, end_s = picture.memo(core_timeline.progress).t0, core_timeline.end_s(picture)
    return None if t0 is None or end_s is None else lasting(max(end_s - t0.at_s, 0.0))


def _fact_rows(facts: Mapping[str, Fact]) -> tuple[FactRow, ...]:
    """Known facts first, by name."""
    rows = [
        FactRow(
            name=name,
            value=say(fact.value)[:FACT_MAX],
            known=fact.value is not None,
            cites=tuple((cite.says, str(cite.origin)) for cite in fact.cites[:CITES_MAX]),
            missing=", ".join(fact.missing),
        )
        for name, fact in facts.items()
    ]
    return tuple(sorted(rows, key=lambda row: (not row.known, row.name)))


@cache
def environment() -> Environment:
    """The template engine of every page: nothing unescaped, nothing undefined, nothing that a terminal would obey."""
    env = Environment(
        loader=PackageLoader("sentinel.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_clean,
    )
    env.globals["number"] = _number
    style = files("sentinel.report").joinpath("templates", "report.css")
    env.globals["css"] = Markup(style.read_text(encoding="utf-8"))
    env.filters.update(clock=clock, deed=deed, many=many, moment=moment, title_of=title_of)
    return env


def _number(value: float | None, unit: str) -> Markup:
    """A right-aligned table cell; empty for what the driver did not answer."""
    return Markup('<td class="num">{}</td>').format("" if value is None else f"{value:g} {unit}")


def _clean(value: object) -> object:
    """Every value that a template prints; markup of our own passes, text is made printable and then escaped."""
    return value if isinstance(value, Markup) or not isinstance(value, str) else printable(value)
