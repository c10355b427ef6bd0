"""The bus of a single box: SQLite in WAL mode with full synchronisation, blobs as files. Needs no server.

Several processes may open the same folder; SQLite serialises their writes. A damaged database is renamed aside, never
deleted, and a new one is begun: epochs are recovered from the agents, which are the authority on them.
"""

import contextlib
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path

from sentinel.bus.bus import (
    BLOB_BYTES_MAX,
    LOG_RECORDS_MAX,
    RECORD_BYTES_MAX,
    SLOT_BYTES_MAX,
    BusDown,
    Conflict,
    Presence,
    Record,
    Slot,
    bounded,
)
from sentinel.plumbing.atomic import write_atomically
from sentinel.plumbing.sqlite import connect

VERSION = 1
BLOBS_MAX = 256
_TABLES = """
CREATE TABLE slots (name TEXT PRIMARY KEY, data BLOB NOT NULL, revision INTEGER NOT NULL);
CREATE TABLE revisions (last INTEGER NOT NULL);
INSERT INTO revisions VALUES (0);
CREATE TABLE records (number INTEGER PRIMARY KEY AUTOINCREMENT, log TEXT NOT NULL, key TEXT NOT NULL,
                      data BLOB NOT NULL, UNIQUE (log, key));
CREATE INDEX by_log ON records (log, number);
"""
_HOSTS = "CREATE TABLE IF NOT EXISTS hosts (host TEXT PRIMARY KEY, data BLOB NOT NULL, count INTEGER NOT NULL)"


class EmbeddedBus:
    """A folder: `bus.db` durable, `presence.db` not, `blobs/`. Raises BusDown when the folder cannot be used."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        with _as_bus_error(folder):
            (folder / "blobs").mkdir(parents=True, exist_ok=True, mode=0o750)
            self._db = _open(folder / "bus.db")
            # Heartbeats are many and worthless after a crash: they must not cost a sync each.
            self._hosts = connect(folder / "presence.db", "MEMORY", "OFF")
            self._hosts.execute(_HOSTS)

    def announce(self, host: str, data: bytes) -> None:
        """Say that a host is there, with what it has to say."""
        bounded("an announcement", data, RECORD_BYTES_MAX)
        with self._lock, _as_bus_error(self._folder):
            self._hosts.execute(
                "INSERT INTO hosts VALUES (?, ?, 1) ON CONFLICT (host) DO UPDATE SET data=excluded.data, count=count+1",
                (host, data),
            )

    def present(self) -> Mapping[str, Presence]:
        """The newest announcement of every host that ever made one."""
        with self._lock, _as_bus_error(self._folder):
            rows = self._hosts.execute("SELECT host, data, count FROM hosts").fetchall()
        return {host: Presence(data, count) for host, data, count in rows}

    def read(self, slot: str) -> Slot | None:
        """A slot as it was last committed."""
        with self._lock, _as_bus_error(self._folder):
            row = self._db.execute("SELECT data, revision FROM slots WHERE name=?", (slot,)).fetchone()
        return None if row is None else Slot(row[0], row[1])

    def write(self, slot: str, data: bytes, expected: int) -> int:
        """Compare and set."""
        bounded(f"slot {slot}", data, SLOT_BYTES_MAX)
        with self._lock, _as_bus_error(self._folder), _transaction(self._db):
            row = self._db.execute("SELECT revision FROM slots WHERE name=?", (slot,)).fetchone()
            if (0 if row is None else row[0]) != expected:
                raise Conflict(f"slot {slot} is at revision {0 if row is None else row[0]}, not {expected}")
            self._db.execute("UPDATE revisions SET last=last+1")
            revision: int = self._db.execute("SELECT last FROM revisions").fetchone()[0]
            self._db.execute("INSERT OR REPLACE INTO slots VALUES (?, ?, ?)", (slot, data, revision))
        return revision

    def append(self, log: str, data: bytes, key: str) -> int:
        """Add a record once."""
        bounded(f"a record of {log}", data, RECORD_BYTES_MAX)
        with self._lock, _as_bus_error(self._folder), _transaction(self._db):
            known = self._db.execute("SELECT number FROM records WHERE log=? AND key=?", (log, key)).fetchone()
            if known is not None:
                return int(known[0])
            number = self._db.execute(
                "INSERT INTO records (log, key, data) VALUES (?, ?, ?)", (log, key, data)
            ).lastrowid
            assert number is not None
            if number % 100 == 0:
                self._db.execute(
                    "DELETE FROM records WHERE log=? AND number <= (SELECT number FROM records WHERE log=? "
                    "ORDER BY number DESC LIMIT 1 OFFSET ?)",
                    (log, log, LOG_RECORDS_MAX),
                )
        return number

    def follow(self, log: str, after: int, limit: int = 256) -> tuple[Record, ...]:
        """Records after a number, oldest first."""
        query = "SELECT number, key, data FROM records WHERE log=? AND number>? ORDER BY number LIMIT ?"
        with self._lock, _as_bus_error(self._folder):
            return tuple(Record(*row) for row in self._db.execute(query, (log, after, limit)))

    def put(self, data: bytes) -> str:
        """Store a blob under its digest; the oldest go beyond a count."""
        bounded("a blob", data, BLOB_BYTES_MAX)
        digest = sha256(data).hexdigest()
        with _as_bus_error(self._folder):
            write_atomically(self._folder / "blobs" / digest, data)
            kept = sorted((self._folder / "blobs").iterdir(), key=lambda path: path.stat().st_mtime_ns)
            for old in kept[:-BLOBS_MAX]:
                old.unlink(missing_ok=True)
        return digest

    def get(self, digest: str) -> bytes | None:
        """A blob, if it is whole."""
        if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
            return None
        try:
            data = (self._folder / "blobs" / digest).read_bytes()
        except OSError:
            return None
        return data if sha256(data).hexdigest() == digest else None

    def close(self) -> None:
        """Let go of the files."""
        with self._lock:
            self._db.close()
            self._hosts.close()


def _open(path: Path) -> sqlite3.Connection:
    """The database, checked; a damaged one is set aside and a new one begun."""
    try:
        db = connect(path)
        sound = db.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok"
        version: int = db.execute("PRAGMA user_version").fetchone()[0]
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError):
            raise
        sound, version = False, VERSION
    if not sound:
        _set_aside(path)
        db, version = connect(path), 0
    if version > VERSION:
        raise BusDown(f"{path} was written by a newer version; upgrade, or move the file away")
    if version == 0:
        with _transaction(db):
            # Another process may have made the tables while this one waited for the lock.
            if db.execute("PRAGMA user_version").fetchone()[0] == 0:
                for statement in filter(str.strip, _TABLES.split(";")):
                    db.execute(statement)
                db.execute(f"PRAGMA user_version={VERSION}")
    return db


def _set_aside(path: Path) -> None:
    number = 1 + sum(1 for _ in path.parent.glob(f"{path.name}.damaged-*"))
    for part in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
        if part.exists():
            part.replace(part.with_name(f"{part.name}.damaged-{number}"))


@contextlib.contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


@contextlib.contextmanager
def _as_bus_error(folder: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise BusDown(f"the bus in {folder} does not answer ({error}); check space and permissions") from error
