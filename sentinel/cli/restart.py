"""`sentinel restart`: stop and start a group in order."""

from typing import Any

import click

from sentinel.cli._orders import mutating, order


@click.command("restart")
@click.argument("group")
@mutating
def command(group: str, **given: Any) -> None:
    """Restart GROUP: evidence first, verified stop, ordered start, a token as proof."""
    order("restart", group=group, **given)
