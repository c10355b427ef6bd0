"""`sentinel install`: put the systemd units on this host, or show what that would do, or take them away again."""

import sys
from pathlib import Path

import click

from sentinel.cli import Exit
from sentinel.deploy.hazards import Hazard, hazards
from sentinel.deploy.units import COORDINATOR, ENABLED, KERNEL_STACKS, Install, present, wanted
from sentinel.plumbing.atomic import write_atomically
from sentinel.plumbing.subprocesses import run_bounded

COMMAND_S = 90.0


@click.command("install")
@click.option("--plan", is_flag=True, help="Show what would be done, and do nothing.")
@click.option("--remove", is_flag=True, help="Stop and remove the units; configuration and incidents stay.")
@click.option("--coordinator", is_flag=True, help="Also enable a coordinator of its own beside the agent.")
@click.option("--kernel-stacks", is_flag=True, help="Also enable the service that reads kernel stacks.")
@click.option("--force", is_flag=True, help="Go on in spite of hazards that can be overruled.")
@click.option(
    "--root", type=click.Path(file_okay=False, path_type=Path), default=Path("/"), help="Another root folder."
)
@click.option("--prefix", type=click.Path(file_okay=False, path_type=Path), help="Virtual environment to run from.")
def command(
    plan: bool, remove: bool, coordinator: bool, kernel_stacks: bool, force: bool, root: Path, prefix: Path | None
) -> None:
    """Install the agent and its helper as systemd units, with a user of their own.

    Refuses where it would hurt: a reload of systemd can take GPUs from running containers. Exit status 1: it refused.
    """
    home = prefix or Path(sys.prefix)
    live = root == Path("/")
    found = () if remove and not live else tuple(hazards(root, home))
    files = wanted(root, home)
    asked = {COORDINATOR: coordinator, KERNEL_STACKS: kernel_stacks}
    enabled = (*ENABLED, *(unit for unit, wish in asked.items() if wish))
    steps = _removal(root, live) if remove else _installation(files, live, enabled)
    for step in steps:
        click.echo(" ".join(step))
    if not remove and not kernel_stacks:
        click.echo(f"optional {KERNEL_STACKS} (kernel stacks, with CAP_SYS_ADMIN; as it is unless --kernel-stacks)")
    for hazard in found:
        click.echo(f"hazard: {hazard.what}\n        {hazard.fix}", err=True)
    if plan:
        sys.exit(Exit.STALLED if _stops(found, force) else Exit.OK)
    if _stops(found, force):
        click.echo("nothing was done", err=True)
        sys.exit(Exit.STALLED)
    _carry_out(steps, files)


def _stops(found: tuple[Hazard, ...], force: bool) -> bool:
    return any(not (hazard.forcible and force) for hazard in found)


def _installation(files: tuple[Install, ...], live: bool, enabled: tuple[str, ...]) -> list[tuple[str, ...]]:
    steps: list[tuple[str, ...]] = [
        ("write", str(file.path), f"({file.state})") for file in files if file.state in ("new", "changed")
    ]
    steps += [("keep", str(file.path), f"({file.state})") for file in files if file.state in ("same", "kept")]
    if live:
        steps += [("run", "systemd-sysusers"), ("run", "systemd-tmpfiles", "--create", "/etc/tmpfiles.d/sentinel.conf")]
        steps += [("run", "systemctl", "daemon-reload"), ("run", "systemctl", "enable", *enabled)]
        steps += [("run", "systemctl", "restart", *enabled)]
        # One that was enabled before runs the old version until it is restarted.
        steps += [("run", "systemctl", "try-restart", COORDINATOR)] if COORDINATOR not in enabled else []
    return steps


def _removal(root: Path, live: bool) -> list[tuple[str, ...]]:
    paths = present(root)
    installed = {path.name for path in paths}
    units = [unit for unit in (*ENABLED, COORDINATOR, KERNEL_STACKS) if unit in installed]
    steps: list[tuple[str, ...]] = [("run", "systemctl", "disable", "--now", *units)] if live and units else []
    steps += [("remove", str(path)) for path in paths]
    return [*steps, ("run", "systemctl", "daemon-reload")] if live else steps


def _carry_out(steps: list[tuple[str, ...]], files: tuple[Install, ...]) -> None:
    texts = {str(file.path): file.text for file in files}
    for verb, *words in steps:
        match verb:
            case "write":
                path = Path(words[0])
                path.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(path, texts[words[0]].encode(), mode=0o644)
            case "remove":
                Path(words[0]).unlink(missing_ok=True)
            case "run":
                ran = run_bounded(words, deadline_s=COMMAND_S)
                if not ran.ok:
                    said = ran.why or ran.stderr.decode(errors="replace").strip()
                    raise click.ClickException(f"{' '.join(words)}: {said}; repair it and run this again")
