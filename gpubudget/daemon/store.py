"""The database: the only SQL of the daemon. SQLite with a write-ahead log, each commit on disk before it returns.

Knows nothing of scheduling: it keeps rows. One connection writes, another one reads; readers see committed rows only.
All that one group of requests changed is one ``Batch``, written in one transaction. Rows of a snapshot, of inputs and
of the log refer to each other by sequence numbers that the service gives, so that they are the same after a replay.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from gpubudget.core.budget import ROOT
from gpubudget.core.workload import ENDED
from gpubudget.daemon.dbfile import StorageError, copy, explained, identities

APPLICATION_ID = 0x67706275  # "gpbu": tells this program's files from others
KEPT_SNAPSHOTS = 2
ENDS = frozenset(state.value for state in ENDED)

Row = tuple[Any, ...]


_TABLES = """
CREATE TABLE inputs (seq INTEGER PRIMARY KEY, at INTEGER NOT NULL, event TEXT NOT NULL);
CREATE TABLE log (seq INTEGER PRIMARY KEY, input INTEGER NOT NULL REFERENCES inputs, at INTEGER NOT NULL,
    kind TEXT NOT NULL, workload TEXT, host TEXT, line TEXT NOT NULL);
CREATE INDEX log_kind ON log (kind);
CREATE INDEX log_workload ON log (workload) WHERE workload IS NOT NULL;
CREATE TABLE workloads (number INTEGER PRIMARY KEY, owner TEXT NOT NULL, budget TEXT, state TEXT NOT NULL,
    reason TEXT NOT NULL, submitted INTEGER NOT NULL, started INTEGER, ended INTEGER, exit_code INTEGER,
    attempts INTEGER NOT NULL, failures INTEGER NOT NULL, preemptions INTEGER NOT NULL, request TEXT NOT NULL,
    attempt TEXT);
CREATE INDEX workloads_active ON workloads (number) WHERE ended IS NULL;
CREATE INDEX workloads_owner ON workloads (owner);
CREATE INDEX workloads_budget ON workloads (budget);
CREATE TABLE attempts (workload INTEGER NOT NULL REFERENCES workloads, attempt INTEGER NOT NULL, pool TEXT NOT NULL,
    placement TEXT NOT NULL, started INTEGER NOT NULL, ends_by INTEGER, ended INTEGER, reason TEXT,
    PRIMARY KEY (workload, attempt)) WITHOUT ROWID;
CREATE INDEX attempts_live ON attempts (workload) WHERE ended IS NULL;
CREATE TABLE parts (workload INTEGER NOT NULL, attempt INTEGER NOT NULL, host TEXT NOT NULL, state TEXT NOT NULL,
    exit_code INTEGER, signalled INTEGER NOT NULL, PRIMARY KEY (workload, attempt, host),
    FOREIGN KEY (workload, attempt) REFERENCES attempts) WITHOUT ROWID;
CREATE TABLE hosts (name TEXT PRIMARY KEY, record TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE snapshots (input INTEGER PRIMARY KEY, log INTEGER NOT NULL, state TEXT NOT NULL);
CREATE TABLE applied (input INTEGER PRIMARY KEY REFERENCES inputs, commit_id TEXT NOT NULL, author TEXT NOT NULL,
    committed INTEGER NOT NULL, applied INTEGER NOT NULL, digest TEXT NOT NULL, tree TEXT NOT NULL);
CREATE TABLE tokens (id TEXT PRIMARY KEY, name TEXT NOT NULL, role TEXT NOT NULL, host TEXT,
    hash TEXT NOT NULL UNIQUE, created INTEGER NOT NULL, last_used INTEGER, revoked INTEGER) WITHOUT ROWID;
CREATE TABLE idempotency (owner TEXT NOT NULL, key TEXT NOT NULL, at INTEGER NOT NULL, digest TEXT NOT NULL,
    first INTEGER NOT NULL, count INTEGER NOT NULL, PRIMARY KEY (owner, key)) WITHOUT ROWID;
CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID
"""


def _create_tables(db: sqlite3.Connection) -> None:
    for statement in _TABLES.split(";"):
        db.execute(statement)


def _audit_and_suspensions(db: sqlite3.Connection) -> None:
    db.execute("ALTER TABLE applied ADD COLUMN audit TEXT NOT NULL DEFAULT '{}'")
    db.execute(
        "CREATE TABLE suspensions (at INTEGER PRIMARY KEY, by TEXT NOT NULL, reason TEXT NOT NULL, ended INTEGER,"
        " ended_by TEXT)"
    )


MIGRATIONS: tuple[Callable[[sqlite3.Connection], None], ...] = (_create_tables, _audit_and_suspensions)
"""Each takes the database from the version of its index to the next, in one transaction."""

_WRITES = {
    "inputs": "INSERT INTO inputs VALUES (?,?,?)",
    "log": "INSERT INTO log VALUES (?,?,?,?,?,?,?)",
    "workloads": "INSERT INTO workloads VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT (number) DO UPDATE SET"
    " budget=excluded.budget, state=excluded.state, reason=excluded.reason, started=excluded.started,"
    " ended=excluded.ended, exit_code=excluded.exit_code, attempts=excluded.attempts, failures=excluded.failures,"
    " preemptions=excluded.preemptions, request=excluded.request, attempt=excluded.attempt",
    "attempts": "INSERT INTO attempts VALUES (?,?,?,?,?,?,?,?) ON CONFLICT (workload, attempt) DO UPDATE SET"
    " ended=excluded.ended, reason=excluded.reason",
    "parts": "INSERT OR REPLACE INTO parts VALUES (?,?,?,?,?,?)",
    "hosts": "INSERT OR REPLACE INTO hosts VALUES (?,?)",
    "gone_hosts": "DELETE FROM hosts WHERE name=?",
    "applied": "INSERT INTO applied VALUES (?,?,?,?,?,?,?,?)",
    "suspensions": "INSERT OR REPLACE INTO suspensions VALUES (?,?,?,?,?)",
    "tokens": "INSERT OR REPLACE INTO tokens VALUES (?,?,?,?,?,?,?,?)",
    "idempotency": "INSERT INTO idempotency VALUES (?,?,?,?,?,?)",
    "stale_keys": "DELETE FROM idempotency WHERE at < ?",
    "counters": "INSERT OR REPLACE INTO counters VALUES (?,?)",
    "snapshots": "INSERT OR REPLACE INTO snapshots VALUES (?,?,?)",
}


@dataclass(slots=True)
class Batch:
    """What one transaction writes: for each table its rows by key, so that the last state of a row wins."""

    rows: dict[str, dict[object, Row]] = field(default_factory=lambda: {table: {} for table in _WRITES})

    def put(self, table: str, row: Row, key_length: int = 1) -> None:
        """Add a row, or replace the one with the same key (its first ``key_length`` columns)."""
        self.rows[table][row[:key_length]] = row

    def __bool__(self) -> bool:
        return any(self.rows.values())


class Store:
    """An open database. Close it, or use it in a ``with`` statement."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with explained(path):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # it holds environments and hashes of tokens
            self._writer = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            try:
                self._prepare()
                self._reader = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            except BaseException:
                self._writer.close()
                raise
            self._reader.execute("PRAGMA query_only=1")
        self._files = identities(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close both connections; the write-ahead log is folded into the database."""
        self._reader.close()
        self._writer.close()

    def _prepare(self) -> None:
        db = self._writer
        version = db.execute("PRAGMA user_version").fetchone()[0]
        owner = db.execute("PRAGMA application_id").fetchone()[0]
        tables = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
        if tables and owner != APPLICATION_ID:
            raise StorageError(f"{self.path} is a database of another program", hint="name another file with --db")
        if version > len(MIGRATIONS):
            raise StorageError(
                f"{self.path} was written by a newer gpubudget (format {version}, this one knows {len(MIGRATIONS)})",
                hint="install that version again",
            )
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=1", "busy_timeout=5000"):
            db.execute(f"PRAGMA {pragma}")
        for number, migration in enumerate(MIGRATIONS[version:], start=version + 1):
            with _transaction(db):
                migration(db)
                db.execute(f"PRAGMA user_version={number}")
                db.execute(f"PRAGMA application_id={APPLICATION_ID}")

    def check_files(self) -> None:
        """Raise StorageError if the files that are open no longer stand at its path: nobody would find what is written.

        All that they hold is saved beside it first, since it is gone as soon as they are closed.
        """
        if identities(self.path) == self._files:
            return
        saved = self.path.with_name(f"{self.path.name}.saved-{os.getpid()}")
        try:
            copy(self._reader, saved)
            hint = f"all that was accepted is saved; put it back with gpubudget restore --db {self.path} {saved}"
        except StorageError:
            hint = "restore a backup"
        raise StorageError(f"the database {self.path} was removed or replaced while the daemon ran", hint=hint)

    def check_whole(self) -> None:
        """Raise StorageError if its pages, indexes or references are damaged."""
        for check in ("integrity_check(1)", "foreign_key_check"):
            found = [row for row in self._all(f"PRAGMA {check}") if row != ("ok",)]
            if found:
                raise StorageError(f"the database {self.path} is damaged: {found[0]}", hint="take another backup")

    # Writing: one batch at a time.

    def put(self, batch: Batch) -> None:
        """Begin a transaction with all rows of a batch; ``commit`` must follow. Raises StorageError."""
        self.check_files()
        with explained(self.path):
            db = self._writer
            db.execute("BEGIN IMMEDIATE")
            for table, rows in batch.rows.items():
                if rows:
                    db.executemany(_WRITES[table], rows.values())
            if batch.rows["snapshots"]:
                kept = "SELECT input FROM snapshots ORDER BY input DESC LIMIT ?"
                db.execute(f"DELETE FROM snapshots WHERE input NOT IN ({kept})", (KEPT_SNAPSHOTS,))  # noqa: S608 - ours

    def commit(self) -> None:
        """Make what was put durable. Waits for the disk, so it is called in a thread. Raises StorageError."""
        with explained(self.path):
            self._writer.execute("COMMIT")

    # Reading: committed rows only.

    def _all(self, query: str, *arguments: object) -> list[Row]:
        with explained(self.path):
            return self._reader.execute(query, arguments).fetchall()

    def last_input(self) -> tuple[int, int]:
        """Number and time of the newest input; (0, 0) when there is none."""
        rows = self._all("SELECT seq, at FROM inputs ORDER BY seq DESC LIMIT 1")
        return rows[0] if rows else (0, 0)

    def last_line(self) -> int:
        """Number of the newest line of the log; 0 when there is none."""
        return int(self._all("SELECT coalesce(max(seq), 0) FROM log")[0][0])

    def last_workload(self) -> int:
        """The largest number of a workload; 0 when there is none."""
        return int(self._all("SELECT coalesce(max(number), 0) FROM workloads")[0][0])

    def snapshot(self) -> tuple[int, int, dict[str, Any]] | None:
        """The newest snapshot: the input and the line of the log that it stands after, and its state."""
        rows = self._all("SELECT input, log, state FROM snapshots ORDER BY input DESC LIMIT 1")
        return (rows[0][0], rows[0][1], json.loads(rows[0][2])) if rows else None

    def inputs(self, after: int) -> Iterator[Row]:
        """(seq, at, event as JSON) of each input after one, in order."""
        with explained(self.path):
            yield from self._reader.execute("SELECT seq, at, event FROM inputs WHERE seq > ? ORDER BY seq", (after,))

    def lines(self, after: int, limit: int, kinds: tuple[str, ...] = (), workload: str | None = None) -> list[Row]:
        """(seq, input, JSON) of the lines of the log after one; of some kinds, or of one workload, where named."""
        where: list[str] = ["seq > ?"]
        found: list[object] = [after]
        if kinds:
            where.append(f"kind IN ({','.join('?' * len(kinds))})")
            found += kinds
        if workload is not None:
            where.append("workload = ?")
            found.append(workload)
        query = f"SELECT seq, input, line FROM log WHERE {' AND '.join(where)} ORDER BY seq LIMIT ?"  # noqa: S608 - no input in it
        return self._all(query, *found, limit)

    def workload(self, number: int) -> Row | None:
        """One workload's row."""
        rows = self._all("SELECT * FROM workloads WHERE number = ?", number)
        return rows[0] if rows else None

    def workloads(
        self, after: int, limit: int, states: tuple[str, ...] = (), owner: str | None = None, budget: str | None = None
    ) -> list[Row]:
        """Workloads after a number, in order: in some states, of one owner, of a budget and those below it."""
        where: list[str] = ["number > ?"]
        found: list[object] = [after]
        if states:
            where.append(f"state IN ({','.join('?' * len(states))})")
            found += states
            if ENDS.isdisjoint(states):
                where.append("ended IS NULL")  # a short index serves it
        if owner is not None:
            where.append("owner = ?")
            found.append(owner)
        if budget is not None:
            where.append("(budget = ? OR (budget >= ? AND budget < ?))" if budget != ROOT else "budget IS NOT NULL")
            found += [budget, f"{budget}/", f"{budget}0"] if budget != ROOT else []  # "0" follows "/"
        query = f"SELECT * FROM workloads WHERE {' AND '.join(where)} ORDER BY number LIMIT ?"  # noqa: S608 - no input in it
        return self._all(query, *found, limit)

    def active_workloads(self) -> list[Row]:
        """All workloads that have not ended."""
        return self._all("SELECT * FROM workloads WHERE ended IS NULL ORDER BY number")

    def attempt(self, workload: int, attempt: int | None) -> Row | None:
        """(workload, attempt, pool, placement, started, ends_by, ended, reason) of one attempt; None: the latest."""
        query = "SELECT * FROM attempts WHERE workload = ? AND (? IS NULL OR attempt = ?) ORDER BY attempt DESC LIMIT 1"
        rows = self._all(query, workload, attempt, attempt)
        return rows[0] if rows else None

    def live_attempts(self) -> list[Row]:
        """The attempts that have not ended."""
        return self._all("SELECT * FROM attempts WHERE ended IS NULL ORDER BY workload")

    def parts(self, workload: int, attempt: int) -> list[Row]:
        """(host, state, exit_code, signalled) of an attempt on each host that has reported it."""
        query = "SELECT host, state, exit_code, signalled FROM parts WHERE workload = ? AND attempt = ?"
        return self._all(query, workload, attempt)

    def hosts(self) -> dict[str, dict[str, Any]]:
        """The records of hosts by name."""
        return {name: json.loads(record) for name, record in self._all("SELECT * FROM hosts ORDER BY name")}

    def applied(self, limit: int) -> list[Row]:
        """The newest trees that were applied, newest first."""
        return self._all("SELECT * FROM applied ORDER BY input DESC LIMIT ?", limit)

    def suspensions(self, limit: int) -> list[Row]:
        """(at, by, reason, ended, ended_by) of the newest times for which nothing was to be applied, newest first."""
        return self._all("SELECT * FROM suspensions ORDER BY at DESC LIMIT ?", limit)

    def tokens(self) -> list[Row]:
        """All tokens, without their text, which nobody keeps."""
        return self._all("SELECT * FROM tokens ORDER BY created, id")

    def idempotency(self, owner: str, key: str) -> Row | None:
        """(digest, first, count) of the request that came with this key before."""
        rows = self._all("SELECT digest, first, count FROM idempotency WHERE owner = ? AND key = ?", owner, key)
        return rows[0] if rows else None

    def counters(self) -> dict[str, int]:
        """The counters that survive a restart."""
        return dict(self._all("SELECT * FROM counters"))


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
