"""`sentinel resume`: end a pause."""

from typing import Any

import click

from sentinel.cli._orders import mutating, order


@click.command("resume")
@mutating
def command(**given: Any) -> None:
    """Allow actions again before the pause runs out."""
    order("resume", **given)
