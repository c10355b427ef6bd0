"""`sentinel config`: the configuration in force, and where each value came from."""

from pathlib import Path

import click

from sentinel import groups
from sentinel.cli import Exit
from sentinel.config import ConfigError, check_page, effective, load

PATH = click.option("--config", "path", type=click.Path(dir_okay=False, path_type=Path), help="sentinel.yaml to use.")


@click.group("config")
def command() -> None:
    """Check and show the configuration."""


@command.command("check")
@PATH
def check(path: Path | None) -> int:
    """Print the configuration, groups included, if it can be used; exit status 2 and the reason if not."""
    _show(path)
    return Exit.OK


@command.command("show")
@click.argument("keys", nargs=-1)
@PATH
def show(keys: tuple[str, ...], path: Path | None) -> int:
    """Print the values of KEYS (`timing.tick_s`, or a section), or all."""
    _show(path, keys)
    return Exit.OK


@command.command("docs")
def docs() -> int:
    """Print the reference of all settings, as Markdown."""
    from sentinel.config_help import reference  # only whoever writes the documents needs the texts

    click.echo("\n".join(reference()))
    return Exit.OK


def _show(path: Path | None, keys: tuple[str, ...] = ()) -> None:
    try:
        config, origins = load(path)
        found, group_origins = groups.load_with_origins(path)
        check_page("coordinator.metrics_listen", found.coordinator.metrics_listen, config.metrics)
    except (ConfigError, groups.GroupError) as error:
        raise click.UsageError(str(error)) from error
    lines = [*effective(config, origins), *groups.effective(found, group_origins)]
    wanted = [line for line in lines if not keys or any(_is_of(line, key) for key in keys)]
    if not wanted:
        raise click.UsageError(f"no setting {', '.join(keys)}; `sentinel config show` prints them all")
    click.echo("\n".join(wanted))


def _is_of(line: str, key: str) -> bool:
    name = line.partition(" = ")[0]
    return name == key or name.startswith(f"{key}.")
