"""`sentinel rules`: list, show, test and document the rules that turn facts into verdicts."""

from pathlib import Path

import click

from sentinel.cli import Exit
from sentinel.core.facts import CATALOGUE, NAMES
from sentinel.core.rules import Rule
from sentinel.report import rule_page, taxonomy
from sentinel.report.clean import printable_lines
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
        _say(f"{rule.order:4d}  {rule.id:<24} {rule.status:<12} {rule.title}")


@command.command()
@click.argument("rule_id")
@_SITE
def show(rule_id: str, site: Path | None) -> None:
    """All that a rule says, as a page to read."""
    for rule in _load(site):
        if rule.id == rule_id:
            _say(rule_page.render(rule).rstrip("\n"))
            return
    raise click.UsageError(printable_lines(f"no rule {rule_id}; `sentinel rules list` names them all"))


@command.command()
@click.argument("site", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--mutate", is_flag=True, help="Also prove that flipping any comparison fails a case.")
@click.pass_context
def test(ctx: click.Context, site: Path | None, mutate: bool) -> None:
    """Run the cases inside all rules (and those of the folder SITE). Exit status 1 when one fails."""
    loaded = _load(site)
    failures = [str(failure) for rule in loaded for failure in check(rule, NAMES)]
    if mutate:
        failures += [str(survivor) for rule in loaded for survivor in survivors(rule, NAMES)]
    for failure in failures:
        _say(failure)
    cases = sum(len(rule.cases) for rule in loaded)
    _say(f"{len(loaded)} rules, {cases} cases, {len(failures)} failures")
    ctx.exit(Exit.STALLED if failures else Exit.OK)


@command.command()
@_SITE
def docs(site: Path | None) -> None:
    """The taxonomy as a Markdown page: every class, rule and fact."""
    _say(taxonomy.render(_load(site), CATALOGUE).rstrip("\n"))


def _load(site: Path | None) -> tuple[Rule, ...]:
    try:
        return load_rules(NAMES, site)
    except (OSError, RuleError) as error:
        raise click.UsageError(printable_lines(str(error))) from error


def _say(text: str) -> None:
    click.echo(printable_lines(text))
