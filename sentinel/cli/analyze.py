"""`sentinel analyze`: a folder of hang evidence in, a verdict out."""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from sentinel.cli import Exit
from sentinel.core.facts import NAMES
from sentinel.core.judge import Judgement, judge
from sentinel.evidence.load import Loaded, load
from sentinel.model.verdict import Verdict
from sentinel.plumbing.atomic import write_atomically
from sentinel.report import text
from sentinel.report.clean import printable, printable_lines
from sentinel.rulebook import RuleError, load_rules

COLUMNS = 100
REPORT_MODE = 0o644


@click.command("analyze")
@click.argument("evidence", metavar="DIR", type=click.Path(exists=True, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout instead of text.")
@click.option("--html", "report", type=click.Path(dir_okay=False, path_type=Path), help="Also write a report to FILE.")
@click.option("--verbose", is_flag=True, help="All evidence, all facts, every skipped file; nothing cut.")
@click.option(
    "--site",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A folder of your own rules; they override shipped ones by id.",
)
@click.pass_context
def command(
    ctx: click.Context, evidence: Path, as_json: bool, report: Path | None, verbose: bool, site: Path | None
) -> None:
    """Judge the evidence in DIR: a folder, an archive or a single file, whatever the files are called.

    Exit status: 0 nothing stalled, 1 stalled, 2 usage error, 3 could not see enough to say.
    """
    try:
        loaded = load(evidence)
        rules = load_rules(NAMES, site)
    except (OSError, RuleError) as error:
        raise click.UsageError(printable_lines(str(error))) from error
    judgement = judge(loaded.observations, rules, clock_error_s=loaded.clock_error_s, skipped=loaded.skipped)
    if report is not None:
        _write_report(report, judgement, loaded, evidence.resolve().name)
    _say(as_json_text(judgement.verdict) if as_json else _as_text(judgement, loaded, verbose))
    ctx.exit(status_of(judgement.verdict))


def status_of(verdict: Verdict) -> Exit:
    """The exit status that states the verdict."""
    if verdict.stalled is None:
        return Exit.BLIND
    return Exit.STALLED if verdict.stalled else Exit.OK


def as_json_text(verdict: Verdict) -> str:
    """The JSON contract, one object, pure ASCII so that no byte of evidence reaches a terminal as it was."""
    return json.dumps(msgspec.to_builtins(verdict), indent=2, ensure_ascii=True)


def _as_text(judgement: Judgement, loaded: Loaded, verbose: bool) -> str:
    terminal = sys.stdout.isatty()
    paper = text.Paper(
        width=min(os.get_terminal_size().columns, COLUMNS) if terminal else COLUMNS,
        colour=terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb",
    )
    if not verbose:
        return text.render(judgement.verdict, paper)
    told = text.render(judgement.verdict, paper, judgement.facts)
    return "\n".join((told, "", *_read_lines(loaded), *loaded.clock_notes))


def _read_lines(loaded: Loaded) -> Sequence[str]:
    """What was read, by which parsers."""
    head = f"Read {loaded.read_files} files, {loaded.bytes_read:,} bytes, {len(loaded.observations):,} observations"
    return [
        head,
        *(printable(f"  {name}: {', '.join(readers) or 'nothing'}") for name, readers in loaded.read_by.items()),
    ]


def _write_report(path: Path, judgement: Judgement, loaded: Loaded, title: str) -> None:
    # Imported here: the template engine is the slowest import of all, and text output needs none of it.
    from sentinel.report import html

    sources = html.Sources(hosts=loaded.hosts, read_by=loaded.read_by, clock_notes=loaded.clock_notes)
    page = html.render(judgement, title, sources)
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(page.encode())  # a pipe or a device must be written to, not replaced
        else:
            write_atomically(path, page.encode(), REPORT_MODE)
    except OSError as error:
        raise click.UsageError(f"cannot write {printable(str(path))}: {error.strerror}") from error
    click.echo(f"report written to {printable(str(path))}", err=True)


def _say(message: str) -> None:
    """Print; a reader that went away (`| head`) must not turn the verdict's exit status into another one."""
    try:
        sys.stdout.buffer.write(message.encode(errors="backslashreplace") + b"\n")
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
