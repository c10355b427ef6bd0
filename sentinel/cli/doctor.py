"""`sentinel doctor`: would an incident be noticed, captured and reported on this host?"""

import sys
from pathlib import Path

import click

from sentinel.cli import Exit
from sentinel.config import ConfigError, configured
from sentinel.deploy.doctor import Case, Finding, as_json, examine, failed
from sentinel.plumbing.clock import SystemClock

MARKS = {"ok": "ok  ", "warn": "warn", "fail": "FAIL", "skip": "-   "}


@click.command("doctor")
@click.option("--config", "path", type=click.Path(dir_okay=False, path_type=Path), help="sentinel.yaml to use.")
@click.option("--state", type=click.Path(file_okay=False, path_type=Path), help="The agent's state folder.")
@click.option("--prometheus", default="", help="Address of Prometheus, to see whether the rules are loaded.")
@click.option("--alertmanager", default="", help="Address of Alertmanager, to see where the dead man's switch goes.")
@click.option("--json", "json_wanted", is_flag=True, help="One JSON object.")
def command(path: Path | None, state: Path | None, prometheus: str, alertmanager: str, json_wanted: bool) -> None:
    """Check everything that evidence depends on, before an incident; each finding says how to repair it.

    Exit status 1 when something has to be repaired. Run it as the agent's user to see what the agent may do.
    """
    findings: list[Finding] = []
    try:
        case = Case(
            config=configured(path, state), now=SystemClock().now(), prometheus=prometheus.rstrip("/"),
            alertmanager=alertmanager.rstrip("/"),
        )  # fmt: skip
        findings = [Finding(check="configuration", state="ok", says="valid"), *examine(case)]
    except ConfigError as error:
        findings = [Finding(check="configuration", state="fail", says=str(error), fix="sentinel config check")]
    click.echo(as_json(findings) if json_wanted else "\n".join(_told(finding) for finding in findings))
    sys.exit(Exit.STALLED if failed(findings) else Exit.OK)


def _told(finding: Finding) -> str:
    line = f"{MARKS[finding.state]} {finding.check:<16} {finding.says}"
    return f"{line}\n{'':21} {finding.fix}" if finding.fix and finding.state != "ok" else line
