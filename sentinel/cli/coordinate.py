"""`sentinel coordinate`: lead the groups of this box from a process of its own, beside the agent."""

import faulthandler
import sys
from pathlib import Path

import click

from sentinel.bus.bus import BusDown
from sentinel.cli import Exit
from sentinel.config import ConfigError, check_page, configured
from sentinel.coordinator.alone import open_alone, page_of
from sentinel.core.facts import NAMES
from sentinel.groups import GroupError, load_coordination
from sentinel.plumbing.clock import SystemClock
from sentinel.plumbing.logs import set_up
from sentinel.plumbing.notify import notify
from sentinel.plumbing.stopping import stop_on_signals
from sentinel.rulebook import RuleError, load_rules

UNAVAILABLE = 4


@click.command("coordinate")
@click.option("--config", "path", type=click.Path(dir_okay=False, path_type=Path), help="sentinel.yaml to use.")
@click.option("--state", type=click.Path(file_okay=False, path_type=Path), help="The agent's state folder.")
def command(path: Path | None, state: Path | None) -> int:
    """Coordinate the groups of this box; stop with Ctrl-C.

    `sentinel watch` does it too, unless coordinator.embedded is false: the lease decides who leads. Exit status 2: the
    configuration cannot be used, 4: the bus cannot.
    """
    try:
        config, groups, rules = configured(path, state), load_coordination(path), load_rules(NAMES)
        check_page("coordinator.metrics_listen", groups.coordinator.metrics_listen, config.metrics)
    except (ConfigError, GroupError, RuleError) as error:
        raise click.UsageError(str(error)) from error
    if not groups.groups:
        raise click.UsageError("there is nothing to coordinate: add groups to sentinel.yaml")
    set_up()
    # systemd ends a process whose loop hangs with SIGABRT; where it hung belongs in the journal.
    faulthandler.enable()
    try:
        alone = open_alone(config, groups, rules, SystemClock())
    except BusDown as error:
        click.echo(str(error), err=True)
        sys.exit(UNAVAILABLE)
    stop_on_signals(alone.stop)
    with page_of(alone, config, groups):
        notify(READY=1, STATUS="standing by")
        alone.run()
    notify(STOPPING=1)
    return Exit.OK
