"""Backups of the database, each checked when it is made and when it is put back: it is whole, and its replay matches.

A backup is made with SQLite's own means, so a daemon may run meanwhile. Nothing stands under the name of a backup, or
of a database, that was not checked.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from gpubudget.daemon.dbfile import copy, explained, locked, log_of
from gpubudget.daemon.recovery import recover
from gpubudget.daemon.store import Store
from gpubudget.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class Checked:
    """What a sound database holds: events, the time of the newest (ms), and workloads that have not ended."""

    events: int
    newest: int
    workloads: int


def back_up(db: Path, to: Path) -> Checked:
    """Copy a database, in use or not, into the new file ``to``."""
    if to.exists():
        raise InvalidInputError(f"there is a file {to} already", hint="name a new one")
    draft = to.with_name(f"{to.name}.partial-{os.getpid()}")
    checked = _checked_copy(db, draft)
    draft.rename(to)
    return checked


def restore(backup: Path, db: Path) -> tuple[Checked, Path | None]:
    """Put a backup in the place of a database that no daemon uses; also where the old one, if any, is kept."""
    with locked(db):
        if db.exists() and backup.exists() and backup.samefile(db):
            raise InvalidInputError(f"{backup} is the database itself", hint="name a backup of it")
        draft = db.with_name(f"{db.name}.partial-{os.getpid()}")
        checked = _checked_copy(backup, draft)
        kept = _keep(db) if db.exists() else None
        for left in (log_of(db), db.with_name(f"{db.name}-shm")):
            left.unlink(missing_ok=True)
        draft.replace(db)
        return checked, kept


def _keep(db: Path) -> Path:
    """Give the old database, which may be damaged, a second name; its log moves there with what only it holds."""
    number = 1
    while (kept := db.with_name(f"{db.name}.old-{number}")).exists():
        number += 1
    with explained(db):
        kept.hardlink_to(db)
        if log_of(db).exists():
            log_of(db).rename(log_of(kept))
    return kept


def _checked_copy(source: Path, to: Path) -> Checked:
    if not source.is_file():
        raise InvalidInputError(f"there is no database {source}", hint="check the path")
    uri = f"{source.absolute().as_uri()}?mode=rw"  # never makes one
    with explained(source), contextlib.closing(sqlite3.connect(uri, uri=True)) as db:
        db.execute("SELECT count(*) FROM sqlite_schema")  # raises, with its name, if it is none
        copy(db, to)
    try:
        with Store(to) as store:
            store.path = source  # what a problem is told of
            store.check_whole()
            recovered = recover(store)
            return Checked(recovered.input, recovered.at, len(recovered.records.active))
    except BaseException:
        to.unlink()
        raise
