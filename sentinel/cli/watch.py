"""`sentinel watch`: watch the engines of this host, capture before they kill themselves, judge."""

import faulthandler
from functools import partial
from pathlib import Path

import click

from sentinel.agent.discovery import is_named
from sentinel.agent.loop import open_loop
from sentinel.agent.report import log_effect
from sentinel.agent.serve import served
from sentinel.config import ConfigError, configured
from sentinel.coordinator.embed import coordinating
from sentinel.core.facts import NAMES
from sentinel.groups import GroupError, load_coordination
from sentinel.plumbing.clock import SystemClock
from sentinel.plumbing.logs import set_up
from sentinel.plumbing.notify import notify
from sentinel.plumbing.stopping import stop_on_signals
from sentinel.record.journal import JournalError
from sentinel.rulebook import RuleError, load_rules


@click.command("watch")
@click.option("--config", "path", type=click.Path(dir_okay=False, path_type=Path), help="sentinel.yaml to use.")
@click.option("--state", type=click.Path(file_okay=False, path_type=Path), help="Folder for journal, ring, incidents.")
@click.option("--live", is_flag=True, help="A live view instead of log lines.")
@click.option("--only-named", default="", hidden=True, help="For drills: no engine but the one of this name.")
def command(path: Path | None, state: Path | None, live: bool, only_named: str) -> None:
    """Watch every engine on this host. Needs no configuration; stop with Ctrl-C."""
    try:
        config = configured(path, state)
        rules, groups = load_rules(NAMES), load_coordination(path)
        loop = open_loop(config, rules, SystemClock())
    except (ConfigError, GroupError, JournalError, RuleError) as error:
        raise click.UsageError(str(error)) from error
    if only_named:
        loop.only = partial(is_named, name=only_named)
    stop_on_signals(loop.stop)
    if live:
        from sentinel.agent.view import run_with_view  # a terminal view costs memory that a service must not pay

        with served(loop), coordinating(loop, groups, rules):
            run_with_view(loop)
        return
    set_up()
    # systemd ends an agent whose loop hangs with SIGABRT; where it hung belongs in the journal.
    faulthandler.enable()
    loop.listeners.append(log_effect)
    with served(loop), coordinating(loop, groups, rules):
        notify(READY=1, STATUS="watching")
        loop.run()
    notify(STOPPING=1)
