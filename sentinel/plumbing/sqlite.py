"""SQLite as every part of ours opens it: threads share a connection under a lock, statements commit by themselves."""

import sqlite3
from pathlib import Path

BUSY_S = 2.0


def connect(path: Path, journal: str = "WAL", synchronous: str = "FULL") -> sqlite3.Connection:
    """A connection that waits `BUSY_S` for the lock of another process. Raises sqlite3.Error."""
    db = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    db.execute(f"PRAGMA journal_mode={journal}")
    db.execute(f"PRAGMA synchronous={synchronous}")
    return db
