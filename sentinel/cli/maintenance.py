"""`sentinel maintenance`: keep hands off a host."""

from typing import Any

import click

from sentinel.cli._orders import mutating, order


@click.command("maintenance")
@click.argument("host")
@click.argument("switch", type=click.Choice(["on", "off"]))
@mutating
def command(host: str, switch: str, **given: Any) -> None:
    """Put HOST into maintenance: it is watched, and no plan touches its groups."""
    order("maintenance", group=host, value=switch, **given)
