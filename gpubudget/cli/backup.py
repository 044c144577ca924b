"""``backup`` and ``restore``: the daemon's database, copied while it runs and put back while it does not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpubudget.cli.output import rfc3339, say
from gpubudget.units import count

if TYPE_CHECKING:
    from gpubudget.daemon.backup import Checked

_db = click.option(
    "--db", required=True, type=click.Path(path_type=Path, dir_okay=False), help="The daemon's database."
)
_file = click.argument("file", type=click.Path(path_type=Path, dir_okay=False))


def _told(checked: Checked) -> str:
    until = f" up to {rfc3339(checked.newest)}" if checked.events else ""
    return f"{count(checked.events, 'event')}{until}, {count(checked.workloads, 'workload')} that wait or run"


@click.command(
    epilog="""\b
Example:
  gpubudget backup --db /var/lib/gpubudget/daemon.db /backup/gpubudget-$(date +%F).db"""
)
@_db
@_file
def backup(*, db: Path, file: Path) -> None:
    """Copy the daemon's database into the new FILE, on its machine; the daemon may run.

    The copy is checked before it gets its name: it is whole, and its replay decides what was decided.
    """
    from gpubudget.daemon.backup import back_up  # noqa: PLC0415 - heavy, and for this command only

    say(f"{file} is a sound backup: {_told(back_up(db, file))}")


@click.command(
    epilog="""\b
Example:
  gpubudget restore --db /var/lib/gpubudget/daemon.db /backup/gpubudget-2026-03-01.db"""
)
@_db
@_file
def restore(*, db: Path, file: Path) -> None:
    """Put the backup in FILE in the place of the database of a daemon that does not run.

    The backup is checked first, and stays; the database that was there is kept beside. What was accepted after the
    backup is unknown then, and agents stop attempts that the restored daemon does not know.
    """
    from gpubudget.daemon import backup as backups  # noqa: PLC0415 - as above

    checked, kept = backups.restore(file, db)
    say(f"{db} is restored: {_told(checked)}" + (f"; what was there is now {kept}" if kept else ""))
