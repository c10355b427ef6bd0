"""`sentinel status`: what the agent of this host sees, what it could not see, and how to repair that."""

import sys
from pathlib import Path

import click
import msgspec

from sentinel.agent import status
from sentinel.agent.status_text import told
from sentinel.cli import Exit
from sentinel.config import ConfigError, configured
from sentinel.plumbing.clock import SystemClock


@click.command("status")
@click.option("--config", "path", type=click.Path(dir_okay=False, path_type=Path), help="sentinel.yaml to use.")
@click.option("--state", type=click.Path(file_okay=False, path_type=Path), help="The agent's state folder.")
@click.option("--json", "as_json", is_flag=True, help="The whole record as one JSON object.")
def command(path: Path | None, state: Path | None, as_json: bool) -> None:
    """Show engines, ranks, deadlines, sources, open incidents and evidence readiness.

    Exit status 1 when an engine is judged to be stalled, 3 when no agent is running.
    """
    try:
        config = configured(path, state)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    folder, now = Path(config.folders.state), SystemClock().now()
    found = status.read(folder, now)
    if found is None:
        click.echo(
            msgspec.json.encode({"running": False, "state": str(folder)}).decode()
            if as_json
            else f"no agent is running on the state in {folder}; start one with `sentinel watch`"
        )
        sys.exit(Exit.BLIND)
    click.echo(msgspec.json.encode(found).decode() if as_json else "\n".join(told(found)))
    stalled = any(engine.verdict is not None and engine.verdict.stalled for engine in found.engines)
    sys.exit(Exit.STALLED if stalled else Exit.OK)
