"""The database: what it refuses to open, and what a transaction makes durable."""

import sqlite3
from pathlib import Path

import pytest

from gpubudget.daemon.dbfile import StorageError
from gpubudget.daemon.store import APPLICATION_ID, KEPT_SNAPSHOTS, MIGRATIONS, Batch, Store


def raw(path: Path, statement: str) -> list[tuple[object, ...]]:
    """Run one statement on a database file."""
    db = sqlite3.connect(path, isolation_level=None)
    try:
        return db.execute(statement).fetchall()
    finally:
        db.close()


def test_a_new_database_is_migrated_and_private(tmp_path: Path) -> None:
    """It has the newest format, this program's mark, and only its owner may read it."""
    path = tmp_path / "a.db"
    Store(path).close()
    assert raw(path, "PRAGMA user_version") == [(len(MIGRATIONS),)]
    assert raw(path, "PRAGMA application_id") == [(APPLICATION_ID,)]
    assert raw(path, "PRAGMA journal_mode") == [("wal",)]
    assert path.stat().st_mode & 0o777 == 0o600
    Store(path).close()


def test_a_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    """It is refused, and not changed."""
    path = tmp_path / "a.db"
    raw(path, "CREATE TABLE theirs (a)")
    with pytest.raises(StorageError, match="is a database of another program"):
        Store(path)
    assert raw(path, "SELECT name FROM sqlite_schema") == [("theirs",)]


def test_a_database_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    """With both numbers."""
    path = tmp_path / "a.db"
    Store(path).close()
    raw(path, "PRAGMA user_version=99")
    with pytest.raises(StorageError, match=r"newer gpubudget \(format 99, this one knows 2\)"):
        Store(path)


def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    """A file of something else, a folder, and a place that is not there each have their sentence."""
    path = tmp_path / "a.db"
    path.write_bytes(b"hello, this is text " * 100)
    with pytest.raises(StorageError, match="file is not a database"):
        Store(path)
    with pytest.raises(StorageError, match="cannot be opened: Is a directory"):
        Store(tmp_path)
    with pytest.raises(StorageError, match="cannot be opened: No such file or directory"):
        Store(tmp_path / "none" / "a.db")


def test_rows_are_seen_when_they_are_committed(tmp_path: Path) -> None:
    """Not before; and the last state of a row wins."""
    with Store(tmp_path / "a.db") as store:
        batch = Batch()
        assert not batch
        batch.put("counters", ("a", 1))
        batch.put("counters", ("a", 2))
        store.put(batch)
        assert batch
        assert store.counters() == {}
        store.commit()
        assert store.counters() == {"a": 2}


def test_a_batch_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    """One row that cannot stand keeps all others out."""
    path = tmp_path / "a.db"
    with Store(path) as store:
        batch = Batch()
        batch.put("counters", ("a", 1))
        batch.put("log", (1, 99, 0, "kind", None, None, "{}"))  # of an input that is not there
        with pytest.raises(StorageError, match="FOREIGN KEY"):
            store.put(batch)
    with Store(path) as store:
        assert store.counters() == {}


def test_only_the_newest_snapshots_are_kept(tmp_path: Path) -> None:
    """An older one is of no use."""
    with Store(tmp_path / "a.db") as store:
        for number in range(5):
            batch = Batch()
            batch.put("snapshots", (number, number, "{}"))
            store.put(batch)
            store.commit()
        assert store.snapshot() == (4, 4, {})
    assert raw(tmp_path / "a.db", "SELECT count(*) FROM snapshots") == [(KEPT_SNAPSHOTS,)]


def test_a_database_of_the_first_format_is_brought_up_to_date(tmp_path: Path) -> None:
    """What was applied before has nothing on record beside it, and suspensions can be kept."""
    path = tmp_path / "a.db"
    db = sqlite3.connect(path, isolation_level=None)
    MIGRATIONS[0](db)
    db.execute("INSERT INTO inputs VALUES (1, 5, '{}')")
    db.execute("INSERT INTO applied VALUES (1, 'c1', 'hanna', 1, 5, 'd', '{}')")
    db.execute("PRAGMA user_version=1")
    db.execute(f"PRAGMA application_id={APPLICATION_ID}")
    db.close()
    with Store(path) as store:
        assert store.applied(1) == [(1, "c1", "hanna", 1, 5, "d", "{}", "{}")]
        assert store.suspensions(1) == []
