"""`sentinel drill`: a fire drill on this machine, without a GPU."""

import sys
import tempfile
from pathlib import Path

import click
import msgspec

from sentinel.cli import Exit
from sentinel.core.facts import NAMES
from sentinel.plumbing.clock import SystemClock
from sentinel.rulebook import load_rules
from sentinel.testing.drill import Drill, Outcome
from sentinel.testing.scenarios import CATALOGUE, Scenario, named


@click.command("drill")
@click.argument("name", required=False)
@click.option("--all", "whole", is_flag=True, help="Run the whole catalogue.")
@click.option("--list", "listing", is_flag=True, help="List the catalogue.")
@click.option("--time-scale", default=1.0, show_default=True, help="Divide every clock of engine and agent by this.")
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), help="Keep everything here.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a drill.")
def command(
    name: str | None, whole: bool, listing: bool, time_scale: float, folder: Path | None, as_json: bool
) -> None:
    """Freeze a rehearsal engine in one real way and see what the agent makes of it.

    Exit status 1 on any wrong verdict, late capture or false alarm.
    """
    if listing:
        for scenario in CATALOGUE:
            click.echo(f"{scenario.name:<20} {scenario.about}")
        return
    chosen = _chosen(name, whole)
    failed = 0
    for scenario in chosen:
        home = Path(tempfile.mkdtemp(prefix="sentinel-drill-")) if folder is None else folder / scenario.name
        outcome = Drill(scenario, load_rules(NAMES), SystemClock(), home, time_scale).run()
        click.echo(msgspec.json.encode(outcome).decode() if as_json else "\n".join(_told(scenario, outcome)))
        failed += not outcome.passed
    if len(chosen) > 1 and not as_json:
        click.echo(f"{len(chosen) - failed} passed, {failed} failed")
    sys.exit(Exit.STALLED if failed else Exit.OK)


def _chosen(name: str | None, whole: bool) -> tuple[Scenario, ...]:
    if whole:
        return CATALOGUE
    scenario = named(name or "stopped")
    if scenario is None:
        raise click.UsageError(f"no drill {name}; `sentinel drill --list` names them all")
    return (scenario,)


def _told(scenario: Scenario, outcome: Outcome) -> list[str]:
    """The timeline in words."""
    scale = "" if outcome.time_scale == 1.0 else f", clocks divided by {outcome.time_scale:g}"
    lines = [f"{'ok  ' if outcome.passed else 'FAIL'} {scenario.name}: {scenario.about}{scale}"]
    lines.append("    0.0 s  fault")
    lines += [f"{at_s:7.1f} s  {words}" for at_s, words in outcome.events]
    if outcome.captured_s is not None:
        margin = outcome.deadline_s - outcome.captured_s
        lines.append(f"{outcome.deadline_s:7.1f} s  the engine's own kill is due ({margin:.1f} s after the capture)")
    lines += [f"           {complaint}" for complaint in outcome.complaints]
    if outcome.verdict is not None:
        lines.append(f"           {outcome.verdict.summary}")
    lines.append(f"           evidence: {outcome.folder}/agent/incidents")
    return lines
