"""``plan``: what changes for whom, before it does. Reads only."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from gpubudget.cli import planview
from gpubudget.cli.client import Client
from gpubudget.cli.compare import DAY, PEOPLE, answered, question
from gpubudget.cli.connect import connected
from gpubudget.cli.output import now_ms, say, with_rfc3339
from gpubudget.cli.values import DURATION
from gpubudget.errors import RefusedError, UsageError
from gpubudget.gitops.makeplan import Answer
from gpubudget.gitops.record import write_whole
from gpubudget.gitops.review import Review, WhatIf, to_file, to_json
from gpubudget.units import format_duration

CHANGES = 2
_LONGEST_COMMENT = 1 << 24


@click.command(
    epilog="""\b
Examples:
  gpubudget plan                             # the budgets of this folder, against the branch main
  gpubudget plan HEAD --against origin/main --out plan.json
  gpubudget plan --against daemon --as-of 2026-12-01
  gpubudget plan my-branch --replay 14d -o markdown --detailed-exitcode"""
)
@click.argument("target", metavar="[PATH|REF]", required=False)
@click.option(
    "--against",
    metavar="REF|daemon",
    default="main",
    show_default=True,
    help="What to compare with: a branch, tag or commit, or what the daemon has.",
)
@click.option("--as-of", type=DAY, metavar="DATE", help="Show the shares of that day.  [default: now]")
@click.option("--approved-by", type=PEOPLE, default="", metavar="NAMES", help="Who has approved it: hanna,ravi.")
@click.option(
    "--repo", type=click.Path(path_type=Path), metavar="PATH", help="The repository.  [default: that of PATH, or here]"
)
@click.option("--path", help="The folder of budgets in the repository.  [default: where PATH is, or budgets]")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "markdown"]),
    default="text",
    show_default=True,
    help="Text for people, JSON for programs, Markdown for a pull request.",
)
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Write it to a file for `apply`, too.")
@click.option("--replay", type=DURATION, metavar="SPAN", help="Play the daemon's last 14d, say, under both trees.")
@click.option(
    "--trace", type=click.Path(path_type=Path), metavar="FILE", help="The same with a trace: events, CSV or SWF."
)
@click.option("--detailed-exitcode", is_flag=True, help="End with 2 if there are changes.")
@connected
def plan(  # noqa: PLR0913 - one for each option
    client: Client,
    /,
    *,
    target: str | None,
    against: str,
    as_of: date | None,
    approved_by: tuple[str, ...],
    repo: Path | None,
    path: str | None,
    output: str,
    out: Path | None,
    replay: int | None,
    trace: Path | None,
    detailed_exitcode: bool,
) -> int:
    """Show what would change for whom, and who has to approve it.

    PATH is a folder of budgets as it is now, REF a commit of the repository, planned as it will be merged. Without
    either: the tree that the current folder is part of, or the folder budgets of the repository. Nothing is changed.

    --replay and --trace show what it would have done: waits, GPU-hours and preemptions of the budgets that it changes,
    and of those that are hit hardest. A replay begins a lookback window earlier, so that usage is as it was.
    """
    if replay is not None and trace is not None:
        raise UsageError("--replay and --trace are two records of work", hint="give one of them")
    asked = question(target, against, repo=repo, path=path, as_of=as_of, approved_by=approved_by)
    found = answered(asked, client)
    if replay is not None or trace is not None:
        found = replace(found, review=replace(found.review, what_if=_what_if(found, client, replay, trace)))
    if out is not None:
        write_whole(out, json.dumps(to_file(found.review, found.after), ensure_ascii=False))
        say(f"written to {out}; `gpubudget apply {out}` applies exactly this")
    click.echo(_shown(found.review, output))
    return CHANGES if detailed_exitcode and found.review.plan else 0


def _shown(review: Review, output: str) -> str:
    if output == "text":
        return planview.text(review)
    if output == "json":
        return json.dumps(with_rfc3339(to_json(review)), indent=2, ensure_ascii=False)
    from gpubudget.gitops.comment import Place, of_review  # noqa: PLC0415 - Jinja2 is slow to import

    return of_review(review, Place(), _LONGEST_COMMENT)


def _what_if(found: Answer, client: Client, replay: int | None, trace: Path | None) -> WhatIf:
    """The recorded work under both trees."""
    from gpubudget.cli.recorded import record  # noqa: PLC0415 - a plan without a replay starts quicker
    from gpubudget.sim.whatif import scenario_of, what_if  # noqa: PLC0415 - the same

    if found.before is None:
        raise RefusedError("there are no budgets to compare with yet", hint="leave --replay or --trace out")
    with TemporaryDirectory(prefix="gpubudget-") as folder:
        file = trace or Path(folder) / "events.jsonl"
        since = None if replay is None else now_ms() - replay
        if since is not None:
            record(client, since - found.before.policy.lookback, file)
        scenario = scenario_of(file, found.before)
    name = f"the daemon's last {format_duration(replay)}" if replay is not None else file.name
    scenario = replace(scenario, workloads=replace(scenario.workloads, name=name))
    told = say if sys.stderr.isatty() else None
    trees, as_of = (found.before, found.after), found.review.as_of_ms
    return what_if(scenario, trees, found.review.plan, as_of, since=since, progress=told)
