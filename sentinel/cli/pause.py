"""`sentinel pause`: no action by itself for a while; watching and capturing go on."""

from typing import Any

import click

from sentinel.cli._orders import mutating, order

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


@click.command("pause")
@click.option("--for", "span", default="4h", show_default=True, help="How long: 30m, 2h, at most 24h.")
@mutating
def command(span: str, **given: Any) -> None:
    """Stop acting for a while. A pause always ends by itself."""
    order("pause", seconds=seconds_of(span), **given)


def seconds_of(span: str) -> float:
    """`90s`, `30m`, `2h` in seconds. Raises click.UsageError."""
    number, unit = span[:-1], span[-1:]
    if unit not in UNITS or not number.isdecimal():
        raise click.UsageError(f"--for {span}: write a number and s, m or h, such as 30m")
    return float(number) * UNITS[unit]
