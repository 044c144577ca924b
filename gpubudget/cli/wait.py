"""``wait``: until workloads have ended."""

from __future__ import annotations

import click

from gpubudget.cli import follow
from gpubudget.cli.client import Client
from gpubudget.cli.connect import connected
from gpubudget.cli.values import DURATION, WORKLOAD


@click.command(
    epilog="""\b
Examples:
  gpubudget wait WORKLOAD && echo done
  gpubudget wait --timeout 2h $(gpubudget get workloads -o name)"""
)
@click.argument("workloads", nargs=-1, required=True, type=WORKLOAD, metavar="WORKLOAD...")
@click.option("--timeout", type=DURATION, help="Give up after so long (exit code 1); the workloads go on.")
@connected
def wait(client: Client, /, *, workloads: tuple[str, ...], timeout: int | None) -> int:
    """Wait until every WORKLOAD has ended, and return its exit code.

    With several it is the code of the first that did not end with 0. One that was cancelled, preempted or refused
    before it had an exit code counts as 1.
    """
    return follow.wait_for(client, list(workloads), timeout)
