"""`sentinel store`: the row store's mode of a group, and whether it matters."""

from pathlib import Path
from typing import Any

import click
import msgspec

from sentinel.cli._orders import mutating, open_bus, order, state_of, where
from sentinel.core.experiment import rate_per_hour


@click.group("store")
def command() -> None:
    """Switch the row store of a group, or compare its modes."""


@command.command("mode")
@click.argument("group")
@click.argument("mode", type=click.Choice(["ram", "nvme"]))
@mutating
def mode_of(group: str, mode: str, **given: Any) -> None:
    """Switch all hosts of GROUP together: live where every store can, else with a restart."""
    order("store", group=group, value=mode, **given)


@command.command("rates")
@where
def rates(path: Path | None, state: Path | None, as_json: bool) -> None:
    """Stalls per served hour in each mode, with the exact 95 % interval."""
    saved = state_of(open_bus(path, state))
    rows = []
    for name, group in ({} if saved is None else saved.groups).items():
        for mode, exposure in sorted(group.exposure.items()):
            rate, low, high = rate_per_hour(exposure)
            rows.append({"group": name, "mode": mode, "hours": round(exposure.served_s / 3600.0, 3),
                         "stalls": exposure.stalls, "rate": rate, "low": low, "high": high})  # fmt: skip
    if as_json:
        click.echo(msgspec.json.encode(rows).decode())
        return
    for row in rows or ():
        shown = "unknown" if row["rate"] is None else f"{row['rate']:.3f} [{row['low']:.3f}, {row['high']:.3f}] an hour"
        click.echo(f"{row['group']:<20} {row['mode']:<6} {row['stalls']} stalls in {row['hours']} h: {shown}")
    if not rows:
        click.echo("no group with a row store has served yet")
