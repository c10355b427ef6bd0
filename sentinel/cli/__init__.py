"""The command line: one module per verb, imported only when that verb runs, so that `sentinel --version` is instant.

The exit status is an API, see `Exit`.
"""

import sys
import traceback
from collections.abc import Mapping
from enum import IntEnum
from importlib import import_module

import click

from sentinel import __version__

VERBS: Mapping[str, str] = {
    "watch": "Watch the engines of this host.",
    "coordinate": "Lead groups of engines from a process of its own.",
    "status": "Show what the agent sees, and what it cannot.",
    "doctor": "Check that evidence would be there, and how to repair what would not.",
    "install": "Put the systemd units on this host, or show what that would do.",
    "incidents": "List the incidents of engine groups.",
    "incident": "Show one incident in full.",
    "policy": "Show or set what Sentinel may do by itself.",
    "pause": "Stop acting for a while; watching goes on.",
    "resume": "End a pause.",
    "approve": "Let a judged incident be acted on.",
    "restart": "Restart a group in order, with proof.",
    "store": "Switch or compare the row store's modes.",
    "unblock": "End what stuck lanes of a row store wait in.",
    "breaker": "List or close breakers.",
    "verdict": "Say whether an incident was real.",
    "maintenance": "Keep hands off a host.",
    "config": "Check and show the configuration.",
    "replay": "Judge an agent's journal again and compare.",
    "drill": "A fire drill on this machine, without a GPU.",
    "bundle": "Make, read, check and compare incident bundles.",
    "analyze": "Judge a folder of hang evidence.",
    "rules": "List, show and test the rules that turn facts into verdicts.",
    "score": "Measure how often verdicts are right on labelled evidence.",
}
"""Verb -> one-line help. Its code is `command` in the module `sentinel.cli.<verb>`."""


class Exit(IntEnum):
    """What the exit status of every verb means."""

    OK = 0
    STALLED = 1
    USAGE = 2
    BLIND = 3
    BUG = 70
    INTERRUPTED = 130


class Verbs(click.Group):
    """A group that knows its verbs' names and help without importing them."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """Names in the order of `VERBS`."""
        return list(VERBS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb's command, imported now; None for an unknown verb."""
        if cmd_name not in VERBS:
            return None
        command: click.Command = import_module(f"sentinel.cli.{cmd_name}").command
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of verbs from `VERBS`, still without importing them."""
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="sentinel")
def sentinel() -> None:
    """Watchdog and hang forensics for multi-node LLM inference.

    Exit status: 0 nothing stalled, 1 stalled, 2 usage error, 3 could not see enough to say.
    """


def main() -> None:
    """Run the command line and exit with its status.

    A defect of ours must not look like a verdict: an uncaught exception would exit with 1, which means "stalled".
    """
    try:
        status = sentinel.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(Exit.USAGE)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(Exit.INTERRUPTED)
    except Exception:
        traceback.print_exc()
        sys.exit(Exit.BUG)
    sys.exit(status or Exit.OK)
