"""A row-store drill told: the timeline in words for a terminal, and as a page."""

from pathlib import Path

import msgspec

from sentinel.report.drill_page import DrillPage, render
from sentinel.testing.packaged.rowstore import NAME, RowstoreOutcome

LINE_MAX = 200


def figures(outcome: RowstoreOutcome) -> tuple[tuple[str, str], ...]:
    """What was measured, by name; what did not happen is left out."""
    seen = outcome.seen
    verdict = seen.verdict
    found = {
        "Engine": outcome.layout,
        "Clocks divided by": f"{seen.time_scale:g}",
        "Verdict": ""
        if verdict is None
        else f"{verdict.kind} ({verdict.confidence}) of ranks {list(verdict.culprits.ranks)}",
        "Evidence kept after": _seconds(seen.captured_s),
        "The engine's own kill was due after": _seconds(seen.kill_due_s),
        "From verdict and hold to the verified stop": _seconds(seen.added_s),
        "First token again after": _seconds(seen.token_s),
        "Relaunches counted": f"{seen.relaunches}",
        "Launches of the engine": f"{seen.launches}",
        "Row store's mode at the end": seen.mode,
        "Bundle": outcome.bundle,
        "Timeline": outcome.page,
    }
    return tuple((name, value) for name, value in found.items() if value)


def timeline(outcome: RowstoreOutcome) -> list[str]:
    """The timeline in words."""
    lines = [f"{'ok  ' if outcome.passed else 'FAIL'} {NAME} {outcome.variant}: {outcome.about}"]
    lines += [f"{at_s:7.1f} s  {who}: {said.splitlines()[0][:LINE_MAX]}" for at_s, who, said in outcome.events]
    lines += [f"           {name}: {value}" for name, value in figures(outcome)]
    return lines + [f"           {complaint}" for complaint in outcome.complaints]


def with_page(outcome: RowstoreOutcome) -> RowstoreOutcome:
    """Write the page into the drill's folder."""
    page = DrillPage(
        name=f"{NAME} {outcome.variant}",
        about=outcome.about,
        passed=outcome.passed,
        figures=figures(outcome),
        events=outcome.events,
        complaints=outcome.complaints,
    )
    target = Path(outcome.folder) / "timeline.html"
    target.write_text(render(page), encoding="utf-8")
    return msgspec.structs.replace(outcome, page=str(target))


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.1f} s"
