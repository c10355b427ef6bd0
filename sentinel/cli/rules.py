"""`sentinel rules`: list, show and test the rules that turn facts into verdicts."""

import sys
from pathlib import Path

import click
import msgspec

from sentinel.core.facts import NAMES
from sentinel.rulebook import RuleError, load_rules
from sentinel.rulecheck import check, survivors

_SITE = click.option(
    "--site",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A folder of your own rules; they override shipped ones by id.",
)


@click.group("rules")
def command() -> None:
    """The rules that turn facts into verdicts."""


@command.command("list")
@_SITE
def list_rules(site: Path | None) -> None:
    """One line a rule, in the order in which they are asked."""
    for rule in _load(site):
        click.echo(f"{rule.order:4d}  {rule.id:<24} {rule.status:<12} {rule.title}")


@command.command()
@click.argument("rule_id")
@_SITE
def show(rule_id: str, site: Path | None) -> None:
    """Everything a rule says, as YAML."""
    for rule in _load(site):
        if rule.id == rule_id:
            click.echo(msgspec.yaml.encode(rule).decode(), nl=False)
            return
    click.echo(f"no rule {rule_id}; `sentinel rules list` names them all", err=True)
    sys.exit(2)


@command.command()
@click.argument("site", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--mutate", is_flag=True, help="Also prove that flipping any comparison fails a case.")
def test(site: Path | None, mutate: bool) -> None:
    """Run the cases inside all rules (and those of the folder SITE). Exit status 1 when one fails."""
    loaded = _load(site)
    failures = [str(failure) for rule in loaded for failure in check(rule, NAMES)]
    if mutate:
        failures += [str(survivor) for rule in loaded for survivor in survivors(rule, NAMES)]
    for failure in failures:
        click.echo(failure)
    cases = sum(len(rule.cases) for rule in loaded)
    click.echo(f"{len(loaded)} rules, {cases} cases, {len(failures)} failures")
    sys.exit(1 if failures else 0)


def _load(site: Path | None) -> tuple:  # type: ignore[type-arg]
    try:
        return load_rules(NAMES, site)
    except RuleError as error:
        click.echo(str(error), err=True)
        sys.exit(2)
