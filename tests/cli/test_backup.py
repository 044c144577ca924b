"""``backup`` and ``restore`` as a person runs them; what they do to files is tested with the daemon."""

from __future__ import annotations

from pathlib import Path

from gpubudget.daemon.store import Store
from tests.cli.conftest import Cli


def test_a_backup_is_told_with_what_it_holds(cli: Cli, tmp_path: Path) -> None:
    """And a restore with where the database is now that was there."""
    db, file = tmp_path / "daemon.db", tmp_path / "backup.db"
    Store(db).close()
    holds = "0 events, 0 workloads that wait or run"
    assert cli("backup", f"--db={db}", str(file)) == (0, "", f"{file} is a sound backup: {holds}\n")
    done = cli("restore", f"--db={db}", str(file))
    assert done == (0, "", f"{db} is restored: {holds}; what was there is now {db}.old-1\n")
    db.unlink()
    assert cli("restore", f"--db={db}", str(file)).err == f"{db} is restored: {holds}\n"
    assert cli("backup", f"--db={db}", str(file)).code == 1
