"""``cancel``, ``requeue`` and ``move``: what an owner does with a workload."""

from __future__ import annotations

from collections.abc import Iterable

import click

from gpubudget.cli.client import Answer, Client
from gpubudget.cli.connect import connected
from gpubudget.cli.each import post_each, show
from gpubudget.cli.output import Format, output_option
from gpubudget.cli.values import BUDGET, WORKLOAD
from gpubudget.cli.views import WORKLOADS

_many = click.argument("workloads", nargs=-1, required=True, type=WORKLOAD, metavar="WORKLOAD...")


def _each(client: Client, names: Iterable[str], action: str, body: Answer, fmt: Format) -> int:
    done, code = post_each(client, "workloads", names, action, body)
    show("workloads", done, WORKLOADS, fmt, name="id")
    return code


@click.command(
    epilog="""\b
Examples:
  gpubudget cancel WORKLOAD
  gpubudget cancel $(gpubudget get workloads --owner alice -o name)"""
)
@_many
@output_option(Format.NAME)
@connected
def cancel(client: Client, /, *, workloads: tuple[str, ...], output: Format) -> int:
    """End every WORKLOAD, whatever it is doing.

    A running one gets SIGTERM, its grace period, then SIGKILL. Its owner, a manager of its budget or of one above, and
    administrators may do so.
    """
    return _each(client, workloads, "cancel", {}, output)


@click.command(epilog="\b\nExample:\n  gpubudget requeue WORKLOAD")
@_many
@output_option(Format.NAME)
@connected
def requeue(client: Client, /, *, workloads: tuple[str, ...], output: Format) -> int:
    """Stop every running WORKLOAD, protected or not, and put it back in its budget."""
    return _each(client, workloads, "requeue", {}, output)


@click.command(epilog="\b\nExample:\n  gpubudget move WORKLOAD -b language/olmo")
@_many
@click.option("-b", "--budget", required=True, type=BUDGET, help="Who pays from now on.")
@output_option(Format.NAME)
@connected
def move(client: Client, /, *, workloads: tuple[str, ...], budget: str, output: Format) -> int:
    """Charge every waiting WORKLOAD to another budget from now on."""
    return _each(client, workloads, "move", {"budget": budget}, output)
