"""What a host must never forget: the highest epoch it obeyed, what it began, and what it answered.

SQLite in WAL mode with full synchronisation: when a method returns, the fact is on disk. `begin` is called before the
world is touched, `finish` after.
"""

import sqlite3
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import msgspec

from sentinel.coordinator.wire import read
from sentinel.model.group import Ack, Command
from sentinel.plumbing.sqlite import connect

ANSWERS_KEPT = 2_000


class Ledger(Protocol):
    """Durable memory of one host. Methods raise LedgerError."""

    def epoch(self) -> int: ...
    def raise_epoch(self, epoch: int) -> None: ...
    def begin(self, command: Command) -> None: ...
    def finish(self, ack: Ack) -> None: ...
    def answers(self) -> dict[str, Ack]: ...
    def unfinished(self) -> tuple[Command, ...]: ...


class LedgerError(Exception):
    """The ledger could not be written: nothing destructive may be done."""


class DiskLedger:
    """One file. Raises LedgerError when it cannot be opened."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
            self._db = connect(path)
            self._db.execute("CREATE TABLE IF NOT EXISTS epoch (last INTEGER NOT NULL)")
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS commands (id TEXT PRIMARY KEY, command BLOB NOT NULL, ack BLOB)"
            )
        except (OSError, sqlite3.Error) as error:
            raise LedgerError(f"cannot use {path}: {error}; check space and permissions") from error

    def epoch(self) -> int:
        """The highest epoch ever obeyed."""
        with self._lock:
            return int(self._db.execute("SELECT coalesce(max(last), 0) FROM epoch").fetchone()[0])

    def raise_epoch(self, epoch: int) -> None:
        """Remember an epoch."""
        self._do("INSERT INTO epoch VALUES (?)", epoch)

    def begin(self, command: Command) -> None:
        """Remember that a command is about to be carried out."""
        self._do("INSERT OR IGNORE INTO commands VALUES (?, ?, NULL)", command.id, msgspec.json.encode(command))

    def finish(self, ack: Ack) -> None:
        """Remember what came of it."""
        self._do("UPDATE commands SET ack=? WHERE id=?", msgspec.json.encode(ack), ack.id)
        self._do(
            "DELETE FROM commands WHERE ack IS NOT NULL AND rowid <= (SELECT max(rowid) FROM commands) - ?",
            ANSWERS_KEPT,
        )

    def answers(self) -> dict[str, Ack]:
        """Every answer still kept, by command; a command is never done again because its answer cannot be read."""
        with self._lock:
            rows = self._db.execute("SELECT id, ack FROM commands WHERE ack IS NOT NULL").fetchall()
            begun = self._db.execute("SELECT id, command FROM commands WHERE ack IS NULL").fetchall()
        unread = Ack(id="", host="", outcome="abandoned", why="what came of it was noted in a form that cannot be read")
        rows += [(name, b"") for name, command in begun if read(command, Command) is None]
        return {name: read(ack, Ack) or msgspec.structs.replace(unread, id=name) for name, ack in rows}

    def unfinished(self) -> tuple[Command, ...]:
        """Commands that were begun and never answered."""
        with self._lock:
            rows = self._db.execute("SELECT command FROM commands WHERE ack IS NULL ORDER BY rowid").fetchall()
        return tuple(command for (row,) in rows if (command := read(row, Command)) is not None)

    def _do(self, statement: str, *values: object) -> None:
        try:
            with self._lock:
                self._db.execute(statement, values)
        except sqlite3.Error as error:
            raise LedgerError(f"the ledger cannot be written: {error}; free space") from error


@dataclass(slots=True)
class MemoryLedger:
    """The same for simulations: it outlives the hand, not the process."""

    last: int = 0
    commands: dict[str, tuple[Command, Ack | None]] = field(default_factory=dict)

    def epoch(self) -> int:
        """The highest epoch ever obeyed."""
        return self.last

    def raise_epoch(self, epoch: int) -> None:
        """Remember an epoch."""
        self.last = max(self.last, epoch)

    def begin(self, command: Command) -> None:
        """Remember a beginning."""
        self.commands.setdefault(command.id, (command, None))

    def finish(self, ack: Ack) -> None:
        """Remember an answer."""
        self.commands[ack.id] = (self.commands[ack.id][0], ack)

    def answers(self) -> dict[str, Ack]:
        """Every answer."""
        return {name: ack for name, (_, ack) in self.commands.items() if ack is not None}

    def unfinished(self) -> tuple[Command, ...]:
        """Commands begun and not answered."""
        return tuple(command for command, ack in self.commands.values() if ack is None)
