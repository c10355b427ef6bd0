"""`sentinel drill`: a fire drill on this machine, without a GPU unless one is asked for."""

import sys
import tempfile
from collections.abc import Sequence
from math import ceil
from pathlib import Path

import click
import msgspec

from sentinel.cli import Exit, _packaged_drills
from sentinel.cli._packaged_drills import HOSTCALLBACK
from sentinel.core.facts import NAMES
from sentinel.plumbing.clock import SystemClock
from sentinel.rulebook import load_rules
from sentinel.testing.drill import Drill, Outcome
from sentinel.testing.life import Life
from sentinel.testing.packaged.engine import CPU, DEVICES
from sentinel.testing.restart_drill import ABOUT as RESTART_ABOUT
from sentinel.testing.restart_drill import NAME as RESTART
from sentinel.testing.restart_drill import RestartDrill, timeline
from sentinel.testing.scenarios import CATALOGUE, HEALTHY, HEALTHY_ABOUT, Scenario, healthy, named


@click.command("drill")
@click.argument("name", required=False)
@click.option("--all", "whole", is_flag=True, help="Run the whole catalogue.")
@click.option("--list", "listing", is_flag=True, help="List the catalogue.")
@click.option("--time-scale", default=1.0, show_default=True, help="Divide every clock of engine and agent by this.")
@click.option("--minutes", default=60.0, show_default=True, help=f"Length of `{HEALTHY}`, before clocks are divided.")
@click.option("--variant", default="", help="Of the drill `rowstore`: one of its variants, or `all`.")
@click.option("--device", type=click.Choice(DEVICES), default=CPU, help="Where the packaged engine's ranks compute.")
@click.option("--repeat", default=1, show_default=True, help="Run what is chosen this often.")
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), help="Keep everything here.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a drill.")
def command(
    name: str | None,
    whole: bool,
    listing: bool,
    time_scale: float,
    minutes: float,
    variant: str,
    device: str,
    repeat: int,
    folder: Path | None,
    as_json: bool,
) -> None:
    """Freeze a rehearsal engine in one real way and see what the agent makes of it.

    Exit status 1 on any wrong verdict, late capture or false alarm.
    """
    if variant and name != _packaged_drills.ROWSTORE:
        raise click.UsageError(f"--variant belongs to the drill {_packaged_drills.ROWSTORE}")
    if device != CPU and name not in _packaged_drills.NAMES:
        raise click.UsageError(f"--device belongs to the drills {' and '.join(_packaged_drills.NAMES)}")
    if listing:
        for scenario in CATALOGUE:
            click.echo(f"{scenario.name:<22} {scenario.about}")
        click.echo(f"{HEALTHY:<22} {HEALTHY_ABOUT}")
        click.echo(f"{RESTART:<22} {RESTART_ABOUT}")
        for word, about in _packaged_drills.listed():
            click.echo(f"{word:<22} {about}")
        return
    if name == RESTART:
        passed = [restart(time_scale, folder, as_json) for _ in range(repeat)]
        sys.exit(Exit.OK if all(passed) else Exit.STALLED)
    if name in _packaged_drills.NAMES:
        passed = [packaged(name, variant, time_scale, device, folder, as_json) for _ in range(repeat)]
        sys.exit(Exit.OK if all(passed) else Exit.STALLED)
    outcomes = []
    for number in range(1, repeat + 1):
        for scenario in _chosen(name, whole, Life(minutes, time_scale, SystemClock(), seed=number)):
            part = scenario.name if repeat == 1 else f"{scenario.name}-{number}"
            home = Path(tempfile.mkdtemp(prefix="sentinel-drill-")) if folder is None else folder / part
            outcome = Drill(scenario, load_rules(NAMES), SystemClock(), home, time_scale).run()
            click.echo(msgspec.json.encode(outcome).decode() if as_json else "\n".join(_told(scenario, outcome)))
            outcomes.append(outcome)
    if len(outcomes) > 1 and not as_json:
        click.echo("\n".join(_summed(outcomes)))
    sys.exit(Exit.STALLED if any(not outcome.passed for outcome in outcomes) else Exit.OK)


def restart(time_scale: float, folder: Path | None, as_json: bool) -> bool:
    """The whole way from a freeze to the next token, in policy `auto`; whether nothing is to complain about."""
    home = Path(tempfile.mkdtemp(prefix="sentinel-drill-", dir=folder))
    outcome = RestartDrill(load_rules(NAMES), SystemClock(), home, time_scale).run()
    click.echo(msgspec.json.encode(outcome).decode() if as_json else "\n".join(timeline(outcome)))
    return outcome.passed


def packaged(name: str, variant: str, time_scale: float, device: str, folder: Path | None, as_json: bool) -> bool:
    """A drill of the packaged engine; whether nothing is to complain about."""
    if name != HOSTCALLBACK.name:
        variants = _packaged_drills.chosen(variant)
        return _packaged_drills.rowstore_drills(variants, time_scale, device, folder, as_json)
    outcome = _packaged_drills.hostcallback_drill(time_scale, device, folder)
    click.echo(msgspec.json.encode(outcome).decode() if as_json else "\n".join(_told(HOSTCALLBACK, outcome)))
    return outcome.passed


def _chosen(name: str | None, whole: bool, life: Life) -> tuple[Scenario, ...]:
    if whole:
        return CATALOGUE
    if name == HEALTHY:
        return (healthy(life),)
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
    if outcome.told:
        lines.append(f"           {outcome.told}")
    if outcome.bundle:
        lines.append(f"           bundle: {outcome.bundle}")
    if outcome.report:
        lines.append(f"           report: {outcome.report}")
    return lines


def _summed(outcomes: Sequence[Outcome]) -> list[str]:
    """How many passed, and how soon faults were noticed."""
    failed = sum(not outcome.passed for outcome in outcomes)
    lines = [f"{len(outcomes) - failed} passed, {failed} failed"]
    expecting = [outcome for outcome in outcomes if outcome.captured_s is not None]
    suspected = sorted(outcome.suspected_s for outcome in expecting if outcome.suspected_s is not None)
    if suspected:
        scale = outcomes[0].time_scale
        p50, p90 = (at(suspected, share) for share in (0.5, 0.9))
        undivided = "" if scale == 1.0 else f" ({p50 * scale:.1f} s and {p90 * scale:.1f} s before clocks were divided)"
        lines.append(f"suspicion after the fault: p50 {p50:.1f} s, p90 {p90:.1f} s of {len(suspected)}{undivided}")
    margins = [outcome.deadline_s - outcome.captured_s for outcome in expecting if outcome.captured_s is not None]
    if margins:
        lines.append(f"capture complete at least {min(margins):.1f} s before the engine's own kill was due")
    return lines


def at(ordered: Sequence[float], share: float) -> float:
    """The smallest value that is not exceeded by this share of them."""
    return ordered[max(0, ceil(share * len(ordered)) - 1)]
