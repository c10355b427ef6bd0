"""`sentinel unblock`: end what stuck lanes of the row store wait in."""

from typing import Any

import click

from sentinel.cli._orders import mutating, order


@click.command("unblock")
@click.argument("group")
@mutating
def command(group: str, **given: Any) -> None:
    """Unblock the stuck lanes of GROUP: a hang becomes a failed batch."""
    order("unblock", group=group, **given)
