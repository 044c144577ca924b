"""``plan``: what changes for whom, before it does. Reads only."""

from __future__ import annotations

import json
import os
from datetime import date
from pathlib import Path
from typing import Any

import click

from gpubudget.cli import planview
from gpubudget.cli.client import Client
from gpubudget.cli.compare import DAY, PEOPLE, answered, question
from gpubudget.cli.connect import connected
from gpubudget.cli.output import say, with_rfc3339
from gpubudget.errors import GpuBudgetError
from gpubudget.gitops.review import Review, to_file, to_json

CHANGES = 2
_LONGEST_COMMENT = 1 << 24


@click.command(
    epilog="""\b
Examples:
  gpubudget plan                             # the budgets of this folder, against the branch main
  gpubudget plan HEAD --against origin/main --out plan.json
  gpubudget plan --against daemon --as-of 2026-12-01
  gpubudget plan my-branch -o markdown --detailed-exitcode"""
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
    detailed_exitcode: bool,
) -> int:
    """Show what would change for whom, and who has to approve it.

    PATH is a folder of budgets as it is now, REF a commit of the repository, planned as it will be merged. Without
    either: the current folder, or the folder budgets in it. Nothing is changed.
    """
    asked = question(target, against, repo=repo, path=path, as_of=as_of, approved_by=approved_by)
    found = answered(asked, client)
    if out is not None:
        write(out, to_file(found.review, found.after))
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


def write(file: Path, data: dict[str, Any]) -> None:
    """Write JSON to a file, whole or not at all."""
    part = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        part.write_text(json.dumps(data, ensure_ascii=False), encoding="utf-8")
        part.replace(file)
    except (OSError, ValueError) as error:
        part.unlink(missing_ok=True)
        why = getattr(error, "strerror", None) or str(error)
        raise GpuBudgetError(f"{file} cannot be written: {why}", hint="name another file with --out") from error
