"""`sentinel approve`: let a judged incident be acted on."""

from typing import Any

import click

from sentinel.cli._orders import mutating, order


@click.command("approve")
@click.argument("incident")
@mutating
def command(incident: str, **given: Any) -> None:
    """Approve what policy would do about INCIDENT in mode `approve`; good for some minutes."""
    order("approve", group=incident, **given)
