"""Backups of a database in use, and what is put back."""

import sqlite3
import threading
from pathlib import Path

import pytest

from gpubudget.daemon.backup import back_up, restore
from gpubudget.daemon.dbfile import StorageError
from gpubudget.daemon.store import Store
from gpubudget.errors import BrokenInvariantError, ConflictError, GpuBudgetError, InvalidInputError
from tests.daemon.harness import Daemon, FakeAgent

JOB = {"budget": "lang/a", "gpus": 1, "min_runtime": "1h", "command": ["train"]}


def changed(path: Path, statement: str) -> None:
    """Change a database from outside."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute(statement)
    db.close()


def test_a_daemon_goes_on_from_its_backup(daemon: Daemon, agents: list[FakeAgent], tmp_path: Path) -> None:
    """The backup is made while workloads come in; it holds all that was accepted before it began."""
    alice = daemon.user("alice")
    before = [alice("POST", "/v1/workloads", JOB)["id"] for _ in range(5)]
    over = threading.Event()

    def go_on() -> None:
        while not over.is_set():
            alice("POST", "/v1/workloads", JOB)

    busy = threading.Thread(target=go_on)
    busy.start()
    checked = back_up(daemon.db, tmp_path / "backup")
    over.set()
    busy.join()
    assert checked.workloads >= len(before)
    assert (tmp_path / "backup").stat().st_mode & 0o777 == 0o600
    with pytest.raises(ConflictError, match="a daemon is using the database"):
        restore(tmp_path / "backup", daemon.db)
    for workload in before:
        alice("POST", f"/v1/workloads/{workload}/cancel", {})
    daemon.stop()
    again, kept = restore(tmp_path / "backup", daemon.db)
    assert (again, kept) == (checked, tmp_path / "daemon.db.old-1")
    daemon.start()
    agents[0].api = daemon.api(agents[0].api.token)
    assert agents[0].sync()["run"] or agents[0].running()
    active = {each["id"] for each in daemon.api()("GET", "/v1/workloads?state=running,pending&limit=1000")["workloads"]}
    assert active >= set(before)
    daemon.stop()
    assert kept is not None
    assert restore(kept, daemon.db)[1] == tmp_path / "daemon.db.old-2"
    with Store(daemon.db) as store:
        assert not {f"w{row[0]:06d}" for row in store.active_workloads()} & set(before)
    assert {path.name for path in tmp_path.iterdir()} == {
        "admin.token", "backup", "daemon.db", "daemon.db.lock", "daemon.db.old-1", "daemon.db.old-2",
    }  # fmt: skip


def test_what_only_the_log_of_a_database_holds_is_kept_with_it(tmp_path: Path) -> None:
    """After a crash the newest transactions are nowhere else; the restored database does not see them."""
    with Store(tmp_path / "daemon.db"):
        pass
    back_up(tmp_path / "daemon.db", tmp_path / "backup")
    (tmp_path / "daemon.db-wal").write_bytes(b"the newest")
    restore(tmp_path / "backup", tmp_path / "daemon.db")
    assert (tmp_path / "daemon.db.old-1-wal").read_bytes() == b"the newest"
    assert not (tmp_path / "daemon.db-wal").exists()


@pytest.mark.parametrize(
    ("damage", "kind", "said"),
    [
        ("UPDATE log SET line = replace(line, 'lang/a', 'vision') WHERE kind = 'submitted'", BrokenInvariantError,
         "decides otherwise than before"),
        ("DELETE FROM attempts", StorageError, "damaged"),
        ("PRAGMA user_version = 99", StorageError, "newer gpubudget"),
    ],
)  # fmt: skip
def test_a_damaged_backup_is_neither_made_nor_put_back(
    daemon: Daemon, agents: list[FakeAgent], tmp_path: Path, damage: str, kind: type[GpuBudgetError], said: str
) -> None:
    """The sentence names the file that was given, and nothing is left of the attempt."""
    daemon.user("alice")("POST", "/v1/workloads", JOB)
    for agent in agents:
        agent.sync()
        agent.sync()
    back_up(daemon.db, tmp_path / "bad")
    daemon.stop()
    changed(tmp_path / "bad", damage)
    files = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for attempt in (lambda: back_up(tmp_path / "bad", tmp_path / "new"), lambda: restore(tmp_path / "bad", daemon.db)):
        with pytest.raises(kind, match=said):
            attempt()
        assert {path: path.read_bytes() for path in tmp_path.iterdir()} == files


def test_what_is_no_backup_is_told(tmp_path: Path) -> None:
    """A file that there is not, one of something else, the database itself, and a name that is taken."""
    db = tmp_path / "daemon.db"
    Store(db).close()
    with pytest.raises(InvalidInputError, match=r"there is no database .*/none"):
        restore(tmp_path / "none", db)
    with pytest.raises(InvalidInputError, match=r"there is no database .*/none"):
        back_up(tmp_path / "none", tmp_path / "b")
    with pytest.raises(InvalidInputError, match="is the database itself"):
        restore(db, db)
    with pytest.raises(InvalidInputError, match=r"there is a file .*/daemon\.db already"):
        back_up(db, db)
    with pytest.raises(StorageError, match="cannot be opened: No such file or directory"):
        back_up(db, tmp_path / "no" / "b")
    (tmp_path / "text").write_text("no database at all, only some words that are long enough" * 20)
    with pytest.raises(StorageError, match=r"/text cannot be used: file is not a database"):
        restore(tmp_path / "text", db)
    assert {path.name for path in tmp_path.iterdir()} == {"daemon.db", "daemon.db.lock", "text"}
