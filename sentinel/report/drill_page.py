"""The timeline of a fire drill as one self-contained HTML file, under the rules of `sentinel/report/html.py`."""

from dataclasses import dataclass

from sentinel import __version__
from sentinel.report.html import environment


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillPage:
    """What is shown. `figures`: name and value. `events`: seconds after the fault, who, what; in order."""

    name: str
    about: str
    passed: bool
    figures: tuple[tuple[str, str], ...]
    events: tuple[tuple[float, str, str], ...]
    complaints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    at_s: float
    share: float
    who: str
    lines: tuple[str, ...]


def render(page: DrillPage) -> str:
    """The whole file."""
    began_s, ended_s = (page.events[0][0], page.events[-1][0]) if page.events else (0.0, 0.0)
    length_s = max(ended_s - began_s, 1e-3)
    rows = [
        _Row(at_s=at_s, share=100 * (at_s - began_s) / length_s, who=who, lines=tuple(said.splitlines()))
        for at_s, who, said in page.events
    ]
    return environment().get_template("drill.html.j2").render(page=page, rows=rows, version=__version__)
