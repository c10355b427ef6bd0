"""`sentinel breaker`: what was stopped for a person to look at, and letting it go on."""

from pathlib import Path
from typing import Any

import click
import msgspec

from sentinel.cli._orders import mutating, open_bus, order, state_of, where


@click.group("breaker")
def command() -> None:
    """List or close breakers. A closed breaker forgets the verdict that opened it."""


@command.command("ls")
@where
def ls(path: Path | None, state: Path | None, as_json: bool) -> None:
    """Open breakers with their reasons."""
    saved = state_of(open_bus(path, state))
    found = {} if saved is None else {name: group.breaker for name, group in saved.groups.items() if group.breaker}
    if saved is not None and saved.breaker:
        found["_global"] = saved.breaker
    text = "\n".join(f"{name:<20} {why}" for name, why in found.items()) or "all closed"
    click.echo(msgspec.json.encode(found).decode() if as_json else text)


@command.command("reset")
@click.argument("group")
@mutating
def reset(group: str, **given: Any) -> None:
    """Close the breaker of GROUP, or of everything with `_global`."""
    order("breaker_reset", group=group, **given)
