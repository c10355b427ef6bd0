"""Logging: one constant event name plus fields; JSON lines unless a person watches at a terminal."""

import sys

import structlog


def set_up(*, json_lines: bool | None = None) -> None:
    """Configure structlog on stderr; `json_lines` None decides by whether stderr is a terminal."""
    as_json = not sys.stderr.isatty() if json_lines is None else json_lines
    renderer = structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            renderer,
        ],
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
    )
