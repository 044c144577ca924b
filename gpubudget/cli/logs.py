"""``logs``: what a workload has printed."""

from __future__ import annotations

import click

from gpubudget.cli.client import Client
from gpubudget.cli.connect import connected
from gpubudget.cli.follow import Shown, find_workload, show_logs, until_end
from gpubudget.cli.values import HOST, WORKLOAD, Whole
from gpubudget.errors import ConflictError
from gpubudget.units import count


@click.command(
    epilog="""\b
Examples:
  gpubudget logs WORKLOAD
  gpubudget logs -f WORKLOAD                 # across attempts, until it has ended
  gpubudget logs --attempt 1 --host h2 WORKLOAD"""
)
@click.argument("workload", type=WORKLOAD)
@click.option("-f", "--follow", is_flag=True, help="Go on until the workload has ended.")
@click.option("--attempt", type=Whole("attempt", 1, 1_000_000), help="Of which attempt.  [default: the latest]")
@click.option("--host", type=HOST, help="On which host of a gang.  [default: the first]")
@connected
def logs(client: Client, /, *, workload: str, follow: bool, attempt: int | None, host: str | None) -> None:
    """Show what WORKLOAD has printed, both its stdout and its stderr."""
    found = find_workload(client, workload)
    latest = int(found["attempts"])
    if (attempt or 0) > latest:
        raise ConflictError(f"{workload} has had {count(latest, 'attempt')}, so there is no attempt {attempt} yet")
    if follow:
        shown = Shown(attempt or latest)
        until_end(client, workload, host, shown)
        return
    if latest == 0:
        raise ConflictError(
            f"{workload} is {found['state']} and has printed nothing: it has not started yet",
            hint=f"`gpubudget explain {workload}` says why; logs -f waits for it",
        )
    shown = Shown(attempt or latest)
    while not shown.complete and show_logs(client, workload, shown, host):
        pass
