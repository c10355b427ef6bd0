"""What verbs that ask the coordinator for something have in common: the plan first, then the order, then the answer.

They talk to the bus, not to the process. An order that was given while nobody coordinated is refused later, not obeyed.
`--json` prints one object.
"""

import getpass
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from sentinel.bus.bus import Bus, BusDown, BusError
from sentinel.bus.embedded import EmbeddedBus
from sentinel.cli import Exit
from sentinel.config import ConfigError, configured
from sentinel.coordinator.asking import ask, notices, state_of
from sentinel.coordinator.names import bus_folder
from sentinel.model.cluster import Answered, Order, OrderVerb
from sentinel.plumbing.clock import SystemClock

DENIED, UNAVAILABLE, UNKNOWN_OUTCOME = 3, 4, 5
"""Exit status of verbs that change something: refused; no bus; no answer in time."""
__all__ = ["mutating", "notices", "open_bus", "order", "state_of", "where"]
F = TypeVar("F", bound=Callable[..., None])


def where(function: F) -> F:
    """Options that say which state and which form of output."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="One JSON object."),
        click.option("--state", type=click.Path(file_okay=False, path_type=Path), help="The agent's state folder."),
        click.option("--config", "path", type=click.Path(dir_okay=False, path_type=Path), help="sentinel.yaml to use."),
    ):
        function = option(function)
    return function


def mutating(function: F) -> F:
    """Options of a verb that changes something, and those of `where`."""
    dry_run = click.option("--dry-run", is_flag=True, help="Show the plan and what speaks against it; do nothing.")
    reason = click.option("--reason", required=True, help="Why; kept with the change.")
    return where(dry_run(reason(function)))


def open_bus(path: Path | None, state: Path | None) -> Bus:
    """The bus of this box. Ends the program with UNAVAILABLE when there is none."""
    try:
        config = configured(path, state)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    folder = bus_folder(Path(config.folders.state))
    if not (folder / "bus.db").exists():
        click.echo(
            f"no coordinator has run on the state in {folder}; add groups to sentinel.yaml and run `sentinel watch`"
        )
        sys.exit(UNAVAILABLE)
    try:
        return EmbeddedBus(folder)
    except BusDown as error:
        click.echo(str(error))
        sys.exit(UNAVAILABLE)


def order(
    verb: OrderVerb, *, path: Path | None, state: Path | None, as_json: bool, dry_run: bool, **fields: Any
) -> None:
    """Show the plan, give the order unless this is a rehearsal, print the answer, end with its exit status."""
    bus = open_bus(path, state)
    by = f"{getpass.getuser()}(uid {os.getuid()})"
    plan = _ask(bus, Order(id=os.urandom(8).hex(), verb=verb, by=by, dry_run=True, **fields))
    if not as_json:
        _print(plan)
    if dry_run or not plan.ok:
        _end(plan, as_json)
    _end(_ask(bus, Order(id=os.urandom(8).hex(), verb=verb, by=by, **fields)), as_json, said=not as_json)


def _ask(bus: Bus, asked: Order) -> Answered:
    try:
        answered = ask(bus, asked, SystemClock())
    except BusError as error:
        click.echo(str(error))
        sys.exit(UNAVAILABLE)
    if answered is None:
        click.echo("no answer from the coordinator: is `sentinel watch` running? If it is only slow it may still obey; "
                   "see `sentinel incidents`")  # fmt: skip
        sys.exit(UNKNOWN_OUTCOME)
    return answered


def _print(answered: Answered) -> None:
    for line in answered.says:
        click.echo(line)


def _end(answered: Answered, as_json: bool, *, said: bool = True) -> None:
    if as_json:
        click.echo(msgspec.json.encode({"ok": answered.ok, "says": answered.says, "order": answered.order}).decode())
    elif not answered.ok:
        click.echo("refused; nothing was done")
    elif answered.order.dry_run:
        click.echo("a rehearsal; nothing was done")
    elif said:
        click.echo("done" if answered.order.verb not in ("restart", "store", "unblock") else "begun")
    sys.exit(Exit.OK if answered.ok else DENIED)
