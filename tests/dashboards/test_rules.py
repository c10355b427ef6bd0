"""Alerts: each is tested both ways, asks only for what exists, and leads to a page that says what to do."""

import re
import shutil
import subprocess
from typing import Any

import pytest
import yaml

from tests.dashboards.promql import complaints
from tests.tidy.sources import ROOT

FOLDER = ROOT / "dashboards" / "rules"
LOADED: dict[str, Any] = yaml.safe_load((FOLDER / "sentinel.rules.yaml").read_text())
RULES: list[dict[str, Any]] = [rule for group in LOADED["groups"] for rule in group["rules"]]
ALERTS = {rule["alert"]: rule for rule in RULES if "alert" in rule}
RECORDED = frozenset(rule["record"] for rule in RULES if "record" in rule)
CASES: list[dict[str, Any]] = yaml.safe_load((FOLDER / "sentinel.tests.yaml").read_text())["tests"]
ALWAYS = {"SentinelDeadMansSwitch"}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool (Debian package prometheus)")
@pytest.mark.parametrize("words", [("check", "rules", "sentinel.rules.yaml"), ("test", "rules", "sentinel.tests.yaml")])
def test_promtool_accepts_the_rules_and_their_cases(words: tuple[str, ...]) -> None:
    """False: Prometheus refuses the file, or an alert is silent when it should fire, or the other way round."""
    ran = subprocess.run(["promtool", *words], cwd=FOLDER, capture_output=True, text=True, check=False, timeout=120)

    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_every_alert_has_a_case_that_fires_and_one_that_does_not() -> None:
    """False: an alert that can never fire, or always does, is shipped."""
    found: set[tuple[str, bool]] = set()
    for case in CASES:
        for one in case["alert_rule_test"]:
            found.add((one["alertname"], bool(one.get("exp_alerts"))))
            assert one.get("exp_alerts") or case.get("input_series"), "silence without any series shows nothing"

    assert {(name, True) for name in ALERTS} | {(name, False) for name in ALERTS.keys() - ALWAYS} == found


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule.get("alert") or rule.get("record")))
def test_a_rule_asks_only_for_what_is_exposed(rule: dict[str, Any]) -> None:
    """False: a metric was renamed and its alert went silent for ever."""
    assert list(complaints(rule["expr"], RECORDED)) == []


def test_a_wrong_name_label_or_value_is_found() -> None:
    """False: the check above cannot fail."""
    assert list(complaints("sentinel_stall_activ == 1", RECORDED)) == ["nobody exposes sentinel_stall_activ"]
    assert list(complaints('sentinel_trouble{prat="ring"}', RECORDED)) == ["sentinel_trouble has no label prat"]
    assert list(complaints('sentinel_trouble{part="rnig"}', RECORDED)) == ["sentinel_trouble: part is never rnig"]
    assert list(complaints('rate(sentinel_dumps_total{kind=~"gdb|gbd"}[5m])', RECORDED)) == [
        "sentinel_dumps_total: kind is never gbd"
    ]


@pytest.mark.parametrize("name", sorted(ALERTS))
def test_an_alert_tells_what_it_means_and_where_to_read_on(name: str) -> None:
    """False: somebody is woken and finds a name."""
    alert = ALERTS[name]
    notes = alert["annotations"]

    assert re.fullmatch(r"Sentinel([A-Z][a-z]+)+", name) and alert["labels"]["severity"] in (
        "none",
        "warning",
        "critical",
    )
    assert len(notes["summary"]) > 10 and len(notes["description"]) > 40
    assert notes["runbook_url"] == f"docs/runbooks/alerts/{name}.md"
    assert (ROOT / notes["runbook_url"]).is_file()
