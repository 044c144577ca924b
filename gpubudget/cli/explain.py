"""``explain``: why a workload is where it is, in words and figures."""

from __future__ import annotations

from fractions import Fraction

import click

from gpubudget.cli.client import Client, segment
from gpubudget.cli.connect import connected
from gpubudget.cli.output import (
    Column,
    Format,
    Row,
    ago,
    output_option,
    printable,
    rendered,
    rfc3339,
    share,
    standing,
    table,
)
from gpubudget.cli.values import WORKLOAD
from gpubudget.units import format_gpu_hours


def _ratio(step: Row) -> str:
    """Usage over share, in GPU-hours: what siblings are compared by."""
    part = Fraction(step["share"])
    return format_gpu_hours(round(step["usage"] / part)) if part else "zero share"


PATH = [
    Column("BUDGET", lambda step: step["path"]),
    Column("SHARE", lambda step: share(step["share"]), right=True),
    Column("USED GPU-HOURS", lambda step: format_gpu_hours(step["usage"]), right=True),
    Column("USED/SHARE", _ratio, right=True),
    Column("RANKED BEFORE IT", lambda step: list(step["better"])),
]


def text(found: Row) -> str:
    """An explanation for a person, without a line end."""
    facts = [standing(found["workload"], found["state"], found["reason"])]
    if found.get("pool"):
        facts.append(f"pool   {found['pool']}")
    if found.get("rank") is not None:
        facts.append(f"rank   {found['rank']} of {found['waiting']} that wait there")
        if found.get("start_ms") is not None:
            why = " (an estimate: it hangs on how usage goes on)" if found.get("estimate") else ""
            facts.append(f"start  {when(found)}, {rfc3339(found['start_ms'])}{why}")
    if found.get("path"):
        facts += [
            "",
            "Its way down the budgets; at each step the lowest USED/SHARE goes first:",
            table(found["path"], PATH),
        ]
    return "\n".join(facts)


def when(found: Row) -> str:
    """When a waiting workload can start: a bound, or an estimate where only that can be had."""
    distance = ago(found["start_ms"])
    return ("about " if found.get("estimate") else "at the latest ") + (
        distance if distance.startswith("in ") else "now"
    )


@click.command(epilog="\b\nExamples:\n  gpubudget explain WORKLOAD\n  gpubudget explain WORKLOAD -o json")
@click.argument("workload", type=WORKLOAD)
@output_option()
@connected
def explain(client: Client, /, *, workload: str, output: Format) -> None:
    """Say why WORKLOAD is where it is, how it ranks, and when it can start."""
    found = client.get(f"/v1/workloads/{segment(workload)}/explain")
    if output in {Format.TABLE, Format.WIDE}:
        click.echo(printable(text(found)))
    else:
        click.echo(rendered(found, [found], PATH, output, name="workload"))
