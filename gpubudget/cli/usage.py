"""``usage``: what budgets get, what they have used of it inside the lookback window, and what is left."""

from __future__ import annotations

import click

from gpubudget.cli.client import Client
from gpubudget.cli.connect import connected
from gpubudget.cli.output import Format, output_option, rendered, say
from gpubudget.cli.values import BUDGET, POOL
from gpubudget.cli.views import USAGE, per_pool
from gpubudget.core.budget import ROOT
from gpubudget.errors import NotFoundError


@click.command(epilog="\b\nExamples:\n  gpubudget usage\n  gpubudget usage language -o wide\n  gpubudget usage -o json")
@click.argument("budget", required=False, type=BUDGET)
@click.option("--pool", type=POOL, help="In this pool only.")
@output_option()
@connected
def usage(client: Client, /, *, budget: str | None, pool: str | None, output: Format) -> None:
    """Show what budgets get and what they have used, in GPU-hours of the lookback window.

    BUDGET shows it and those below it. ENTITLED is the share of what the pool can give in the window, USED is what has
    run plus what is promised to it for the protected time ahead, and BALANCE is what is left.
    """
    answer = client.get("/v1/budgets")
    found = [one for one in answer["budgets"] if budget in {None, ROOT, one["path"]} or _below(one["path"], budget)]
    if budget and not found:
        raise NotFoundError(f"there is no budget {budget!r}", hint="`gpubudget get budgets -o name` lists them")
    rows = [row for row in per_pool(found) if pool in {None, row["pool"]}]
    if pool and found and not rows:
        raise NotFoundError(f"there is no pool {pool!r}", hint="`gpubudget get pools -o name` lists them")
    if not rows and output in {Format.TABLE, Format.WIDE}:
        say("no budgets have been applied yet; `gpubudget reconcile` applies them")
        return
    click.echo(rendered({**answer, "budgets": found}, rows, USAGE, output, name="path"))


def _below(path: str, budget: str | None) -> bool:
    return path.startswith(f"{budget}/")
