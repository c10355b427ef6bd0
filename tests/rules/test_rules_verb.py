"""`sentinel rules`: what a person who writes or reads a rule gets to see."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sentinel.cli.rules import command
from sentinel.core.facts import NAMES
from sentinel.rulebook import load_rules

SITE_RULE = """
id: site.night_backup
title: The nightly backup fills the disk
status: experimental
class: hang.storage
order: 318
stalled: true
when: {all: [{fact: io.pressure_hosts, count_at_least: 1}, {fact: progress.slowdown, at_most: 0.5}]}
says: "storage of {hosts} is kept busy{since}"
needs: the disk's queue length
suggest: [{action: page_human, why: "the backup has to be moved"}]
base: {io.pressure_hosts: [a], progress.slowdown: 0.4}
cases:
  - {name: pressure and half the pace, fires: true}
  - {name: nobody waits for the disk, fires: false, but: {io.pressure_hosts: []}}
  - {name: nobody looked, fires: unknown, but: {io.pressure_hosts: null}}
"""
SETTLED = """
  - {name: at the limit, fires: true, but: {progress.slowdown: 0.5}}
  - {name: just below, fires: true, but: {progress.slowdown: 0.46}}
  - {name: just above, fires: false, but: {progress.slowdown: 0.54}}
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with one rule of its own."""
    (tmp_path / "night_backup.yaml").write_text(SITE_RULE + SETTLED)
    return tmp_path


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(command, [str(word) for word in words])


def test_the_list_names_every_rule_in_the_order_in_which_they_are_asked() -> None:
    """False: the ladder on the screen is not the one that judges."""
    lines = run("list").output.splitlines()

    assert [line.split()[1] for line in lines] == [rule.id for rule in load_rules(NAMES)]


def test_a_rule_is_shown_with_all_that_it_says() -> None:
    """False: the reader of a verdict cannot check why it was given."""
    page = run("show", "hang.stopped").output
    (rule,) = (rule for rule in load_rules(NAMES) if rule.id == "hang.stopped")

    assert page.startswith(f"hang.stopped  {rule.title}\n")
    flat = " ".join(page.split())
    reasons = [piece.why for piece in (*rule.suggest, *rule.forbid)]
    for words in (rule.says, rule.needs, *rule.false_positives, *reasons):
        assert words in flat
    for case in rule.cases:
        assert case.name in flat
    assert max(map(len, page.splitlines())) <= 100


def test_an_unknown_rule_is_a_usage_error_that_says_where_to_look() -> None:
    """False: a typing mistake ends in silence or in a traceback."""
    done = run("show", "hang.nothing")

    assert done.exit_code == 2
    assert "no rule hang.nothing" in done.output and "sentinel rules list" in done.output


def test_the_shipped_rules_pass_their_cases() -> None:
    """False: the first thing that a site does with its rules is red without its fault."""
    done = run("test")

    assert done.exit_code == 0, done.output
    assert done.output.endswith(", 0 failures\n")


def test_rules_of_a_site_stand_in_the_ladder_with_the_shipped_ones(site: Path) -> None:
    """False: a site cannot teach Sentinel what only it knows."""
    orders = [int(line.split()[0]) for line in run("list", "--site", site).output.splitlines()]

    assert orders == sorted(orders)
    assert "The nightly backup fills the disk" in run("show", "site.night_backup", "--site", site).output
    assert "site.night_backup" not in run("test", site, "--mutate").output


def test_a_rule_of_a_site_replaces_the_shipped_one_of_the_same_id(site: Path) -> None:
    """False: a site that corrects a rule gets both."""
    (site / "night_backup.yaml").write_text((SITE_RULE + SETTLED).replace("site.night_backup", "hang.storage"))

    shown = run("list", "--site", site).output

    assert shown.count(" hang.storage ") == 1
    assert "The nightly backup fills the disk" in shown


def test_a_case_that_fails_is_named_and_fails_the_command(site: Path) -> None:
    """False: a rule that does something else than its author wrote goes into service."""
    hopeful = "  - {name: too hopeful, fires: true, but: {progress.slowdown: 0.9}}"
    (site / "night_backup.yaml").write_text(SITE_RULE + hopeful)

    done = run("test", site)

    assert done.exit_code == 1
    assert "site.night_backup: case «too hopeful»: wanted fires: True, got fires: False" in done.output


def test_a_threshold_that_no_case_holds_is_named_and_fails_the_command(site: Path) -> None:
    """False: the mutation check passes whatever the cases are."""
    (site / "night_backup.yaml").write_text(SITE_RULE)

    assert "site.night_backup" not in run("test", site).output
    done = run("test", site, "--mutate")
    assert done.exit_code == 1
    assert "site.night_backup: no case notices when progress.slowdown at_most 0.5 becomes 0.55" in done.output


def test_a_rule_that_cannot_be_used_is_a_usage_error_that_names_the_file(site: Path) -> None:
    """False: a mistake in a site's rule stops the judge with a traceback, at 03:00."""
    (site / "broken.yaml").write_text(SITE_RULE.replace("io.pressure_hosts", "io.presure_hosts"))

    done = run("test", site)

    assert done.exit_code == 2
    assert "broken.yaml: io.presure_hosts is not a fact; did you mean io.pressure_hosts?" in done.output


def test_what_a_rule_contains_cannot_command_the_terminal(site: Path) -> None:
    """False: a rule copied from elsewhere repaints the screen of the person who looks at it."""
    hostile = SITE_RULE.replace("title: The nightly backup fills the disk", 'title: "The \\e[2Jnightly backup"')
    (site / "night_backup.yaml").write_text(hostile)

    shown = run("list", "--site", site).output

    assert "\x1b" not in shown and "\\x1b[2Jnightly" in shown
