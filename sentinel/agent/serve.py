"""The running agent's metrics page and text file, opened around its loop. Neither can stop the watch."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import structlog

from sentinel.agent.loop import AgentLoop
from sentinel.config import Metrics
from sentinel.metrics.exporter import Exporter, Health, Pages, tls_context, write_textfile
from sentinel.metrics.tally import Snapshot

SILENT_S = 30.0
"""A loop that has not turned for this long is not healthy; its turns are half a second apart."""
TOKEN_BYTES_MAX = 4096


@contextlib.contextmanager
def served(loop: AgentLoop) -> Iterator[int | None]:
    """Serve while the block runs; yields the port, None when nothing listens."""
    settings = loop.config.metrics
    if settings.textfile:
        loop.measurers.append(lambda snapshot: _textfile(loop, Path(settings.textfile), snapshot))
    if not settings.listen:
        yield None
        return
    try:
        pages = Pages(snapshot=lambda: loop.measured, healthy=lambda: _healthy(loop), ready=lambda: _ready(loop))
        page = exporter(settings, settings.address(), pages)
        port = page.open()
    except OSError as error:
        loop.metrics_trouble = f"metrics: {settings.listen}: {error.strerror or error}; watching goes on unseen"
        structlog.get_logger().error("metrics_unavailable", why=loop.metrics_trouble)
        yield None
        return
    structlog.get_logger().info("metrics_served", address=settings.listen, port=port)
    try:
        yield port
    finally:
        page.close()


def exporter(settings: Metrics, address: tuple[str, int], pages: Pages) -> Exporter:
    """The page at an address, with the token and the certificate of the settings. Raises OSError."""
    token = ""
    if settings.token_file:
        with Path(settings.token_file).open() as file:
            token = file.read(TOKEN_BYTES_MAX).strip()
        if not token:
            raise OSError(0, f"{settings.token_file} is empty")
    tls = None
    if settings.certificate_file:
        tls = tls_context(Path(settings.certificate_file), Path(settings.key_file))
    return Exporter(pages, *address, token, tls)


def turned(silent_s: float) -> Health:
    """Only whether our own loop turns: an engine that hangs is no reason to restart its watcher."""
    return Health(silent_s < SILENT_S, f"the loop turned {silent_s:.1f} s ago")


def _healthy(loop: AgentLoop) -> Health:
    latest = loop.latest
    return Health(True, "starting") if latest is None else turned(loop.clock.now().mono_s - latest.at.mono_s)


def _ready(loop: AgentLoop) -> Health:
    if loop.latest is None:
        return Health(False, "the first look at this host is not over")
    return Health(not loop.journal_trouble, loop.journal_trouble or f"{len(loop.latest.engines)} engines under watch")


def _textfile(loop: AgentLoop, path: Path, snapshot: Snapshot) -> None:
    loop.metrics_trouble = write_textfile(path, snapshot)
