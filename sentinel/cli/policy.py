"""`sentinel policy`: what Sentinel may do by itself."""

from pathlib import Path
from typing import Any

import click
import msgspec

from sentinel.cli._orders import mutating, open_bus, order, state_of, where


@click.group("policy")
def command() -> None:
    """Show or set the mode: observe (default), approve, or auto."""


@command.command("get")
@where
def get(path: Path | None, state: Path | None, as_json: bool) -> None:
    """The mode that was set, the pause, the global breaker."""
    saved = state_of(open_bus(path, state))
    told = {
        "mode": "as configured" if saved is None or saved.mode is None else saved.mode,
        "paused": "" if saved is None or saved.paused_until_s is None else saved.paused_why,
        "breaker": "" if saved is None else saved.breaker,
        "maintenance": {} if saved is None else saved.maintenance,
    }
    text = "\n".join(f"{name:<12} {value or '-'}" for name, value in told.items())
    click.echo(msgspec.json.encode(told).decode() if as_json else text)


@command.command("set")
@click.argument("mode", type=click.Choice(["observe", "approve", "auto"]))
@mutating
def set_mode(mode: str, **given: Any) -> None:
    """Set the mode until it is set again."""
    order("policy", value=mode, **given)
