"""`sentinel replay`: judge a journal again; the same events must give the same effects, byte for byte."""

import sys
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from sentinel.agent.report import words
from sentinel.cli import Exit
from sentinel.core.facts import NAMES
from sentinel.plumbing.clock import local_text
from sentinel.record.replay import Replayed, replay, verdict_lines
from sentinel.rulebook import RuleError, load_rules


@click.command("replay")
@click.argument("journal", type=click.Path(exists=True, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One JSON object an effect, then one with the comparison.")
def command(journal: Path, as_json: bool) -> None:
    """Judge JOURNAL (a folder or one segment) again and compare with what the agent did.

    Exit status 0 when both are identical, 1 when they differ.
    """
    try:
        rules = load_rules(NAMES)
    except RuleError as error:
        raise click.UsageError(str(error)) from error
    for at, effect in verdict_lines(journal, rules):
        record = {"at": at, "effect": effect}
        text = msgspec.json.encode(record).decode() if as_json else f"{local_text(at.wall_s)}  {words(effect)}"
        click.echo(text)
    again = replay(journal, rules)
    counts = {"events": again.events, "recorded": len(again.recorded), "computed": len(again.computed)}
    if as_json:
        click.echo(msgspec.json.encode({**counts, "same": again.same}).decode())
    else:
        click.echo("\n".join(_compared(again)))
    sys.exit(Exit.OK if again.same else Exit.STALLED)


def _compared(again: Replayed) -> Iterator[str]:
    """What was compared, and the first difference."""
    if again.same:
        yield f"identical: {len(again.computed)} effects of {again.events} events"
        return
    yield f"different: {len(again.recorded)} effects were recorded, {len(again.computed)} follow from the events"
    encode = msgspec.json.encode
    pairs = zip(again.recorded, again.computed, strict=False)
    first = next((n for n, (was, now) in enumerate(pairs) if encode(was) != encode(now)), None)
    if first is not None:
        yield f"  effect {first} was {words(again.recorded[first])}"
        yield f"  effect {first} is  {words(again.computed[first])}"
