"""`sentinel bundle`: make, read, check and compare incident bundles."""

import contextlib
import functools
import os
import pwd
import re
import socket
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec

import click

from sentinel.cli import Exit
from sentinel.config import ConfigError, configured
from sentinel.core.facts import NAMES
from sentinel.core.judge import Judgement, judge
from sentinel.evidence.load import Loaded, load
from sentinel.plumbing.atomic import write_atomically
from sentinel.record import manifest as form
from sentinel.record.bundle import BundleError, Order, create
from sentinel.record.compare import differences
from sentinel.record.incident import Incident, read_incident
from sentinel.record.manifest import Manifest
from sentinel.record.pseudonyms import KeyFileError, load_key
from sentinel.record.reader import Bundle, UnusableBundle, failure
from sentinel.record.redact_secrets import secret_values
from sentinel.record.repack import redacted_copy, with_report
from sentinel.record.slice import NAME as JOURNAL
from sentinel.record.slice import journal_slice
from sentinel.record.telling import told
from sentinel.report.clean import clip, printable
from sentinel.rulebook import load_rules

FAILED = 1
"""Exit status of `verify` on a bundle that does not hold, of `diff` on a difference, of `grep` without a match."""
KEY_NAME = "bundle.key"
_LINE_MAX = 300
_TOKEN_FILES = (".cache/huggingface/token", ".huggingface/token")
_FIRST_PERSON_UID = 1000

P = ParamSpec("P")
path_of_bundle = click.argument("bundle", type=click.Path(path_type=Path))
key_option = click.option("--key", type=click.Path(dir_okay=False, path_type=Path), help="Pseudonym key file.")
state_option = click.option("--state", type=click.Path(file_okay=False, path_type=Path), help="The agent's folder.")


@click.group("bundle")
def command() -> None:
    """Incident bundles: one file with everything that explains an incident, safe to pass on.

    Exit status: 0 done, 1 the bundle does not verify (or nothing matched, or something differs), 2 no usable bundle.
    """


def guarded(verb: Callable[P, None]) -> Callable[P, None]:
    """Errors of a verb become one clear line and exit status 2."""

    @functools.wraps(verb)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            verb(*args, **kwargs)
        except (UnusableBundle, BundleError, KeyFileError, ConfigError, OSError) as error:
            raise click.ClickException(_why(error)) from error

    return run


@command.command("create")
@click.argument("incident")
@click.option("--out", type=click.Path(path_type=Path), help="File or folder to write; here by default.")
@click.option("--no-redact", is_flag=True, help="Keep everything; the bundle is marked RAW.")
@click.option("--report/--no-report", "inside", default=True, help="Put the HTML report inside.")
@state_option
@key_option
@guarded
def create_(
    incident: str, out: Path | None, no_redact: bool, inside: bool, state: Path | None, key: Path | None
) -> None:
    """Make a bundle of INCIDENT: an incident's id, its folder, or any folder of evidence."""
    folder = _folder_of(incident, state)
    read = read_incident(folder, None)
    if read.records:
        _add_journal(folder, read, state)
    loaded = load(read.evidence)
    verdict = read.verdict or _judged(loaded).verdict
    order = _order(None if no_redact else load_key(key or _key_path(state)))
    target = _target(out, read.name)
    made = create(folder, target, order, verdict, loaded)
    if inside:
        made = _add_report(target, target)
    _say(f"{target}: {len(made.files)} files, {target.stat().st_size:,} bytes" + (", RAW" if made.raw else ""))


@command.command("ls")
@path_of_bundle
@guarded
def ls(bundle: Path) -> None:
    """List the files inside with size, source and what was redacted."""
    with Bundle(bundle) as opened:
        for member in opened.manifest.files:
            cut = f" of {member.truncated_from:,}" if member.truncated_from is not None else ""
            count = sum(member.redactions.values())
            source = ", ".join(member.source) or "not recognised"
            _say(f"{member.size:>12,}{cut}  {member.path}  {source}  {count} redactions")


@command.command("show")
@path_of_bundle
@click.option("--json", "as_json", is_flag=True, help="The manifest as it is.")
@guarded
def show(bundle: Path, as_json: bool) -> None:
    """Say on one screen what the bundle is about."""
    with Bundle(bundle) as opened:
        if as_json:
            _say_block(form.encode(opened.manifest).decode())
            return
        for line in told(opened.manifest):
            _say(line, _LINE_MAX)


@command.command("verify")
@path_of_bundle
@click.pass_context
@guarded
def verify(ctx: click.Context, bundle: Path) -> None:
    """Check names, sizes, checksums, lists and redaction; exit status 1 if anything does not hold."""
    with Bundle(bundle) as opened:
        problems = list(opened.problems())
        for problem in problems:
            _say(problem)
        if problems:
            ctx.exit(FAILED)
        raw = " RAW: not redacted." if opened.manifest.raw else ""
        _say(f"sound: {len(opened.manifest.files)} files, digest {opened.manifest.digest[:16]}.{raw}")


@command.command("diff")
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path))
@guarded
def diff(before: Path, after: Path) -> None:
    """Say what differs: verdict, versions, settings, stacks, sources."""
    with Bundle(before) as one, Bundle(after) as other:
        for line in differences(one.manifest, other.manifest):
            _say(line)


@command.command("grep")
@click.argument("pattern")
@path_of_bundle
@click.option("-i", "--ignore-case", is_flag=True)
@click.pass_context
@guarded
def grep(ctx: click.Context, pattern: str, bundle: Path, ignore_case: bool) -> None:
    """Print lines that match PATTERN (a Python regular expression) in any file; exit status 1 without a match."""
    try:
        wanted = re.compile(pattern, re.IGNORECASE if ignore_case else 0)
    except re.error as error:
        raise click.UsageError(f"the pattern cannot be used: {error}") from error
    count = 0
    with Bundle(bundle) as opened:
        for name in opened.names:
            for number, line in enumerate(opened.lines(name), 1):
                if wanted.search(line):
                    count += 1
                    _say(f"{name}:{number}: {line}", _LINE_MAX)
    if not count:
        ctx.exit(FAILED)


@command.command("export")
@path_of_bundle
@click.argument("folder", type=click.Path(path_type=Path))
@guarded
def export(bundle: Path, folder: Path) -> None:
    """Write the files into a new FOLDER."""
    with Bundle(bundle) as opened:
        for problem in list(opened.problems()):
            click.echo(printable(f"warning: {problem}"), err=True)
        _say(f"{folder}: {opened.export(folder)} files")


@command.command("redact")
@path_of_bundle
@click.argument("target", type=click.Path(dir_okay=False, path_type=Path))
@state_option
@key_option
@guarded
def redact(bundle: Path, target: Path, state: Path | None, key: Path | None) -> None:
    """Make a redacted bundle TARGET of a RAW one."""
    with Bundle(bundle) as opened:
        made = redacted_copy(opened, target, _order(load_key(key or _key_path(state))))
    _say(f"{target}: {len(made.files)} files, {target.stat().st_size:,} bytes")


@command.command("report")
@path_of_bundle
@click.option("--html", "page", type=click.Path(dir_okay=False, path_type=Path), help="Write the page to this file.")
@click.option("--into", type=click.Path(dir_okay=False, path_type=Path), help="Write a bundle with the page inside.")
@guarded
def report(bundle: Path, page: Path | None, into: Path | None) -> None:
    """Judge the bundle again and write the HTML report, beside it unless told otherwise."""
    if into is not None:
        _add_report(bundle, into)
        _say(f"{into}: with {form.NAME} and report.html")
    if page is not None or into is None:
        target = page or bundle.with_name(bundle.name.partition(".tar")[0] + ".html")
        write_atomically(target, _page(bundle), 0o640)
        _say(f"{target}: report written")


def _add_report(bundle: Path, target: Path) -> Manifest:
    with Bundle(bundle) as opened:
        return with_report(opened, _page(bundle), target)


def _page(bundle: Path) -> bytes:
    from sentinel.report import html  # the template engine is the slowest import of all

    # Names in the page must not depend on what the bundle is called here, or two makings would differ.
    with Bundle(bundle) as opened, tempfile.TemporaryDirectory(prefix="sentinel-bundle-") as private:
        folder = Path(private) / "members"
        opened.export(folder)
        loaded, title = load(folder), opened.manifest.bundle
    sources = html.Sources(hosts=loaded.hosts, read_by=loaded.read_by, clock_notes=loaded.clock_notes)
    return html.render(_judged(loaded), title, sources).encode()


def _judged(loaded: Loaded) -> Judgement:
    rules = load_rules(NAMES)
    return judge(loaded.observations, rules, clock_error_s=loaded.clock_error_s, skipped=loaded.skipped)


def _order(key: bytes | None) -> Order:
    """What is known here to be secret or to name machines and people."""
    home = Path.home()
    pairs = list(os.environ.items())
    files = (home / name for name in _TOKEN_FILES)
    pairs += [("TOKEN", file.read_text(errors="replace").strip()) for file in files if file.is_file()]
    host = socket.gethostname()
    people = [entry.pw_name for entry in pwd.getpwall() if entry.pw_uid >= _FIRST_PERSON_UID]
    return Order(key=key, secrets=secret_values(pairs), hosts=(host, host.split(".")[0]), users=tuple(people))


def _folder_of(incident: str, state: Path | None) -> Path:
    given = Path(incident)
    if given.exists():
        return given
    folder = _incidents(state) / re.sub(r"[^A-Za-z0-9._-]+", "_", incident)
    if not folder.is_dir():
        raise BundleError(f"{incident} is neither a folder nor an incident in {folder.parent}")
    return folder


def _add_journal(folder: Path, read: Incident, state: Path | None) -> None:
    """Put the incident's part of the agent's journal beside its records, where there is a journal."""
    with contextlib.suppress(OSError):
        found = journal_slice(configured(state=state).folder("journal"), read.engine, read.name, read.at_s)
        if found:
            write_atomically(folder / JOURNAL, found)


def _incidents(state: Path | None) -> Path:
    return configured(state=state).folder("incidents")


def _key_path(state: Path | None) -> Path:
    """Beside the agent's state if that may be used, else the user's own: a bundle of a stranger's evidence."""
    beside = _incidents(state).parent
    if state is not None or os.access(beside, os.W_OK) or (beside / KEY_NAME).is_file():
        return beside / KEY_NAME
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "sentinel" / KEY_NAME


def _target(out: Path | None, name: str) -> Path:
    file = f"{re.sub(r'[^A-Za-z0-9._-]+', '_', name)}.tar.zst"
    if out is None:
        return Path(file)
    return out / file if out.is_dir() else out


def _why(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return printable(f"{error.filename}: {error.strerror}")
    return failure(error)


def _say(line: str, limit: int = 4096) -> None:
    _say_block(clip(printable(line), limit))


def _say_block(text: str) -> None:
    """Print; a reader that went away (`| head`) ends the program quietly."""
    try:
        sys.stdout.write(text.encode("utf-8", "backslashreplace").decode() + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(Exit.OK) from None
