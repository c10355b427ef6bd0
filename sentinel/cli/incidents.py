"""`sentinel incidents`: what happened to groups, newest last."""

from pathlib import Path

import click
import msgspec

from sentinel.cli._orders import notices, open_bus, state_of, where
from sentinel.report.clean import printable


@click.command("incidents")
@where
def command(path: Path | None, state: Path | None, as_json: bool) -> None:
    """List the incidents of all groups, with how each stands or ended."""
    bus = open_bus(path, state)
    saved = state_of(bus)
    rows: dict[str, dict[str, str]] = {}
    for told in notices(bus):
        if told.incident:
            row = rows.setdefault(told.incident, {"incident": told.incident, "group": told.group, "verdict": ""})
            if told.verdict is not None:
                row["verdict"] = told.verdict.kind
            row["last"] = f"{told.what}: {told.words.partition(chr(10))[0]}"
    for group in () if saved is None else saved.groups.values():
        if group.incident in rows:
            rows[group.incident]["phase"] = group.phase
            rows[group.incident]["against"] = "; ".join(group.refusals)
    if as_json:
        click.echo(msgspec.json.encode(list(rows.values())).decode())
        return
    for row in rows.values():
        stands = f"{row['incident']:<24} {row.get('phase', 'over'):<10} {row['verdict']:<24}"
        click.echo(printable(f"{stands} {row['last'][:120]}"))
    if not rows:
        click.echo("no incidents")
