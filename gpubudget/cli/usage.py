"""``usage``: what budgets get, and what they have used of it inside the lookback window or in another time."""

from __future__ import annotations

import click

from gpubudget.cli.client import Client
from gpubudget.cli.connect import connected
from gpubudget.cli.output import Format, output_option, rendered, say
from gpubudget.cli.values import BUDGET, DURATION, POOL
from gpubudget.cli.views import USAGE, per_pool
from gpubudget.core.budget import ROOT
from gpubudget.errors import NotFoundError, UsageError


@click.command(
    epilog="""\b
Examples:
  gpubudget usage
  gpubudget usage language -o wide
  gpubudget usage --since 30d
  gpubudget usage -o json"""
)
@click.argument("budget", required=False, type=BUDGET)
@click.option("--pool", type=POOL, help="In this pool only.")
@click.option("--since", type=DURATION, metavar="SPAN", help="From so long ago on, 30d say, by the event log.")
@output_option()
@connected
def usage(client: Client, /, *, budget: str | None, pool: str | None, since: int | None, output: Format) -> None:
    """Show what budgets get and what they have used, in GPU-hours of the lookback window.

    BUDGET shows it and those below it. ENTITLED is the share of what the pool can give in the window, USED is what has
    run plus what is promised to it for the protected time ahead, and BALANCE is what is left.

    With --since it is what ran in that time, in all pools: DEMANDED is what an endless cluster would have given,
    ENTITLED the budget's share of what there was, DELIVERED what it got.
    """
    if since is not None:
        if pool is not None:
            raise UsageError("--since adds up all pools", hint="leave --pool out")
        click.echo(_in_time(client, budget, since, output))
        return
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


def _in_time(client: Client, budget: str | None, since: int, output: Format) -> str:
    """What budgets had in the last ``since`` milliseconds."""
    from gpubudget.cli.report import budgets_table, measured, tell  # noqa: PLC0415 - the usual answer starts quicker
    from gpubudget.sim.measures import measure  # noqa: PLC0415 - the same
    from gpubudget.sim.report import plain  # noqa: PLC0415 - the same

    result = measured(client, since)
    found = [one for one in measure(result).budgets if budget in {None, ROOT, one.path} or _below(one.path, budget)]
    if not found:
        raise NotFoundError(f"there is no budget {budget!r}", hint="`gpubudget get budgets -o name` lists them")
    if output in {Format.TABLE, Format.WIDE}:
        tell(result)
        return budgets_table(found)
    rows = [plain(each) for each in found]
    answer = {"since_ms": result.start, "until_ms": result.end, "budgets": rows}
    return rendered(answer, rows, [], output, name="path")


def _below(path: str, budget: str | None) -> bool:
    return path.startswith(f"{budget}/")
