"""`sentinel incident`: one incident in full."""

import sys
from pathlib import Path

import click
import msgspec

from sentinel.cli import Exit
from sentinel.cli._orders import notices, open_bus, where
from sentinel.report.clean import printable


@click.group("incident")
def command() -> None:
    """Look at one incident."""


@command.command("show")
@click.argument("incident")
@where
def show(incident: str, path: Path | None, state: Path | None, as_json: bool) -> None:
    """Everything that was told about INCIDENT: suspicion, verdict, refusals, plan, proof."""
    found = [told for told in notices(open_bus(path, state)) if told.incident == incident]
    if not found:
        click.echo(f"no incident {printable(incident)}; `sentinel incidents` lists them")
        sys.exit(Exit.USAGE)
    if as_json:
        click.echo(msgspec.json.encode(found).decode())
        return
    for told in found:
        first, *rest = told.words.splitlines() or [""]
        click.echo(printable(f"{told.severity:<9} {told.what:<16} {first}"))
        for line in rest:
            click.echo(printable(f"{'':<27}{line}"))
