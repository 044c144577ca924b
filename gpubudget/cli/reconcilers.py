"""``reconcile status``, ``suspend`` and ``resume``: how the reconcilers of this machine stand, and whether they may."""

from __future__ import annotations

import json
from pathlib import Path

import click

from gpubudget.cli.client import Client
from gpubudget.cli.connect import connected
from gpubudget.cli.output import Column, ago, plain, rfc3339, say, table, with_rfc3339
from gpubudget.gitops import record
from gpubudget.gitops.reconcile import cache_folder

_SHORT = 12
_COLUMNS = (
    Column("CLUSTER", lambda row: row["cluster"]),
    Column("DAEMON", lambda row: row["target"]),
    Column("REPOSITORY", lambda row: row["source"]),
    Column("REF", lambda row: row["ref"]),
    Column("STATUS", lambda row: row["status"]),
    Column("SINCE", lambda row: ago(row["since_ms"])),
    Column("LAST", lambda row: ago(row["at_ms"])),
    Column("SEEN", lambda row: (row["seen"] or "")[:_SHORT]),
    Column("APPLIED", lambda row: (row["applied"] or "")[:_SHORT]),
)


@click.command(
    epilog="""\b
Examples:
  gpubudget reconcile status
  gpubudget reconcile status -o json
  gpubudget reconcile status -o prometheus > /var/lib/node_exporter/gpubudget.prom"""
)
@click.option(
    "--cache-dir",
    envvar="GPUBUDGET_RECONCILE_CACHE_DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where their records are kept.  [default: ~/.cache/gpubudget]",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "prometheus"]),
    default="text",
    show_default=True,
    help="Text for people, JSON for programs, or metrics for Prometheus' textfile collector.",
)
def status(*, cache_dir: Path | None, output: str) -> None:
    """Show how the reconcilers of this machine stand, since when, and why they do not apply.

    SEEN is the last commit that the ref named, APPLIED the last one that the daemon was known to have. SINCE is how
    long every round has ended like that, LAST when the last one was.
    """
    records = record.all_records(cache_folder(cache_dir))
    if output == "prometheus":
        click.echo(record.metrics(records), nl=False)
        return
    rows = [record.to_json(one) for one in records]
    if output == "json":
        click.echo(json.dumps({"reconcilers": with_rfc3339(rows)}, indent=2, ensure_ascii=False))
        return
    if not rows:
        say("nothing was reconciled from here yet")
        return
    columns = [column for column in _COLUMNS if column.header != "CLUSTER" or any(row["cluster"] for row in rows)]
    click.echo(table(rows, columns))
    for row in rows:
        if row["error"]:
            name = row["cluster"] or row["target"]
            click.echo(f"{plain(name)}: {plain(row['error'])}")


@click.command(epilog='\b\nExample:\n  gpubudget reconcile suspend --reason "we count GPUs until noon"')
@click.option("--reason", required=True, help="Why; everybody who reconciles is told.")
@connected
def suspend(client: Client, /, *, reason: str) -> None:
    """Let the daemon take no budgets until resume, from whichever reconciler. Goes on record with your name.

    For administrators and managers of the root budget.
    """
    held = client.post("/v1/budgets/suspend", {"reason": reason})["suspended"]
    click.echo(f"suspended by {plain(held['by'])} at {rfc3339(held['at_ms'])}: {plain(held['reason'])}")


@click.command(epilog="\b\nExample:\n  gpubudget reconcile resume")
@connected
def resume(client: Client, /) -> None:
    """Let the daemon take budgets again. The next round of a reconciler applies what is in git by then."""
    was = client.post("/v1/budgets/resume", {})["was"]
    held = f"was suspended by {plain(was['by'])} since {rfc3339(was['at_ms'])}: {plain(was['reason'])}"
    click.echo(f"resumed; it {held}")
