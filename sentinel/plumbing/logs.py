"""Logging: one constant event name plus fields; JSON lines unless a person watches at a terminal.

A field may quote what an engine printed, and so what a user wrote: it stays within its line, and no terminal obeys it.
"""

import sys
from collections.abc import MutableMapping
from typing import Any

import structlog


def set_up(*, json_lines: bool | None = None) -> None:
    """Configure structlog on stderr; `json_lines` None decides by whether stderr is a terminal."""
    as_json = not sys.stderr.isatty() if json_lines is None else json_lines
    renderer = structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _spelled_out,
            renderer,
        ],
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
    )


def _spelled_out(_logger: Any, _method: str, fields: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """The fields with control characters, line and paragraph separators of texts as escapes."""
    for name, value in fields.items():
        if isinstance(value, str) and not value.isprintable():
            fields[name] = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in value)
    return fields
