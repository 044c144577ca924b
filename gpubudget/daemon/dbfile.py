"""The database as a file: held by one process, still where it was opened, copied whole; what is wrong, in one sentence.

Knows nothing of what is in it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpubudget.errors import ConflictError, GpuBudgetError, InvalidInputError, UsageError

_BROKEN = "check the disk, or restore the newest backup beside it"


class StorageError(GpuBudgetError):
    """The database cannot be opened, read or written."""

    status = 503
    slug = "storage"


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Says in one sentence what is wrong with a database."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"the database {path} cannot be opened: {error.strerror}", hint="name a writable file with --db"
        ) from error
    except sqlite3.Error as error:
        full = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
        hint = "make room and start it again; what was accepted is there" if full else _BROKEN
        raise StorageError(f"the database {path} cannot be used: {error}", hint=hint) from error


@contextmanager
def locked(db: Path) -> Iterator[None]:
    """Hold the database for this process alone."""
    if not db.name or (db.exists() and not db.is_file()):
        raise UsageError(f"{str(db)!r} is no file for a database", hint="name a file, new or old, with --db")
    path = db.with_name(db.name + ".lock")
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InvalidInputError(
            f"the database {db} cannot be opened: {error.strerror}", hint="name a file in a writable folder with --db"
        ) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise ConflictError(
            f"a daemon is using the database {db}", hint="stop it first, or name another file with --db"
        ) from None
    finally:
        os.close(handle)


def log_of(db: Path) -> Path:
    """The write-ahead log that belongs to a database."""
    return db.with_name(f"{db.name}-wal")


def identities(db: Path) -> list[tuple[int, int] | None]:
    """Which files stand at the path of a database, and at that of its log."""
    found: list[tuple[int, int] | None] = []
    for path in (db, log_of(db)):
        try:
            status = path.stat()
            found.append((status.st_dev, status.st_ino))
        except OSError:
            found.append(None)
    return found


def copy(source: sqlite3.Connection, to: Path) -> None:
    """Write all that is committed into a new database, readable by its owner only; nothing is left where that fails."""
    with explained(to):
        os.close(os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        with explained(to), contextlib.closing(sqlite3.connect(to)) as target:
            source.backup(target)
    except StorageError:
        to.unlink()
        raise
