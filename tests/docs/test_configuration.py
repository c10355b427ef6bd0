"""The reference of settings is what the schema says."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from sentinel.cli import sentinel
from sentinel.config import SECTIONS
from sentinel.config_help import GROUP_SECTIONS, MEANINGS
from sentinel.groups import load_with_origins
from tests.tidy.sources import ROOT


def test_every_setting_has_a_meaning_and_no_other_has() -> None:
    """False: a setting exists that nobody can know of, or one is described that is refused."""
    all_sections = {**SECTIONS, **GROUP_SECTIONS}
    known = {f"{section}.{key}" for section, kind in all_sections.items() for key in kind.__struct_fields__}

    assert set(MEANINGS) == known


def test_the_committed_reference_is_fresh() -> None:
    """False: the page tells a default that is not in force; `sentinel config docs` writes it anew."""
    shown = CliRunner().invoke(sentinel, ["config", "docs"])

    assert shown.exit_code == 0
    assert shown.output == (ROOT / "docs" / "configuration.md").read_text()


def test_the_check_covers_groups_and_says_where_each_value_came_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """False: an operator checks the file, believes that Sentinel may act, and it never will, or the other way round."""
    file = tmp_path / "sentinel.yaml"
    file.write_text(
        "groups: {chat: {hosts: [a, b], supervisor: {kind: systemd, unit: chat.service}}}\n"
        "policy: {mode: auto, hold_s: 90}\ncoordinator: {notify: [{kind: slack, url_file: /etc/s}]}\n"
    )
    monkeypatch.setenv("SENTINEL_POLICY_MODE", "observe")
    told = CliRunner().invoke(sentinel, ["config", "check", "--config", str(file)])
    lines = told.output.splitlines()

    assert told.exit_code == 0
    for line in (
        "policy.mode = 'observe'  # SENTINEL_POLICY_MODE",
        f"policy.hold_s = 90.0  # {file}",
        "policy.restarts_max = 3  # default",
        f"groups.chat.hosts = ('a', 'b')  # {file}",
        f"groups.chat.supervisor.unit = 'chat.service'  # {file}",
        "groups.chat.term_s = 15.0  # default",
        "delays.late_s = 15.0  # default",
        f"coordinator.notify.0.url_file = '/etc/s'  # {file}",
        "metrics.listen = '127.0.0.1:9469'  # default",
    ):
        assert line in lines
    found, _ = load_with_origins(file)
    assert found.policy.mode == "observe" and found.groups["chat"].supervisor is not None


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("policy: {hold: 3}", "policy.hold is not a setting; did you mean hold_s?"),
        ("groups: {a: {prot: 3}}", "groups.a.prot is not a setting; did you mean port?"),
        (
            "groups: {a: {supervisor: {kind: systemd, unt: x}}}",
            "groups.a.supervisor.unt is not a setting; did you mean",
        ),
        (
            "coordinator: {notify: [{kind: slack, url_fil: x}]}",
            "coordinator.notify.0.url_fil is not a setting; did you",
        ),
        ("polcy: {mode: auto}", "polcy is not a section; did you mean policy?"),
        ("groups: {a: {supervisor: {kind: systemd}}}", "groups.a.supervisor.unit is needed"),
        ("delays: {late_s: 100}", "delays.silent_s is below delays.late_s"),
        ("delays: {stop_s: 0}", "delays.stop_s must be above 0"),
        ("delays: {start_s: 1.0e+9}", "at most 604800 s"),
        ("coordinator: {heartbeat_every_s: 0}", "heartbeat_every_s must be at least 1 s"),
        ("policy: {hold_s: -1}", "policy.hold_s must not be below 0"),
        ("policy: {backoff_s: [0, .nan]}", "policy.backoff_s must not be below 0"),
        ("policy: {mode: yes}", "policy.mode"),
    ],
)
def test_a_key_that_nobody_knows_is_named_with_the_nearest_one(tmp_path: Path, text: str, complaint: str) -> None:
    """False: a misspelt limit is not in force, and nothing says so until it is needed."""
    (tmp_path / "sentinel.yaml").write_text(text)
    told = CliRunner().invoke(sentinel, ["config", "check", "--config", str(tmp_path / "sentinel.yaml")])

    assert told.exit_code == 2 and complaint in told.output


def test_a_variable_that_names_no_setting_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """False: SENTINEL_POLICY_MOD=observe is set in a hurry, and Sentinel goes on acting."""
    (tmp_path / "sentinel.yaml").write_text("policy: {mode: auto}")
    monkeypatch.setenv("SENTINEL_POLICY_MOD", "observe")
    told = CliRunner().invoke(sentinel, ["config", "check", "--config", str(tmp_path / "sentinel.yaml")])

    assert told.exit_code == 2 and "did you mean mode?" in told.output
