"""`sentinel verdict`: say whether an incident was one."""

from typing import Any

import click

from sentinel.cli._orders import mutating, order


@click.command("verdict")
@click.argument("incident")
@click.argument("was", type=click.Choice(["confirmed", "false_alarm"]))
@mutating
def command(incident: str, was: str, **given: Any) -> None:
    """Say of INCIDENT that it was real or a false alarm; this is what precision is measured by."""
    order("feedback", group=incident, value=was, **given)
